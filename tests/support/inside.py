"""What tests ask of the inside of a server, one function for each question: the one module of the tests that knows how the inside is built.

It needs no extra. Tests of one part of the core, in the folder of that part, import that part themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pytest

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer
from oip_asgi._core.body import Body
from oip_asgi._core.datatypes import Buffer
from oip_asgi._core.effects import Pool, Read, Response
from oip_asgi._core.grpc import exchange as grpc_exchange
from oip_asgi._core.grpc.exchange import Reply
from oip_asgi._core.http import codings
from oip_asgi._core.http import exchange as http_exchange
from oip_asgi._core.json import documents
from oip_asgi._core.models.model import Models
from oip_asgi._core.rest import body as rest
from oip_asgi._runtime.drive import drive, drive_async

T = TypeVar("T")

Headers = Sequence[tuple[bytes, bytes]]

# Models, and the calls that run and wait


def model_names(server: InferenceServer) -> list[str]:
    """The models' names, in the order of their registration."""
    return [model.name for model in server.core.models]


def states(server: InferenceServer) -> dict[str, str]:
    """Where each model is in its life, by name: "waiting" (for its load) or "ready", among others."""
    return {model.name: model.state for model in server.core.models}


def is_stopping(server: InferenceServer) -> bool:
    return server.core.stopping


def waiting_calls(server: InferenceServer, name: str) -> int:
    """How many calls of a model wait for a slot."""
    return server.core.models.find(name, None).gate.waiting()


def is_idle(server: InferenceServer) -> bool:
    """Whether no call runs or waits, of any model."""
    return all(model.gate.empty().done() for model in server.core.models)


def wait_until_idle(server: InferenceServer, name: str, seconds: float = 30) -> None:
    """Wait until no call of a model runs or waits, or raise `TimeoutError`."""
    server.core.models.find(name, None).gate.empty().result(seconds)


def bounds(server: InferenceServer) -> dict[str, tuple[int, int]]:
    """`max_concurrency` and `max_queue` of each model, by name."""
    return {model.name: (model.gate.max_concurrency, model.gate.max_queue) for model in server.core.models}


@contextmanager
def without_models(server: InferenceServer) -> Iterator[None]:
    """A server as it was before its models were registered."""
    models, server.core.models = server.core.models, Models()
    try:
        yield
    finally:
        server.core.models = models


# Requests, answered without an adapter


def decode_request(body: Buffer, header_length: int | None = None) -> InferenceRequest:
    """The request that a body of REST holds; `header_length` is how long its JSON is, where binary data follows."""
    return rest.decode_request(body, header_length).request


def decode_request_whole(body: Buffer, header_length: int | None = None) -> InferenceRequest:
    """The same by the parser of any JSON, with none of the quicker ways tried before."""
    head, behind = rest._split(body, header_length)
    return rest._to_request(documents.request_document(head), behind)


def encode_response(response: InferenceResponse, request: InferenceRequest) -> tuple[bytes, list[Buffer]]:
    """The JSON of an answer of REST, and the parts of binary data that follow it."""
    return rest.encode_response(response, request)


def answer_http(server: InferenceServer, method: str, path: str, headers: Headers, body: bytes, *, chunk: int = 1000) -> Response:
    """What the core answers to a request whose body comes in chunks of some bytes, in this thread."""

    def read(into: Body) -> Buffer:
        for start in range(0, len(body), chunk):
            into.feed(body[start : start + chunk])
        return into.finish()

    head = http_exchange.Head(method, path, headers, True, None, compress=True)
    return drive(http_exchange.exchange(server.core, head), server.running, read)


@dataclass(frozen=True)
class Parts:
    """One warm request, as functions of no arguments: the whole of what the core does for it, and its parts."""

    exchange: Callable[[], Response]
    decode: Callable[[], object]
    infer: Callable[[], InferenceResponse]
    encode: Callable[[], object]


def parts_of_http(server: InferenceServer, model: str, path: str, headers: Headers, body: bytes, header_length: int | None) -> Parts:
    """The parts of an infer request, of a model that is ready, runs inline and lets the call in at once."""
    core = server.core
    head = http_exchange.Head("POST", path, headers, True, None)
    received = rest.decode_request(body, header_length)

    def infer() -> InferenceResponse:
        found = core.models.find(model, None)
        assert core.is_open(found)
        place = core.enter(found)
        response: InferenceResponse = _finish(core.infer(found, place, received, head))
        place.give_up()
        return response

    response = infer()
    return Parts(
        lambda: _finish(http_exchange.exchange(core, head), body),
        lambda: rest.decode_request(body, header_length),
        infer,
        lambda: rest.encode_response(response, received.request),
    )


def _finish(steps: Any, body: bytes = b"") -> Any:
    """Finish a generator of the core's, whose calls return at once, in the least that it takes."""
    value = None
    while True:
        try:
            step = steps.send(value)
        except StopIteration as end:
            return end.value
        value = body if isinstance(step, Read) else step.function(*step.args)


class Messages(NamedTuple):
    """How a method of gRPC reads its request and makes its response: protobuf's classes, so that this module needs no protobuf."""

    method: str
    read: Callable[[bytes], Any]
    make: Callable[[], Any]


def _method(messages: Messages) -> grpc_exchange.Method:
    return grpc_exchange.Method(messages.method, messages.read, messages.make, lambda _: ())


def answer_grpc(server: InferenceServer, messages: Messages, data: bytes) -> Reply:
    """What the core answers to a message of gRPC, in this thread."""
    return drive(grpc_exchange.exchange(server.core, _method(messages), data, None), server.running)


def trips_of_grpc(server: InferenceServer, messages: Messages, data: bytes) -> tuple[Reply, list[Pool]]:
    """The same on an event loop, and which pools of threads were used beside it, in turn."""
    threads = _Noted(server)
    reply = asyncio.run(drive_async(grpc_exchange.exchange(server.core, _method(messages), data, None), threads))
    return reply, threads.trips


class _Noted:
    """The worker threads of a server, which note what they are given."""

    def __init__(self, server: InferenceServer) -> None:
        self._threads = server.running
        self.trips: list[Pool] = []

    def in_thread(self, function: Callable[[], T], pool: Pool) -> Coroutine[Any, Any, T]:
        self.trips.append(pool)
        return self._threads.in_thread(function, pool)


# Where a test steps in


def before_decoding(monkeypatch: pytest.MonkeyPatch, hook: Callable[[], object]) -> None:
    """Call `hook` whenever a body of REST is about to be decoded, in the thread that decodes it."""
    decode = rest.decode_request

    def hooked(*args: Any) -> Any:
        hook()
        return decode(*args)

    monkeypatch.setattr(rest, "decode_request", hooked)


def before_encoding(monkeypatch: pytest.MonkeyPatch, hook: Callable[[InferenceRequest], object]) -> None:
    """Call `hook` with the request whenever an answer of REST is about to be encoded, in the thread that encodes it."""
    encode = rest.encode_response

    def hooked(response: InferenceResponse, request: InferenceRequest) -> Any:
        hook(request)
        return encode(response, request)

    monkeypatch.setattr(rest, "encode_response", hooked)


def before_compressing(monkeypatch: pytest.MonkeyPatch, hook: Callable[[], object]) -> None:
    """Call `hook` whenever an answer is about to be compressed, in the thread that compresses it."""

    def hooked(parts: Any, coding: Any) -> bytes:
        hook()
        return codings.encode(parts, coding)

    monkeypatch.setattr(http_exchange, "encode", hooked)


def break_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of the package's own: no answer can be encoded, over REST or gRPC."""
    monkeypatch.setattr(rest, "encode_response", None)
    monkeypatch.setattr(grpc_exchange, "_encode", None)
