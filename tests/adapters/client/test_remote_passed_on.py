"""What `remote` passes on of a request to the other server: headers, parameters and the time that is left."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import httpx2
import numpy as np
import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceServer, OIPApp
from oip_asgi.client import remote
from tests.adapters.client.test_remote import GOOD, answering, in_front_of
from tests.support.asking import ask, described, error, outputs
from tests.support.ways import Request, over_asgi


@pytest.fixture
def far() -> tuple[InferenceServer, list[InferenceContext]]:
    """A server with a model, and what its model was asked."""
    server, seen = InferenceServer(), list[InferenceContext]()

    @server.model("look", allow_timeout_override=True)
    def look(x: Any, context: InferenceContext) -> Any:
        seen.append(context)
        return x

    return server, seen


def test_headers_parameters_and_the_time_that_is_left_are_passed_on(far: tuple[InferenceServer, list[InferenceContext]]) -> None:
    server, seen = far
    near = in_front_of(server, "look", timeout=30)
    text = json.dumps({"id": "7", "parameters": {"binary_data_output": False, "priority": 1, "mine": "a"}, "inputs": described(x=GOOD)})
    sent = [("authorization", "Bearer x"), ("traceparent", "00-1"), ("cookie", "a=b"), ("x-forwarded-for", "1.2.3.4")]
    assert over_asgi(OIPApp(near), "")(Request("POST", "/models/look/infer", sent, text.encode())).status == 200
    [context] = seen
    assert {name: value for name, value in context.headers.items() if name in dict(sent)} == dict(sent[:2])
    left = context.parameters["timeout"]
    assert isinstance(left, int)
    assert 20_000_000 < left <= 30_000_000
    assert context.deadline < time.monotonic() + 30
    assert context.parameters == {"binary_data_output": True, "priority": 1, "mine": "a", "timeout": left}
    assert context.id == "7"

    assert outputs(ask(in_front_of(server, "look", forward=["X-Mine"]), "look", x=GOOD))
    assert "timeout" not in seen[-1].parameters
    assert seen[-1].deadline == math.inf


def test_a_header_of_other_bytes_than_ascii_arrives_as_it_was_sent(far: tuple[InferenceServer, list[InferenceContext]]) -> None:
    server, seen = far
    sent = "Ren\xe9".encode().decode("latin-1")
    request = Request("POST", "/models/look/infer", [("authorization", sent)], json.dumps({"inputs": described(x=GOOD)}).encode())
    assert over_asgi(OIPApp(in_front_of(server, "look")), "")(request).status == 200
    assert seen[0].headers["authorization"] == sent


def test_a_header_that_could_be_two_is_not_passed_on() -> None:
    near = in_front_of(answering(200, {}), "m")
    request = Request("POST", "/models/m/infer", [("authorization", "a\r\nb: c")], json.dumps({"inputs": described(x=GOOD)}).encode())
    assert error(over_asgi(OIPApp(near), "")(request))[0] == 400


def test_a_parameter_that_would_be_another_one_there_is_refused(far: tuple[InferenceServer, list[InferenceContext]]) -> None:
    server, seen = far
    near = in_front_of(server, "look")
    good = {"a": -(2**63), "b": 2**63 - 1, "sequence_id": 2**64 - 1, "priority": 2**63, "c": -1.5, "d": True, "é": '\n"', "": 1e300}
    assert outputs(ask(near, "look", {"parameters": good}, x=GOOD))
    assert good.items() <= seen.pop().parameters.items()
    for number in (-1, 2**64):  # those of the request itself are checked before
        document = {"inputs": [{**item, "parameters": {"priority": number}} for item in described(x=GOOD)]}
        assert error(ask(near, "look", document))[0] == 400
    for name, value in (("a", 2**63), ("a", "b\0"), ("a\0b", 1), ("a\0b", "c")):
        answer = ask(near, "look", {"parameters": {name: value}}, x=GOOD)
        assert error(answer)[0] == 400
        assert "cannot be passed on: expected text without NUL" in error(answer)[1]
        document = {"inputs": [{**item, "parameters": {name: value}} for item in described(x=GOOD)]}
        assert error(ask(near, "look", document))[0] == 400
    with pytest.raises(InferenceError, match="'a' = nan cannot be passed on"):
        near.infer_sync("look", {"x": np.ones(1)}, parameters={"a": math.nan})
    assert not seen


def test_bytes_for_a_server_that_takes_json_only_are_refused_with_what_the_client_may_write() -> None:
    def far(request: httpx2.Request) -> httpx2.Response:
        declared = [{"name": "x", "datatype": "BYTES", "shape": [-1]}]
        return httpx2.Response(200, json={"name": "m", "inputs": declared, "outputs": declared, "extensions": []})

    with pytest.raises(InferenceError) as raised:
        in_front_of(far, "m").infer_sync("m", {"x": np.array([b"\xff"], object)})
    remedy = 'the other server has no binary data: send base64 text, with the content type "base64"'
    assert str(raised.value) == f"input 'x': BYTES element 0 is b'\\xff', which is not UTF-8 and cannot be a JSON string: {remedy}"


def test_headers_that_the_other_server_could_not_read_are_refused() -> None:
    far = InferenceServer()
    far.register("same", lambda x: x)
    near = in_front_of(far, "same")
    body = json.dumps({"inputs": described(x=GOOD)}).encode()
    for value, trace, status in (("a" * 6900, "00-1", 200), ("a" * 6900, "b" * 100, 400), ("a" * 7000, "00-1", 400)):
        headers = [("authorization", value), ("traceparent", trace), ("x-not-passed-on", "c" * 9000)]
        answer = over_asgi(OIPApp(near), "")(Request("POST", "/models/same/infer", headers, body))
        assert answer.status == status
    assert error(answer)[1] == (
        "the forwarded headers ('authorization', 'traceparent') have more than 7000 bytes together: send shorter ones"
    )


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "connection", "inference-header-content-length"])
def test_a_header_of_one_connection_is_not_one_to_forward(name: str) -> None:
    with pytest.raises(ValueError, match="a header of one connection"):
        remote("http://far/v2", "m", forward=[name])
