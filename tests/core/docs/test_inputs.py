"""What the page's fields make of what is typed, pasted or dropped: arrays and their bytes, rows of a spreadsheet, missing values."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.node import Scripts, needs_node
from tests.support.ways import Request, over_asgi

pytestmark = needs_node

DTYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8",
    "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize(("datatype", "dtype"), DTYPES.items())
def test_numbers_become_the_bytes_of_the_datatype(scripts: Scripts, datatype: str, dtype: str) -> None:
    values = [0, 1, 1, 0] if dtype == "?" else [0, 1, 2, 120]
    values += [-1, -120] if dtype[0] in "if" else []
    numbers: list[float] = [*values, *([0.1, 65504.0, 6e-8, -2049.5] if dtype[0] == "f" else [])]
    expected = np.array(numbers, dtype).tobytes()
    assert bytes(scripts.value_of("[...arrays.bytesOf(datatype, given)]", datatype=datatype, given=numbers)) == expected


def test_halves_are_rounded_as_numpy_does(scripts: Scripts) -> None:
    numbers = np.concatenate([np.geomspace(1e-9, 70000, 500), [65519.0, 65520.0, 2**-24, 2**-25, 3 * 2**-25, 2049.0, 2051.0]])
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16).view(np.uint16).tolist()
    assert scripts.value_of("given.map(arrays.halfOf)", given=numbers.tolist()) == expected


@pytest.mark.parametrize("dtype", ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("shape", [(2, 3), (4,), ()])
def test_a_file_of_numpy_is_read(scripts: Scripts, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    file = io.BytesIO()
    np.save(file, array)
    read = scripts.value_of("arrays.readNpy(Uint8Array.from(sent).buffer)", sent=[*file.getvalue()])
    assert read == {"shape": [*shape], "values": array.astype(float).ravel().tolist()}


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.asfortranarray(np.ones([2, 3])), "save np.ascontiguousarray(array)"),
        (np.ones(2, ">f4"), "dtype that cannot be sent"),
        (np.ones(2, "c8"), "dtype that cannot be sent"),
        (None, "numpy.save has not written it"),
    ],
)
def test_a_file_that_cannot_be_sent_says_why(scripts: Scripts, array: Any, told: str) -> None:
    file = io.BytesIO()
    if array is None:
        file.write(b"a,b,c\n1,2,3\n4,5,6\n")
    else:
        np.save(file, array)
    asked = "(() => { try { arrays.readNpy(Uint8Array.from(sent).buffer); } catch ({ message }) { return message; } })()"
    assert told in scripts.value_of(asked, sent=[*file.getvalue()])


@pytest.mark.parametrize("shape", [[4, 5], [4, 5, 3], [3, 4, 5], [1, 3, 4, 5], [-1, 4, 5, 3], [1, 4, 5]])
@pytest.mark.parametrize("datatype", ["UINT8", "FP32"])
def test_a_picture_becomes_the_array_that_is_declared(scripts: Scripts, shape: list[int], datatype: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 4), np.uint8)
    asked = "arrays.valuesOf(Uint8Array.from(pixels), arrays.layoutFor(shape, { width: 5, height: 4 }), datatype)"
    values = np.array(scripts.value_of(asked, pixels=pixels.ravel().tolist(), shape=shape, datatype=datatype))
    scale = 255 if datatype == "FP32" else 1
    if 3 in shape:
        expected = pixels[..., :3] if shape[-1] == 3 else pixels[..., :3].transpose(2, 0, 1)
        assert np.allclose(values, expected.ravel() / scale)
    else:
        gray = pixels[..., :3] @ [0.299, 0.587, 0.114]
        assert np.allclose(values * scale, gray.ravel(), atol=0.5)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_rows_are_read_as_the_csv_module_writes_them(scripts: Scripts, separator: str) -> None:
    rows = [["name", "text"], ["a", 'say "x"'], ["b,;\t", "two\nlines"], ["", "é"]]
    file = io.StringIO()
    csv.writer(file, delimiter=separator).writerows(rows)
    assert scripts.value_of("rows.readRows(text)", text=file.getvalue()) == rows


def test_rows_go_into_the_columns_by_name_or_in_order(scripts: Scripts) -> None:
    found = "rows.columnsOf(given, ['age', 'city', 'plan'], first, (texts) => texts.includes('who'))"
    asked = f"(({{ head, texts, unknown }}) => [head, [...texts], unknown])({found})"
    by_name = [["plan", "id", "age"], ["pro", "7", "31"], ["basic", "8", "42"]]
    columns = [["age", ["31", "42"]], ["plan", ["pro", "basic"]]]
    assert scripts.value_of(asked, given=by_name, first=0) == [["plan", "id", "age"], columns, ["id"]]
    in_order = [["Bern", "pro"], ["Ulm"]]
    assert scripts.value_of(asked, given=in_order, first=1) == [[], [["city", ["Bern", "Ulm"]], ["plan", ["pro", ""]]], []]
    of_others = [["who", "where"], ["Ann", "Bern"]]
    assert scripts.value_of(asked, given=of_others, first=0) == [["who", "where"], [], ["who", "where"]]


def test_numbers_of_a_file_may_have_a_line_of_names(scripts: Scripts) -> None:
    assert scripts.value_of("rows.numbersOf([['a', 'b'], ['1', ' 2.5'], ['', '-3e2']])") == [[1, 2.5], [None, -300]]  # JSON has no NaN
    assert scripts.value_of("rows.numbersOf([['1', '2']])") == [[1, 2]]


@pytest.mark.parametrize(
    ("tensor", "sent"),
    [
        ({"datatype": "FP64", "data": [1.5, None]}, {"datatype": "FP64", "data": [1.5, None]}),
        ({"datatype": "BYTES", "contentType": "datetime", "data": ["2021-03-01T00:00:00", None]},
         {"datatype": "BYTES", "data": ["2021-03-01T00:00:00", "NaT"]}),
        ({"datatype": "INT64", "data": [3, None]},
         {"datatype": "BYTES", "data": ["3", "null"], "parameters": {"content_type": "pd_json"}}),
        ({"datatype": "BYTES", "contentType": "str", "data": ["Bern", None]},
         {"datatype": "BYTES", "data": ['"Bern"', "null"], "parameters": {"content_type": "pd_json"}}),
        ({"datatype": "INT64", "data": [3]}, {"datatype": "INT64", "data": [3]}),
    ],
)  # fmt: skip
def test_missing_values_are_sent_as_the_content_types_say(scripts: Scripts, tensor: Any, sent: Any) -> None:
    assert scripts.value_of("frame.withMissing(tensor)", tensor=tensor) == sent


class Plan(Enum):
    BASIC = "basic"
    PRO = "pro"


class Customer(msgspec.Struct):
    age: Annotated[int, msgspec.Meta(ge=0, le=120, description="in years")]
    plan: Plan
    kind: Literal["a", "b"] | None
    city: str | None
    since: datetime
    income: float | None = None


def inputs_of(scripts: Scripts, server: InferenceServer, path: str) -> list[dict[str, Any]]:
    way = over_asgi(OIPApp(server), "")
    metadata, document = (json.loads(way(Request("GET", f"/{path}{end}")).body) for end in ("", "/openapi.json"))
    asked = "described.actionsOf(found, path, metadata).get('infer').inputs"
    found: list[dict[str, Any]] = scripts.value_of(asked, found=document, path=path, metadata=metadata)
    return found


def test_fields_know_what_a_class_says(scripts: Scripts) -> None:
    server = InferenceServer()

    @server.model("m")
    def model(rows: list[Customer]) -> list[str]:
        return [str(row) for row in rows]

    inputs = {found["name"]: found for found in inputs_of(scripts, server, "models/m")}
    assert {name: found["notes"] for name, found in inputs.items() if found["notes"]} == {
        "age": ["expected: 0 to 120", "in years"], "income": ["optional"],
    }  # fmt: skip
    assert {name: found.get("choices") for name, found in inputs.items() if found.get("choices")} == {
        "plan": ["basic", "pro"], "kind": ["a", "b"],
    }  # fmt: skip
    assert {name for name, found in inputs.items() if found["isNullable"]} == {"kind", "city", "income"}


@pytest.mark.parametrize(
    ("bounds", "words"), [({"minimum": 0, "maximum": 8.5}, "0 to 8.5"), ({"minimum": -1}, "-1 or more"), ({"maximum": 3}, "3 or less")]
)
def test_fields_say_the_range(scripts: Scripts, bounds: Any, words: str) -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, 2], **bounds)])
    [found] = inputs_of(scripts, server, "models/m")
    assert found["notes"] == [f"expected: {words}"]


@pytest.mark.parametrize("word", ["1", "-2.5e3", "9007199254740993", "true", "NaN", "-Infinity"])
def test_words_that_are_numbers(scripts: Scripts, word: str) -> None:
    assert scripts.value_of("cells.fieldText(cells.numberIn(word))", word=word) == word


@pytest.mark.parametrize(
    ("word", "number"), [("+3", "3"), (".5", "0.5"), ("007", "7"), ("2.", "2"), ("+9007199254740993", "9007199254740993")]
)
def test_numbers_that_json_writes_in_another_way(scripts: Scripts, word: str, number: str) -> None:
    assert scripts.value_of("cells.fieldText(cells.numberIn(word))", word=word) == number


@pytest.mark.parametrize(
    ("word", "value"), [("True", True), ("False", False), ("None", None), ("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")]
)
def test_words_of_python_are_those_of_json(scripts: Scripts, word: str, value: Any) -> None:
    assert scripts.value_of("[cells.numberIn(word)]", word=word) == [value]


@pytest.mark.parametrize("text", ["[[1,2],[3,4]]", "[[1, 2], [3, 4]]", "[[1 2]\n [3 4]]", "[[1,\n  2],\n [3,\n  4]]"])
def test_inner_lists_are_rows_and_a_comma_in_them_is_none_of_a_decimal(scripts: Scripts, text: str) -> None:
    for pairs in (True, False):
        assert scripts.value_of("rows.wordsOf(text, pairs)", text=text, pairs=pairs) == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize("word", ["x", "1,5", "0x1", "", "NAN", "1_000"])
def test_words_that_are_none(scripts: Scripts, word: str) -> None:
    assert scripts.value_of("cells.numberIn(word)", word=word) is None


@pytest.mark.parametrize(
    ("word", "refuses", "told"),
    [
        ("0", True, None),
        ("100", True, None),
        ("1e1", True, None),
        ("NaN", True, None),
        ("101", True, "x, row 2: 101 is out of range: expected 0 to 100"),
        ("-1", True, "x, row 2: -1 is out of range: expected 0 to 100"),
        ("101", False, None),  # the server answers it, and flags it
        ("1.5", False, "x, row 2: 1.5 is not an integer"),
        ("1.0", True, None),
        ("1,5", True, 'x, row 2: "1,5" is not a number: write decimals with a point, as in 1.5'),
        ("a", True, 'x, row 2: "a" is not a number'),
    ],
)
def test_a_number_that_would_be_refused_is_a_mistake(scripts: Scripts, word: str, refuses: bool, told: str | None) -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "INT32", [-1], minimum=0, maximum=100)])
    [found] = inputs_of(scripts, server, "models/m")
    asked = """(() => {
        try { cells.readNumber(word, { ...input, refusesOutside: () => refuses }, null, "x, row 2"); return null; }
        catch (error) { return error.message; }
    })()"""
    assert scripts.value_of(asked, word=word, input=found, refuses=refuses) == told


def test_a_range_of_one_side_is_no_other_limit(scripts: Scripts) -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1], maximum=3)])
    [found] = inputs_of(scripts, server, "models/m")
    asked = "cells.fieldText(cells.readNumber('-1e30', { ...input, refusesOutside: () => true }, null, 'x'))"
    assert scripts.value_of(asked, input=found) == "-1e30"


@pytest.mark.parametrize(
    ("example", "has_time"),
    [(None, True), ("2026-01-31T00:00:00", False), ("2026-01-31T08:30:00", True)],
    ids=["none", "a day", "a moment"],
)
def test_a_date_may_have_a_time_unless_its_example_has_none(scripts: Scripts, example: str | None, has_time: bool) -> None:
    server = InferenceServer()
    server.register("m", lambda since: since, inputs=[TensorSpec("since", "BYTES", [1], "datetime", example=[example or "2026-01-31"])])
    way = over_asgi(OIPApp(server), "")
    metadata, document = (json.loads(way(Request("GET", f"/models/m{end}")).body) for end in ("", "/openapi.json"))
    if example is None:  # as of an optional input
        document["paths"]["/models/m/infer"]["post"]["requestBody"]["content"]["application/json"]["example"]["inputs"] = []
    asked = "described.actionsOf(found, 'models/m', metadata).get('infer').inputs[0].hasTime"
    assert scripts.value_of(asked, found=document, metadata=metadata) is has_time


LONG = [2**53 - 1, -(2**53) + 1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]


def test_integers_that_a_browser_would_round_stay_as_they_are(scripts: Scripts) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array(LONG))
    texts = [str(number) for number in LONG]
    asked = "arrays.readNpy(Uint8Array.from(sent).buffer).values.map(cells.fieldText)"
    assert scripts.value_of(asked, sent=[*buffer.getvalue()]) == texts
    assert scripts.value_of("rows.numbersOf([texts])[0].map(cells.fieldText)", texts=texts) == texts
    assert scripts.value_of("rows.numbersOf([texts])[0].map(cells.fieldText)", texts=[f" +{2**53 + 1}.0 "]) == [str(2**53 + 1)]
    asked = "[...arrays.bytesOf('INT64', rows.numbersOf([texts])[0])]"
    assert bytes(scripts.value_of(asked, texts=texts)) == np.array(LONG).tobytes()
    asked = "[...arrays.bytesOf('FP64', rows.numbersOf([texts])[0])]"
    assert bytes(scripts.value_of(asked, texts=texts)) == np.array(LONG, float).tobytes()


@pytest.mark.parametrize(
    ("datatype", "text", "told"),
    [
        ("INT8", "-128", None),
        ("INT8", "128", "128 is not within the range of INT8, -128 to 127"),
        ("UINT8", "255", None),
        ("UINT8", "-1", "-1 is not within the range of UINT8, 0 to 255"),
        ("INT64", "9223372036854775807", None),
        (
            "INT64",
            "9223372036854775808",
            "9223372036854775808 is not within the range of INT64, -9223372036854775808 to 9223372036854775807",
        ),
        ("UINT64", "18446744073709551615", None),
        ("INT64", "1.5", "1.5 is not an integer"),
        ("INT64", "", "a value that is missing is not an integer"),
        ("BOOL", "2", "2 is not within the range of BOOL, 0 to 1"),
        ("FP32", "", None),
    ],
)
def test_a_number_that_the_bytes_cannot_hold_is_told(scripts: Scripts, datatype: str, text: str, told: str | None) -> None:
    asked = """(() => {
        try { arrays.checkValues(datatype, rows.numbersOf([["1", text]]).flat()); return null; } catch ({ message }) { return message; }
    })()"""
    assert scripts.value_of(asked, datatype=datatype, text=text) == told
