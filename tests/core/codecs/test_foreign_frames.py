"""Frames and columns that are not kept as numpy or pandas do it: of pyarrow, sparse, of polars; and what is none, but looks like one."""

from __future__ import annotations

import datetime
import importlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.arrays import SparseArray

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from oip_asgi.codecs import PandasCodec
from oip_asgi.specs import specs_of
from tests.support.asking import ask

OBJECT = None if pd.__version__.startswith("2.") else "object"
"""What `pd_dtype` says of a column of objects: in pandas 3, the default is the dtype `str`."""


def of_pyarrow(values: list[Any], kind: str) -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    types = {
        "seconds": lambda: pyarrow.timestamp("s"),
        "zoned": lambda: pyarrow.timestamp("s", "Europe/Amsterdam"),
        "length": lambda: pyarrow.duration("s"),
        "lists": lambda: pyarrow.list_(pyarrow.int64()),
        "category": lambda: pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    }
    made = types[kind]() if kind in types else getattr(pyarrow, kind)()
    return pd.Series(pyarrow.array(values, made).to_pandas(types_mapper=pd.ArrowDtype))


AT = datetime.datetime(2026, 1, 31)
COLUMNS: list[tuple[str, list[Any], str, str | None, str | None, list[Any]]] = [
    ("int64", [1, 2], "INT64", None, None, [1, 2]),
    ("uint8", [1, None], "BYTES", "pd_json", "UInt8", [b"1", b"null"]),
    ("float32", [1.5, None], "FP32", None, None, [1.5, np.nan]),
    ("float16", [np.float16(1.5)], "FP16", None, None, [1.5]),
    ("bool_", [True, False], "BOOL", None, None, [True, False]),
    ("bool_", [True, None], "BYTES", "pd_json", "boolean", [b"true", b"null"]),
    ("string", ["a", "é"], "BYTES", "str", None, [b"a", "é".encode()]),
    ("large_string", ["a", None], "BYTES", "pd_json", None, [b'"a"', b"null"]),
    ("binary", [b"a"], "BYTES", "base64", None, [b"YQ=="]),
    ("seconds", [AT, None], "BYTES", "datetime", "datetime64[s]", [b"2026-01-31T00:00:00", b"NaT"]),
    ("zoned", [AT.replace(tzinfo=datetime.UTC)], "BYTES", "datetime", "datetime64[s, Europe/Amsterdam]", [b"2026-01-31T00:00:00+00:00"]),
    ("lists", [[1], None], "BYTES", "pd_json", OBJECT, [b"[1]", b"null"]),
    ("category", ["b", "a"], "BYTES", "str", "category", [b"b", b"a"]),
    ("null", [None], "BYTES", "pd_json", OBJECT, [b"null"]),
]


@pytest.mark.parametrize(("kind", "values", "datatype", "content_type", "dtype", "elements"), COLUMNS)
def test_a_column_of_pyarrow_is_sent_as_its_values(
    kind: str, values: list[Any], datatype: str, content_type: str | None, dtype: str | None, elements: list[Any]
) -> None:
    frame = pd.DataFrame({"a": of_pyarrow(values, kind)})
    assert isinstance(frame["a"].dtype, pd.ArrowDtype)
    [tensor] = PandasCodec.encode_request(frame).inputs
    assert (tensor.datatype, tensor.shape) == (datatype, (len(values),))
    assert (tensor.parameters.get("content_type"), tensor.parameters.get("pd_dtype")) == (content_type, dtype)
    np.testing.assert_array_equal(tensor.array, np.array(elements, tensor.array.dtype))
    # what a model that was fitted with such a frame declares takes the same column again
    server, seen = InferenceServer(), []

    def note(frame: pd.DataFrame) -> Any:
        seen.append(frame["a"])
        return np.ones(1)

    server.register("m", note, inputs=specs_of(frame))
    server.infer_sync("m", frame)
    assert seen[0].isna().tolist() == frame["a"].isna().tolist()


def test_a_sparse_column_is_sent_as_its_values() -> None:
    columns: list[tuple[Any, Any, list[Any]]] = [
        (SparseArray([0, 3]), "INT64", [0, 3]),
        (SparseArray([np.nan, 3.5]), "FP64", [np.nan, 3.5]),
        (SparseArray(np.array([0, 3], "f4"), fill_value=0), "FP32", [0, 3]),
        (SparseArray([True, False]), "BOOL", [True, False]),
    ]
    for column, datatype, elements in columns:
        frame = pd.DataFrame({"a": column})
        [tensor] = PandasCodec.encode_request(frame).inputs
        assert (tensor.datatype, tensor.parameters) == (datatype, {})
        np.testing.assert_array_equal(tensor.array, np.array(elements, tensor.array.dtype))
        assert specs_of(frame) == [TensorSpec("a", datatype, [-1])]


def test_a_column_of_pyarrow_without_a_form_says_what_to_write() -> None:
    pytest.importorskip("pyarrow")
    day, length = of_pyarrow([datetime.date(2026, 1, 31)], "date32"), of_pyarrow([datetime.timedelta(1)], "length")
    mend = r"date is not JSON serializable \(pandas.to_datetime makes a column of dates that can be sent"
    for column, text in ((day, mend), (length, "column 'a' has dtype timedelta64")):
        with pytest.raises(TypeError, match=text):
            PandasCodec.encode_request(pd.DataFrame({"a": column}))
    [tensor] = PandasCodec.encode_request(pd.DataFrame({"a": pd.to_datetime(day)})).inputs
    assert tensor.array.tolist() == [b"2026-01-31T00:00:00"]


def of_polars() -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"n": [1, 2], "part": [1.5, None], "city": ["Bonn", None], "born": [datetime.date(2026, 1, 31), None]})


def of_a_table() -> Any:
    columns = {"n": [1, 2], "part": [1.5, None], "city": ["Bonn", None], "born": [datetime.datetime(2026, 1, 31), None]}
    return pytest.importorskip("pyarrow").table(columns)


def test_whole_numbers_of_polars_are_not_rounded_beside_a_missing_one() -> None:
    polars = pytest.importorskip("polars")
    large = 2**53 + 1
    frame = polars.DataFrame({"a": [large, None], "b": polars.Series([1, None], dtype=polars.UInt8)})
    first, second = PandasCodec.encode_outputs(frame)
    assert (first.array.tolist(), first.parameters) == ([b"%d" % large, b"null"], {"content_type": "pd_json", "pd_dtype": "Int64"})
    assert (second.array.tolist(), second.parameters) == ([b"1", b"null"], {"content_type": "pd_json", "pd_dtype": "UInt8"})


ARRAYS: dict[str, Callable[[list[int | None]], Any]] = {
    "pandas": lambda values: pd.array(values, dtype="Int64"),
    "pandas, an index": lambda values: pd.Index(pd.array(values, dtype="UInt64")),
    "pyarrow": lambda values: importlib.import_module("pyarrow").array(values),
    "pyarrow, chunks": lambda values: importlib.import_module("pyarrow").chunked_array([values[:1], values[1:]]),
    "polars": lambda values: importlib.import_module("polars").Series(values),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_whole_numbers_is_not_rounded_beside_a_missing_one(name: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip(name.partition(",")[0])
    server, large = InferenceServer(), 2**53 + 1
    columns: list[list[int | None]] = [[large, 1], [2**53 - 1, None], [large, None]]
    server.register("m", lambda x: {"y": ARRAYS[name](columns[x[0]])})
    whole, small = (server.infer_sync("m", {"x": [place]}).outputs[0].array for place in (0, 1))
    assert (whole.tolist(), small.tolist()[0]) == ([large, 1], 2.0**53 - 1)
    assert np.isnan(small[1])
    assert ask(server, "m", x=[2]).status == 500
    text = "output 'y' is no tensor: its whole numbers are floats where one is missing, which rounds those of 2**53 or more"
    assert f'{text}: make it a column, as in pandas.Series(values, dtype="Int64")' in caplog.text
    with pytest.raises(InferenceError, match="input 'x': its whole numbers are floats where one is missing"):
        server.infer_sync("m", {"x": ARRAYS[name]([large, None])})


@pytest.mark.parametrize("make", [of_polars, of_a_table])
def test_a_frame_of_another_library_has_columns(make: Callable[[], Any]) -> None:
    frame, server = make(), InferenceServer()
    for max_batch_size in (None, 4):
        server.register("m", lambda x: frame, max_batch_size=max_batch_size, replace=True)
        document = json.loads(ask(server, "m", x=[1.0, 2.0]).body)
        assert [(each["name"], each["datatype"], each["data"]) for each in document["outputs"]] == [
            ("n", "INT64", [1, 2]),
            ("part", "FP64", [1.5, None]),
            ("city", "BYTES", ['"Bonn"', "null"]),
            ("born", "BYTES", ["2026-01-31T00:00:00", "NaT"]),
        ]
    specs = [TensorSpec("part", "FP32", [-1]), TensorSpec("n", "INT64", [-1])]
    server.register("declared", lambda: frame.select(["n", "part"]), outputs=specs)
    response = server.infer_sync("declared", {})
    assert [(tensor.name, tensor.datatype) for tensor in response.outputs] == [("part", "FP32"), ("n", "INT64")]
    server.register("cities", lambda frame: [f"{city}" for city in frame["city"]], content_type="pd")
    assert server.infer_sync("cities", frame)["output_0"][0] == b"Bonn"
    with pytest.raises(InferenceError, match="input 'x' is a data frame, whose columns are inputs: give it alone, not by a name"):
        server.infer_sync("cities", {"x": frame})


def sparse_matrix() -> Any:
    return pytest.importorskip("scipy.sparse").csr_matrix(np.eye(2))


def lazy_frame() -> Any:
    return pytest.importorskip("polars").DataFrame({"a": [1]}).lazy()


OF_DICTS = ": make a pandas.DataFrame of a list of dicts, whose columns are then tensors"


@pytest.mark.parametrize(
    ("make", "text"),
    [(sparse_matrix, ": write .toarray()"), (lazy_frame, ": write .collect()"), (lambda: [{"a": 1}, {"a": 2}], OF_DICTS)],
)
def test_what_is_no_tensor_says_what_to_write(make: Callable[[], Any], text: str, caplog: pytest.LogCaptureFixture) -> None:
    value, server = make(), InferenceServer()
    for result in (value, {"y": value}):
        server.register("m", lambda result=result: result, replace=True)
        assert ask(server, "m").status == 500
        assert text in caplog.text
        caplog.clear()
    server.register("x", lambda x: x)
    with pytest.raises(InferenceError) as raised:
        server.infer_sync("x", {"x": value})
    assert str(raised.value).endswith(text)
