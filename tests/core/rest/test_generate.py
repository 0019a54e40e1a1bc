"""Flat objects of `generate`: literals, names that are there twice, and how large they may be."""

from __future__ import annotations

import json
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceContext, InferenceServer, TensorSpec
from tests.support.asking import described
from tests.support.inside import answer_http


def make_server() -> InferenceServer:
    server = InferenceServer()
    server.register("declared", lambda x: x, inputs=[TensorSpec("x", "FP64", [-1])])
    server.register("whole", lambda n: n, inputs=[TensorSpec("n", "INT64", [-1])])
    server.register("size", lambda x: x.size, inputs=[TensorSpec("x", "FP32", [-1, 1, 1])])
    server.register("named", lambda x: x)
    return server


def generate(model: str, body: bytes) -> tuple[int, Any]:
    response = answer_http(make_server(), "POST", f"/models/{model}/generate", (), body)
    return response.status, json.loads(b"".join(response.parts))


@pytest.mark.parametrize(
    ("model", "body"), [("declared", b'{"x": [1, true]}'), ("declared", b'{"x": true}'), ("whole", b'{"n": [1, true]}')]
)
def test_true_and_false_are_no_numbers(model: str, body: bytes) -> None:
    status, document = generate(model, body)
    assert (status, "is true or false: expected " in document["error"]) == (400, True)


def count_parameters(context: InferenceContext, **inputs: Any) -> int:
    assert not inputs
    return len(context.parameters)


def test_each_key_is_an_input_of_a_model_that_takes_any_and_nothing_else() -> None:
    server, body = make_server(), b'{"a": 1.5, "b": [2, 3], "id": "7", "parameters": {"p": 1}, "timeout": 1000000}'
    server.register("any", lambda **inputs: {name: array.sum() for name, array in inputs.items()})
    server.register("context", count_parameters)
    server.register("one and any", lambda a, **inputs: np.int64(len(inputs)))
    for model, sent, answered in (("any", body, {"a": 1.5, "b": 5}), ("context", body.replace(b"[2, 3]", b"2"), {"output_0": 4})):
        response = answer_http(server, "POST", f"/models/{model}/generate", (), sent)
        document = json.loads(b"".join(response.parts))
        assert (response.status, document) == (200, {"id": "7", "model_name": model, **answered})
    for model, sent, text in (
        ("one%20and%20any", body, b"parameter 'b' is a list"),  # the other keys are parameters
        ("any", b'{"a": 1, "triton_unknown": 2}', b"triton_unknown"),
    ):
        refused = answer_http(server, "POST", f"/models/{model}/generate", (), sent)
        assert (refused.status, text in b"".join(refused.parts)) == (400, True)


@pytest.mark.parametrize(
    ("model", "body", "expected"),
    [
        ("declared", b'{"x": NaN}', None),
        ("declared", b'{"x": [1, NaN, -Infinity, "Infinity", null]}', [1.0, None, "-Infinity", "Infinity", None]),
        ("declared", b'{"parameters": {"x": [NaN]}}', None),
        ("named", b'{"x": [1, NaN]}', [1.0, None]),
        ("named", b'{"x": Infinity}', "Infinity"),
        ("named", b'{"x": "NaN"}', "NaN"),
    ],
)
def test_literals_are_elements_of_floating_data_as_in_infer(model: str, body: bytes, expected: Any) -> None:
    status, answer = generate(model, body)
    assert (status, answer.get("output_0")) == (200, expected)


@pytest.mark.parametrize(
    ("number", "is_taken"),
    [
        ("9007199254740993.0", False),
        ("-123456789012345678.0", False),
        ("9.007199254740993e15", False),
        ("9007199254740993", True),
        ("9007199254740991.0", True),
        ("-1e15", True),
    ],
)
def test_a_whole_number_that_a_float_may_round_has_its_digits_alone(number: str, is_taken: bool) -> None:
    for body in ('{"n": %s}', '{"n": [%s]}', '{"parameters": {"n": %s}}'):
        status, answer = generate("whole", (body % number).encode())
        assert (status, answer.get("output_0")) == ((200, int(Decimal(number))) if is_taken else (400, None))
        assert is_taken or "may have been rounded: expected its digits alone" in answer["error"]


@pytest.mark.parametrize(
    "body", [b'{"n": 1, "temperature": NaN}', b'{"n": [1, NaN]}', b'{"n": 1, "id": Infinity}', b'{"n": 1, "a": [NaN]}']
)
def test_literals_elsewhere_are_refused(body: bytes) -> None:
    status, answer = generate("whole", body)
    assert status == 400
    assert "NaN, Infinity and -Infinity are no JSON" in answer["error"] or "is a list" in answer["error"]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"x": 1, "x": 2}', "x"),
        (b'{"x": 1, "a": "b, {c", "b": [1, 2], "a": 1}', "a"),
        (b'{"x": 1, "\\u0061": 1, "a": 1}', "a"),
        (b'{"x": 1, "parameters": {"a": 1, "a": 2}}', "a"),
        (b'{"x": 1, "id": "a", "id": "a"}', "id"),
    ],
)
def test_a_name_that_is_there_twice_is_refused(body: bytes, name: str) -> None:
    assert generate("named", body) == (400, {"error": f"'{name}' is there twice: expected each name once"})


def test_other_names_of_language_models_are_parameters() -> None:
    server = InferenceServer()
    server.register("m", lambda top_k=5, min_tokens=1, presence_penalty=0.0: [top_k, min_tokens, presence_penalty])
    for name in ("top_p", "max_tokens", "frequency_penalty", "stop", "top"):
        assert answer_http(server, "POST", "/models/m/generate", (), json.dumps({name: 1}).encode()).status == 200
    many = {f"top_k{number}": 1 for number in range(1000)}  # to compare them all would take long
    assert answer_http(server, "POST", "/models/m/generate", (), json.dumps(many).encode()).status == 200


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"x": 1, "a": 1e999}', "parameter 'a': number out of range"),
        (
            b'{"x": 1, "a": 18446744073709551616}',
            "parameter 'a' is an integer of more than 64 bits: expected -9223372036854775808 to 18446744073709551615",
        ),
        (
            b'{"x": 1, "parameters": {"a": -9223372036854775809}}',
            "parameter 'a' is an integer of more than 64 bits: expected -9223372036854775808 to 18446744073709551615",
        ),
        (b'{"x": 1, "a": %s}' % (b"9" * 10_000), "parameter 'a' is an integer of more than 64 bits"),
        (b'{"x": 1, "id": [1]}', "id is a list: expected a string"),
        (b'{"x": [1, "a"]}', "input 'x' has elements of several types: expected strings, numbers, or true and false"),
        (b'{"x": [1, true]}', "input 'x' has elements of several types: expected strings, numbers, or true and false"),
        (b'{"x": %s1%s}' % (b"[" * 70, b"]" * 70), "input 'x': shape has 70 dimensions: at most 64 are possible"),
        (b'{"x": [[1], [2, 3, 4]]}', "input 'x': data: array 1 of dimension 1 has 3 items, not 1: expected 2 in a flat array"),
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
        response = answer_http(server, "POST", "/models/m/generate", (), json.dumps(dict.fromkeys(map(str, range(number)), 1)).encode())
        assert (response.status, json.loads(b"".join(response.parts))) == expected


def test_a_request_makes_no_larger_frame_of_a_model_without_annotation() -> None:
    server, inputs = InferenceServer(), described(**{str(place): [1] for place in range(4_097)})
    server.register("m", lambda x: len(x.columns))
    body = {"inputs": inputs, "parameters": {"content_type": "pd"}}
    response = answer_http(server, "POST", "/models/m/infer", (), json.dumps(body).encode())
    text = b'{"error":"the request has 4097 columns: expected 4096 at most, as the model does not declare them"}'
    assert (response.status, b"".join(response.parts)) == (400, text)
    declared = [TensorSpec(each["name"], "INT64", [-1]) for each in inputs]
    server.register("declared", lambda x: len(x.columns), content_type="pd", inputs=declared)
    response = answer_http(server, "POST", "/models/declared/infer", (), json.dumps(body).encode())
    assert response.status == 200


@pytest.mark.parametrize("item", [b"[[1]]", b"[[1.5]]", b"[[null]]"])
def test_an_object_holds_so_many_values(item: bytes) -> None:
    """They are read in one go, so that many would keep others waiting; commas in a text are none."""
    for number, status in ((100_000, 200), (100_001, 400)):
        assert generate("size", b'{"x":[%b]}' % b",".join([item] * number))[0] == status
    assert generate("size", b'{"x": 1, "text": "%b"}' % (b"," * 200_000))[0] == 200
    assert generate("size", b'{"x":[%b]}' % b",".join([item] * 100_001))[1] == {
        "error": "the object has more than 100000 values: use infer"
    }


def show_options(
    x: np.ndarray,
    limit: float | None = None,
    words: list[str] | None = None,
    more: np.ndarray | None = None,
    scale: float = 1.0,
) -> list[str]:
    return [f"{limit} {words} {more} {scale}"]


@pytest.mark.parametrize("name", ["limit", "words", "more"])
def test_null_for_an_input_that_is_none_by_default_leaves_it_out(name: str) -> None:
    server = InferenceServer()
    server.register("m", show_options)
    for body in ({"x": [1], name: None}, {"x": [1], "parameters": {name: None}}):
        response = answer_http(server, "POST", "/models/m/generate", (), json.dumps(body).encode())
        document = json.loads(b"".join(response.parts))
        assert (response.status, document) == (200, {"model_name": "m", "output_0": "None None None 1.0"})
    for needed in ("x", "scale"):
        refused = answer_http(server, "POST", "/models/m/generate", (), json.dumps({"x": [1], needed: None}).encode())
        assert (refused.status, b"is null: expected a scalar or a list" in b"".join(refused.parts)) == (400, True)


@pytest.mark.parametrize("name", ["id", "a"])
def test_what_is_no_scalar_is_not_decoded(name: str) -> None:
    body = b'{"x":1,"%b":[%b]}' % (name.encode(), b",".join([b"[1]"] * 2**18))
    server = make_server()
    answer_http(server, "POST", "/models/named/generate", (), b"{}")
    tracemalloc.start()
    try:
        status = answer_http(server, "POST", "/models/named/generate", (), body).status
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert status == 400
    assert grown < 12 * len(body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        (" -1.5e3 ", -1500.0),
        ("[]", []),
        ("[1, 2]", [1, 2]),
        ("[9223372036854775809, 1]", [2**63 + 1, 1]),
        ("[true, null]", None),
        ("[true, false]", [True, False]),
        ("[NaN, 1]", [None, 1.0]),
        ("[Infinity, null]", None),
        ("[[1, 2], [3, 4]]", [1, 2, 3, 4]),
        ('"a, [b"', "a, [b"),
        ('["a\\"", "b, c"]', ['a"', "b, c"]),
        ('["NaN", NaN]', None),
    ],
)
def test_the_elements_of_what_is_not_declared_decide_the_datatype(text: str, expected: Any) -> None:
    status, answer = generate("named", b'{"x": %b}' % text.encode())
    assert (status, answer.get("output_0")) == ((200, expected) if expected is not None else (400, None))
    assert status == 200 or "elements of several types" in answer["error"]


@pytest.mark.parametrize("deep", [b'{"x": %b1%b}' % (b"[" * depth, b"]" * depth) for depth in (101, 1000)])
def test_what_is_nested_too_deep_is_refused(deep: bytes) -> None:
    status, answer = generate("named", deep)
    assert (status, answer) == (400, {"error": "the JSON is nested more than 100 deep"})
