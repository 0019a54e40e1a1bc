"""Long messages of gRPC: what a parser would make objects of is counted before, and never reaches it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oip_asgi import InferenceServer
from oip_asgi._core.datatypes import Buffer
from oip_asgi._core.grpc.contents import without_contents
from oip_asgi._core.grpc.wire import bytes_head
from oip_asgi._core.limits import ON_LOOP
from tests.support.grpc_ways import MESSAGES
from tests.support.inside import Messages, answer_grpc

SIZE = 2**21
MODEL = b"\x0a\x04echo"


def sized(field: int, content: bytes) -> bytes:
    return bytes_head(field, len(content)) + content


def entries(field: int) -> bytes:
    """Parameters of different names."""
    return b"".join(sized(field, sized(1, b"%d" % place) + sized(2, b"\x08\x01")) for place in range(SIZE // 12))


def tensor(*parts: bytes) -> bytes:
    return sized(5, b"".join([sized(1, b"x"), sized(2, b"INT64"), *parts]))


DEAR = {
    "inputs": (b"\x2a\x00" * (SIZE // 2), "the request has more than 100000 inputs"),
    "outputs": (b"\x32\x00" * (SIZE // 2), "the request has more than 100000 outputs"),
    "raw contents": (b"\x3a\x00" * (SIZE // 2), "the request has more than 100000 raw contents"),
    "parameters": (entries(4), "the request has more than 100000 parameters"),
    "parameters of an input": (tensor(entries(4)), "the request has more than 100000 parameters"),
    "parameters of an output": (sized(6, entries(2)), "the request has more than 100000 parameters"),
    "dimensions": (tensor(sized(3, b"\1" * SIZE)), "inputs[0]: shape has more than 64 dimensions"),
    "dimensions one by one": (tensor(b"\x18\1" * SIZE), "inputs[0]: shape has more than 64 dimensions"),
    "an end in the middle": (b"\x2a\x00" * (SIZE // 4) + b"\x2a", "the request has more than 100000 inputs"),
    "a field that is cut off": (sized(99, bytes(SIZE)) + b"\x2a\x05", "the request cannot be parsed"),
    "the end of no group": (sized(99, bytes(SIZE)) + b"\x4c", "the request cannot be parsed"),
}


@pytest.fixture
def server() -> Iterator[InferenceServer]:
    server = InferenceServer()
    server.register("echo", lambda **inputs: inputs)
    yield server
    server.stop()


@pytest.mark.parametrize(("message", "text"), DEAR.values(), ids=DEAR)
def test_what_is_too_many_never_reaches_the_parser(message: bytes, text: str, server: InferenceServer) -> None:
    parsed: list[int] = []

    def parse(data: Buffer) -> object:
        parsed.append(len(data))
        return MESSAGES["ModelInferRequest"].FromString(bytes(data))

    reply = answer_grpc(server, Messages("ModelInfer", parse, MESSAGES["ModelInferResponse"]), MODEL + message)
    assert reply.code == "INVALID_ARGUMENT"
    assert reply.details.startswith(text)
    assert parsed == []


@pytest.mark.parametrize(
    ("datatype", "contents", "elements"),
    [
        ("INT64", sized(3, b"\1" * SIZE), SIZE),
        ("INT8", sized(2, b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\1" * (SIZE // 10)), SIZE // 10),
        ("BOOL", sized(1, b"\1" * SIZE), SIZE),
        ("FP32", sized(6, bytes(SIZE)), SIZE // 4),
        ("FP64", b"\x39" + bytes(8) + sized(7, bytes(8)), 2),
        ("BYTES", b"\x42\x02ab" * (SIZE // 4), SIZE // 4),
        ("BYTES", sized(8, bytes(SIZE)), 1),
    ],
)
def test_long_contents_never_reach_the_parser(datatype: str, contents: bytes, elements: int) -> None:
    shape = b"\x18" + bytes([elements & 0x7F | 0x80, elements >> 7 & 0x7F | 0x80, elements >> 14 & 0x7F | 0x80, elements >> 21])
    message = MODEL + sized(5, sized(1, b"x") + sized(2, datatype.encode()) + shape + sized(5, contents))
    short, taken = without_contents(message)
    assert len(short) < 100
    assert bytes(taken[0][0]) == contents


@pytest.mark.parametrize("name", ["ServerLive", "ModelReady", "RepositoryIndex", "RepositoryModelLoad"])
def test_no_other_message_is_long(name: str, server: InferenceServer) -> None:
    reply = answer_grpc(server, Messages(name, MESSAGES[f"{name}Request"].FromString, MESSAGES[f"{name}Response"]), b"\x4a\x00" * ON_LOOP)
    assert (reply.code, reply.details) == ("INVALID_ARGUMENT", f"the request has {2 * ON_LOOP} bytes: expected {ON_LOOP} at most")


def test_a_request_to_load_may_be_long_and_has_few_fields() -> None:
    server = InferenceServer(model_control=True)
    load = Messages("RepositoryModelLoad", MESSAGES["RepositoryModelLoadRequest"].FromString, MESSAGES["RepositoryModelLoadResponse"])
    reply = answer_grpc(server, load, b"\x4a\x00" * ON_LOOP)
    assert (reply.code, reply.details) == ("INVALID_ARGUMENT", "the request has more than 1000 fields")
    reply = answer_grpc(server, load, sized(99, bytes(2 * ON_LOOP)))
    assert reply.code == "NOT_FOUND"
    server.stop()
