"""What is refused over gRPC and how models fail there: codes, texts, and what is logged."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from typing import Any

import grpc
import pytest

from oip_asgi import InferenceServer
from oip_asgi._grpc.messages import TYPED
from tests.support.grpc_demo import TWO_FLOATS, fp32, logged
from tests.support.grpc_ways import SERVICE, Client, Serving, wire_request
from tests.support.inside import break_encoding

BAD = {
    "raw too short": (wire_request("echo", [fp32()], [b"1234567"]), "inputs[0] ('x'): 7 bytes of binary data, but shape [1, 2] needs 8"),
    "raw too long": (wire_request("echo", [fp32()], [b"123456789"]), "inputs[0] ('x'): 9 bytes of binary data, but shape"),
    "raw for one of two": (
        wire_request("echo", [fp32(), fp32("y")], [TWO_FLOATS]),
        "raw_input_contents has 1 items: expected one for each of 2 inputs, or none",
    ),
    "raw for none": (wire_request("echo", [], [b""]), "raw_input_contents has 1 items: expected one for each of 0 inputs"),
    "more raw than inputs": (wire_request("echo", [fp32()], [TWO_FLOATS] * 2), "raw_input_contents has 2 items"),
    "contents and raw": (
        wire_request("echo", [fp32(contents={"fp32_contents": [1, 2]})], [TWO_FLOATS]),
        "contents field must not be specified when using raw_input_contents for 'x' for model 'echo'",
    ),
    "contents of the second and raw": (
        wire_request("echo", [fp32(), fp32("y", contents={"fp32_contents": [1, 2]})], [TWO_FLOATS, TWO_FLOATS]),
        "contents field must not be specified when using raw_input_contents for 'y' for model 'echo'",
    ),
    "contents without elements and raw": (
        wire_request("echo", [fp32(contents={})], [TWO_FLOATS]),
        "contents field must not be specified when using raw_input_contents for 'x' for model 'echo'",
    ),
    "contents and raw for one of two": (  # as Triton's grpc_explicit_int_content_client sends it
        wire_request("echo", [fp32(contents={"fp32_contents": [1, 2]}), fp32("y", contents={"fp32_contents": [1, 2]})], [TWO_FLOATS]),
        "contents field must not be specified when using raw_input_contents for 'x' for model 'echo'",
    ),
    "neither": (wire_request("echo", [fp32()]), "inputs[0] ('x'): contents.fp32_contents has 0 elements: expected 2 for shape [1, 2]"),
    "too few elements": (
        wire_request("echo", [fp32(contents={"fp32_contents": [1]})]),
        "contents.fp32_contents has 1 elements: expected 2",
    ),
    "elements for none": (
        wire_request("echo", [fp32(shape=[0], contents={"fp32_contents": [1]})]),
        "contents.fp32_contents has 1 elements: expected 0 for shape [0]",
    ),
    "field of another datatype": (
        wire_request("echo", [fp32(contents={"fp64_contents": [1, 2]})]),
        "inputs[0] ('x'): contents.fp64_contents is given: expected contents.fp32_contents for FP32",
    ),
    "two fields": (
        wire_request("echo", [fp32(contents={"fp32_contents": [1, 2], "int_contents": [1]})]),
        "contents.int_contents is given: expected contents.fp32_contents",
    ),
    "unknown datatype": (wire_request("echo", [{**fp32(), "datatype": "fp32"}], [TWO_FLOATS]), "inputs[0] ('x'): unknown datatype 'fp32'"),
    "no datatype": (wire_request("echo", [{"name": "x", "shape": [2]}], [TWO_FLOATS]), "unknown datatype ''"),
    "negative dimension": (wire_request("echo", [fp32(shape=[1, -2])], [TWO_FLOATS]), "inputs[0].shape[1]: expected int >= 0"),
    "negative dimensions": (wire_request("echo", [fp32(shape=[-1, -2])], [TWO_FLOATS]), "inputs[0].shape[0]: expected int >= 0"),
    "shape 2^62": (wire_request("echo", [fp32(shape=[2**62])], [TWO_FLOATS]), "shape is too large"),
    "shape [0, 2^62]": (wire_request("echo", [fp32(shape=[0, 2**62])], [b""]), "shape is too large"),
    "shape [2^32, 2^32]": (wire_request("echo", [fp32(shape=[2**32, 2**32])]), "shape is too large"),
    "shape of 65 dimensions": (wire_request("echo", [fp32(shape=[1] * 65)], [b"1234"]), "65 dimensions: at most 64"),
    "input twice": (wire_request("echo", [fp32(), fp32()], [TWO_FLOATS] * 2), "input 'x' is there twice"),
    "missing input": (wire_request("declared"), "missing input 'x'"),
    "unknown input": (wire_request("declared", [fp32("z")], [TWO_FLOATS]), "unknown input 'z': expected 'x'"),
    "wrong shape": (wire_request("declared", [fp32(shape=[2])], [TWO_FLOATS]), "input 'x' has shape [2]: expected [-1, 2]"),
    "unknown content type": (
        wire_request("echo", [fp32(parameters={"content_type": {"string_param": "nope"}})], [TWO_FLOATS]),
        "'nope'",
    ),
    "shared memory": (
        wire_request("echo", [fp32(parameters={"shared_memory_region": {"string_param": "r"}})], [TWO_FLOATS]),
        "input 'x' has the parameter shared_memory_region",
    ),
    "shared memory, and no data": (
        wire_request("echo", [fp32(parameters={"shared_memory_region": {"string_param": "r"}})]),
        "inputs[0] ('x'): it has the parameter shared_memory_region, which this server does not support",
    ),
    "BYTES length cut off": (
        wire_request("echo", [{"name": "x", "datatype": "BYTES", "shape": [1]}], [b"\1\0\0"]),
        "BYTES element 0: its 4-byte length is cut off",
    ),
    "BYTES overlong": (wire_request("echo", [{"name": "x", "datatype": "BYTES", "shape": [1]}], [b"\1\0\0\0ab"]), "1 bytes are left over"),
    "BYTES too few": (wire_request("echo", [{"name": "x", "datatype": "BYTES", "shape": [2]}], [b"\1\0\0\0a"]), "1 BYTES elements"),
    "BYTES length 2^32-1": (
        wire_request("echo", [{"name": "x", "datatype": "BYTES", "shape": [1]}], [b"\xff" * 4]),
        "claims 4294967295 bytes",
    ),
    "BOOL 2": (wire_request("echo", [{"name": "x", "datatype": "BOOL", "shape": [1]}], [b"\2"]), "BOOL element 0 is the byte 2"),
    **{
        f"{datatype} has no field": (
            wire_request("echo", [{"name": "x", "datatype": datatype, "shape": [1], "contents": {"fp32_contents": [1]}}]),
            f"datatype {datatype} has no field in contents: send it as raw_input_contents",
        )
        for datatype in ("FP16", "BF16")
    },
    **{
        f"{datatype} {element}": (
            wire_request("echo", [{"name": "x", "datatype": datatype, "shape": [2], "contents": {TYPED[datatype]: [0, element]}}]),
            f"inputs[0] ('x'): contents.{TYPED[datatype]}: element 1 is out of range for {datatype}: expected ",
        )
        for datatype, element in (("INT8", 128), ("INT8", -129), ("INT16", 2**15), ("UINT8", 256), ("UINT16", 2**16))
    },
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_an_invalid_argument(client: Client, name: str) -> None:
    request, expected = BAD[name]
    code, text = client.refusal("ModelInfer", request)
    assert code == "INVALID_ARGUMENT"
    assert expected in text


GOOD_BYTES = wire_request("echo", [fp32()], [TWO_FLOATS]).SerializeToString()


@pytest.mark.parametrize(
    "data",
    [b"\xff", b"\x0a\x05ab", GOOD_BYTES[:-1], GOOD_BYTES + b"\x0a\x02\xff\xfe", b"\x0a\x01\xff", b"\x07", b"\x2a\x7f" + b"\x2a" * 126],
    ids=["no tag", "cut off", "cut off raw", "text not UTF-8", "name not UTF-8", "wire type 7", "nested nonsense"],
)
def test_bytes_that_are_no_message(client: Client, data: bytes) -> None:
    text = "the request cannot be parsed: expected the bytes of inference.ModelInferRequest"
    assert client.refusal("ModelInfer", data) == ("INVALID_ARGUMENT", text)


def test_unknown_fields_are_ignored(client: Client) -> None:
    later = bytes([15 << 3 | 2, 3]) + b"abc"
    assert client.ask("ModelInfer", GOOD_BYTES + later).raw_output_contents == [TWO_FLOATS]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (409, "INVALID_ARGUMENT"),
        (413, "RESOURCE_EXHAUSTED"),
        (422, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (501, "UNIMPLEMENTED"),
        (502, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_a_model_speaks_by_its_status(client: Client, status: int, code: str) -> None:
    tensor = {"name": "status", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [status]}}
    assert client.refusal("ModelInfer", wire_request("speaks", [tensor])) == (code, "the teapot is short and stout")


def test_a_model_that_raises(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    text = "model 'raises' failed: see the server's log"
    assert client.refusal("ModelInfer", wire_request("raises", id="7")) == ("INTERNAL", text)
    [record] = logged(caplog)
    assert record.getMessage() == "model 'raises' failed on the request with id '7'"
    assert record.exc_info is not None
    assert "a secret" in str(record.exc_info[1])


class Panic(BaseException):
    """What libraries raise that are written in Rust."""


@pytest.mark.parametrize("raised", [Panic("a secret"), CancelledError("a secret")], ids=["a panic", "a future that was cancelled"])
@pytest.mark.parametrize("run", ["async", "inline", "thread", "timeout"])
def test_a_model_that_raises_what_is_no_exception_of_a_common_kind(
    serving: Serving, run: str, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    server = InferenceServer()

    def fails() -> None:
        raise raised

    async def fails_async() -> None:
        await asyncio.sleep(0)
        raise raised

    async def fails_at_once() -> None:
        raise raised

    if run == "async":
        server.register("m", fails_async)
        server.register("n", fails_at_once)
    else:
        server.register("m", fails, run="inline" if run == "inline" else "thread", timeout=60 if run == "timeout" else None)
        server.register("n", lambda: 1)
    with serving(server) as address:
        client = Client(address)
        assert client.refusal("ModelInfer", wire_request("m")) == ("INTERNAL", "model 'm' failed: see the server's log")
        if run == "async":
            assert client.refusal("ModelInfer", wire_request("n")) == ("INTERNAL", "model 'n' failed: see the server's log")
        else:
            assert client.ask("ModelInfer", wire_request("n")).outputs[0].name == "output_0"
    for record in logged(caplog):
        assert record.exc_info is not None
        assert "a secret" in repr((record.exc_info[1], getattr(record.exc_info[1], "__cause__", None)))


def test_what_the_package_itself_gets_wrong_is_logged_and_answered(
    serving: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_encoding(monkeypatch)
    server = InferenceServer()
    server.register("m", lambda: 1)
    with serving(server) as address:
        refusal = Client(address).refusal("ModelInfer", wire_request("m"))
    assert refusal == ("INTERNAL", "internal error: see the server's log")
    assert [record.getMessage() for record in logged(caplog)] == ["an error of oip_asgi itself, please report it"]


def test_refusals_leave_the_log_alone(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.refusal("ModelInfer", wire_request("nope"))
    client.refusal("ModelInfer", b"\xff")
    assert not logged(caplog)


@pytest.mark.parametrize(
    ("said", "heard"),
    [("é\n\t% ☃", "é\n\t% ☃"), ("x" * 100_000, "x" * 2000), ("☃" * 100_000, "☃" * 666), (b"\xff", "?")],
    ids=["not ASCII", "long", "long, not ASCII", "lone surrogate"],
)
def test_any_text_of_an_error_arrives(client: Client, said: str | bytes, heard: str) -> None:
    element = said if isinstance(said, bytes) else said.encode()
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [element]}}
    assert client.refusal("ModelInfer", wire_request("says", [tensor])) == ("INVALID_ARGUMENT", heard)


def test_an_unknown_method(client: Client) -> None:
    call: Any = client.channel.unary_unary(f"/{SERVICE}/TraceSetting")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"")
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


LARGE_BYTES = bytes(100_000)


@pytest.mark.parametrize(
    ("tensors", "raw", "expected"),
    [
        ([fp32()], [LARGE_BYTES], "inputs[0] ('x'): 100000 bytes of binary data, but shape [1, 2] needs 8"),
        ([fp32(shape=[25_000])], [LARGE_BYTES, b""], "raw_input_contents has 2 items: expected one for each of 1 inputs"),
        ([fp32(shape=[25_000]), fp32("y")], [LARGE_BYTES, b"1"], "inputs[1] ('y'): 1 bytes of binary data"),
        (
            [fp32(shape=[25_000], contents={"int_contents": [1]})],
            [LARGE_BYTES],
            "contents field must not be specified when using raw_input_contents for 'x' for model 'echo'",
        ),
        (
            [{"name": "x", "datatype": "BYTES", "shape": [2]}],
            [LARGE_BYTES],
            "99992 bytes are left over behind the last of 2 BYTES elements",
        ),
    ],
)
def test_what_is_wrong_about_a_large_request(client: Client, tensors: Any, raw: Any, expected: str) -> None:
    code, text = client.refusal("ModelInfer", wire_request("echo", tensors, raw))
    assert code == "INVALID_ARGUMENT"
    assert expected in text


@pytest.mark.parametrize(
    "tail", [b"\xff", b"\x3a\x7f", b"\x0a\x01\xff", b"\x07"], ids=["no tag", "cut off raw", "text not UTF-8", "wire type 7"]
)
def test_large_bytes_that_are_no_message(client: Client, tail: bytes) -> None:
    data = wire_request("echo", [fp32(shape=[25_000])], [LARGE_BYTES]).SerializeToString()
    assert client.ask("ModelInfer", data).raw_output_contents == [LARGE_BYTES]
    text = "the request cannot be parsed: expected the bytes of inference.ModelInferRequest"
    assert client.refusal("ModelInfer", data + tail) == ("INVALID_ARGUMENT", text)
