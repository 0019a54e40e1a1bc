"""The page finds in each text with which the server refuses a value the input, and the row, or the element, that it names."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.node import Scripts, needs_node
from tests.support.ways import Request, over_asgi

pytestmark = needs_node


class Customer(msgspec.Struct):
    age: Annotated[int, msgspec.Meta(ge=0, le=120)]
    plan: Literal["basic", "pro"]


def make_server() -> InferenceServer:
    server = InferenceServer()
    plans = json.dumps({"datatype": "BYTES", "data": ["basic", "pro"], "content_type": "str"})
    columns = [
        TensorSpec("age", "INT64", [-1], pd_dtype="Int64"),
        TensorSpec("plan", "BYTES", [-1], "str", pd_dtype="category", pd_categories=plans),
        TensorSpec("it's", "BYTES", [-1], "datetime"),
        TensorSpec("date", "BYTES", [-1], "datetime"),
    ]
    server.register("frame", lambda frame: frame, inputs=columns, content_type="pd")
    server.register("array", lambda x, xs: x, inputs=[TensorSpec("x", "FP32", [-1, 2], maximum=5), TensorSpec("xs", "UINT8", [-1])])
    server.register("deep", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, 2, 2], maximum=5)])
    server.register("file", lambda file: file, inputs=[TensorSpec("file", "BYTES", [1], "base64")])

    @server.model("typed")
    def typed(when: list[datetime], names: list[str], factor: float = 1.0) -> list[str]:
        return names

    @server.model("rows")
    def rows(rows: list[Customer]) -> list[str]:
        return [row.plan for row in rows]

    return server


def tensor(name: str, datatype: str, *data: Any, shape: list[int] | None = None, **parameters: str) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data, "parameters": parameters}


AGE, PLAN, DATE = tensor("age", "INT64", 1, 2), tensor("plan", "BYTES", "pro", "basic"), tensor("date", "BYTES", *["2026-01-31"] * 2)
QUOTED = tensor("it's", "BYTES", *["2026-01-31"] * 2)
X, XS = tensor("x", "FP32", 1, 2, 3, 4, shape=[2, 2]), tensor("xs", "UINT8", 1)
WHEN, NAMES = tensor("when", "BYTES", "2026-01-31"), tensor("names", "BYTES", "a")

REFUSED: list[tuple[str, list[Any] | dict[str, Any], str, int | None]] = [
    # a value of another kind, or none
    ("frame", [{**AGE, "data": [1, "x"]}, PLAN, QUOTED, DATE], "age", 1),
    ("frame", [{**AGE, "data": [1, 1.5]}, PLAN, QUOTED, DATE], "age", 1),
    ("frame", [AGE, {**PLAN, "data": ["pro", None]}, QUOTED, DATE], "plan", 1),
    ("frame", [tensor("age", "BYTES", "1", "x", content_type="pd_json"), PLAN, QUOTED, DATE], "age", 1),
    ("frame", {"age": [1, "x"], "plan": ["pro"] * 2, "date": ["2026-01-31"] * 2, QUOTED["name"]: ["2026-01-31"] * 2}, "age", 1),
    ("array", {"x": [[1, 2], [3, "4"]], "xs": [1]}, "x", 1),
    ("array", {"x": [1, 2], "xs": "1"}, "xs", None),
    ("typed", {"when": ["2026-01-31"], "names": ["a"], "factor": "x"}, "factor", None),
    # a number out of range
    ("frame", [{**AGE, "data": [1, 10**30]}, PLAN, QUOTED, DATE], "age", 1),
    ("array", [{**X, "data": [1, 2, 3, 9]}, XS], "x", 1),
    ("array", [X, {**XS, "data": [256]}], "xs", 0),
    ("deep", [tensor("x", "FP32", 1, 2, 3, 9, shape=[1, 2, 2])], "x", 0),
    # a whole number that may have been rounded
    ("frame", [{**AGE, "data": [1, 9e30]}, PLAN, QUOTED, DATE], "age", 1),
    ("rows", [{**AGE, "data": [1, 9e30]}, PLAN], "age", 1),
    ("array", {"x": [1, 2], "xs": [1, 9e30]}, "xs", 1),
    # dates, choices, files
    ("frame", [AGE, PLAN, QUOTED, {**DATE, "data": ["2026-01-31", "31.01.2026"]}], "date", 1),
    ("frame", [AGE, {**PLAN, "data": ["pro", "gold"]}, QUOTED, DATE], "plan", 1),
    ("typed", [{**WHEN, "data": ["x"]}, NAMES], "when", 0),
    ("typed", [WHEN, {**NAMES, "data": [5]}], "names", 0),
    ("file", [tensor("file", "BYTES", "!!")], "file", 0),
    ("frame", [AGE, PLAN, {**QUOTED, "data": ["2026-01-31", "x"]}, DATE], "it's", 1),
    # shapes
    ("array", [{**X, "shape": [4]}, XS], "x", None),
    ("array", [{**X, "shape": [1, 2]}, XS], "x", None),
    ("array", [{**X, "data": [[1, 2], [3]]}, XS], "x", 1),
    ("array", {"x": [[1, 2], [3]], "xs": [1]}, "x", None),
    ("array", {"x": [1, 2, 3], "xs": [1]}, "x", None),
    # inputs
    ("array", [X], "xs", None),
    ("frame", [tensor("age", "BYTES", "1", "2"), PLAN, QUOTED, DATE], "age", None),
    # rows of a class
    ("rows", [{**AGE, "data": [1, 999]}, PLAN], "age", 1),
    ("rows", [AGE, {**PLAN, "data": ["pro", "gold"]}], "plan", 1),
    ("rows", {"age": [1, 2], "plan": ["pro", None]}, "plan", 1),
    ("rows", [{"age": 1, "plan": "pro"}, {"age": "x", "plan": "pro"}], "age", 1),
    ("rows", [{"age": 1, "plan": "pro"}, {"age": 2}], "plan", 1),
]  # fmt: skip
"""Of each request that is refused the model, the tensors of `infer`, or what `generate` gets, and what is to be found."""


def test_the_place_that_a_refusal_names_is_found(scripts: Scripts) -> None:
    way = over_asgi(OIPApp(make_server()), "")
    texts = []
    for model, asked, *_ in REFUSED:
        is_infer = isinstance(asked, list) and "datatype" in asked[0]
        body = json.dumps({"inputs": asked} if is_infer else asked).encode()
        answer = way(Request("POST", f"/models/{model}/{'infer' if is_infer else 'generate'}", (), body))
        assert answer.status == 400, (model, asked, answer.body)
        texts.append(json.loads(answer.body)["error"])
    names = ["age", "plan", QUOTED["name"], "date", "x", "xs", "file", "when", "names", "factor"]
    found = scripts.values_of("request.placeIn(given[0], given[1])", [(text, names) for text in texts])
    expected = [{"name": name} if row is None else {"name": name, "row": row} for *_, name, row in REFUSED]
    assert list(zip(texts, found, strict=True)) == list(zip(texts, expected, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "unknown input 'citty': expected 'age'",
        "model 'age' failed: see the server's log",
        "id: expected str | null, got int",
        "input 'ages', row 1: no",
        "the request has age 5",
        "",
    ],
)
def test_a_text_that_names_no_input_of_the_form_has_no_place(scripts: Scripts, text: str) -> None:
    assert scripts.values_of("request.placeIn(given, ['age'])", [text]) == [None]
