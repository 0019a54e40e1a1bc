"""Frames and their columns: every kind of column comes back as it was, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, timedelta, timezone
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceError, InferenceRequest, InferenceServer, Tensor, TensorSpec
from oip_asgi.codecs import Base64Codec, DatetimeCodec, PandasCodec, StringCodec
from tests.support.asking import ask, outputs
from tests.support.wire import received, sent, through_http
from tests.table.codec_vectors import ABC, NOON, assert_same, column, tensor

PANDAS_3 = int(pd.__version__.partition(".")[0]) >= 3


def dates(*texts: Any, zone: Any = None) -> Any:
    values = pd.Series(pd.to_datetime(list(texts), format="ISO8601"))
    return values.dt.tz_localize(zone) if zone else values


TEXTS = ["a", "é", ""]
DAYS = pd.to_datetime(["2022-01-11", "2023-01-01", "1999-12-31T00:00:00.5"], format="ISO8601")
LOCAL_DAYS = DAYS.tz_localize("Europe/Amsterdam")
CATEGORIES: dict[str, Any] = {
    "in an order of theirs": pd.Categorical(["low", "high", "low"], ["low", "middle", "high"], ordered=True),
    "missing, ordered": pd.Categorical(["low", None, "high"], ["low", "middle", "high"], ordered=True),
    "missing integers": pd.Categorical([3, None, 2**53 + 1], [2**53 + 1, 3, 2**53]),
    "large integers": pd.Categorical(np.array([2**64 - 1, 1, 1], "u8"), pd.Index([2**64 - 1, 1], dtype="u8")),
    "missing floats": pd.Categorical(np.array([1.1, np.nan, 0.5], "f4"), pd.Index([2, 1.1, 0.5], dtype="f4")),
    "infinite": pd.Categorical([np.inf, 1.0, 1.0], [np.inf, 1.0, 0.0], ordered=True),
    "missing booleans": pd.Categorical([True, None, True], [True, False]),
    "bytes": pd.Categorical([b"a", b"\xff", b"a"], [b"\xff", b"a"]),
    "datetimes": pd.Categorical(DAYS[[1, 0, 1]], DAYS, ordered=True),
    "missing datetimes": pd.Categorical([DAYS[1], None, DAYS[0]], DAYS),
    "datetimes with zone": pd.Categorical(LOCAL_DAYS[[1, 0, 1]], LOCAL_DAYS),
    "missing datetimes with zone": pd.Categorical([LOCAL_DAYS[1], None, LOCAL_DAYS[0]], LOCAL_DAYS),
    "nullable integers": pd.Categorical(pd.array([1, None, 2], dtype="Int64"), pd.Index([2, 1], dtype="Int64")),
    "string": pd.Categorical(pd.array(["a", None, "b"], dtype="string"), pd.Index(["b", "a"], dtype="string")),
    "object text": pd.Categorical(["a", None, "b"], pd.Index(["b", "a"], dtype=object)),
    "mixed": pd.Categorical(["a", 1, None], pd.Index(["b", 1, "a"], dtype=object)),
    "nothing": pd.Categorical([None, None, None]),
}
COLUMNS: dict[str, Any] = {
    **{
        f"numpy {dtype}": np.array([0, 1, 100]).astype(dtype)
        for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
    },
    "float with NaN": [1.5, np.nan, np.inf],
    "all NaN": [np.nan] * 3,
    "bool": [True, False, True],
    **{f"nullable {dtype}": pd.array([1, 2, 3], dtype=dtype) for dtype in ("Int8", "UInt16", "Int64", "Float32", "Float64")},
    **{f"missing {dtype}": pd.array([1, None, 3], dtype=dtype) for dtype in ("Int8", "UInt16", "Int64", "Float32", "Float64")},
    "nullable Int64 beyond a float": pd.array([2**63 - 1, None, 2**53 + 1], dtype="Int64"),
    "boolean": pd.array([True, False, True], dtype="boolean"),
    "missing UInt64 beyond a float": pd.array([2**64 - 1, None, 2**53 + 1], dtype="UInt64"),
    "missing boolean": pd.array([True, None, False], dtype="boolean"),
    "text": TEXTS,
    "missing text": ["a", None, "b"],
    "object text": pd.Series(TEXTS, dtype=object),
    "missing object text": pd.Series(["a", None, "b"], dtype=object),
    **{f"NaN beside {value!r}": pd.Series([value, np.nan, value], dtype=object) for value in ("a", True, 7, [1])},
    "string": pd.array(TEXTS, dtype="string"),
    "missing string": pd.array(["a", None, "b"], dtype="string"),
    "category": pd.Categorical(["x", "y", "x"]),
    "missing category": pd.Categorical(["x", None, "x"]),
    "category of integers": pd.Categorical([3, 1, 3]),
    **{f"category {name}": values for name, values in CATEGORIES.items()},
    "datetime": dates("2022-01-11T11:00:00", "1970-01-01", "2262-01-01"),
    "datetime with fractions": dates("2022-01-11T11:00:00.000001", "2022-01-11T11:00:00.5", "2022-01-11"),
    "datetime of nanoseconds": pd.Series(np.array([1, 2, 3], "M8[ns]")),
    "datetime of seconds": pd.Series(np.array([1, 2, 3], "M8[s]")),
    "datetime of any year": pd.Series(np.array(["0001-01-01", "1500-01-01T00:00:00.5", "9999-12-31T23:59:59.999999"], "M8[us]")),
    "missing datetime of any year": pd.Series(np.array(["1500-01-01", "NaT", "2300-01-01"], "M8[s]")),
    "datetime with zone of any year": pd.Series(np.array(["1500-01-01", "2022-01-01", "2300-01-01"], "M8[us]")).dt.tz_localize("UTC"),
    "datetime in UTC of every year": pd.Series(np.array(["0001-01-01", "NaT", "9999-12-31T23:59:59"], "M8[us]")).dt.tz_localize("UTC"),
    "missing datetime": dates("2022-01-11T11:00:00", None, "2022-01-12"),
    "no datetime at all": dates(None, None, None),
    "datetime with zone": dates("2022-01-11T11:00:00", "2022-07-11T11:00:00", "1999-12-31", zone="Europe/Amsterdam"),
    "missing datetime with zone": dates("2022-01-11T11:00:00", None, "1999-12-31", zone="UTC"),
    "infinite objects": pd.Series([np.inf, -np.inf, np.nan], dtype=object),
    "datetime with offset": dates("2022-01-11T11:00:00", None, "1999-12-31", zone=timezone(timedelta(hours=2))),
    "no datetime with zone at all": dates(None, None, None, zone="Asia/Tokyo"),
    "bytes": [b"a", b"\xff\x00", b""],
    "mixed": pd.Series([1, "a", 2.5], dtype=object),
    "datetimes as objects": pd.Series([NOON] * 3, dtype=object),
    "missing datetimes as objects": pd.Series([NOON, pd.NaT, NOON], dtype=object),
    "missing datetimes with zone as objects": pd.Series([pd.NaT, NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC)], dtype=object),
    "category of datetimes out of the reach of nanoseconds": pd.Categorical(
        DAYS.as_unit("us")[[1, 0, 1]], np.array(["0001-01-01", *DAYS.to_numpy()], "M8[us]")
    ),
    "documents": pd.Series([{"a": [1, None]}, [], "é"], dtype=object),
    "nothing at all": pd.Series([None, None, None], dtype=object),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_back_as_it_was(name: str) -> None:
    for rows, binary in ((3, False), (3, True), (1, False), (0, True)):
        frame = pd.DataFrame({"x": COLUMNS[name]}).iloc[:rows]
        back = PandasCodec.decode_request(through_http(PandasCodec.encode_request(frame), binary=binary))
        pd.testing.assert_frame_equal(back, frame.reset_index(drop=True), check_column_type=False)


@pytest.mark.parametrize("rows", [3, 1, 0])
@pytest.mark.parametrize("order", ["as they are", "by dtype", "in turns"])
def test_columns_of_all_kinds_come_back_together(order: str, rows: int) -> None:
    """Those of one dtype are read and written together; what is beside them, and in which order, changes nothing."""
    columns = {f"{name} {turn}": values for turn in range(2) for name, values in COLUMNS.items()}
    names = list(columns)
    if order == "by dtype":
        names = [name for name in names if name.startswith("numpy f8")] + [name for name in names if name.startswith("text")]
    elif order == "in turns":
        names = [name for turn in (0, 1) for name in (f"text {turn}", f"numpy f4 {turn}", f"bool {turn}", f"missing text {turn}")]
    frame = pd.DataFrame({name: columns[name] for name in names}).iloc[:rows]
    back = PandasCodec.decode_request(through_http(PandasCodec.encode_request(frame), binary=True))
    pd.testing.assert_frame_equal(back, frame.reset_index(drop=True), check_column_type=False)
    back.iloc[:, 0] = back.iloc[:, 0]  # it may be written to
    written = [PandasCodec.encode_request(frame[[name]]).inputs[0] for name in names]
    for alone, together in zip(written, PandasCodec.encode_request(frame).inputs, strict=True):
        assert (alone.name, alone.datatype, alone.parameters) == (together.name, together.datatype, together.parameters)
        assert alone.array.tobytes() == together.array.tobytes() or alone.array.tolist() == together.array.tolist()


def came_back(values: Any) -> Any:
    """What becomes of a column on its way as JSON."""
    return PandasCodec.decode_request(through_http(PandasCodec.encode_request(pd.DataFrame({"x": values})), binary=False))["x"]


def test_a_zone_without_a_name_of_its_own_is_its_offset_or_utc() -> None:
    for name in ("CEST", "Europe/Amsterdam", "UTC"):
        back = came_back(dates("2022-01-11T11:00:00", zone=timezone(timedelta(hours=2), name)))
        assert (str(back.dtype).endswith(", UTC+02:00]"), back[0].isoformat()) == (True, "2022-01-11T11:00:00+02:00")
    zones: list[Any] = ["tzlocal()", timezone(timedelta(hours=1, seconds=30))]
    for zone in zones:
        points = dates("2022-01-11T11:00:00", zone=zone)
        back = came_back(points)
        assert (str(back.dtype).endswith(", UTC]"), (back == points).all()) == (True, True)


def test_infinities_among_objects() -> None:
    """Numbers stay numbers, with NaN for None; among other things an infinity is the string that it is in all JSON, and NaN inside null."""
    mixed = [np.inf, "a", [np.nan, {"b": (-np.inf, 1)}], np.float32("inf")]
    for values, back in (
        ([np.inf, None], [np.inf, pytest.approx(np.nan, nan_ok=True)]),
        ([1.5, None], [1.5, None]),
        (mixed, ["Infinity", "a", [None, {"b": ["-Infinity", 1]}], "Infinity"]),
    ):
        assert came_back(pd.Series(values, dtype=object)).tolist() == back


def test_of_too_many_categories_the_unused_stay_behind_and_the_order() -> None:
    for number in (10_000, 40_000):
        many = [f"{place:05}" for place in range(number)]
        back = came_back(pd.Categorical(["00002", "00001"], many[::-1], ordered=True))
        assert back.dtype == pd.CategoricalDtype(["00002", "00001"], True)
    assert came_back(pd.Categorical(many, many[::-1], ordered=True)).dtype == pd.CategoricalDtype(many)


def test_a_category_is_its_values_to_others() -> None:
    [item] = sent(PandasCodec.encode_request(pd.DataFrame({"x": CATEGORIES["in an order of theirs"]})))["inputs"]
    text = item["parameters"].pop("pd_categories")
    assert item == column("BYTES", ["low", "high", "low"], "str", pd_dtype="category")
    categories = json.loads(text)
    assert categories.pop("dtype", "object") == "object"  # in pandas 3
    assert categories == {"datatype": "BYTES", "data": ["low", "middle", "high"], "content_type": "str", "ordered": True}


def test_what_the_index_names_and_scalars_of_numpy_become() -> None:
    values = pd.Series([[np.int64(1), np.True_], {"a": np.float32(0.5)}], dtype=object, index=["gone", "too"])
    back = PandasCodec.decode_request(PandasCodec.encode_request(pd.DataFrame({0: values, "b": [1, 2]})))
    assert (list(back.columns), back.index.tolist()) == (["0", "b"], [0, 1])
    assert back["0"].tolist() == [[1, True], {"a": 0.5}]
    assert PandasCodec.decode_request(PandasCodec.encode_request(pd.DataFrame())).shape == (0, 0)
    assert DatetimeCodec.decode_input(DatetimeCodec.encode_input("x", ["2022-01-11T11:00:00"])) == [NOON]  # type: ignore[list-item]


ARRAYS: dict[str, tuple[list[Any], list[str]]] = {
    "of different lengths": ([np.array([1.0, 2.0]), np.array([3.0])], ["[1.0,2.0]", "[3.0]"]),
    "of integers": ([np.array([[1, 2], [3, 4]]), np.zeros((0, 2), "u1")], ["[[1,2],[3,4]]", "[]"]),
    "of strings": ([np.array(["a", "é"]), np.array(["", '"'])], ['["a","é"]', '["","\\""]']),
    "of objects": ([np.array([1, "a", [True]], object)], ['[1,"a",[true]]']),
    "of no dimensions": ([np.array(1), np.array(True)], ["1", "true"]),
    "inside of others": ([{"a": np.array([1, 2]), "b": [np.array([0.5], "f4")]}, (np.array([]),)], ['{"a":[1,2],"b":[[0.5]]}', "[[]]"]),
    "beside others": ([np.array([1]), "a", None], ["[1]", '"a"', "null"]),
    "that JSON has no numbers for": ([np.array([1.5, np.nan]), [np.array([-np.inf])]], ["[1.5,null]", '[["-Infinity"]]']),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_in_cells_are_nested_lists(name: str) -> None:
    """The texts are those of MLServer 1.7.1, byte for byte; what is missing or infinite it refuses."""
    cells, texts = ARRAYS[name]
    frame = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    [item] = sent(PandasCodec.encode_request(frame))["inputs"]
    assert item["parameters"].pop("pd_dtype", "object") == "object"  # in pandas 3
    assert item == tensor("x", "BYTES", [len(cells)], texts, "pd_json")
    assert came_back(frame["x"]).tolist() == [json.loads(text) for text in texts]
    server = InferenceServer()
    server.register("frame", lambda: frame)
    assert outputs(ask(server, "frame")) == {"x": texts}


def test_what_nests_as_deep_as_may_be_comes_back() -> None:
    document: Any = 1
    for _ in range(50):
        document = [{"a": document}]
    frame = pd.DataFrame({"x": pd.Series([document, [[]] * 200], dtype=object)})
    assert_same(PandasCodec.decode_request(PandasCodec.encode_request(frame)), frame)
    for _ in range(50_000):
        document = [document]
    with pytest.raises(TypeError, match="column 'x', row 1 is nested too deep for JSON"):
        PandasCodec.encode_request(pd.DataFrame({"x": pd.Series([1, document], dtype=object)}))


class Frame(pd.DataFrame):
    """A subclass, as geopandas has one."""


class Column(pd.Series):
    """A subclass."""


def test_subclasses_are_frames_and_columns_too() -> None:
    server = InferenceServer()
    server.register("frame", lambda: Frame(ABC))
    server.register("series", lambda: Column(dates("2022-01-11", None)))
    assert outputs(ask(server, "frame")) == {name: ABC[name].tolist() for name in "ABC"}
    assert outputs(ask(server, "series")) == {"output_0": ["2022-01-11T00:00:00", "NaT"]}


@pytest.mark.parametrize(
    ("frame", "error", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "column 'a' is there twice"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), ValueError, "column '1' is there twice"),
        (pd.DataFrame([[1]], columns=pd.Index(["\ud800"], dtype=object)), ValueError, "the names of the columns .* have lone surrogates"),
        (pd.DataFrame({("a", "b"): [1]}), TypeError, r"the name of column \('a', 'b'\) is neither a string nor an integer"),
        (pd.DataFrame({"x": pd.to_timedelta([1])}), TypeError, "column 'x' has dtype timedelta64"),
        (pd.DataFrame({"x": np.ones(1, np.longdouble)}), TypeError, "column 'x': the protocol has no datatype for numpy dtype"),
        (
            pd.DataFrame({"x": pd.Series([{float("inf"): 1}], dtype=object)}),
            TypeError,
            "column 'x', row 0 is {inf: 1}, which has no JSON form",
        ),
        (pd.DataFrame({"x": pd.Categorical(["a", object])}), TypeError, "column 'the categories of x', row . is <class 'object'>"),
        (pd.DataFrame({"x": pd.Categorical([b"a", None])}), TypeError, "column 'x', row 0 is b'a', which has no JSON form"),
        (pd.DataFrame({"x": [1j]}), TypeError, "column 'x' has dtype complex128"),
        (pd.DataFrame({"x": pd.period_range("2022", periods=1, freq="D")}), TypeError, r"column 'x' has dtype period\[D\]"),
        (pd.DataFrame({"x": pd.Series([1, object], dtype=object)}), TypeError, "column 'x', row 1 is <class 'object'>"),
        (pd.DataFrame({"x": pd.Series([None, "\ud800"], dtype=object)}), TypeError, "column 'x', row 1 is"),
        (pd.DataFrame({"x": pd.Series(["a", "\ud800"], dtype=object)}), ValueError, "tensor 'x': element 1 is"),
        (
            pd.DataFrame({"x": pd.Series([np.array([b"a"])], dtype=object)}),
            TypeError,
            "column 'x', row 0 is array.*type bytes is not JSON serializable",
        ),
        (pd.DataFrame({"x": pd.Series([1, b"a"], dtype=object)}), TypeError, "column 'x', row 1 is b'a', which has no JSON form"),
        (pd.DataFrame({"x": np.array(["10000-01-01"], "M8[s]")}), ValueError, "column 'x' has a date outside of the years 1 to 9999"),
        ([1, 2], TypeError, r"is for a pandas.DataFrame, but this is \[1, 2\]"),
    ],
)
def test_frames_that_cannot_be_sent(frame: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PandasCodec.encode_request(frame)


def told(datatype: str, data: list[Any], categories: Any, content_type: str | None = None) -> dict[str, Any]:
    text = json.dumps(categories) if isinstance(categories, dict) else categories
    return column(datatype, data, content_type, pd_dtype="category", pd_categories=text)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([column("INT64", [1]), tensor("y", "INT64", [2], [1, 2])], "column 'y' has 2 rows, but 'x' has 1: expected as many in each"),
        ([column("INT64", [1]), column("INT64", [1])], "column 'x' is there twice"),
        ([column("INT64", [1, 2], shape=[1, 2])], r"tensor 'x' has shape \[1, 2\]: expected \[N\] or \[N, 1\]"),
        ([column("INT64", [1], shape=[])], r"tensor 'x' has shape \[\]"),
        ([column("BYTES", ["1", "{"], "pd_json")], r"element 1 is b'\{', which is not JSON"),
        ([column("BYTES", ['"a', 'b"', "1,2"], "pd_json")], """element 0 is b'"a', which is not JSON"""),
        ([column("BYTES", ["1", "", "2,3"], "pd_json")], "element 1 is b'', which is not JSON"),
        ([column("BYTES", ["[" * 100_000], "pd_json")], "element 0 is .* nested too deep"),
        ([column("BYTES", ["1", '{"a":' * 101 + "1" + "}" * 101], "pd_json")], "element 1 is .* nested more than 100 deep"),
        ([column("BYTES", ["2022-01-11", "today"], "datetime")], "element 1 is b'today', which is not an ISO 8601"),
        ([column("BYTES", ["é"], "datetime")], "element 0 is b'"),
        ([column("BYTES", ["2022-01-11T11:00:00Z", "2022-01-11T11:00:00"], "datetime")], "element 1 is .* with an offset from UTC"),
        ([column("BYTES", ["2022-01-11T00Z", "0001-01-01T00:00:00+00:00:01"], "datetime")], "element 1 is b'0001-01-01T00:00:00"),
        ([column("INT64", [1], "pd")], "column 'x' has the content_type 'pd': expected one of np, str, base64, datetime, pd_json"),
        ([column("INT64", [1], pd_dtype="evil")], "column 'x' has the pd_dtype 'evil': expected one of"),
        ([column("INT64", [3], pd_dtype="Int8")], "column 'x' cannot be Int8, as its pd_dtype says: its values are int64"),
        ([column("BYTES", ['"5"'], "pd_json", pd_dtype="Int64")], "column 'x' cannot be Int64"),
        ([column("FP64", ["Infinity"], pd_dtype="Int64")], "column 'x' cannot be Int64"),
        ([column("BYTES", ["2022-01-11T00Z", "9999-12-31T23:59-01:00"], "datetime")], "tensor 'x': .*(9999-12-31T23:59|1 to 9999)"),
        ([column("BYTES", ["0001-01-01T00:00+01:00"], "datetime")], "tensor 'x': .*(0001-01-01T00:00|1 to 9999)"),
        (
            [column("BYTES", ["9999-12-31T23Z"], "datetime", pd_dtype="datetime64[us, Europe/Paris]")],
            "too near to the ends of the years 1 to 9999",
        ),
        (
            [column("BYTES", ["0001-01-01T00Z"], "datetime", pd_dtype="datetime64[s, UTC-02:00]")],
            "too near to the ends of the years 1 to 9999",
        ),
        ([column("BYTES", ["2022-01-11T11:00:00.5"], "datetime", pd_dtype="datetime64[s]")], "its values are finer than that"),
        ([told("BYTES", ["1"], 5)], "column 'x' has the pd_categories 5, which is not valid: expected the text of a JSON object"),
        ([told("BYTES", ["1"], "{")], "the pd_categories '{', which is not valid"),
        ([told("BYTES", ["1"], {"data": []})], "the pd_categories .*`datatype`"),
        ([told("BYTES", ["1"], {"datatype": "BYTES", "data": [1]})], r"the pd_categories .* data\[0\] is an integer: expected a string"),
        ([told("BYTES", ["1"], {"datatype": "WORDS", "data": ["1"]})], "unknown datatype 'WORDS'"),
        (
            [told("INT8", [1], {"datatype": "INT8", "data": [1, 300]})],
            "the pd_categories .* data: element 1 is out of range for INT8",
        ),
        ([told("FP64", [1], {"datatype": "FP64", "data": [1, None]})], "in its pd_categories: Categorical categories cannot be null"),
        ([told("BYTES", ["1"], {"datatype": "BYTES", "data": ["1", "1"]})], "one of them is there twice"),
        ([told("BYTES", ["1"], {"datatype": "BYTES", "data": ["1"], "content_type": "nope"})], "has the content_type 'nope'"),
        ([told("BYTES", ["1"], {"datatype": "BYTES", "data": ["1"], "dtype": "Int8"})], "column 'x' cannot be Int8"),
        (
            [told("BYTES", ["a", "b"], {"datatype": "BYTES", "data": ["a", "c"]})],
            "column 'x', row 1: 'b' is no category: expected 'a', 'c'",
        ),
        ([told("INT8", [1, 7], {"datatype": "INT8", "data": [1, 2]})], "column 'x', row 1: 7 is no category: expected 1, 2"),
        ([told("FP64", [9.5], {"datatype": "FP64", "data": [0.5]})], r"column 'x', row 0: 9\.5 is no category: expected 0\.5"),
        ([told("BYTES", ["1"], {"datatype": "BYTES", "data": ["[]"], "content_type": "pd_json"})], "in its pd_categories: unhashable"),
        ([told("BYTES", ["1"], {"datatype": "BYTES", "data": ["1"], "dtype": "category"})], "categories cannot have the dtype category"),
    ],
)
def test_requests_that_are_no_frame(inputs: list[Any], message: str) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        PandasCodec.decode_request(received({"inputs": inputs}))
    assert caught.value.status == 400


def test_large_whole_numbers_of_pandas_own_integers_are_read_digit_by_digit() -> None:
    numbers = [2**63, 1, 2**63 + 1]
    large = {**column("BYTES", list(map(str, numbers)), "pd_json"), "parameters": {"content_type": "pd_json", "pd_dtype": "UInt64"}}
    [name] = frame = PandasCodec.decode_request(received({"inputs": [large]}))
    assert (frame.dtypes.to_list(), frame[name].tolist()) == ([pd.UInt64Dtype()], numbers)


HINTS = ["boolean", "Int8", "UInt64", "Float32", "string", "str", "object", "category", "datetime64[ns]", "datetime64[s, UTC]"]
HINTS += ["object[NaN]", "datetime64[us, Europe/Amsterdam]", "datetime64[ns, +02:00]", "datetime64[ns, ../zone]"]
ODD_COLUMNS = [
    *[column(datatype, [1]) for datatype in ("INT64", "UINT64", "FP16", "FP64", "BOOL")],
    *[column("FP64", [value]) for value in (None, "Infinity", 1e300, -1.5)],
    *[column("BYTES", [value], "pd_json") for value in ("99999999999999999999", "1e400", "true", "null", '"5"', '{"a": 1}', "[1]")],
    *[column("BYTES", [value], "datetime") for value in ("NaT", "0001-01-01", "9999-12-31T23:59:59Z", "2022-03-27T02:30:00")],
    column("BF16", [1.5]),
    *[
        column("BYTES", [*values], "datetime")
        for values in (["2022-01-11", "NaT"], ["2022-01-11T00Z", "NaT"], ["2022-01-11", "1500-01-01"])
    ],
    *[column("BYTES", [*values], "pd_json") for values in (["null", '"a"'], ["null", "1"], ["1.5", "null"])],
    *[column("BYTES", ["YQ=="], content_type) for content_type in (None, "str", "np", "base64")],
    *[column("BYTES", [], content_type) for content_type in (None, "str", "np", "base64", "datetime", "pd_json")],
]


def comes_back(document: Any) -> bool:
    """Whether a column is taken. One that is must be writable too, since a model may give it back, and be read as it was."""
    try:
        frame = PandasCodec.decode_request(received({"inputs": [document]}))
    except InferenceError:
        return False
    again = PandasCodec.decode_request(through_http(PandasCodec.encode_request(frame), binary=True))
    pd.testing.assert_frame_equal(again, frame, check_column_type=False)
    return True


@pytest.mark.parametrize("hint", [None, *HINTS])
def test_any_dtype_for_any_column_comes_back_or_is_refused(hint: str | None) -> None:
    hinted = {} if hint is None else {"pd_dtype": hint}
    made = sum(comes_back({**odd, "parameters": {**odd["parameters"], **hinted}}) for odd in ODD_COLUMNS)
    assert made or str(hint).endswith("zone]")


@pytest.mark.slow
@pytest.mark.parametrize("hint", [None, *HINTS])
def test_any_categories_for_any_column_come_back_or_are_refused(hint: str | None) -> None:
    made, turn = 0, [None, *HINTS].index(hint)
    for place, odd in enumerate(ODD_COLUMNS):
        for other in ODD_COLUMNS[(place + turn) % 3 :: 3]:  # each pair with several of the hints
            categories = {"datatype": other["datatype"], "data": other["data"], **other["parameters"], "dtype": hint}
            made += comes_back(told(odd["datatype"], odd["data"], categories, odd["parameters"].get("content_type")))
    assert made or hint in ("category", "datetime64[ns, ../zone]")


def test_bf16_is_fp32_to_pandas() -> None:
    """Its own dtype can be in a frame, but neither be selected nor sorted there; a frame that has it all the same goes out."""
    values = np.array([1.5, np.nan, 3.0], pytest.importorskip("ml_dtypes").bfloat16)
    frame = PandasCodec.decode_request(InferenceRequest([Tensor("x", values), Tensor("y", values, {"content_type": "np"})]))
    pd.testing.assert_frame_equal(frame, pd.DataFrame({name: np.array([1.5, np.nan, 3.0], "f4") for name in "xy"}))
    [tensor] = PandasCodec.encode_request(pd.DataFrame({"x": values})).inputs
    assert (tensor.datatype, tensor.array.tobytes()) == ("BF16", values.tobytes())


def test_columns_that_say_nothing_are_read_by_their_datatype() -> None:
    inputs = [tensor("s", "BYTES", [2, 1], ["a", "b"]), tensor("n", "BYTES", [2], ["c", "d"], "np"), tensor("b", "BOOL", [2], [1, 0])]
    expected = pd.DataFrame({"s": ["a", "b"], "n": pd.Series([b"c", b"d"], dtype=object), "b": [True, False]})
    pd.testing.assert_frame_equal(PandasCodec.decode_request(received({"inputs": inputs})), expected, check_column_type=False)


def test_a_missing_string_is_none_whichever_pandas_reads_it() -> None:
    [value, missing] = PandasCodec.decode_request(received({"inputs": [column("BYTES", ['"a"', "null"], "pd_json", pd_dtype="str")]}))["x"]
    assert value == "a"
    assert pd.isna(missing)


def calls_of(function: Callable[[], Any]) -> int:
    """How many calls of Python functions, generators' steps among them, a call makes."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_no_python_code_runs_for_each_element_of_a_list_or_cell_of_a_frame() -> None:
    """Ten thousand take as many calls as two do, or nearly."""
    moments = [NOON, NOON.replace(microsecond=5)] * 5_000
    zoned = [moment.replace(tzinfo=UTC) for moment in moments]
    texts, pieces = ["a", "é"] * 5_000, [b"a", b"\xff"] * 5_000
    lists: list[tuple[Any, list[Any]]] = [(StringCodec, texts), (Base64Codec, pieces), (DatetimeCodec, moments), (DatetimeCodec, zoned)]
    for codec, values in lists:
        tensor = codec.encode_input("x", values)
        assert codec.decode_input(tensor) == values
        asked = [partial(codec.encode_input, "x", values), partial(codec.decode_input, tensor), partial(codec.can_encode, values)]
        assert max(map(calls_of, asked)) < 100
    assert max(calls_of(partial(Tensor, "x", result)) for result in (["a"] * 10_000, [b"a"] * 10_000)) < 100  # type: ignore[arg-type]
    kinds = "numpy f4, bool, nullable Int64, text, object text, category, missing category, datetime, datetime with zone"
    for name in kinds.split(", "):
        many = pd.DataFrame({"x": pd.concat([pd.Series(COLUMNS[name])] * 3_334, ignore_index=True)})
        request = PandasCodec.encode_request(many)
        assert calls_of(partial(PandasCodec.encode_request, many)) < 1_000, name
        assert calls_of(partial(PandasCodec.decode_request, request)) < 3_000, name


@pytest.mark.parametrize("in_turns", [False, True])
def test_columns_of_one_dtype_are_one_block(in_turns: bool) -> None:
    """Thirty-nine columns of two dtypes: few calls for each of them, and the numbers lie in one piece of memory."""
    columns = {**{f"number_{place}": [place + 0.5] for place in range(13)}, **{f"text_{place}": [f"value {place}"] for place in range(26)}}
    frame = pd.DataFrame({name: columns[name] for name in (sorted(columns, key=lambda name: name[::-1]) if in_turns else columns)})
    request = PandasCodec.encode_request(frame)
    pd.testing.assert_frame_equal(PandasCodec.decode_request(request), frame)
    assert calls_of(lambda: PandasCodec.decode_request(request)) < 700
    assert calls_of(lambda: PandasCodec.encode_response("m", frame)) < 500
    numbers = PandasCodec.decode_request(request).filter(like="number")
    assert numbers.to_numpy().shape == (1, 13)


def test_a_frame_of_declared_columns_is_the_same_in_any_order() -> None:
    seen: list[pd.DataFrame] = []
    server = InferenceServer()

    def model(df: pd.DataFrame, limit: Any) -> int:
        seen.append(df)
        return 1

    server.register("m", model, inputs=[TensorSpec(name, "FP64", [-1]) for name in ("b", "limit", "a")])
    outputs(ask(server, "m", b=[1.0], limit=[0.0], a=[2.0]))
    outputs(ask(server, "m", a=[2.0], b=[1.0], limit=[0.0]))
    seen[0].columns = ["x", "y"]  # what a model does to its frame
    outputs(ask(server, "m", b=[1.0], limit=[0.0], a=[2.0]))
    assert [frame.to_dict("list") for frame in seen] == [{"x": [1.0], "y": [2.0]}, {"a": [2.0], "b": [1.0]}, {"b": [1.0], "a": [2.0]}]
    seen[2].columns.name = "named"
    outputs(ask(server, "m", b=[1.0], limit=[0.0], a=[2.0]))
    assert seen[3].columns.name is None
