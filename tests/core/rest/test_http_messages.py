"""Requests to headers and body, and headers and body to responses: what a client of any HTTP library sends and reads."""

from __future__ import annotations

import json
import pickle
from http.client import HTTPMessage
from typing import Any

import h11
import httpx2
import numpy as np
import pytest
import requests

from oip_asgi import (
    ErrorResponse,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InferenceServer,
    InvalidResponse,
    OIPApp,
    RequestOutput,
    Tensor,
)
from tests.support.ways import Request, over_asgi

HEADER = "Inference-Header-Content-Length"


DTYPES = {"BOOL": "?", **{f"{sign}INT{bits}": f"{sign or 'I'}{bits // 8}".lower() for sign in ("", "U") for bits in (8, 16, 32, 64)}}
DTYPES |= {"FP16": "f2", "FP32": "f4", "FP64": "f8"}
ARRAYS: dict[str, Any] = {datatype: np.array([[0, 1, 1]]).astype(dtype) for datatype, dtype in DTYPES.items()}
ARRAYS["BYTES"] = np.array([[b"a", b"", "é".encode()]], object)


def same(one: Tensor, other: Tensor) -> bool:
    facts = [(tensor.name, tensor.datatype, tensor.shape, tensor.parameters, tensor.array.tolist()) for tensor in (one, other)]
    return facts[0] == facts[1]


def test_a_request_says_nothing_that_nobody_said() -> None:
    headers, body = InferenceRequest(
        [Tensor("x", np.array([1.0])), Tensor("e", np.zeros((0, 2), "f4"))], outputs=[RequestOutput("y")]
    ).to_http()
    assert headers == {"Content-Type": "application/json"}
    assert body == (
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[1.0]},{"name":"e","shape":[0,2],"datatype":"FP32","data":[]}],'
        b'"outputs":[{"name":"y"}]}'
    )


def test_bytes_that_json_cannot_hold() -> None:
    request = InferenceRequest([Tensor("x", np.array([b"\xff"], object))])
    with pytest.raises(InferenceError, match=r"input 'x': BYTES element 0 is b'\\xff', .* use to_http\(binary=True\)"):
        request.to_http()
    assert request.to_http(binary=True)[1].endswith(b"\x01\x00\x00\x00\xff")


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
def test_what_is_sent_to_our_server_and_answered_by_it_is_read(binary: bool) -> None:
    server, seen = InferenceServer(), list[Any]()

    @server.model("echo", version="3")
    def echo(request: InferenceRequest) -> Any:
        seen.append(request)
        return {tensor.name: tensor.array for tensor in request.inputs}

    tensors = [Tensor(name, array, {"content_type": "np"}) for name, array in ARRAYS.items()]
    outputs = [RequestOutput(name, {"binary_data": binary}) for name in reversed(ARRAYS)]
    request = InferenceRequest(tensors, "an id", {"binary_data_output": True}, outputs)
    headers, body = request.to_http(binary=binary)
    assert headers["Content-Type"] == ("application/octet-stream" if binary else "application/json")
    assert (HEADER in headers) is binary
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/echo/infer", tuple(headers.items()), body))
    [came] = seen
    assert (came.id, came.parameters, all(map(same, came.inputs, tensors))) == ("an id", request.parameters, True)
    assert [(output.name, output.parameters) for output in came.outputs] == [(output.name, output.parameters) for output in outputs]
    response = InferenceResponse.from_http(answer.headers, answer.body)
    assert (response.model_name, response.model_version, response.id, response.parameters) == ("echo", "3", "an id", {})
    assert [(output.name, output.array.tolist()) for output in reversed(response.outputs)] == [(n, a.tolist()) for n, a in ARRAYS.items()]


def test_many_outputs_are_one_list() -> None:
    """They are written in more than one piece."""
    arrays = {f"y{number}": np.array([number, -number], np.int16) for number in range(5_000)}
    server = InferenceServer()
    server.register("m", lambda: InferenceResponse([Tensor(name, array) for name, array in arrays.items()], {"a": "b"}))
    for is_binary in (False, True):
        _, body = InferenceRequest([], "1", {"binary_data_output": is_binary}).to_http()
        answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body))
        response = InferenceResponse.from_http(answer.headers, answer.body)
        assert (response.model_name, response.id, response.parameters, HEADER.lower() in answer.headers) == (
            "m",
            "1",
            {"a": "b"},
            is_binary,
        )
        assert [output.name for output in response.outputs] == [*arrays]
        assert all(np.array_equal(output.array, arrays[output.name]) for output in response.outputs)


@pytest.mark.parametrize("elements", [1, 5000])
def test_what_came_as_json_may_be_changed(elements: int) -> None:
    for datatype in ("FP16", "FP32", "FP64", "INT64", "BOOL"):
        output = {"name": "y", "shape": [elements], "datatype": datatype, "data": [1] * elements}
        array = InferenceResponse.from_http({}, json.dumps({"model_name": "m", "outputs": [output]}).encode())["y"]
        array[:] = 0
        assert not array.any()


GOOD = {"name": "y", "shape": [3], "datatype": "FP32", "data": [1, None, 2.5]}


@pytest.mark.parametrize(
    "document",
    [
        {"outputs": [GOOD]},
        {"model_name": "m", "model_version": None, "id": None, "parameters": None, "outputs": [{**GOOD, "parameters": None}]},
        {"model_name": "m", "outputs": [{**GOOD, "parameters": {}}], "unknown": {"fields": [1]}, "parameters": {"content_type": "np"}},
        {
            "outputs": [{**GOOD, "parameters": {"content_type": None, "a": 1}}],
            "parameters": {"content_type": None, "headers": None, "a": 1},
        },
    ],
)
def test_the_forms_that_other_servers_answer_in(document: Any) -> None:
    response = InferenceResponse.from_http({"content-type": "text/plain"}, json.dumps(document).encode())
    np.testing.assert_array_equal(response["y"], np.array([1, np.nan, 2.5], "f4"))
    assert None not in {**response.parameters, **response.outputs[0].parameters}.values()


def test_literals_that_are_no_json_are_read() -> None:
    text = b'{"model_name":"m","outputs":[{"name":"y","shape":[2],"datatype":"FP32","data":[NaN,-Infinity]}]}'
    np.testing.assert_array_equal(InferenceResponse.from_http({}, text)["y"], np.array([np.nan, -np.inf], "f4"))


BINARY = b'{"model_name":"m","outputs":[{"name":"y","shape":[2],"datatype":"UINT8","parameters":{"binary_data_size":2}}]}'


def test_a_buffer_that_a_response_is_read_from_cannot_go_from_under_it() -> None:
    buffer = bytearray(BINARY + b"\x01\x02")
    response = InferenceResponse.from_http({HEADER: str(len(BINARY))}, buffer)
    with pytest.raises(BufferError):
        buffer.clear()
    assert response["y"].tolist() == [1, 2]


LENGTH = str(len(BINARY))
MESSAGE = HTTPMessage()
MESSAGE[HEADER] = LENGTH


@pytest.mark.parametrize(
    "headers",
    [
        *({name: LENGTH} for name in (HEADER, HEADER.lower(), HEADER.upper())),
        {HEADER.encode(): LENGTH.encode()},
        [(HEADER, LENGTH)],
        [(b"content-type", b"\xff"), (HEADER.lower().encode(), LENGTH.encode())],
        ((name, value) for name, value in [(HEADER, LENGTH)]),
        MESSAGE,
        httpx2.Headers({HEADER: LENGTH}),
        h11.Response(status_code=200, headers=[(HEADER, LENGTH)]).headers,
        requests.structures.CaseInsensitiveDict({HEADER: LENGTH}),
    ],
    ids=["as it is", "lower", "upper", "bytes", "pairs", "pairs of bytes", "iterator", "http.client", "httpx2", "h11", "requests"],
)
def test_headers_of_any_library(headers: Any) -> None:
    response = InferenceResponse.from_http(headers, BINARY + b"\x01\x02", 200)
    assert (response["y"].tolist(), response.outputs[0].parameters) == ([1, 2], {})


@pytest.mark.parametrize(
    ("headers", "body", "message"),
    [
        ({}, b'{"error": "the model is out"}', "the server answered with an error: the model is out"),
        ({}, b"<html>502 Bad Gateway</html>", "is not one of inference: the body is not valid JSON"),
        ({}, b"", "is not one of inference"),
        ({}, b"\xff", "is not one of inference: the JSON is not valid UTF-8"),
        ({}, b"{}", "outputs is missing"),
        ({}, b"[]", "the body: expected object, got array"),
        ({}, b'{"outputs":[{"name":"y","shape":[2],"datatype":"FP32","data":[1]}]}', r"outputs\[0\] \('y'\): data has 1 elements"),
        ({}, b'{"outputs":[{"name":"y","shape":[2],"datatype":"FP99","data":[1]}]}', "unknown datatype 'FP99'"),
        ({}, b'{"outputs":[{"name":"y","shape":["a"],"datatype":"FP32"}]}', r"outputs\[0\].shape\[0\]"),
        ({}, b"[" * 100_000, "nested more than 100 deep"),
        ({}, BINARY + b"\x01\x02", "not valid JSON"),
        ({HEADER: "abc"}, BINARY, "Inference-Header-Content-Length is 'abc': expected a plain decimal number"),
        ({HEADER: "9" * 19}, BINARY, "expected a plain decimal number"),
        ({HEADER: "5", HEADER.lower(): "5"}, BINARY, "expected a plain decimal number"),
        ([(HEADER, "5"), (HEADER, "5")], BINARY, "is '5, 5': expected a plain decimal number"),
        ([(HEADER.encode(), b"\xff")], BINARY, "expected a plain decimal number"),
        ({HEADER: "9999"}, BINARY, "is 9999, but the body has"),
        ({HEADER: str(len(BINARY))}, BINARY + b"\x01", "binary_data_size is 2, but 1 bytes"),
        ({HEADER: str(len(BINARY))}, BINARY + b"\x01\x02\x03", "1 bytes are left over"),
    ],
)
def test_what_is_no_response(headers: Any, body: bytes, message: str) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        InferenceResponse.from_http(headers, body)
    assert caught.value.status == 502


ERRORS: list[tuple[Any, bytes, int | None, str]] = [
    ({}, b'{"error": "the model is out"}', 404, "the model is out"),
    ({}, b'{"error": {"code": 8, "message": "too many"}}', 429, "too many"),
    ({}, b'{"error": {"code": 8}}', 500, '{"code":8}'),
    ({}, b'{"detail": "Not Found"}', 404, "Not Found"),
    (
        {},
        b'{"detail": [{"loc": ["body", "inputs"], "msg": "Field required"}, {"msg": "no"}, "odd"]}',
        422,
        "body.inputs: Field required; no; odd",
    ),
    ({}, b'{"message": "Service Unavailable"}', 503, "Service Unavailable"),
    ({}, b'"only a text"', 400, "only a text"),
    ({}, b"<html>502 Bad Gateway</html>", 502, "<html>502 Bad Gateway</html>"),
    ({}, b"upstream connect error\n", 503, "upstream connect error"),
    ({}, b"\xff", 500, "�"),
    ({}, b"", 504, ""),
    ({}, b"[1]", 400, "[1]"),
    ({}, b"x" * 600, 500, "x" * 500 + "... (600 characters)"),
    ({"Location": "/v2/"}, b"", 307, "a redirect to /v2/"),
    ({HEADER: "abc"}, b"oops", 500, "oops"),
    ({}, b'{"error": "in the middle"}', 200, "in the middle"),
    ({}, b'{"detail": "Not Found"}', None, "Not Found"),
    ({}, b'{"error": "the model is out"}', None, "the model is out"),
]


@pytest.mark.parametrize(("headers", "body", "status", "text"), ERRORS)
def test_an_error_of_any_server_has_status_and_text(headers: Any, body: bytes, status: int | None, text: str) -> None:
    for kind in (memoryview, bytes):
        with pytest.raises(ErrorResponse) as caught:
            InferenceResponse.from_http(headers, kind(body), status)
    error = caught.value
    assert (error.response_status, error.text) == (status, text)
    said = "with an error" if status is None else f"with the status {status}"
    assert str(error) == (f"the server answered {said}: {text}" if text else f"the server answered {said}")
    assert error.status == 502  # what a model that lets it pass answers its own clients
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.text, again.response_status) == (ErrorResponse, str(error), text, status)


def test_what_is_neither_a_response_nor_an_error() -> None:
    for status in (None, 200):
        with pytest.raises(InvalidResponse, match="is not one of inference: the body is not valid JSON") as caught:
            InferenceResponse.from_http({}, b"<html>a page</html>", status)
        assert type(caught.value) is InvalidResponse
