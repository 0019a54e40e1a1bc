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
    "FP32": "f4", "FP64": "f8",
}  # fmt: skip


def test_numbers_become_the_bytes_of_the_datatype(scripts: Scripts) -> None:
    cases: dict[str, list[float]] = {}
    for datatype, dtype in DTYPES.items():
        values = [0, 1, 1, 0] if dtype == "?" else [0, 1, 2, 120, *([-1, -120] if dtype[0] in "if" else [])]
        cases[datatype] = [*values, *([0.1, 65504.0, 6e-8, -2049.5] if dtype[0] == "f" else [])]
    found = scripts.values_of("[...tensors.bytesOf(given[0], given[1])]", [*cases.items()])
    assert [bytes(each) for each in found] == [np.array(cases[datatype], dtype).tobytes() for datatype, dtype in DTYPES.items()]


def saved(array: Any) -> list[int]:
    file = io.BytesIO()
    np.save(file, array)
    return [*file.getvalue()]


READ_NPY = "tensors.readNpy(Uint8Array.from(given).buffer)"


def test_a_file_of_numpy_is_read(scripts: Scripts) -> None:
    arrays: list[Any] = [np.arange(6).reshape(2, 3).astype(dtype) for dtype in DTYPES.values()]
    arrays += [np.arange(4).astype("f4"), np.array(0, "i8")]
    expected = [{"shape": [*array.shape], "values": array.astype(float).ravel().tolist()} for array in arrays]
    assert scripts.values_of(READ_NPY, [saved(array) for array in arrays]) == expected


def test_a_file_that_cannot_be_sent_says_why(scripts: Scripts) -> None:
    told = ["save np.ascontiguousarray(array)", *["dtype that cannot be sent"] * 2, "numpy.save has not written it"]
    arrays: list[Any] = [np.asfortranarray(np.ones([2, 3])), np.ones(2, ">f4"), np.ones(2, "c8")]
    files = [*map(saved, arrays), [*b"a,b,c\n1,2,3\n4,5,6\n"]]
    found = scripts.values_of(READ_NPY, files)
    assert [(words, words in text) for words, text in zip(told, found, strict=True)] == [(words, True) for words in told]


def test_a_picture_becomes_the_array_that_is_declared(scripts: Scripts) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 4), np.uint8)
    shapes = [[4, 5], [4, 5, 3], [3, 4, 5], [1, 3, 4, 5], [-1, 4, 5, 3], [1, 4, 5]]
    cases = [(shape, datatype) for shape in shapes for datatype in ("UINT8", "FP32")]
    sent = [(pixels.ravel().tolist(), *case) for case in cases]
    asked = "tensors.valuesOf(Uint8Array.from(given[0]), tensors.layoutFor(given[1], { width: 5, height: 4 }), given[2])"
    for (shape, datatype), found in zip(cases, scripts.values_of(asked, sent), strict=True):
        values = np.array(found) * (255 if datatype == "FP32" else 1)
        if 3 in shape:
            expected = pixels[..., :3] if shape[-1] == 3 else pixels[..., :3].transpose(2, 0, 1)
            assert np.allclose(values, expected.ravel())
        else:
            assert np.allclose(values, (pixels[..., :3] @ [0.299, 0.587, 0.114]).ravel(), atol=0.5)


def test_rows_are_read_as_the_csv_module_writes_them(scripts: Scripts) -> None:
    rows, texts = [["name", "text"], ["a", 'say "x"'], ["b,;\t", "two\nlines"], ["", "é"]], []
    for separator in ",;\t":
        file = io.StringIO()
        csv.writer(file, delimiter=separator).writerows(rows)
        texts.append(file.getvalue())
    assert scripts.values_of("cells.readRows(given)", texts) == [rows] * 3


def test_rows_go_into_the_columns_by_name_or_in_order(scripts: Scripts) -> None:
    by_name = [["plan", "id", "age"], ["pro", "7", "31"], ["basic", "8", "42"]]
    in_order, of_others = [["Bern", "pro"], ["Ulm"]], [["who", "where"], ["Ann", "Bern"]]
    columns = [["age", ["31", "42"]], ["plan", ["pro", "basic"]]]
    found = "cells.columnsOf(given[0], ['age', 'city', 'plan'], given[1], (texts) => texts.includes('who'))"
    asked = f"(({{ head, texts, unknown }}) => [head, [...texts], unknown])({found})"
    assert scripts.values_of(asked, [(by_name, 0), (in_order, 1), (of_others, 0)]) == [
        [["plan", "id", "age"], columns, ["id"]],
        [[], [["city", ["Bern", "Ulm"]], ["plan", ["pro", ""]]], []],
        [["who", "where"], [], ["who", "where"]],
    ]


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


def said_of(server: InferenceServer, path: str) -> tuple[Any, Any]:
    """The metadata of a model and its document."""
    way = over_asgi(OIPApp(server), "")
    metadata, document = (json.loads(way(Request("GET", f"/{path}{end}")).body) for end in ("", "/openapi.json"))
    return metadata, document


def inputs_of(scripts: Scripts, server: InferenceServer, path: str) -> list[dict[str, Any]]:
    metadata, document = said_of(server, path)
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


def server_of(*specs: TensorSpec) -> InferenceServer:
    server = InferenceServer()
    server.register("m", lambda x: x, inputs=[*specs])
    return server


def test_fields_say_the_range(scripts: Scripts) -> None:
    ranges: dict[str, Any] = {"0 to 8.5": {"minimum": 0, "maximum": 8.5}, "-1 or more": {"minimum": -1}, "3 or less": {"maximum": 3}}
    for words, bounds in ranges.items():
        [found] = inputs_of(scripts, server_of(TensorSpec("x", "FP32", [-1, 2], **bounds)), "models/m")
        assert found["notes"] == [f"expected: {words}"]


def test_what_is_no_number_is_a_mistake_and_what_is_one_is_the_servers_to_refuse(scripts: Scripts) -> None:
    cases = [
        *((word, "INT8", None) for word in ("0", "1e1", "NaN", "1.0", "-1e30", "1000")),
        ("1.5", "FP32", None),
        ("1.5", "INT8", "x, row 2: 1.5 is not an integer"),
        ("1,5", "INT8", 'x, row 2: "1,5" is not a number: write decimals with a point, as in 1.5'),
        ("a", "FP32", 'x, row 2: "a" is not a number'),
    ]
    asked = '(cells.readNumber(given[0], { datatype: given[1] }, null, "x, row 2"), null)'
    told = scripts.values_of(asked, [(word, datatype) for word, datatype, _ in cases])
    assert [(word, datatype, each) for (word, datatype, _), each in zip(cases, told, strict=True)] == cases


def test_a_phone_has_no_minus_for_what_is_never_negative(scripts: Scripts) -> None:
    for bounds, least in (({"minimum": 0, "maximum": 100}, 0), ({"minimum": -1}, -1), ({"maximum": 3}, None)):
        [found] = inputs_of(scripts, server_of(TensorSpec("x", "FP32", [-1], **bounds)), "models/m")  # type: ignore[arg-type]
        assert found["least"] == least


@pytest.mark.parametrize(
    ("example", "has_time"),
    [(None, True), ("2026-01-31T00:00:00", False), ("2026-01-31T08:30:00", True)],
    ids=["none", "a day", "a moment"],
)
def test_a_date_may_have_a_time_unless_its_example_has_none(scripts: Scripts, example: str | None, has_time: bool) -> None:
    metadata, document = said_of(server_of(TensorSpec("since", "BYTES", [1], "datetime", example=[example or "2026-01-31"])), "models/m")
    if example is None:  # as of an optional input
        document["paths"]["/models/m/infer"]["post"]["requestBody"]["content"]["application/json"]["example"]["inputs"] = []
    asked = "described.actionsOf(found, 'models/m', metadata).get('infer').inputs[0].hasTime"
    assert scripts.value_of(asked, found=document, metadata=metadata) is has_time


LONG = [2**53 - 1, -(2**53) + 1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]


def test_integers_that_a_browser_would_round_stay_as_they_are(scripts: Scripts) -> None:
    texts = [str(number) for number in LONG]
    assert scripts.values_of(f"{READ_NPY}.values.map(String)", [saved(np.array(LONG))]) == [texts]
    asked = "cells.numbersOf([given])[0].map(String)"
    assert scripts.values_of(asked, [texts, [f" +{2**53 + 1}.0 "]]) == [texts, [str(2**53 + 1)]]
    bytes_of = "['INT64', 'FP64'].map((datatype) => [...tensors.bytesOf(datatype, cells.numbersOf([given])[0])])"
    [found] = scripts.values_of(bytes_of, [texts])
    assert [bytes(each) for each in found] == [np.array(LONG).tobytes(), np.array(LONG, float).tobytes()]
