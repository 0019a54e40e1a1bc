"""The answers of one request, one at a time: a generator's items, or a plain model's only answer. Knows no
transport.

An `async def` generator is asked for its next item when the last one was sent. On an event loop, a `def`
generator may be two items ahead, by `IO.run_ahead`. Each keeps its slot until it ends or is closed. A `def`
generator is closed in a worker thread, and never while it runs.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from .._extensions.common import FINAL, WANTS_FINAL
from .._io import IO, DeadlinePassed, QuitWithin, Stopped
from .._models.model import Model
from .._models.statistics import ResponseOutcome
from .._protocol.errors import (
    InferenceError,
    InvalidRequest,
    ModelFailed,
    TimedOut,
    log,
    log_raised,
    logger,
    name_request,
)
from .._protocol.tensors import InferenceResponse
from .batch import wait_within_calls
from .call import Call, Unmade, call_model, call_model_async, respond
from .decoding import WireFormat
from .engine import Engine
from .failures import FAILURES, as_client_error, as_error
from .observing import within
from .pipeline import end_call, fail_call, infer, let_in, wait_for_turn
from .user_code import enter_call

T = TypeVar("T")

_END: Final = object()

_MEASURED: Final = 8
"""How many items of the first stream of a model are measured, if it has so many: how long each holds the
event loop."""


class Framing(msgspec.Struct, Generic[T], frozen=True):
    """What a transport has beside the responses of a stream."""

    encode_error: Callable[[InferenceError], T]  # makes the item of an error
    make_beat: Callable[[], Any]  # makes what is sent if there is no response for long


class _Item(msgspec.Struct, Generic[T], gc=False):  # in no reference cycle
    """One response of a generator, and when it was asked for, returned and encoded."""

    asked_at: float
    returned_at: float
    encoded_at: float = 0.0
    encoded: T | None = None  # None while a worker thread is to encode it
    response: InferenceResponse | Unmade | None = None  # what it is made of, while it is not encoded


async def infer_any(engine: Engine, model: Model, wire: WireFormat[T], io: IO) -> T:
    """The only response of a request, even if the model streams: more than one, or none, is an error."""
    call = await let_in(engine, model, wire, io, "item")
    if not call.handler.streams:
        return await infer(engine, model, wire, io, call)
    [response] = [response async for response in stream(engine, model, wire, io, call=call)]
    return response


async def stream(
    engine: Engine,
    model: Model,
    wire: WireFormat[T],
    io: IO,
    framing: Framing[T] | None = None,
    call: Call[T] | None = None,
) -> AsyncGenerator[T, None]:
    """The responses of one request, each as it leaves. If this is closed before the model's generator ends,
    that is closed.

    An error after the first response is one more item if there is a `framing`, and else raised. If the client
    is late to take one, at `io.until`, its sender throws DeadlinePassed into this. A caller that gives its
    `call`, which has been let in already, wants one response: more than one, or none, is an error.
    """
    wants_one = call is not None
    if call is None:
        call = await let_in(engine, model, wire, io, "items")
        if not call.handler.streams:
            yield await infer(engine, model, wire, io, call)
            return
    generator = _Generator(call, wants_one=wants_one)
    request = _StreamedRequest(call, io, generator)
    failed: Exception | None = None
    is_out = False  # whether the caller has the last response, and has not asked for the next one yet
    try:
        await request.prepare(framing)
        while True:
            if call.handler.kind == "async stream":
                # by keyword, each call would make a dict
                item = await io.call(generator.await_next, call.deadline, True)
            else:
                late = None if call.deadline == math.inf else call.log_late
                item = await io.run_ahead(
                    generator.next_in_thread, "model", call.slot.turn, call.deadline, late
                )
            if item is None:
                break
            response = await request.encode_elsewhere(item) if item.encoded is None else item.encoded
            if not request.index:  # from here on there is another deadline, which the client has too
                io.until = call.deadline = generator.until
            request.record_response(item)
            is_out = True
            yield response
            is_out = False
    except BaseException as error:
        failed = await request.fail(error, is_out=is_out)
        if failed is None:
            raise
    try:
        if failed is None:
            last = request.conclude()
        elif framing is None or not (request.index or io.beat):
            raise failed
        else:
            last = framing.encode_error(as_client_error(failed))
        if last is not None:
            io.until = math.inf  # the slot is back, so nothing waits for the client
            yield last
    finally:
        del failed  # it refers to this frame: a cycle, which only the garbage collector would free


class _StreamedRequest(Generic[T]):
    """One request that a generator answers: what is done before its items, for each of them, and at its end.

    `call.deadline` is that of the next item.
    """

    def __init__(self, call: Call[T], io: IO, generator: _Generator[T]) -> None:
        self.index = 0
        """How many responses there were."""
        self._call = call
        self._io = io
        self._generator = generator

    async def prepare(self, framing: Framing[T] | None) -> None:
        """Have the request decoded, and wait for the turn of what runs on the event loop."""
        call, seconds = self._call, self._call.engine.options.stream_keep_alive
        if framing is not None and seconds is not None:
            self._io.keep_alive(seconds, framing.make_beat)
        if call.slot.turn is not None:
            await wait_within_calls(call, call.slot.turn, self._io)
        call.deadline = min(call.deadline, self._generator.until)
        if call.body is not None or self._generator.is_async:
            await wait_for_turn(call, self._io)

    async def encode_elsewhere(self, item: _Item[T]) -> T:
        """Encode a response in a worker thread."""
        assert item.response is not None  # it is not encoded yet
        encode = partial(self._call.encode_in_thread, item.response, is_last=False)
        response = await self._io.run(encode, "conversion", deadline=self._call.deadline)
        item.encoded_at = self._call.timings.answered
        return response

    def record_response(self, item: _Item[T]) -> None:
        """Count a response that leaves."""
        call, encoded_at, returned_at = self._call, item.encoded_at, item.returned_at
        seconds = returned_at - item.asked_at
        encoding = encoded_at - returned_at
        since = encoded_at - call.timings.since
        call.model.statistics.record_response(self.index, "success", seconds, encoding, since)
        self.index += 1

    def _record_end(self, outcome: ResponseOutcome) -> None:
        """Count how the stream ended, unless the function was not called."""
        asked_at, returned_at = self._generator.asked_at, self._generator.returned_at
        if not asked_at:
            return
        call, now = self._call, self._call.engine.clock()
        returned = returned_at or now
        seconds, encoding = (0.0, 0.0) if outcome == "cancel" else (returned - asked_at, now - returned)
        call.model.statistics.record_response(
            self.index, outcome, seconds, encoding, now - call.timings.since
        )

    def conclude(self) -> T | None:
        """End the request of a generator that has ended. Return the response without outputs that says so, if
        the request asks for it."""
        self._record_end("empty_response")
        call, request = self._call, self._call.expand().request
        call.timings.returned = call.timings.answered = call.engine.clock()
        end_call(call)
        if not request.parameters.get(WANTS_FINAL):
            return None
        return call.wire.encode(
            request, InferenceResponse([], {FINAL: True}, request.id, call.model.name, call.model.version)
        )

    async def fail(self, error: BaseException, *, is_out: bool) -> Exception | None:
        """End the request with an error, and return the one for its client; None if nobody waits for it any
        more."""
        self._record_end("fail" if isinstance(error, Exception) else "cancel")
        # a stopped generator runs no more, and neither does its event loop or thread
        may_close = type(error) is not Stopped
        if isinstance(error, GeneratorExit):
            may_close = is_out and self._io.can_wait()  # else its event loop has ended
        try:
            if may_close:
                await self._generator.close(self._io)
        finally:
            if isinstance(error, FAILURES):
                error = self._as_error(error)
            fail_call(self._call, error)
        return error if isinstance(error, Exception) else None

    def _as_error(self, failure: Exception) -> InferenceError:
        """Convert one of `FAILURES` to the error for the client."""
        call = self._call
        if type(failure) is not DeadlinePassed or call.deadline != self._generator.until:
            return as_error(call, failure)
        call.slot.give_up()  # as `as_error` does
        if failure.__cause__ is not None:
            call.log_late(failure.__cause__)
        seconds, request = call.model.stream_timeout, name_request(call.timings.id)
        with within(call.span):
            logger.warning(
                "%s streamed for more than %g seconds for %s",
                call.model,
                seconds,
                request,
                extra=call.log_fields(),
            )
        late = TimedOut(f"{call.model} did not end its stream within {seconds:g} seconds, its stream_timeout")
        late.__cause__ = failure.__cause__
        return late


class _Generator(Generic[T]):
    """The generator of one request, which is created, asked for its items, and closed: on the event loop, or
    in one thread at a time."""

    def __init__(self, call: Call[T], *, wants_one: bool) -> None:
        self.until = call.timings.since + call.model.stream_timeout
        """When it must have ended."""
        self.asked_at = self.returned_at = 0.0
        """When it was last asked for an item, and when it gave one, ended or failed; 0.0 before that."""
        self.is_async = call.handler.kind == "async stream"
        self.made: Any = None
        """What the function returned; None before it was called."""
        self._call = call
        self._wants_one = wants_one
        self._clock = call.engine.clock
        self._count = 0  # how many items it has given
        self._context: Context | None = None

    async def await_next(self) -> _Item[T] | None:
        """The next item; None after the last one. It is not encoded if that would take long."""
        call = self._call
        asked_at = self.asked_at = self._clock()
        try:
            goes_on = self._count < _MEASURED
            response = await call_model_async(
                call, self._ask, self._respond, StopAsyncIteration, goes_on=goes_on
            )
        except StopAsyncIteration:
            call.handler.watch.is_measured = False
            self._check_end()
            return None
        finally:
            returned_at = self.returned_at = self._clock()
        self._count += 1
        if returned_at >= self.until:  # if the function never awaits, no timer can interrupt it
            raise DeadlinePassed
        encoded = call.encode_here(response)
        return _Item(asked_at, returned_at, call.timings.answered, encoded, response)

    def next_in_thread(self) -> _Item[T] | None:
        """The next item; None after the last one."""
        call = self._call
        call.slot.begin()
        try:
            self.asked_at, self.returned_at = self._clock(), 0.0
            try:
                # one context for all of its items: it may set a context variable, and reset it after a
                # `yield`
                context = self._context = self._context or copy_context()
                response = context.run(call_model, call, self._ask, self._respond_or_end)
            finally:
                self.returned_at = self._clock()
            if response is None:
                return None
            self._count += 1
            if self.returned_at >= self.until:
                raise DeadlinePassed
            encoded = call.encode(response)
            return _Item(self.asked_at, self.returned_at, call.timings.answered, encoded)
        finally:
            if not call.slot.end_part_of_generator():
                self._close_in_thread()

    def _ask(self, call: Call[T]) -> Any:
        """Ask for the next item, or what is to be awaited for it."""
        if self.made is None:
            timings = call.timings
            # it has begun already if a thread has decoded the request
            timings.started = timings.started or self._clock()
            self.made = call.call_function()
        return self.made.__anext__() if self.is_async else next(self.made, _END)

    def _respond_or_end(self, call: Call[T], item: Any) -> InferenceResponse | Unmade | None:
        """Make the response of an item; None after the last one."""
        if item is not _END:
            return self._respond(call, item)
        self._check_end()
        return None

    def _respond(self, call: Call[T], item: Any) -> InferenceResponse | Unmade:
        if self._wants_one and self._count:
            raise InvalidRequest(f"{call.model} answered more than once: use generate_stream")
        return respond(call, item)

    def _check_end(self) -> None:
        """Check that there was a response, where one was asked for."""
        if self._wants_one and not self._count:
            model = self._call.model
            with within(self._call.span):
                log("%s answered nothing, where one response was asked for", model)
            raise ModelFailed(f"{model} answered nothing: generate_stream takes any number of responses")

    async def close(self, io: IO) -> None:
        """Close it. If a thread runs it now, that thread does this afterwards, and gives the slot back."""
        try:
            if self.is_async:
                if self.made is not None:
                    await io.call_always(self._close)
            elif self._call.slot.give_up_generator():
                await self._close_elsewhere(io)
        except QuitWithin as error:  # raised by the model itself, such as by a task that it awaits
            self._log_closing(error)

    async def _close(self) -> None:
        try:
            await self.made.aclose()
        except Exception as error:
            self._log_closing(error)

    async def _close_elsewhere(self, io: IO) -> None:
        """Have a thread close it, which gives the slot back, and wait for that. No other thread begins it any
        more."""
        if self.made is None:  # there is nothing to close
            self._call.slot.end_part(is_last=True)
            return
        try:
            closing = io.run_always(self._close_in_thread, "model")
        except RuntimeError:  # the system has no more threads
            self._call.slot.end_part(is_last=True)
            raise
        await closing

    def _close_in_thread(self) -> None:
        """Close it, and give the slot back."""
        try:
            if self._context is not None and self.made is not None:
                call = self._call
                self._context.run(enter_call, call.model, call.slot, call.deadline)
                self._context.run(self.made.close)
        except Exception as error:
            self._log_closing(error)
        finally:
            self._call.slot.end_part(is_last=True)

    def _log_closing(self, error: Exception) -> None:
        call, request = self._call, name_request(self._call.timings.id)
        with within(call.span):
            log_raised(
                error,
                "%s failed when the stream for %s was closed",
                call.model,
                request,
                extra=call.log_fields(),
            )
