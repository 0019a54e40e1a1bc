"""Flat objects of `generate`: literals, names that are there twice, and how large they may be."""

from __future__ import annotations

import json
import sys
import tracemalloc
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceResponse, InferenceServer, OIPApp, Tensor, TensorSpec
from tests.support.asking import described
from tests.support.ways import Request, over_asgi


def make_server() -> InferenceServer:
    server = InferenceServer()
    server.register("declared", lambda x: x, inputs=[TensorSpec("x", "FP64", [-1])])
    server.register("whole", lambda n: n, inputs=[TensorSpec("n", "INT64", [-1])])
    server.register("size", lambda x: x.size, inputs=[TensorSpec("x", "FP32", [-1, 1, 1])])
    server.register("named", lambda x: x)
    return server


def answered(server: InferenceServer, model: str, body: Any, action: str = "generate") -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = over_asgi(OIPApp(server), "")(Request("POST", f"/models/{model}/{action}", (), data))
    return answer.status, json.loads(answer.body)


def generate(model: str, body: bytes) -> tuple[int, Any]:
    return answered(make_server(), model, body)


def count_parameters(context: InferenceContext, **inputs: Any) -> int:
    assert not inputs
    return len(context.parameters)


def test_each_key_is_an_input_of_a_model_that_takes_any_and_nothing_else() -> None:
    server, body = make_server(), b'{"a": 1.5, "b": [2, 3], "id": "7", "parameters": {"p": 1}, "timeout": 1000000}'
    server.register("any", lambda **inputs: {name: array.sum() for name, array in inputs.items()})
    server.register("context", count_parameters)
    server.register("one and any", lambda a, **inputs: np.int64(len(inputs)))
    for model, sent, expected in (("any", body, {"a": 1.5, "b": 5}), ("context", body.replace(b"[2, 3]", b"2"), {"output_0": 4})):
        assert answered(server, model, sent) == (200, {"id": "7", "model_name": model, **expected})
    for model, sent, text in (
        ("one%20and%20any", body, "parameter 'b' is a list"),  # the other keys are parameters
        ("any", b'{"a": 1, "triton_unknown": 2}', "triton_unknown"),
    ):
        status, document = answered(server, model, sent)
        assert (status, text in document["error"]) == (400, True)


def test_literals_are_elements_of_floating_data_as_in_infer() -> None:
    """Others, in lists: tests/table/values."""
    cases: list[tuple[str, bytes, Any]] = [
        ("declared", b'{"parameters": {"x": [NaN, "-Infinity"]}}', [None, "-Infinity"]),
        ("named", b'{"x": [-Infinity, null]}', ["-Infinity", None]),
        ("named", b'{"x": Infinity}', "Infinity"),
    ]
    for model, body, expected in cases:
        status, answer = generate(model, body)
        assert (body, status, answer.get("output_0")) == (body, 200, expected)
    for body in (b'{"n": 1, "temperature": NaN}', b'{"n": [1, NaN]}', b'{"n": 1, "id": Infinity}', b'{"n": 1, "a": [NaN]}'):
        status, answer = generate("whole", body)
        assert status == 400
        assert "NaN, Infinity and -Infinity are no JSON" in answer["error"] or "is a list" in answer["error"]


@pytest.mark.parametrize(
    ("number", "is_taken"),
    [
        *((number, False) for number in ("9007199254740993.0", "-123456789012345678.0", "9.007199254740993e15")),
        *((number, True) for number in ("9007199254740993", "9007199254740991.0", "-1e15")),
    ],
)
def test_a_whole_number_that_a_float_may_round_has_its_digits_alone(number: str, is_taken: bool) -> None:
    for body in ('{"n": %s}', '{"n": [%s]}', '{"parameters": {"n": %s}}'):
        status, answer = generate("whole", (body % number).encode())
        assert (status, answer.get("output_0")) == ((200, int(Decimal(number))) if is_taken else (400, None))
        assert is_taken or "may have been rounded, write its digits: expected an integer for INT64" in answer["error"]


def test_other_names_of_language_models_are_parameters() -> None:
    server = InferenceServer()
    server.register("m", lambda top_k=5, min_tokens=1, presence_penalty=0.0: [top_k, min_tokens, presence_penalty])
    for name in ("top_p", "max_tokens", "frequency_penalty", "stop", "top"):
        assert answered(server, "m", {name: 1})[0] == 200
    many = {f"top_k{number}": 1 for number in range(1000)}  # to compare them all would take long
    assert answered(server, "m", many)[0] == 200


@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_a_whole_number_that_no_float_holds_is_out_of_range(datatype: Literal["FP32", "FP64"]) -> None:
    server, first = InferenceServer(), 2**1024 - 2**970
    server.register("m", lambda x: x.astype(np.float64), inputs=[TensorSpec("x", datatype, [-1])])
    for number in (first, -first, 2**1024 - 1, 10**400):
        assert answered(server, "m", b'{"x": [0.5, %d]}' % number) == (
            400,
            {"error": f"input 'x': data: element 1 is out of range for {datatype}"},
        )
    if datatype == "FP64":
        answer = {"model_name": "m", "output_0": [0.5, sys.float_info.max]}
        assert answered(server, "m", b'{"x": [0.5, %d]}' % int(sys.float_info.max)) == (200, answer)


@pytest.mark.parametrize("element", [b'{"a": NaN}', b"[[Infinity]]", b'{"a": [1e999]}', b"%s" % (b"9" * 4301)])
def test_what_is_no_json_is_none_in_an_element_of_json(element: bytes) -> None:
    server = InferenceServer()
    server.register("m", lambda x: [repr(x)], inputs=[TensorSpec("x", "BYTES", [-1], "pd_json")])
    assert answered(server, "m", b'{"x": [%s]}' % element)[0] == 400
    assert answered(server, "m", b'{"x": [%s]}' % (b"9" * 500))[1]["output_0"] == f"[{'9' * 500}]"


def test_an_event_is_one_line_whatever_an_element_of_json_has() -> None:
    server, texts = InferenceServer(), np.array([b'{"a":\n 1}'], object)
    server.register("m", lambda x: InferenceResponse([Tensor("y", texts, {"content_type": "pd_json"})]))
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/generate_stream", (), b'{"x": 1}'))
    assert answer.body == b'data: {"model_name":"m","y":{"a": 1}}\n\n'


TWICE = (b', "a": "b, {c", "b": [1, 2], "a": 1', b', "\\u0061": 1, "a": 1', b', "parameters": {"a": 1, "a": 2}')
SEVERAL = "input 'x': data has elements of several types, or objects: expected strings, numbers, or true and false"
TOO_WIDE = "parameter 'a' is an integer of more than 64 bits"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"x": 1, "a": 1e999}', "parameter 'a': number out of range"),
        (b'{"x": 1, "a": 18446744073709551616}', f"{TOO_WIDE}: expected -9223372036854775808 to 18446744073709551615"),
        (b'{"x": 1, "parameters": {"a": -9223372036854775809}}', TOO_WIDE),
        (b'{"x": 1, "a": %s}' % (b"9" * 10_000), TOO_WIDE),
        (b'{"x": 1, "id": [1]}', "id is a list: expected a string"),
        *((b'{"x": %b}' % elements, SEVERAL) for elements in (b'[1, "a"]', b"[1, true]", b'["NaN", NaN]')),
        (b'{"x": [{"age": 42}]}', f'{SEVERAL}; rows are the list itself, [{{"age": 42}}], or a list by each name'),
        (b'{"x": [true, null]}', "input 'x': data[1] is null: expected true, false, 0 or 1 for BOOL"),
        *((b'{"x": 1%b}' % more, "'a' is there twice: expected each name once") for more in TWICE),
        (b'{"x": 1, "x": 2}', "'x' is there twice: expected each name once"),
        (b'{"x": 1, "id": "a", "id": "a"}', "'id' is there twice: expected each name once"),
        (b'{"x": %s1%s}' % (b"[" * 70, b"]" * 70), "input 'x': data is nested more than 64 deep"),
        (b'{"x": [[1], [2, 3, 4]]}', "input 'x': its lists have different lengths: expected as many elements in each"),
        (b'{"x": 1%s}' % b"".join(b',"%d":1' % place for place in range(100_000)), "the object has more than 100000 values"),
    ],
)
def test_what_is_wrong_with_a_flat_object(body: bytes, problem: str) -> None:
    status, answer = generate("named", body)
    assert (status, answer["error"][: len(problem)]) == (400, problem)


def columns_as_they_come(**columns: pd.Series) -> int:
    return len(columns)


@pytest.mark.parametrize(
    ("model", "most", "text"),
    [
        (lambda **inputs: len(inputs), 50_000, "the request has 50001 inputs: expected 50000 at most"),
        (columns_as_they_come, 4_096, "the request has 4097 columns: expected 4096 at most, as the model does not declare them"),
    ],
)
def test_so_many_keys_are_inputs(model: Any, most: int, text: str) -> None:
    server = InferenceServer()
    server.register("m", model)
    for number, expected in ((most, (200, {"model_name": "m", "output_0": most})), (most + 1, (400, {"error": text}))):
        assert answered(server, "m", dict.fromkeys(map(str, range(number)), 1)) == expected


def test_a_request_makes_no_larger_frame_of_a_model_without_annotation() -> None:
    server, inputs = InferenceServer(), described(**{str(place): [1] for place in range(4_097)})
    server.register("m", lambda x: len(x.columns))
    body = {"inputs": inputs, "parameters": {"content_type": "pd"}}
    text = "the request has 4097 columns: expected 4096 at most, as the model does not declare them"
    assert answered(server, "m", body, "infer") == (400, {"error": text})
    declared = [TensorSpec(each["name"], "INT64", [-1]) for each in inputs]
    server.register("declared", lambda x: len(x.columns), content_type="pd", inputs=declared)
    assert answered(server, "declared", body, "infer")[0] == 200


def test_an_object_holds_so_many_values() -> None:
    """They are read in one go, so that many would keep others waiting; commas in a text are none."""
    item = b"[[1.5]]"
    assert generate("size", b'{"x":[%b]}' % b",".join([item] * 100_000))[0] == 200
    assert generate("size", b'{"x": 1, "text": "%b"}' % (b"," * 200_000))[0] == 200
    refused = (400, {"error": "the object has more than 100000 values: use infer"})
    assert generate("size", b'{"x":[%b]}' % b",".join([item] * 100_001)) == refused


def show_options(
    x: np.ndarray,
    limit: float | None = None,
    words: list[str] | None = None,
    more: np.ndarray | None = None,
    scale: float = 1.0,
) -> list[str]:
    return [f"{limit} {words} {more} {scale}"]


def test_null_for_an_input_that_is_none_by_default_leaves_it_out() -> None:
    server = InferenceServer()
    server.register("m", show_options)
    for name in ("limit", "words", "more"):
        for body in ({"x": [1], name: None}, {"x": [1], "parameters": {name: None}}):
            assert answered(server, "m", body) == (200, {"model_name": "m", "output_0": "None None None 1.0"})
        assert server.infer_sync("m", {"x": [1], name: None})["output_0"].tolist() == [b"None None None 1.0"]
    for needed in ("x", "scale"):
        status, document = answered(server, "m", {"x": [1], needed: None})
        assert (status, "is null: expected a scalar or a list" in document["error"]) == (400, True)
        with pytest.raises(InferenceError, match="is None: expected a scalar or a list"):
            server.infer_sync("m", {"x": [1], needed: None})


@pytest.mark.parametrize("name", ["id", "a"])
def test_what_is_no_scalar_is_not_decoded(name: str) -> None:
    body = b'{"x":1,"%b":[%b]}' % (name.encode(), b",".join([b"[1]"] * 2**18))
    server = make_server()
    answered(server, "named", b"{}")
    tracemalloc.start()
    try:
        status, _ = answered(server, "named", body)
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert status == 400
    assert grown < 12 * len(body)


def test_the_elements_of_what_is_not_declared_decide_the_datatype() -> None:
    cases: dict[str, Any] = {
        "1": 1, " -1.5e3 ": -1500.0, "[]": [], "[1, 2]": [1, 2], "[9223372036854775809, 1]": [2**63 + 1, 1], "[true, false]": [True, False],
        "[NaN, 1]": [None, 1.0], "[[1, 2], [3, 4]]": [1, 2, 3, 4], '"a, [b"': "a, [b", '["a\\"", "b, c"]': ['a"', "b, c"],
    }  # fmt: skip
    for text, expected in cases.items():
        status, answer = generate("named", b'{"x": %b}' % text.encode())
        assert (text, status, answer.get("output_0")) == (text, 200, expected)
    for depth in (101, 1000):
        deep = b'{"x": %b1%b}' % (b"[" * depth, b"]" * depth)
        assert generate("named", deep) == (400, {"error": "the JSON is nested more than 100 deep"})
