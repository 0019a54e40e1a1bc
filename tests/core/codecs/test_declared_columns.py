"""Columns of data frames that are declared, with what is missing in them: what the model receives, and what leaves."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceError, InferenceRequest, InferenceServer, OIPApp, Tensor, TensorSpec
from oip_asgi.codecs import InputCodec, PandasCodec
from oip_asgi.specs import specs_of
from tests.support.ways import Request, over_asgi

FITTED = pd.DataFrame(
    {
        "when": pd.Series(["2026-01-31", None], dtype="M8[us]"),
        "count": pd.Series([1, None], dtype="Int64"),
        "ok": pd.Series([True, None], dtype="boolean"),
        "city": ["Bonn", None],
    }
)


def take(*specs: TensorSpec) -> tuple[InferenceServer, list[Any]]:
    """A server with the model `m`, and the frames that it gets."""
    server, got = InferenceServer(), list[Any]()

    @server.model("m", inputs=list(specs))
    def m(df: pd.DataFrame) -> int:
        got.append(df)
        return 1

    return server, got


def post(server: InferenceServer, path: str, document: Any) -> tuple[int, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    answer = over_asgi(OIPApp(server), "")(Request("POST", f"/models/m/{path}", (), body))
    return answer.status, json.loads(answer.body)


def ask_columns(server: InferenceServer, frame: pd.DataFrame) -> tuple[int, Any]:
    """Send them one by one: the request does not say that they are a frame."""
    status, document = post(server, "infer", {"inputs": json.loads(PandasCodec.encode_request(frame).to_http()[1])["inputs"]})
    return status, document.get("error")


def ask_frame(server: InferenceServer, frame: pd.DataFrame) -> tuple[int, Any]:
    headers, body = PandasCodec.encode_request(frame).to_http(binary=True)
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", tuple(headers.items()), body))
    return answer.status, json.loads(answer.body).get("error")


PLAIN = pd.DataFrame({"city": ["Bonn", "Bern"], "age": [1, 2], "pay": [0.5, 1.5], "ok": [True, False]})
CHANGED: dict[str, tuple[pd.DataFrame, dict[str, Any]]] = {
    "categories": (FITTED, {"count": FITTED["count"].astype("category")}),
    "int64": (FITTED, {"count": pd.Series([1, 2])}),
    "nanoseconds": (FITTED, {"when": FITTED["when"].astype("M8[ns]")}),
    "no date at all": (FITTED, {"when": pd.Series([None, None], dtype=object)}),
    "bool": (FITTED, {"ok": pd.Series([True, False])}),
    # where no dtype is declared, a column has the one that its values show
    "no string at all": (PLAIN, {"city": pd.Series([None, None], dtype=object)}),
    "string": (PLAIN, {"city": pd.Series(["Bonn", None], dtype="string")}),
    "category": (PLAIN, {"city": pd.Categorical(["Bonn", "Bern"])}),
    "nullable": (PLAIN, {"age": pd.array([1, 2], "Int64"), "pay": pd.array([0.5, None], "Float64"), "ok": pd.array([True] * 2, "boolean")}),
}


@pytest.mark.parametrize(("declared", "changed"), CHANGED.values(), ids=CHANGED)
def test_a_column_has_its_declared_dtype_whatever_the_request_says(declared: pd.DataFrame, changed: dict[str, Any]) -> None:
    server, got = take(*specs_of(declared))
    assert ask_frame(server, declared.assign(**changed)) == (200, None)
    assert got[0].dtypes.to_dict() == declared.dtypes.to_dict()


@pytest.mark.parametrize("is_spread", [False, True], ids=["named", "**columns"])
def test_a_parameter_for_one_column_gets_the_declared_dtype(is_spread: bool) -> None:
    declared = FITTED[["when", "count"]].assign(
        city=pd.Series(["Bonn", np.nan], dtype=object), kind=pd.Categorical(["a", None], ["b", "a"])
    )
    server, got = InferenceServer(), dict[str, pd.Series]()

    def spread(**columns: pd.Series) -> int:
        got.update(columns)
        return 1

    def named(when: pd.Series, count: pd.Series, city: pd.Series, kind: pd.Series) -> int:
        return spread(when=when, count=count, city=city, kind=kind)

    server.register("m", spread if is_spread else named, inputs=specs_of(declared))
    for rows in (slice(2), slice(1, 2), slice(1)):  # both, what is missing, and what is not
        frame = declared[rows].reset_index(drop=True)
        texts = frame[["city", "kind"]].astype(object)
        for sent in (frame, frame.assign(when=frame["when"].astype("M8[ns]"), **texts.where(texts.notna(), None))):
            assert ask_columns(server, sent) == (200, None)
            pd.testing.assert_frame_equal(pd.DataFrame(got)[list(frame)], frame)
            got.clear()


def test_a_row_without_a_string_or_a_date_is_one_whatever_stands_for_what_is_missing() -> None:
    frame = FITTED[["when", "city"]].assign(note=pd.Series([{"a": 1}, None], dtype=object))
    values: list[tuple[Any, Any]] = [(None, object), (np.nan, object), (np.nan, "f8"), (pd.NaT, object), (pd.NA, object)]
    for missing, dtype in values:
        server, got = take(*specs_of(frame))
        row = pd.DataFrame({name: pd.Series([missing], dtype=object).astype(dtype) for name in frame})
        assert ask_frame(server, row) == (200, None)
        assert got[0].isna().all(axis=None)
        assert got[0].dtypes.to_dict() == frame.dtypes.to_dict()


@pytest.mark.parametrize("content_type", ["pd_json", "datetime", "str"])
def test_numbers_with_a_content_type_of_texts_are_refused(content_type: str) -> None:
    server, _ = take(*specs_of(FITTED.assign(grade=pd.Categorical(["a", "b"]))))
    for column in ("grade", "when", "city", "count"):
        tensor = {"name": column, "shape": [1], "datatype": "FP64", "parameters": {"content_type": content_type}, "data": [1.5]}
        assert post(server, "infer", {"inputs": [tensor]})[0] == 400


def test_a_frame_without_rows_is_one() -> None:
    columns: list[Any] = [[b"a"], pd.Categorical([b"a"]), ["a", None], [1, None], pd.to_datetime(["2026-01-31"])]
    for values in columns:
        frame = pd.DataFrame({"x": values})
        server, got = take(*specs_of(frame))
        assert ask_frame(server, frame[:0]) == (200, None)
        assert got[0].shape == (0, 1)


WHEN = pd.Series(["2026-01-31", None]).astype("datetime64[ns]")


@pytest.mark.parametrize(("zone", "as_category"), [("UTC", False), ("Asia/Tokyo", True), ("UTC-05:30", False), ("UTC-05:30", True)])
def test_a_date_without_a_zone_is_no_date_of_a_column_with_one(zone: str, as_category: bool) -> None:
    zoned, plain = pd.DataFrame({"when": WHEN.dt.tz_localize(zone)}), pd.DataFrame({"when": WHEN})
    if as_category:
        zoned, plain = zoned.astype("category"), plain.astype("category")
    for declared, other, what in ((zoned, plain, "have no offset"), (plain, zoned, "have an offset")):
        server, got = take(*specs_of(declared))
        status, text = ask_frame(server, other)
        assert (status, f"its dates {what} from UTC" in text, got) == (400, True, [])
        for same in (declared, declared[1:], declared[:0]):
            assert ask_frame(server, same) == (200, None)
            pd.testing.assert_frame_equal(got.pop().reset_index(drop=True), same.reset_index(drop=True))


def test_codecs_and_columns_one_by_one_refuse_it_too() -> None:
    column = Tensor("when", np.array([b"2026-01-31"], object), {"content_type": "datetime", "pd_dtype": "datetime64[ns, Asia/Tokyo]"})
    with pytest.raises(InferenceError, match="its dates have no offset from UTC"):
        PandasCodec.decode_request(InferenceRequest([column]))
    server = InferenceServer()

    @server.model("m", inputs=specs_of(pd.DataFrame({"when": WHEN.dt.tz_localize("Asia/Tokyo")})))
    def m(when: pd.Series) -> int:
        return len(when)

    assert "its dates have no offset from UTC" in post(server, "generate", {"when": "2026-01-31"})[1]["error"]
    assert post(server, "generate", {"when": "2026-01-31T00+09"}) == (200, {"model_name": "m", "output_0": 1})


@pytest.mark.parametrize("dtype", [None, "object", "string"])
def test_a_column_of_strings_takes_no_other_json(dtype: Any) -> None:
    server, got = take(TensorSpec("s", "BYTES", [-1], "str", pd_dtype=dtype))
    tensor = {"name": "s", "shape": [2], "datatype": "BYTES", "parameters": {"content_type": "pd_json"}}
    for element in ("1", "true", '{"a":1}', '["a"]'):
        refused = f"input 's': element 1 is {element.encode()!r}: expected the JSON text of a string, or null"
        assert post(server, "infer", {"inputs": [{**tensor, "data": ["null", element]}]}) == (400, {"error": refused})
    for values in (b'["a",1,null]', b"[true,null]", b'[{"a":1},null]', b'[["x"],null]', b"[NaN,null]", b"[1e999,null]"):
        status, document = post(server, "generate", b'{"s":%b}' % values)
        assert (status, got, document["error"][:9]) == (400, [], "input 's'")
    assert post(server, "infer", {"inputs": [{**tensor, "data": ["null", ' "a"']}]})[0] == 200
    assert got[0]["s"].isna().tolist() == [True, False]


def test_generate_has_nat_for_a_date_and_any_json_in_a_column_of_it() -> None:
    """And null: "one missing" of tests/table/values."""
    server, got = take(TensorSpec("when", "BYTES", [-1], "datetime"), TensorSpec("any", "BYTES", [-1], "pd_json"))
    assert post(server, "generate", {"when": ["NaT", "2026-01-31"], "any": [{"a": 1}, '{"a":1}']})[0] == 200
    assert (got[0]["when"].isna().tolist(), got[0]["any"].tolist()) == ([True, False], [{"a": 1}, '{"a":1}'])


GRADES = pd.DataFrame(
    {"grade": pd.Categorical(["low", "gold", None], ["low", "mid", "gold"]), "level": pd.Categorical([1, 3, None], [1, 2, 3])}
)


def test_categories_are_those_of_the_declared_frame_whatever_the_request_has() -> None:
    server, got = take(*specs_of(GRADES))
    of_these_rows = pd.DataFrame({"grade": pd.Categorical(["low", "gold", None]), "level": pd.Categorical([1, 3, None])})
    none = pd.DataFrame({"grade": ["low", "gold", None], "level": pd.Series([1, 3, None], dtype="Int64")})
    for frame in (GRADES, of_these_rows, none):
        assert ask_frame(server, frame) == (200, None)
        pd.testing.assert_frame_equal(got.pop(), GRADES)
        assert ask_frame(server, frame[1:2]) == (200, None)
        assert got.pop()["grade"].cat.codes.tolist() == [2]
    row = pd.DataFrame({"grade": [None], "level": [None]}).astype(GRADES.dtypes.to_dict())
    assert ask_frame(server, row) == (200, None)
    pd.testing.assert_frame_equal(got[0], row)


def test_categories_go_with_their_dtype() -> None:
    for more in dict[str, Any](pd_dtype="category"), dict[str, Any](pd_categories="{}"):
        with pytest.raises(ValueError, match="go together"):
            TensorSpec("x", "BYTES", [-1], **more)
    with pytest.raises(ValueError, match="column 'x' has the pd_categories '\\[\\]', which is not valid"):
        take(TensorSpec("x", "BYTES", [-1], pd_dtype="category", pd_categories="[]"))
    many = pd.DataFrame({"x": pd.Categorical([f"category {number}" for number in range(9000)])})
    assert [(spec.content_type, spec.pd_dtype, spec.pd_categories) for spec in specs_of(many)] == [("str", None, None)]


@pytest.mark.parametrize(("name", "dtype"), [("age", "Int64"), ("ok", "boolean")])
def test_a_column_misses_values_only_if_its_declared_dtype_may(name: str, dtype: str) -> None:
    server, got = take(*specs_of(PLAIN))
    status, text = ask_frame(server, PLAIN.assign(**{name: pd.array([1, None], dtype=dtype)}))  # type: ignore[call-overload]
    assert (status, got) == (400, [])
    assert text.endswith(f'only a column that the model declares with pd_dtype="{dtype}", as specs_of does for that dtype, may miss values')


def test_a_column_of_objects_takes_what_one_of_them_is() -> None:
    server, got = take(*specs_of(pd.DataFrame({"ok": [True, None]})))
    for column in ([True, None], [True, False], pd.Series([True, None], dtype="boolean")):
        assert ask_frame(server, pd.DataFrame({"ok": column})) == (200, None)
    assert post(server, "generate", {"ok": [True, None, False]})[0] == 200
    assert [frame["ok"].tolist() for frame in got] == [[True, None], [True, False], [True, None], [True, None, False]]
    assert {str(frame["ok"].dtype) for frame in got} == {"object"}


def test_a_column_of_objects_has_one_dimension() -> None:
    server, got = take(*specs_of(pd.DataFrame({"ok": [True, None]})))
    for shape, data in (([], [True]), ([2, 2], [True, False, True, True])):
        tensor = {"name": "ok", "shape": shape, "datatype": "BOOL", "data": data}
        assert post(server, "infer", {"inputs": [tensor]})[0] == 400
        assert post(server, "infer", {"inputs": [{**tensor, "shape": [len(data), 1]}]})[0] == 200
        assert got.pop()["ok"].tolist() == data


def test_dates_of_a_declaration_by_hand_keep_their_zone() -> None:
    server, got = take(TensorSpec("when", "BYTES", [-1], "datetime"))
    when = pd.Series(["2026-01-31"], dtype="datetime64[ns, Europe/Amsterdam]")
    assert ask_frame(server, pd.DataFrame({"when": when})) == (200, None)
    assert str(got[0]["when"].dtype) == "datetime64[ns, Europe/Amsterdam]"


@pytest.mark.parametrize(("value", "mend"), [(date(2026, 1, 31), "pandas.to_datetime"), (Decimal("1.5"), "astype(float)")])
def test_the_error_for_what_sql_gives_says_how_to_send_it(value: Any, mend: str) -> None:
    with pytest.raises(TypeError, match=re.escape(mend)):
        specs_of(pd.DataFrame({"x": [value]}))


@pytest.mark.parametrize(
    ("declared", "sent"), [([1.5, np.nan], [1.5, None]), ([np.nan], [None]), (["a", np.nan], [1, 2]), (["a", None], [1, 2])], ids=str
)
def test_the_advice_for_a_column_of_objects_makes_it_one_that_is_taken(declared: list[Any], sent: list[Any]) -> None:
    server, got = take(*specs_of(pd.DataFrame({"x": pd.Series(declared, dtype=object)})))
    frame = pd.DataFrame({"x": sent}, dtype=object if None in sent else None)
    status, text = ask_frame(server, frame)
    [dtype] = re.findall(r"in pandas, frame\.astype\({'x': '(\w+)'}\) makes it so", text)
    assert (status, got) == (400, [])
    assert ask_frame(server, frame.astype({"x": dtype})) == (200, None)
    assert got[0]["x"].dtype == object


def test_strings_of_numpy_are_strings_and_so_is_a_column_of_which_all_are_missing() -> None:
    for dtype in ("object", "str"):
        frame = pd.DataFrame({"city": pd.Series(list(np.array(["Bonn", "Bern"])), dtype=dtype)})
        [spec], [tensor] = specs_of(frame), PandasCodec.encode_request(frame).inputs
        assert spec.content_type == tensor.parameters["content_type"] == "str"
    assert specs_of(pd.DataFrame({"city": pd.Series([None], dtype="string")}))[0].content_type == "str"


def test_the_error_for_a_string_without_quotes_says_how_json_writes_it() -> None:
    server, _ = take(TensorSpec("s", "BYTES", [-1], "pd_json"))
    tensor = {"name": "s", "shape": [1], "datatype": "BYTES", "data": ["Bonn"]}
    status, document = post(server, "infer", {"inputs": [tensor]})
    assert status == 400
    assert document["error"].endswith('a string is a JSON text with its quotes, as in "data": ["\\"Bonn\\""]')


def test_a_dtype_that_no_request_can_have_is_refused_where_it_is_declared() -> None:
    cases: list[tuple[Any, str | None, tuple[str, ...]]] = [
        ("INT64", None, ("Int32", "datetime64[us]")),
        ("BYTES", None, ("Int64", "datetime64[us]")),
        ("FP32", None, ("string",)),
        ("BYTES", "datetime", ("datetime64[us, Mars/X]",)),
    ]
    for datatype, content_type, dtypes in cases:
        for dtype in dtypes:
            with pytest.raises(ValueError, match=rf"(TensorSpec|column) 'x'.*{re.escape(dtype)}"):
                take(TensorSpec("x", datatype, [-1], content_type, pd_dtype=dtype))
    with pytest.raises(ValueError, match=r"^model 'm': TensorSpec 'x' has pd_dtype='int46': expected one of boolean, Int8, .*datetime64"):
        take(TensorSpec("x", "INT64", [-1], pd_dtype="int46"))


def test_the_documented_example_of_missing_integers_works() -> None:
    server, _ = take(TensorSpec("x", "BYTES", [-1], "pd_json", pd_dtype="Int64"))
    document = server.openapi()["paths"]["/v2/models/m/infer"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert post(server, "infer", document)[0] == 200


def test_declared_outputs_of_a_frame_keep_their_dtypes_and_what_is_missing() -> None:
    for frame in (FITTED, FITTED[:1]):
        server = InferenceServer()
        server.register("m", lambda frame=frame: frame, outputs=specs_of(FITTED))
        pd.testing.assert_frame_equal(PandasCodec.decode_response(server.infer_sync("m", {})), frame)


class Box:
    def __init__(self, text: str) -> None:
        self.text = text


class BoxCodec(InputCodec[list[Box | None]]):
    """Boxes; a dash is none."""

    content_type = "box"

    @classmethod
    def encode_input(cls, name: str, payload: list[Box | None], use_bytes: bool = True) -> Tensor:
        return Tensor(name, np.array([box.text if box else "-" for box in payload], object), {"content_type": cls.content_type})

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Box | None]:
        return [None if element == b"-" else Box(element.decode()) for element in request_input.array]


def test_a_declared_column_of_a_codec_of_ones_own_may_hold_what_no_other_can() -> None:
    server, columns = InferenceServer(codecs=[BoxCodec]), {"n": [1], "box": pd.Series([Box("a")])}
    server.register("m", lambda: columns, outputs=[TensorSpec("n", "INT64", [-1]), TensorSpec("box", "BYTES", [-1], "box")])
    assert server.infer_sync("m", {})["box"].tolist() == [b"a"]


def test_lists_of_numbers_are_shown_and_checked() -> None:
    """What they are: tests/table/values."""
    server = InferenceServer()

    @server.model("m")
    def m(ids: list[int], weights: list[float] | None = None, flags: list[bool] | None = None) -> int:
        return len(ids)

    inputs = json.loads(over_asgi(OIPApp(server), "")(Request("GET", "/models/m")).body)["inputs"]
    assert [(each["datatype"], each["shape"]) for each in inputs] == [("INT64", [-1]), ("FP64", [-1]), ("BOOL", [-1])]
    tensor = {"name": "ids", "shape": [1], "datatype": "FP32", "data": [1]}
    status, document = post(server, "infer", {"inputs": [tensor]})
    assert (status, document["error"].partition(" or")[0]) == (400, "input 'ids' has datatype FP32: expected INT64")
