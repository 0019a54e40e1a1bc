"""What only gRPC can get wrong, and how models fail there: codes, texts, and what is logged. What REST can too is in the table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import grpc
import pytest

from oip_asgi import InferenceServer
from tests.support.grpc_demo import TWO_FLOATS, fp32, logged
from tests.support.grpc_ways import SERVICE, Client, Serving, wire_request

BOTH = "contents field must not be specified when using raw_input_contents for '{}' for model 'echo'"
CONTENTS = {"fp32_contents": [1, 2]}
LARGE_BYTES = bytes(100_000)

BAD: dict[str, tuple[list[Any], list[bytes], str]] = {
    "raw for one of two": ([fp32(), fp32("y")], [TWO_FLOATS], "has 1 items: expected one for each of 2 inputs, or none"),
    "raw for none": ([], [b""], "raw_input_contents has 1 items: expected one for each of 0 inputs"),
    "more raw than inputs": ([fp32()], [TWO_FLOATS] * 2, "raw_input_contents has 2 items"),
    "contents and raw": ([fp32(contents=CONTENTS)], [TWO_FLOATS], BOTH.format("x")),
    "contents of the second and raw": ([fp32(), fp32("y", contents=CONTENTS)], [TWO_FLOATS] * 2, BOTH.format("y")),
    "contents without elements and raw": ([fp32(contents={})], [TWO_FLOATS], BOTH.format("x")),
    # as Triton's grpc_explicit_int_content_client sends it
    "contents and raw for one of two": ([fp32(contents=CONTENTS), fp32("y", contents=CONTENTS)], [TWO_FLOATS], BOTH.format("x")),
    "neither": ([fp32()], [], "inputs[0] ('x'): contents.fp32_contents has 0 elements: expected 2 for shape [1, 2]"),
    "two fields": (
        [fp32(contents={**CONTENTS, "int_contents": [1]})],
        [],
        "contents.int_contents is given: expected contents.fp32_contents",
    ),
    "unknown datatype": ([{**fp32(), "datatype": "fp32"}], [TWO_FLOATS], "inputs[0] ('x'): unknown datatype 'fp32'"),
    "no datatype": ([{"name": "x", "shape": [2]}], [TWO_FLOATS], "unknown datatype ''"),
    "negative dimensions": ([fp32(shape=[-1, -2])], [TWO_FLOATS], "inputs[0].shape[0]: expected int >= 0"),
    "shared memory, and no data": (
        [fp32(parameters={"shared_memory_region": {"string_param": "r"}})],
        [],
        "inputs[0] ('x'): it has the parameter shared_memory_region, which this server does not support",
    ),
    "large: too long": ([fp32()], [LARGE_BYTES], "inputs[0] ('x'): 100000 bytes of binary data, but shape [1, 2] needs 8"),
    "large: more raw than inputs": ([fp32(shape=[25_000])], [LARGE_BYTES, b""], "has 2 items: expected one for each of 1 inputs"),
    "large: the second": ([fp32(shape=[25_000]), fp32("y")], [LARGE_BYTES, b"1"], "inputs[1] ('y'): 1 bytes of binary data"),
    "large: contents": ([fp32(shape=[25_000], contents={"int_contents": [1]})], [LARGE_BYTES], BOTH.format("x")),
    "large: BYTES": (
        [{"name": "x", "datatype": "BYTES", "shape": [2]}],
        [LARGE_BYTES],
        "99992 bytes are left over behind the last of 2 BYTES elements",
    ),
}


def test_what_is_wrong_is_an_invalid_argument(client: Client) -> None:
    for name, (tensors, raw, expected) in BAD.items():
        code, text = client.refusal("ModelInfer", wire_request("echo", tensors, raw))
        assert (name, code, expected in text) == (name, "INVALID_ARGUMENT", True), text


GOOD_BYTES = wire_request("echo", [fp32()], [TWO_FLOATS]).SerializeToString()
GOOD_LARGE = wire_request("echo", [fp32(shape=[25_000])], [LARGE_BYTES]).SerializeToString()
NO_MESSAGES = {
    "no tag": b"\xff",
    "cut off": b"\x0a\x05ab",
    "cut off raw": GOOD_BYTES[:-1],
    "text not UTF-8": GOOD_BYTES + b"\x0a\x02\xff\xfe",
    "name not UTF-8": b"\x0a\x01\xff",
    "wire type 7": b"\x07",
    "nested nonsense": b"\x2a\x7f" + b"\x2a" * 126,
    "large, no tag": GOOD_LARGE + b"\xff",
    "large, cut off raw": GOOD_LARGE + b"\x3a\x7f",
    "large, text not UTF-8": GOOD_LARGE + b"\x0a\x01\xff",
    "large, wire type 7": GOOD_LARGE + b"\x07",
}


def test_bytes_that_are_no_message(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    text = "the request cannot be parsed: expected the bytes of inference.ModelInferRequest"
    for name, data in NO_MESSAGES.items():
        assert client.refusal("ModelInfer", data) == ("INVALID_ARGUMENT", text), name
    assert client.ask("ModelInfer", GOOD_LARGE).raw_output_contents == [LARGE_BYTES]
    client.refusal("ModelInfer", wire_request("nope"))
    assert not logged(caplog)


CODES = {
    "INVALID_ARGUMENT": (400, 409, 422),
    "UNAUTHENTICATED": (401,),
    "PERMISSION_DENIED": (403,),
    "NOT_FOUND": (404,),
    "RESOURCE_EXHAUSTED": (413, 429),
    "INTERNAL": (500, 502),
    "UNIMPLEMENTED": (501,),
    "UNAVAILABLE": (503,),
    "DEADLINE_EXCEEDED": (504,),
}


def test_a_model_speaks_by_its_status(client: Client) -> None:
    for code, statuses in CODES.items():
        for status in statuses:
            tensor = {"name": "status", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [status]}}
            assert client.refusal("ModelInfer", wire_request("speaks", [tensor])) == (code, "the teapot is short and stout")


class Panic(BaseException):
    """What libraries raise that are written in Rust."""


def failing(raised: BaseException) -> dict[str, Callable[[], Any]]:
    def fails() -> None:
        raise raised

    async def fails_async() -> None:
        await asyncio.sleep(0)
        raise raised

    async def fails_at_once() -> None:
        raise raised

    return {"thread": fails, "timeout": fails, "inline": fails, "async": fails_async, "at once": fails_at_once}


@pytest.mark.parametrize("raised", [Panic("a secret"), CancelledError("a secret")], ids=["a panic", "a future that was cancelled"])
def test_a_model_that_raises_what_is_no_exception_of_a_common_kind(
    serving: Serving, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    server = InferenceServer()
    models = failing(raised)
    for name, model in models.items():
        run = {"run": name} if name in ("inline", "thread") else {}
        server.register(name, model, timeout=60 if name == "timeout" else None, **run)  # type: ignore[arg-type]
    server.register("n", lambda: 1)
    with serving(server) as address:
        client = Client(address)
        for name in models:
            failed = ("INTERNAL", f"model '{name}' failed: see the server's log")
            assert client.refusal("ModelInfer", wire_request(name)) == failed
            assert client.ask("ModelInfer", wire_request("n")).outputs[0].name == "output_0"
    for record in logged(caplog):
        assert record.exc_info is not None
        assert "a secret" in repr((record.exc_info[1], getattr(record.exc_info[1], "__cause__", None)))


def test_any_text_of_an_error_arrives(client: Client) -> None:
    not_ascii, long, lone_surrogate = "é\n\t% ☃".encode(), b"x" * 100_000, b"\xff"
    for said, heard in ((not_ascii, "é\n\t% ☃"), (long, "x" * 2000), ("☃".encode() * 100_000, "☃" * 666), (lone_surrogate, "?")):
        tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [said]}}
        assert client.refusal("ModelInfer", wire_request("says", [tensor])) == ("INVALID_ARGUMENT", heard)


def test_an_unknown_method(client: Client) -> None:
    call: Any = client.channel.unary_unary(f"/{SERVICE}/TraceSetting")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
