"""The answers of one request, one at a time: a generator's items, or a plain model's only answer. Knows no transport.

A generator runs on to its next item after the last one was sent. It keeps its slot until it ends or is closed. A plain generator is closed
in a worker thread, and never while it runs.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from .._io import IO, DeadlinePassed, QuitWithin, Stopped
from .._models.model import Model
from .._models.statistics import Numbers, ResponseOutcome
from .._protocol.errors import InferenceError, InvalidRequest, ModelFailed, TimedOut
from .._protocol.log import log_raised, logger, name_request
from .._protocol.tensors import InferenceResponse, are_short
from .batch import wait_within_calls
from .call import Call, ModelRaised
from .call_stack import enter, leave
from .engine import Engine
from .failures import FAILURES, as_client_error, as_error
from .held_loop import measure
from .pipeline import end_call, infer, let_in, let_in_later
from .record import within
from .wire_format import WireFormat

T = TypeVar("T")

Encode: TypeAlias = Callable[[InferenceError], T]
"""Makes the item of an error."""

_END: Final = object()

_MEASURED: Final = 8
"""How many items of the first stream of a model are measured, if it has so many: how long each holds the event loop."""


class _Large(msgspec.Struct, frozen=True):
    """A response that a worker thread must encode."""

    response: InferenceResponse


async def infer_any(engine: Engine, model: Model, wire: WireFormat[T], io: IO) -> T:
    """The only response of a request, even if the model streams: more than one, or none, is an error."""
    span = None if engine.tracer is None else engine.tracer.begin(model)
    call = let_in(engine, model, wire, span, wire.body, streams=True) or await let_in_later(engine, model, wire, io, span, streams=True)
    if not call.handler.streams:
        return await infer(engine, model, wire, io, call)
    [response] = [response async for response in stream(engine, model, wire, io, call=call)]
    return response


async def stream(
    engine: Engine, model: Model, wire: WireFormat[T], io: IO, encode_error: Encode[T] | None = None, call: Call[T] | None = None
) -> AsyncGenerator[T, None]:
    """The responses of one request, each as it leaves. If this is closed before the model's generator ends, that is closed.

    An error after the first response is one more item if there is `encode_error`, and else raised. If the client is late to take one, at
    `io.until`, its sender throws DeadlinePassed into this. Who gives its `call`, which has been let in already, wants one response: more
    than one, or none, is an error.
    """
    wants_one = call is not None
    if call is None:
        span = None if engine.tracer is None else engine.tracer.begin(model)
        call = let_in(engine, model, wire, span, wire.body, streams=True, wants_one=False)
        if call is None:
            call = await let_in_later(engine, model, wire, io, span, streams=True, wants_one=False)
        if not call.handler.streams:
            yield await infer(engine, model, wire, io, call)
            return
    reader = _ItemReader(call, io, wants_one=wants_one)
    failed: Exception | None = None
    is_out = False  # whether the last response is with who asks for the next one
    try:
        await reader.prepare()
        while True:
            response = await reader.read_next()
            if isinstance(response, _Large):
                response = await reader.encode_elsewhere(response)
            if not reader.has_begun:  # from here on there is another deadline, which the client has too
                reader.has_begun, reader.deadline, io.until = True, reader.until, reader.until
            if response is None:
                break
            reader.note("success")
            is_out = True
            yield response
            is_out = False
    except BaseException as error:
        failed = await reader.fail(error, is_out=is_out)
        if failed is None:
            raise
    try:
        if failed is None:
            reader.give_up("empty_response")
            call.timings.returned = call.timings.answered = engine.clock()
            end_call(call)
        elif encode_error is None or not reader.has_begun:
            raise failed
        else:
            io.until = math.inf  # the slot is back, so nothing waits for the client
            yield encode_error(as_client_error(failed))
    finally:
        del failed  # it refers to this frame: a cycle, which only the garbage collector would free


class _ItemReader(Generic[T]):
    """Runs the generator of one request, from item to item."""

    def __init__(self, call: Call[T], io: IO, *, wants_one: bool) -> None:
        self.index = 0
        """How many responses there were."""
        self.has_begun = False  # whether there was one, or none will come
        self._call = call
        self._io = io
        self._wants_one = wants_one
        self._clock = call.engine.clock
        self.until = self.deadline = call.timings.since + call.model.stream_timeout
        self._generator: Any = None
        self._context: Context | None = None
        self._lock = threading.Lock()  # guards the next two
        self._is_in_thread = False  # whether a thread runs or closes the generator: then that gives the slot back
        self._is_given_up = False
        self._asked_at = self._returned_at = 0.0

    async def prepare(self) -> None:
        """Have the request decoded, and wait for the turn of what runs on the event loop."""
        call, slot = self._call, self._call.slot
        if call.latest_turn != math.inf and slot.turn is not None:
            await wait_within_calls(call, slot.turn, self._io)
        if call.body is not None:
            await self._io.run(call.decode_in_thread, "conversion", slot.turn, min(self.until, call.deadline))
        self.deadline = min(self.until, call.deadline)
        if call.handler.kind == "async stream":
            if slot.turn is not None:
                await self._io.wait(slot.turn, self.deadline)
            if slot.is_over:
                raise Stopped

    def read_next(self) -> Awaitable[T | _Large | None]:
        """The next response, encoded, or to be encoded by a worker thread; None after the last one."""
        call, deadline = self._call, self.deadline
        if call.handler.kind == "async stream":
            return self._io.call(self._await_next, deadline, in_one_task=True)
        late = None if deadline == math.inf else call.log_late
        return self._io.run(self._next_in_thread, "model", call.slot.turn, deadline, late)

    def encode_elsewhere(self, large: _Large) -> Awaitable[T]:
        """Encode a large response in a worker thread."""
        encode = partial(self._call.encode_in_thread, large.response, is_last=False)
        return self._io.run(encode, "conversion", deadline=self.deadline)

    def _check_only(self, *, has_ended: bool) -> None:
        """Check that there is one response, where one was asked for."""
        model = self._call.model
        if has_ended and not self.index:
            with within(self._call.span):
                logger.error("%s answered nothing, where one response was asked for", model)
            raise ModelFailed(f"{model} answered nothing: generate_stream takes any number of responses")
        if not has_ended and self.index:
            raise InvalidRequest(f"{model} answered more than once: use generate_stream")

    async def _await_next(self) -> T | _Large | None:
        call, handler = self._call, self._call.handler
        token = enter(call.model, call.slot, self.deadline)
        self._asked_at = self._clock()
        try:
            if self._generator is None:
                self._generator = self._create_generator()
            made = self._generator.__anext__()
            if handler.watch.is_measured:
                made = measure(made, call.model, handler, self._clock, goes_on=self.index < _MEASURED)
            item = await made
            if self._wants_one:
                self._check_only(has_ended=False)
            response = call.respond(item)
        except StopAsyncIteration:
            handler.watch.is_measured = False
            if self._wants_one:
                self._check_only(has_ended=True)
            return None
        except InferenceError:
            raise
        except Exception as error:
            raise ModelRaised from error
        finally:
            leave(token)
            self._returned_at = self._clock()
        if self._returned_at >= self.until:  # if the function never awaits, no timer can interrupt it
            raise DeadlinePassed
        return call.encode(response) if are_short(response.outputs) else _Large(response)

    def _next_in_thread(self) -> T | None:
        call = self._call
        with self._lock:
            is_given_up = self._is_given_up
            if is_given_up or call.slot.is_over:
                raise Stopped
            self._is_in_thread = True
        try:
            self._asked_at = self._clock()
            try:
                context = self._context or self._begin_generator()
                item = context.run(next, self._generator, _END)
                if self._wants_one:
                    self._check_only(has_ended=item is _END)
                if item is _END:
                    return None
                response = call.respond(item)
            except InferenceError:
                raise
            except Exception as error:
                raise ModelRaised from error
            finally:
                self._returned_at = self._clock()
            if self._returned_at >= self.until:
                raise DeadlinePassed
            return call.encode(response)
        finally:
            with self._lock:
                is_given_up = self._is_in_thread = self._is_given_up
            if is_given_up:
                self._close_in_thread()

    def _begin_generator(self) -> Context:
        """Create the generator in a context for all of its items: it may set a context variable, and reset it after a `yield`."""
        call = self._call
        context = self._context = copy_context()
        context.run(enter, call.model, call.slot, self.deadline)
        self._generator = context.run(self._create_generator)
        return context

    def _create_generator(self) -> Any:
        call = self._call
        if not call.timings.started:
            call.timings.started = call.timings.called = call.engine.clock()
        args, kwargs = call.arguments or call.decoded.binding.arguments(call.decoded)
        call.arguments = None
        return call.handler.function(*args, **kwargs)

    def note(self, outcome: ResponseOutcome) -> None:
        """Record one response, or how the stream ended. Do nothing if the function was not called."""
        if not self._asked_at:
            return
        call, now = self._call, self._clock()
        returned = self._returned_at or now
        seconds, encoding = (0.0, 0.0) if outcome == "cancel" else (returned - self._asked_at, now - returned)
        call.model.statistics.add(Numbers.add_response, self.index, outcome, seconds, encoding, now - call.timings.since)
        self.index += 1
        self._returned_at = 0.0

    def give_up(self, outcome: ResponseOutcome) -> None:
        """End the request, and give its slot back. If a thread runs the generator now, that thread closes it, and gives the slot back."""
        self.note(outcome)
        if self._stop():
            self._call.slot.give_up()

    def _stop(self) -> bool:
        """Let no thread run the generator any more. True if none runs it now."""
        with self._lock:
            self._is_given_up = True
            return not self._is_in_thread

    async def end(self, outcome: ResponseOutcome, *, closes: bool = True) -> None:
        """`give_up`, and close the generator before that, if no thread runs it."""
        self.note(outcome)
        if not self._stop():
            return
        try:
            if closes and self._generator is not None:
                if self._call.handler.kind == "async stream":
                    await self._io.call_always(self._close_async)
                else:
                    await self._io.run_always(self._close_in_thread, "model")
        except QuitWithin as error:  # raised by the model itself, such as by a task that it awaits
            self._log_closing(error)
        finally:
            if self._stop():
                self._call.slot.give_up()

    async def fail(self, error: BaseException, *, is_out: bool) -> Exception | None:
        """End the request with an error, and return the one for its client; None if nobody waits for it any more."""
        call = self._call
        if isinstance(error, Exception):
            cause = None
            try:
                # a stopped generator runs no more, and neither does its event loop or thread
                await self.end("fail", closes=type(error) is not Stopped)
            finally:
                if isinstance(error, FAILURES):
                    cause, error = error.__cause__, self.as_error(error)
                call.note(error, cause)
            return error
        try:
            if isinstance(error, GeneratorExit) and not (is_out and self._io.can_wait()):  # its event loop has ended
                self.give_up("cancel")
            else:
                await self.end("cancel")
        finally:
            call.note(error)
        return None

    def _close_in_thread(self) -> None:
        """Close the generator, and give the slot back."""
        with self._lock:
            self._is_in_thread = True
        try:
            if self._context is not None and self._generator is not None:
                self._context.run(self._generator.close)
        except Exception as error:
            self._log_closing(error)
        finally:
            self._call.slot.give_up()

    async def _close_async(self) -> None:
        try:
            await self._generator.aclose()
        except Exception as error:
            self._log_closing(error)

    def _log_closing(self, error: Exception) -> None:
        call, request = self._call, name_request(self._call.timings.id)
        with within(call.span):
            log_raised(logging.ERROR, error, "%s failed when the stream for %s was closed", call.model, request, extra=call.log_fields())

    def as_error(self, failure: Exception) -> InferenceError:
        """Convert one of `FAILURES` to the error for the client."""
        call = self._call
        if type(failure) is not DeadlinePassed or self.deadline != self.until:
            return as_error(call, failure)
        if failure.__cause__ is not None:
            call.log_late(failure.__cause__)
        seconds, request = call.model.stream_timeout, name_request(call.timings.id)
        with within(call.span):
            logger.warning("%s streamed for more than %g seconds for %s", call.model, seconds, request, extra=call.log_fields())
        return TimedOut(f"{call.model} did not end its stream within {seconds:g} seconds, its stream_timeout")
