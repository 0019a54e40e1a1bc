"""`ModelStreamInfer`: many requests and many more answers over one call. Knows no gRPC library, and neither sync nor async.

A reader takes one request after the other, and a task of its own answers each. They send one message at a time: a model makes its next
response after the last one was written.

Specification: gRPC, ModelStreamInfer; Triton's decoupled models.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias, final

from .._models.model import Model
from .._protocol.datatypes import Buffer
from .._protocol.effects import Abandoned, Await, DeadlinePassed, Signal, Spawn, Steps, Wait
from .._protocol.errors import Busy, InferenceError, InvalidRequest, ModelFailed, NotFound, NotReady, show
from .._protocol.tensors import InferenceRequest, InferenceResponse
from .._serving.engine import Engine
from .._serving.faults import log_own_fault
from .._serving.record import record_unknown
from .._serving.stream import Stream, redirect_pieces
from .infer import GRPCFormat
from .messages import Method, Reply, encode_text, refuse
from .wire import encode_bytes_head

Receive: TypeAlias = Callable[[], Coroutine[Any, Any, bytes | None]]
"""Returns the next message of a call; None if the client sends no more."""

Write: TypeAlias = Callable[[bytes], Coroutine[Any, Any, None]]
"""Sends a message, and returns when the next one may be sent."""

STREAM: Final = "ModelStreamInfer"
"""The name of the method."""

MOST_UNANSWERED: Final = 64
"""How many requests of one call may be unanswered. No more are read meanwhile."""

_FINAL: Final = "triton_final_response"
_WANTS_FINAL: Final = "triton_enable_empty_final_response"
_ENDS_AT_ERROR: Final = "triton_grpc_error"

_INFER_RESPONSE: Final = 2
"""The field of a stream's message that holds the response."""


def stream_exchange(engine: Engine, method: Method, transport: Any, receive: Receive, write: Write) -> Steps[Reply]:
    """Answer one call: send each message of the answer, and return how the call ended."""
    return _Stream(engine, method, transport, receive, write).run()


_NOW: Final = Signal()
_NOW.set()

_REFUSALS: Final = (InvalidRequest, NotFound, NotReady, Busy)
"""Errors of requests that did not run."""


@final
class _StreamFormat(GRPCFormat):
    """One request of a stream, each of whose responses is a message of the stream."""

    __slots__ = ("model",)

    model: Model

    @property
    def id(self) -> str:
        """The request's identifier, empty if there is none or the message is not parsed yet."""
        return "" if self.message is None else str(self.message.id)

    @property
    def wants_final(self) -> bool:
        """True if the client wants one more message after the last answer."""
        message = self.message
        return message is not None and _WANTS_FINAL in message.parameters and bool(message.parameters[_WANTS_FINAL].bool_param)

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> list[Buffer]:
        response.parameters = {**response.parameters, _FINAL: not self.model.streams}
        [content] = super().encode(request, response)
        return [encode_bytes_head(_INFER_RESPONSE, len(content)) + content]


@final
class _Stream:
    """One call."""

    def __init__(self, engine: Engine, method: Method, transport: Any, receive: Receive, write: Write) -> None:
        self._engine = engine
        self._receive = receive
        self._write = write
        self._transport = transport
        self._message = method.response
        # requests are those of ModelInfer, and responses hold its responses
        self._method = Method(method.name, method.parse, type(method.response().infer_response), method.metadata)
        self._ends_at_error = dict(method.metadata(transport)).get(_ENDS_AT_ERROR, "").lower() == "true"
        self._parts: dict[Spawn, None] = {}
        self._is_writing = self._is_stuck = False
        self._writers: deque[Signal] = deque()
        self._broken: Exception | None = None
        self._news = Signal()
        self._room = Signal()
        self._unanswered = 0
        self._turn = _NOW
        self._end: Reply | None = None
        self._is_cancelled = False

    def run(self) -> Steps[Reply]:
        """Read and answer requests, until all are answered."""
        try:
            yield self._start_part(self._read())
            while self._parts and self._end is None and self._broken is None:
                self._news = Signal()
                yield Wait(self._news)
        except Abandoned:
            yield from self._cancel()
            raise
        yield from self._cancel()
        broken, self._broken = self._broken, None
        if broken is not None:
            try:
                raise broken
            finally:
                del broken  # it knows this frame: together they would live until the next garbage collection
        return Reply() if self._end is None else self._end

    def _start_part(self, steps: Steps[None]) -> Spawn:
        part = Spawn(steps)
        self._parts[part] = None
        part.ended.then(partial(self._remove_part, part))
        return part

    def _remove_part(self, part: Spawn) -> None:
        del self._parts[part]
        self._news.set()

    def _cancel(self) -> Steps[None]:
        self._is_cancelled = True
        parts = list(self._parts)
        for part in parts:
            part.cancel()
        for part in parts:
            yield Wait(part.ended)

    def _read(self) -> Steps[None]:
        while self._end is None:
            if self._unanswered >= MOST_UNANSWERED:
                self._room = Signal()
                yield Wait(self._room)
                continue
            try:
                message: bytes | None = yield Await(self._receive)
            except Exception:
                return  # the call has ended, and its driver knows that too
            if message is None:
                return
            self._unanswered += 1
            before, self._turn = self._turn, Signal()
            yield self._start_part(self._answer(message, before, self._turn))

    def _answer(self, message: bytes, before: Signal, done: Signal) -> Steps[None]:
        """Answer one request."""
        wire: _StreamFormat | None = None
        turn = before
        try:
            try:
                try:
                    wire = _StreamFormat(self._method, message, self._transport, math.inf)
                    wire.model = self._engine.models.find(wire.model_name, wire.model_version or None)
                except InferenceError as error:
                    record_unknown(self._engine.unknown, error)
                    raise
                if wire.model.streams:  # later requests need not wait for it, and it need not wait for earlier ones
                    before.then(done.set)
                    turn = _NOW
                stream = Stream(self._engine, wire.model, wire)
                yield from redirect_pieces(lambda send: self._send(turn, send.piece[0], send.deadline), stream.run())
            except InferenceError as error:
                yield from self._fail(error, wire, turn)
            except Exception as error:
                yield from self._fail(log_own_fault(error), wire, turn)
            except BaseException as error:  # an inline model may raise one that is meant for the host
                if not self._is_cancelled:  # nothing can be sent from here any more
                    did = "cancelled the task that runs it" if isinstance(error, Abandoned) else f"raised {type(error).__name__}"
                    model = getattr(wire, "model", "a request")
                    self._end = self._end or refuse(ModelFailed(f"{model} failed: it {did}"))
                    self._news.set()
                raise
            else:
                if wire.model.streams:
                    yield from self._send_final(wire, turn)
        finally:
            before.then(done.set)
            self._unanswered -= 1
            self._room.set()

    def _send(self, before: Signal, message: bytes, deadline: float = math.inf) -> Steps[None]:
        """Send a message, and wait until the next one may be sent."""
        if not before.is_set():
            yield Wait(before, deadline)
        if self._is_writing:
            yield from self._wait_to_write(deadline)
        self._is_writing = True
        try:
            yield Await(partial(self._write, message), deadline)
        except DeadlinePassed:  # the client does not read: nothing can be sent after this message
            self._is_stuck = True
            raise
        except Exception as error:  # the call takes no messages any more
            self._broken = error
            self._news.set()
            yield Wait(Signal())  # until this part is cancelled, like all others
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._writers:
            self._writers.popleft().set()  # which keeps `_is_writing`, so that nobody else writes
        else:
            self._is_writing = False

    def _wait_to_write(self, deadline: float = math.inf) -> Steps[None]:
        turn = Signal()
        self._writers.append(turn)
        try:
            yield Wait(turn, deadline)
        except DeadlinePassed:
            if turn in self._writers:
                self._writers.remove(turn)
            else:
                self._wake_writer()
            raise

    def _fail(self, error: InferenceError, wire: _StreamFormat | None, before: Signal) -> Steps[None]:
        if self._ends_at_error or self._is_stuck:
            if self._is_writing and not self._is_stuck:
                yield from self._wait_to_write()
            self._is_writing = True  # for ever: no message is sent after the error, or cut off
            self._end = refuse(error)
            self._news.set()
            return
        message = self._message()
        # Triton's clients show only the text, so it names the model and the request
        message.error_message = encode_text(error)
        if wire is not None:
            message.infer_response.id = wire.id
            message.error_message = f"model {show(wire.model_name)}, request id {show(wire.id)}: {encode_text(error)}"
            if not isinstance(error, _REFUSALS):
                message.infer_response.model_name, message.infer_response.model_version = wire.model.name, wire.model.version or ""
        yield from self._send(before, message.SerializeToString())
        if wire is not None:
            yield from self._send_final(wire, before)

    def _send_final(self, wire: _StreamFormat, before: Signal) -> Steps[None]:
        """Send the message that ends a request's answers, if the client wants it."""
        if wire.wants_final:
            message = self._message()
            response = message.infer_response
            response.id, response.model_name, response.model_version = wire.id, wire.model_name, wire.model_version
            response.parameters[_FINAL].bool_param = True
            yield from self._send(before, message.SerializeToString())
