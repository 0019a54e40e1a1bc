"""Long messages of gRPC: what a parser would make too many objects of never reaches it, nor does what is too long to be parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pytest

from oip_asgi import InferenceServer
from tests.support.grpc_asgi import ASGI_CLIENTS, ASGIClient
from tests.support.grpc_ways import MESSAGES, SERVINGS, Client, wire_request
from tests.support.inside import Messages, answer_grpc
from tests.support.inside.grpc import TYPED, encode_bytes_head
from tests.support.inside.values import MAX_QUESTION, Buffer

pytestmark = pytest.mark.ci  # as no machine breaks it

SIZE = 2**21
MODEL = b"\x0a\x04echo"


def sized(field: int, content: bytes) -> bytes:
    return encode_bytes_head(field, len(content)) + content


def entries(field: int) -> bytes:
    """Parameters of different names, each a `sized(field, sized(1, name) + sized(2, b"\\x08\\x01"))`."""
    names = (b"%d" % place for place in range(SIZE // 12))
    return b"".join(b"%c%c\x0a%c%b\x12\x02\x08\x01" % (field << 3 | 2, len(name) + 6, len(name), name) for name in names)


def tensor(*parts: bytes) -> bytes:
    return sized(5, b"".join([sized(1, b"x"), sized(2, b"INT64"), *parts]))


DEAR: dict[str, tuple[Callable[[], bytes], str]] = {
    "inputs": (lambda: b"\x2a\x00" * (SIZE // 2), "the request has more than 50000 inputs"),
    "outputs": (lambda: b"\x32\x00" * (SIZE // 2), "the request has more than 50000 outputs"),
    "raw contents": (lambda: b"\x3a\x00" * (SIZE // 2), "the request has more than 50000 raw contents"),
    "parameters": (lambda: entries(4), "the request has more than 50000 parameters"),
    "parameters of an input": (lambda: tensor(entries(4)), "the request has more than 50000 parameters"),
    "parameters of an output": (lambda: sized(6, entries(2)), "the request has more than 50000 parameters"),
    "contents of an input": (lambda: tensor(b"\x2a\x00" * (SIZE // 2)), "the request has more than 50000 contents"),
    "unknown fields": (lambda: b"\x98\x06\x01" * (SIZE // 3), "the request has more than 50000 fields of other kinds"),
    "dimensions": (lambda: tensor(sized(3, b"\1" * SIZE)), "the shape of an input has more than 64 dimensions"),
    "dimensions one by one": (lambda: tensor(b"\x18\1" * SIZE), "the request has more than 50000 dimensions"),
    "an end in the middle": (lambda: b"\x2a\x00" * (SIZE // 4) + b"\x2a", "the request has more than 50000 inputs"),
    "inputs after a group": (lambda: b"\x4b\x4c" + b"\x2a\x00" * (SIZE // 4), "the request has more than 50000 inputs"),
    "inputs after a group with what is no input": (
        lambda: b"\x4b\x2a\x01\xff\x4c" + b"\x2a\x00" * (SIZE // 4),
        "the request cannot be parsed",
    ),
    "a field that is cut off": (lambda: sized(99, bytes(SIZE)) + b"\x2a\x05", "the request cannot be parsed"),
}


@pytest.fixture
def server() -> Iterator[InferenceServer]:
    server = InferenceServer()
    server.register("echo", lambda **inputs: inputs)
    yield server
    server.stop()


def test_what_is_too_many_never_reaches_the_parser(server: InferenceServer) -> None:
    parsed: list[int] = []

    def parse(data: Buffer) -> object:
        parsed.append(len(data))
        return MESSAGES["ModelInferRequest"].FromString(bytes(data))

    for name, (make, text) in DEAR.items():
        reply = answer_grpc(server, Messages("ModelInfer", parse, MESSAGES["ModelInferResponse"]), MODEL + make())
        assert (name, reply.code, reply.details[: len(text)]) == (name, "INVALID_ARGUMENT", text)
        assert parsed == [], name


def test_no_other_message_is_long(server: InferenceServer) -> None:
    text = f"the request has {2 * MAX_QUESTION} bytes: expected {MAX_QUESTION} at most"
    for name in ("ServerLive", "ModelReady", "RepositoryIndex", "RepositoryModelLoad"):
        messages = Messages(name, MESSAGES[f"{name}Request"].FromString, MESSAGES[f"{name}Response"])
        reply = answer_grpc(server, messages, b"\x4a\x00" * MAX_QUESTION)
        assert (reply.code, reply.details) == ("INVALID_ARGUMENT", text)


def test_a_request_to_load_may_be_long_and_has_few_fields() -> None:
    server = InferenceServer(model_control=True)
    load = Messages("RepositoryModelLoad", MESSAGES["RepositoryModelLoadRequest"].FromString, MESSAGES["RepositoryModelLoadResponse"])
    reply = answer_grpc(server, load, b"\x4a\x00" * MAX_QUESTION)
    assert (reply.code, reply.details) == ("INVALID_ARGUMENT", "the request has more than 1000 fields")
    reply = answer_grpc(server, load, sized(99, bytes(2 * MAX_QUESTION)))
    assert reply.code == "NOT_FOUND"
    server.stop()


class Host(NamedTuple):
    clients: dict[str, Client | ASGIClient]
    sizes: list[int]
    """How many elements each call of its model had."""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    sizes, server = list[int](), InferenceServer()

    @server.model("sum")
    def total(x: np.ndarray) -> np.ndarray:
        sizes.append(x.size)
        return np.array([x.size if x.dtype.hasobject else x.sum(dtype="f8")])

    with ExitStack() as stack:
        over_sockets = {name: Client(stack.enter_context(serve(server))) for name, serve in SERVINGS.items()}
        yield Host({**over_sockets, **{name: ASGI_CLIENTS[name](server) for name in ("ASGI", "gRPC-Web")}}, sizes)
    server.stop()


def typed(datatype: str, elements: list[Any]) -> Any:
    return wire_request("sum", [{"name": "x", "datatype": datatype, "shape": [len(elements)], "contents": {TYPED[datatype]: elements}}])


LIMIT = 2**23


@pytest.mark.parametrize(("datatype", "element", "size"), [("FP64", 1.0, 8), ("BYTES", b"ab", 4)])
def test_typed_contents_have_a_limit(host: Host, datatype: str, element: Any, size: int) -> None:
    host.sizes.clear()
    message = typed(datatype, [element] * (LIMIT // size))
    text = (
        f"the request has {message.ByteSize()} bytes beside raw_input_contents, typed contents mostly: expected {LIMIT} at most: "
        "send raw_input_contents, in a request of 5000 inputs at most"
    )
    for name in host.clients if datatype == "FP64" else ("ASGI",):
        assert host.clients[name].refusal("ModelInfer", message) == ("RESOURCE_EXHAUSTED", text), name
    assert host.sizes == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("datatype", "element", "size"),
    [("FP64", 0.5, 8), ("INT64", -1, 10), ("BYTES", b"ab", 4), ("BOOL", True, 1)],
)
def test_below_the_limit_all_elements_arrive(host: Host, datatype: str, element: Any, size: int) -> None:
    elements = LIMIT // size - 100
    message = typed(datatype, [element] * elements)
    expected = elements if datatype == "BYTES" else elements * float(element)
    for name, client in host.clients.items():
        [raw] = client.ask("ModelInfer", message).raw_output_contents
        assert np.frombuffer(raw, "i8" if datatype == "BYTES" else "f8").tolist() == [expected], name


def test_an_element_out_of_range_is_named(host: Host) -> None:
    for place in (0, 2**16 - 1, 2**16, 2**17 + 1):
        elements = [0] * (2**17 + 10)
        elements[place] = 300
        text = f"inputs[0] ('x'): contents.uint_contents: element {place} is out of range for UINT8: expected 0 to 255"
        message = typed("UINT8", elements)
        for name in ("grpc", "ASGI"):
            assert host.clients[name].refusal("ModelInfer", message) == ("INVALID_ARGUMENT", text), name


def test_raw_contents_have_no_such_limit(host: Host) -> None:
    data = np.ones(LIMIT // 4 + 1, "<f4")
    message = wire_request("sum", [{"name": "x", "datatype": "FP32", "shape": [data.size]}], [data.tobytes()])
    for name, client in host.clients.items():
        [raw] = client.ask("ModelInfer", message).raw_output_contents
        assert np.frombuffer(raw, "f8").tolist() == [data.size], name
    server = InferenceServer()  # nor do those of many inputs
    server.register("many", lambda **inputs: np.array([len(inputs)]))
    tensors = [{"name": f"{place}", "datatype": "UINT8", "shape": [3000]} for place in range(4900)]
    response = ASGI_CLIENTS["ASGI"](server).ask("ModelInfer", wire_request("many", tensors, [bytes(3000)] * 4900))
    assert np.frombuffer(response.raw_output_contents[0], "i8").tolist() == [4900]
