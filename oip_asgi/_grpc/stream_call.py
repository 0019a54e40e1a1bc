"""`ModelStreamInfer`: many requests and many more answers over one call, on an event loop. Knows no gRPC
library.

Each request has a task of its own. The answers of plain models leave in the order of their requests, those of
streams as they come: `Outbox` has what waits to be sent, one message at a time, and the reply that ends the
call; it knows no requests and no models.

Specification: gRPC, ModelStreamInfer; Triton's decoupled models.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from .._extensions.common import FINAL, WANTS_FINAL
from .._io import begin
from .._models.handler import Handler
from .._models.model import Model
from .._protocol.array_requests import ArrayRequest
from .._protocol.datatypes import Buffer
from .._protocol.errors import (
    Busy,
    InferenceError,
    InvalidRequest,
    ModelFailed,
    NotFound,
    NotReady,
    TooLarge,
    client_text,
    show,
)
from .._protocol.tensors import InferenceRequest, InferenceResponse, ReadRegion
from .._runtime.async_io import AsyncIO
from .._runtime.runtime import Runtime, send_pieces
from .._serving.engine import Engine
from .._serving.failures import as_client_error
from .._serving.observing import record_unknown
from .._serving.stream import stream
from .messages import GRPCFormat, Method, Reply
from .methods import reply_error
from .wire import encode_bytes_head

Write: TypeAlias = Callable[[bytes], Coroutine[Any, Any, None]]
"""Sends a message, and returns when the next one may be sent."""

_WRITE_SECONDS: Final = 1.0
"""A message has so much time to be written, even if the deadline of its request passes meanwhile. A client
for which that is too short does not read, so the call ends."""


class Place(msgspec.Struct, eq=False):
    """The place of one request's answers among those of the call, until they have `ended`."""

    before: asyncio.Event  # set when they may leave
    # set when those of the next place may leave
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def leave_order(self) -> None:
        """Wait for no other place, and let none wait for this."""
        self.before = self.ended
        self.ended.set()


class Outbox:
    """The messages of one call, and its end."""

    def __init__(self, write: Write) -> None:
        self.end: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        """The reply that ends the call, or what sending has raised."""
        self.is_stuck = False
        """Whether a part of a message was sent, so that no other can follow."""
        self._write = write
        self._writing = asyncio.Lock()
        self._last = asyncio.Event()  # set when the answers of the last place have ended
        self._last.set()

    def take_place(self, *, in_order: bool) -> Place:
        """Take the place of one request. Answers in order leave one request after the other; answers without
        an order leave at once."""
        place = Place(self._last)
        if in_order:
            self._last = place.ended
        else:
            place.leave_order()
        return place

    async def send(self, message: bytes, place: Place, deadline: float = math.inf) -> None:
        """Send a message after those of the places before it, and return when the next one may be sent.

        If no message can be sent any more, this does not return: the call ends, and cancels it.
        """
        await place.before.wait()
        async with self._writing:
            if not self.is_stuck and not self.end.done():
                writing = (
                    asyncio.ensure_future(self._write(message))
                    if deadline - time.monotonic() < _WRITE_SECONDS
                    else None
                )
                try:
                    await (self._write(message) if writing is None else asyncio.shield(writing))
                    return
                except asyncio.CancelledError:  # nothing can be sent after a part of a message
                    self.is_stuck = await _is_cut(writing)
                    raise
                except Exception as error:  # the call takes no messages any more
                    self.finish(error)
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # this runs in one
                # each task is cancelled only once, and a model or a server may have swallowed it
                raise asyncio.CancelledError
            await asyncio.Event().wait()  # for the cancellation

    async def finish_after_message(self, end: Reply) -> None:
        """`finish`, and cut off no message that is being sent."""
        async with nullcontext() if self.is_stuck else self._writing:
            self.finish(end)

    def finish(self, end: Reply | Exception) -> None:
        """End the call, unless it ends already."""
        if self.end.done():
            return
        if isinstance(end, Reply):
            self.end.set_result(end)
        else:
            self.end.set_exception(end)


async def _is_cut(writing: asyncio.Future[None] | None) -> bool:
    """Let a message be written to its end after the deadline of its request. True if it was not: that took
    too long, or failed."""
    if writing is None:
        return True
    with suppress(asyncio.CancelledError):
        await asyncio.wait([writing], timeout=_WRITE_SECONDS)
    return writing.cancel() or writing.cancelled() or writing.exception() is not None


Receive: TypeAlias = Callable[[], Coroutine[Any, Any, bytes | None]]
"""Returns the next message of a call; None if the client sends no more."""

STREAM: Final = "ModelStreamInfer"
"""The name of the method."""

MOST_UNANSWERED: Final = 64
"""How many requests of one call may be unanswered. No more are read meanwhile."""

_ENDS_AT_ERROR: Final = "triton_grpc_error"

_INFER_RESPONSE: Final = 2
"""The field of a stream's message that holds the response."""

_REFUSALS: Final = (InvalidRequest, NotFound, NotReady, Busy)
"""Errors of requests that did not run."""


class _Request(GRPCFormat):
    """One request of a stream, each of whose responses is a message of the stream."""

    __slots__ = ("has_many",)

    has_many: bool
    """True if a generator answers. Known once the request is decoded: its model may be loaded again before
    that."""

    @property
    def id(self) -> str:
        """The request's identifier, empty if there is none or the message is not parsed yet."""
        return "" if self.message is None else str(self.message.id)

    def decode(
        self, body: Buffer, handler: Handler, read_region: ReadRegion, _: object = None, /
    ) -> InferenceRequest | ArrayRequest:
        self.has_many = handler.streams
        return super().decode(body, handler, read_region)  # a response has more to say than arrays

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> list[Any]:
        parameters = {FINAL: not self.has_many, **response.parameters}
        response = msgspec.structs.replace(response, parameters=parameters)  # observers have the other one
        content = b"".join(super().encode(request, response))
        return [encode_bytes_head(_INFER_RESPONSE, len(content)) + content]


def _name_request(model: str, request_id: str, text: str) -> str:
    """An error's text with the names of the model and the request: Triton's clients show only the text."""
    named = show(model)
    names = [] if f"model {named}" in text or f"model: {named}" in text else [f"model {named}"]
    names += [f"request id {show(request_id)}"] if request_id else []
    return ": ".join([", ".join(names), text] if names else [text])


class StreamCall:
    """One call."""

    def __init__(
        self, engine: Engine, runtime: Runtime, method: Method, transport: Any, receive: Receive, write: Write
    ) -> None:
        self._engine = engine
        self._runtime = runtime
        self._transport = transport
        self._receive = receive
        self._outbox = Outbox(write)
        self._message = method.response
        # requests are those of ModelInfer, and responses hold its responses
        self._method = Method(
            method.name, method.parse, type(method.response().infer_response), method.write, method.metadata
        )
        self._ends_at_error = dict(method.metadata(transport)).get(_ENDS_AT_ERROR, "").lower() == "true"
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MOST_UNANSWERED)

    async def run(self) -> Reply:
        """Read and answer requests, until all are answered."""
        self._start_task(self._read_requests())
        try:
            return await self._outbox.end
        finally:
            for task in self._tasks:
                task.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks)
            # what it raises refers to this: a cycle, which only the garbage collector would free
            del self._outbox.end

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._remove_task)

    def _remove_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._outbox.finish(Reply())

    async def _read_requests(self) -> None:
        while True:
            await self._room.acquire()
            try:
                message = await self._receive()
            except Exception:
                return  # the call has ended, and `run` knows that too
            if message is None:
                return
            request = None
            try:
                request = _Request(self._method, message, self._transport, math.inf)
                answer = partial(self._answer_request, request, await self._find_model(request))
            except Exception as error:
                refusal = as_client_error(error)
                if request is None:
                    record_unknown(self._engine.unknown, refusal)
                answer = partial(self._refuse_request, request, refusal)
                del refusal  # its traceback refers to this frame: a cycle
            except BaseException as error:
                self._fail_task("authorize=", error)
                raise
            if self._outbox.end.done():  # an `async def` of `authorize=` may have swallowed the cancellation
                return
            self._start_task(answer())
            del answer

    async def _find_model(self, request: _Request) -> Model:
        """Find the model of a request, if the client may ask it."""
        engine, name, version = self._engine, request.model_name, request.model_version or None
        if engine.guard is not None:
            io = AsyncIO(self._runtime)
            await io.complete(
                engine.guard.ask(io, self._method.make_access(self._transport, "infer", name, version))
            )
        return engine.find_for_inference(name, version)

    async def _refuse_request(self, request: _Request | None, error: InferenceError) -> None:
        place = self._outbox.take_place(in_order=True)
        try:
            await self._send_error(error, request, None, place)
        finally:
            place.ended.set()
            self._room.release()

    async def _answer_request(self, request: _Request, model: Model) -> None:
        place = self._outbox.take_place(in_order=not model.streams)

        async def write(piece: list[Any]) -> None:
            if request.has_many:  # which may be known only after the model was loaded
                place.leave_order()
            await self._outbox.send(piece[0], place, io.until)

        io = AsyncIO(self._runtime)
        try:
            items = stream(self._engine, model, request, io)
            first = await begin(items)
            if first is not None:
                await send_pieces(io, self._runtime.here(), first, items, write)
        except Exception as error:
            await self._send_error(as_client_error(error), request, model, place)
        except BaseException as error:
            self._fail_task(model, error)
            raise
        finally:
            await io.end()
            place.ended.set()
            self._room.release()

    def _fail_task(self, who: object, error: BaseException) -> None:
        """End the call, unless it ends already. User code has cancelled a task, or raised an error for the
        host, as inline code may."""
        if not self._outbox.end.done():
            is_cancelled = asyncio.current_task().cancelling()  # type: ignore[union-attr]  # this runs in one
            did = "cancelled the task that runs it" if is_cancelled else f"raised {type(error).__name__}"
            self._outbox.finish(reply_error(ModelFailed(f"{who} failed: it {did}")))

    async def _send_error(
        self, error: InferenceError, request: _Request | None, model: Model | None, place: Place
    ) -> None:
        if self._ends_at_error or self._outbox.is_stuck:
            await self._outbox.finish_after_message(reply_error(error))
            return
        # a long request that was refused before a worker thread parsed it
        if request is not None and request.message is None and not isinstance(error, TooLarge):
            with suppress(Exception):
                await self._runtime.here().begin(request.parse, "conversion")
        message, text = self._message(), client_text(error)
        message.error_message = (
            text if request is None else _name_request(request.model_name, request.id, text)
        )
        if request is not None:
            message.infer_response.id = request.id
            if model is not None and not isinstance(error, _REFUSALS):
                message.infer_response.model_name = model.name
                message.infer_response.model_version = model.version or ""
        await self._outbox.send(message.SerializeToString(), place)
        if request is not None:
            await self._send_final(request, place)

    async def _send_final(self, request: _Request, place: Place) -> None:
        """Send the message that ends a request's answers, if the client wants it."""
        parameters = {} if request.message is None else request.message.parameters
        if WANTS_FINAL in parameters and parameters[WANTS_FINAL].bool_param:
            request.has_many = False
            final = InferenceResponse([], {}, request.id, request.model_name, request.model_version)
            await self._outbox.send(request.encode(InferenceRequest([]), final)[0], place)
