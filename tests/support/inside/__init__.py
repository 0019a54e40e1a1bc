"""The one door to the inside of the package: what tests ask of a server, one function for each question, and, in the modules beside, the
private names that a test of one part needs.

No other file of the tests or examples imports a private module, so a module that moves costs one line here. It needs no extra.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import pytest

from oip_asgi import InferenceRequest, InferenceResponse, InferenceServer
from tests.support.inside.extensions import Cache
from tests.support.inside.grpc import GRPCFormat, Method, Reply, grpc_exchange, reply_error
from tests.support.inside.http import Head, Response, http_exchange
from tests.support.inside.models import Limiter, Numbers, ResponseOutcome, Slot, Statistics, Uses
from tests.support.inside.rest import json_data, json_text
from tests.support.inside.rest import rest_body as rest
from tests.support.inside.runtime import BackgroundLoop, BlockingIO, Fed, runtime_module, yield_interpreter
from tests.support.inside.serving import failures, user_code
from tests.support.inside.values import Buffer

Headers = Sequence[tuple[bytes, bytes]]

# Models, and the calls that run and wait


def model_names(server: InferenceServer) -> list[str]:
    """The models' names, in the order of their registration."""
    return [model.name for model in server._inside.engine.models]


def states(server: InferenceServer) -> dict[str, str]:
    """Where each model is in its life, by name: "registered" (and waiting for its load) or "ready", among others."""
    return {model.name: model.lifecycle.state for model in server._inside.engine.models}


def is_stopping(server: InferenceServer) -> bool:
    return server._inside.engine.stopping


AnySlot: TypeAlias = Slot
"""What a limiter hands out: `turn` is set when its turn has come, and `give_up` gives it back."""


def limiter_with(max_concurrency: int, max_queue: int) -> Limiter:
    """A limiter of its own, with the bounds of a model."""
    return Limiter(max_concurrency, max_queue)


def enter(limiter: Limiter, **options: bool) -> AnySlot | None:
    """A slot for one more request; None where it is refused."""
    slot = limiter.slot_type(limiter, Uses(1))
    return slot if limiter.enter(slot, **options) else None


def limiter_of(server: InferenceServer, name: str) -> Limiter:
    """The slots of a model."""
    return server._inside.engine.models.find(name, None).limiter


def waiting_calls(server: InferenceServer, name: str) -> int:
    """How many calls of a model wait for a slot."""
    return limiter_of(server, name).waiting


def list_unfinished(server: InferenceServer) -> dict[str, object]:
    """What a server still does, or holds for a request: nothing, if all have ended. On an event loop, what that still does too."""
    engine, runtime = server._inside
    found: dict[str, object] = {}
    for model in engine.models:
        limiter, handler, cache = model.limiter, model.lifecycle.handler, model.cache
        found[f"slots of {model.name}"] = limiter.running
        found[f"requests that wait for {model.name}"] = limiter.waiting
        found[f"uses of {model.name}"] = 0 if handler is None else handler.uses.count
        if cache is not None:
            found[f"lookups of {model.name}"] = cache._lookups
            found[f"flights of {model.name}"] = sum(flight.response is None for flight in cache._flights.values())
    for work, pool in runtime._pools.items():
        with pool._lock:
            found[f"threads for {work}"] = len(pool._workers) - len(pool._idle) + len(pool._jobs)
    with suppress(RuntimeError):  # no event loop runs here
        patrol = runtime.here().patrol
        found["watched clients"] = len(patrol.new) + len(patrol.old)
    return {what: count for what, count in found.items() if count}


def pass_idle_time(server: InferenceServer) -> None:
    """Go on as if nobody had called any model for as long as its `idle_unload=`."""
    alarms = server._inside.runtime.alarms
    with alarms._changed:
        due, alarms._due = alarms._due, []
        alarms._wake()
    for *_, method in due:
        ring = method()
        if ring is not None:
            ring.__self__._since = -math.inf  # type: ignore[attr-defined]
            ring()


def write_no_longer(registry: Any) -> None:
    """Write the numbers of an instrumented registry no more, as its files are to be closed."""
    from oip_asgi import prometheus

    with prometheus._LOCK:
        prometheus._PAGES.pop(registry)


def is_idle(server: InferenceServer) -> bool:
    """Whether no call runs or waits, of any model."""
    return not any(model.limiter.running for model in server._inside.engine.models)


def wait_until_idle(server: InferenceServer, name: str, seconds: float = 30) -> None:
    """Wait until no call of a model runs or waits, or raise `TimeoutError`."""
    idle = threading.Event()
    limiter_of(server, name).make_idle_signal().then(idle.set)
    if not idle.wait(seconds):
        raise TimeoutError(f"{name} still runs")


def bounds(server: InferenceServer) -> dict[str, tuple[int, int]]:
    """`max_concurrency` and `max_queue` of each model, by name."""
    return {model.name: (model.limiter.max_concurrency, model.limiter.max_queue) for model in server._inside.engine.models}


def cache_of(server: InferenceServer, name: str) -> Cache | None:
    """The cache of a model."""
    return server._inside.engine.models.find(name, None).cache


def wait_for_turns(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let calls within calls that have no deadline wait for a slot as long as this."""
    for module in (user_code, failures):
        patch.setattr(module, "MOST_SECONDS", seconds)


def limit_threads(server: InferenceServer, most: int) -> None:
    """Let calls and hooks of a server have so many worker threads together."""
    for work in ("model", "hook"):
        server._inside.runtime._pools[work].most = most


def set_clock(server: InferenceServer, clock: Callable[[], float]) -> None:
    """Let the server read the time from `clock`."""
    server._inside.engine.clock = clock


def with_plain_view(patterns: list[Any]) -> list[Any]:
    """Django's URL patterns with the view of servers without an async model, whatever models there are."""
    for pattern in patterns:
        pattern._views = (pattern._views[0],) * 2
    return patterns


# Requests, answered without an adapter


def decode_request(body: Buffer, header_length: int | None = None) -> InferenceRequest:
    """The request that a body of REST holds; `header_length` is how long its JSON is, where binary data follows."""
    request = rest.decode_request(body, header_length)
    assert isinstance(request, InferenceRequest)
    return request


def decode_request_closely(body: Buffer, header_length: int | None = None) -> InferenceRequest:
    """The same by the decoders of any JSON, without the quicker ones before them."""
    with pytest.MonkeyPatch.context() as patch:
        read_in_pieces(patch, 2**14)
        patch.setattr(rest, "ALWAYS_SHORT", 0)
        patch.setattr(rest, "is_short", lambda _: False)
        return decode_request(body, header_length)


def read_in_pieces(patch: pytest.MonkeyPatch, size: int) -> None:
    """Read all JSON `data` as if it were long, in pieces of so many bytes."""
    patch.setattr(json_data, "PIECE", size)
    patch.setattr(json_text, "PIECE", size)


def encode_response(response: InferenceResponse, request: InferenceRequest) -> tuple[bytes, list[Buffer]]:
    """The JSON of an answer of REST, and the parts of binary data that follow it."""
    return rest.encode_response(response, request)


def answer_http(server: InferenceServer, method: str, path: str, headers: Headers, body: bytes, *, chunk: int = 1000) -> Response:
    """What the core answers to a request whose body comes in chunks of some bytes, in this thread."""

    def read(into: Fed) -> Any:
        for start in range(0, len(body), chunk):
            into.feed(body[start : start + chunk])
        return into.finish()

    engine, runtime = server._inside
    io = BlockingIO(runtime, read)
    response = io.complete(http_exchange.exchange(engine, Head(method, path, headers, True, None), io))
    assert isinstance(response, Response)
    return response


class Messages(NamedTuple):
    """How a method of gRPC reads its request and makes its response: protobuf's classes, so that this module needs no protobuf."""

    method: str
    read: Callable[[Buffer], Any]
    make: Callable[[], Any]

    def write(self, document: Any) -> bytes:
        from google.protobuf.json_format import ParseDict

        written: bytes = ParseDict(document, self.make(), ignore_unknown_fields=True).SerializeToString()
        return written


def _method(messages: Messages) -> Method:
    return Method(messages.method, messages.read, messages.make, messages.write, lambda _: ())


def answer_grpc(server: InferenceServer, messages: Messages, data: bytes) -> Reply:
    """What the core answers to a message of gRPC, in this thread."""
    engine, runtime = server._inside
    io = BlockingIO(runtime)
    try:
        return io.complete(grpc_exchange.exchange(engine, _method(messages), data, None, io))
    except Exception as error:
        return reply_error(error)


# Where a test steps in


def before_each_break(monkeypatch: pytest.MonkeyPatch, hook: Callable[[], object]) -> None:
    """Call `hook` whenever a stream stops its event loop for a moment, so that worker threads have the interpreter."""

    def hooked() -> None:
        hook()
        yield_interpreter()

    monkeypatch.setattr(runtime_module, "yield_interpreter", hooked)


def before_decoding(monkeypatch: pytest.MonkeyPatch, hook: Callable[[], object]) -> None:
    """Call `hook` whenever a body of REST is about to be decoded, in the thread that decodes it."""
    decode = rest.decode_request

    def hooked(*args: Any, **options: Any) -> Any:
        hook()
        return decode(*args, **options)

    monkeypatch.setattr(rest, "decode_request", hooked)


def before_encoding(monkeypatch: pytest.MonkeyPatch, hook: Callable[[InferenceRequest], object]) -> None:
    """Call `hook` with the request whenever an answer of REST is about to be encoded, in the thread that encodes it."""
    encode = rest.encode_response

    def hooked(response: InferenceResponse, request: InferenceRequest) -> Any:
        hook(request)
        return encode(response, request)

    monkeypatch.setattr(rest, "encode_response", hooked)


def break_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of the package's own: no answer can be encoded, over REST or gRPC."""
    monkeypatch.setattr(rest, "encode_response", None)
    monkeypatch.setattr(GRPCFormat, "encode", None)


# Numbers


def background_of(server: InferenceServer) -> BackgroundLoop:
    return server._inside.runtime.background


def statistics_of(server: InferenceServer, name: str) -> Statistics:
    """The counters of a model; of requests for models that nobody knows where the name is empty."""
    engine = server._inside.engine
    return engine.models.find(name, None).statistics if name else engine.unknown


def count_response(statistics: Statistics, index: int, outcome: ResponseOutcome, infer: float, output: float, since: float) -> None:
    """As a stream does it after each response."""
    statistics.record_response(index, outcome, infer, output, since)


def outcomes(server: InferenceServer) -> dict[str, dict[str, int]]:
    """How often requests ended in each way, by model, and under "" those for models that nobody knows; nothing that is 0."""
    counted = {name: statistics_of(server, name).snapshot().outcomes for name in [*model_names(server), ""]}
    return {name: {outcome: count for outcome, count in each.items() if count} for name, each in counted.items()}
