"""The answers of one request, one at a time: a generator's items, or a plain model's only answer. Knows no transport.

A generator runs on to its next item after the last one was sent. It keeps its slot until it ends or is closed. A plain generator is closed
in a worker thread, and never while it runs.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from .._models.model import Model
from .._models.statistics import Numbers, ResponseOutcome
from .._protocol.effects import Abandoned, Await, DeadlinePassed, QuitWithin, Run, Send, Start, Steps, Stopped, Wait, finish
from .._protocol.errors import InferenceError, InvalidRequest, ModelFailed, TimedOut
from .._protocol.log import log_raised, logger, name_request
from .._protocol.tensors import InferenceResponse, are_short
from .call import Call, ModelRaised
from .call_stack import enter, leave
from .engine import Engine
from .failures import FAILURES, as_client_error, as_error
from .held_loop import measure
from .pipeline import answer_once, end_call, infer
from .record import within
from .wire_format import WireFormat

T = TypeVar("T")

_END: Final = object()

_MEASURED: Final = 8
"""How many items of the first stream of a model are measured, if it has so many: how long each holds the event loop."""


class Events(msgspec.Struct, frozen=True):
    """How answers leave as events: after a head. An error after the head is one more event."""

    start: Start
    encode_error: Callable[[InferenceError], Any]  # makes the event of an error
    ended: Any  # what the steps return after the last event


class _Large(msgspec.Struct, frozen=True):
    """A response that a worker thread must encode."""

    response: InferenceResponse


class Stream(msgspec.Struct, Generic[T], eq=False):
    """The answers of one request, which leave as `events` if there are any. If it `wants_one`, the steps return the only answer: more
    than one, or none, is an error."""

    engine: Engine
    model: Model
    wire: WireFormat[T]
    events: Events | None = None
    wants_one: bool = False
    has_begun: bool = False
    has_many: bool = False
    """True if a generator answers. Known once the request has a slot: its model may be loaded again before that."""

    def run(self) -> Steps[Any]:
        """Send each answer. If this ends before the model's generator does, close the generator."""
        return infer(self.engine, self.model, self.wire, self._answer)

    def _answer(self, call: Call[T]) -> Steps[Any]:
        if self.wants_one and call.handler.once is not None:
            call.handler = call.handler.once
        self.has_many = call.handler.streams
        if not self.has_many:
            only_answer = yield from finish(answer_once(call))
            if self.wants_one:
                return only_answer
            if self.events is not None:
                yield self.events.start
            yield Send(only_answer)
            return self.events and self.events.ended
        only: T | None = None
        reader = _ItemReader(call)
        try:
            yield from reader.prepare()
            next_item = reader.read_next()
            while True:
                answer = yield next_item
                if type(answer) is _Large:
                    answer = yield reader.encode_elsewhere(answer.response)
                if not self.has_begun:
                    self.has_begun, reader.deadline = True, reader.until
                    next_item = reader.read_next()
                    if self.events is not None:
                        yield Start(self.events.start.status, self.events.start.headers, reader.until)
                if answer is None:
                    break
                if only is not None:
                    raise InvalidRequest(f"{self.model} answered more than once: use generate_stream")
                reader.note("success")
                if self.wants_one:
                    only = answer
                else:
                    yield Send(answer, reader.until)
            if self.wants_one and only is None:
                with within(call.span):
                    logger.error("%s answered nothing, where one response was asked for", self.model)
                raise ModelFailed(f"{self.model} answered nothing: generate_stream takes any number of responses")
        except FAILURES as failure:
            # a stopped generator runs no more, and neither does its event loop or thread
            yield from reader.end("fail", closes=type(failure) is not Stopped)
            yield self._send_error(call.note(reader.as_error(failure), failure.__cause__))
        except Exception as error:
            yield from reader.end("fail")
            yield self._send_error(call.note(error))
        except Abandoned as error:
            yield from reader.end("cancel")
            call.note(error)
            raise
        except GeneratorExit as error:
            reader.give_up("cancel")
            call.note(error)
            raise
        else:
            reader.give_up("empty_response")
            call.timings.returned = call.timings.answered = self.engine.clock()
            end_call(call)
        return only if self.events is None else self.events.ended

    def _send_error(self, error: Exception) -> Send:
        """Make an event of an error after the head. Raise any other error."""
        try:
            if self.events is None or not self.has_begun:
                raise error
            return Send(self.events.encode_error(as_client_error(error)))
        finally:
            del error  # it refers to this frame: a cycle, which only the garbage collector would free


class _ItemReader(Generic[T]):
    """Runs the generator of one request, from item to item."""

    def __init__(self, call: Call[T]) -> None:
        self._call = call
        self._clock = call.engine.clock
        self.until = self.deadline = call.timings.since + call.model.stream_timeout
        self._generator: Any = None
        self._context: Context | None = None
        self._lock = threading.Lock()  # guards the next two
        self._is_in_thread = False  # whether a thread runs or closes the generator: then that gives the slot back
        self._is_given_up = False
        self._index = 0
        self._asked_at = self._returned_at = 0.0

    def prepare(self) -> Steps[None]:
        """Have the request decoded, and wait for the turn of what runs on the event loop."""
        call, slot = self._call, self._call.slot
        if call.body is not None:
            deadline = min(self.until, call.deadline)
            yield Run(call.decode_in_thread, "conversion", slot.turn, deadline, for_client=True)
        self.deadline = min(self.until, call.deadline)
        if call.handler.kind == "async stream":
            if slot.turn is not None:
                yield Wait(slot.turn, self.deadline, for_client=True)
            if slot.is_over:
                raise Stopped

    def read_next(self) -> Await | Run:
        """What returns the next item, encoded; or `_Large`; or None after the last item."""
        call, deadline = self._call, self.deadline
        if call.handler.kind == "async stream":
            return Await(self._await_next, deadline, for_client=True, in_one_task=True)
        late = None if deadline == math.inf else call.log_late
        return Run(self._next_in_thread, "model", call.slot.turn, deadline, for_client=True, late=late)

    def encode_elsewhere(self, response: InferenceResponse) -> Run:
        """What encodes a large response in a worker thread."""
        encode = partial(self._call.encode_in_thread, response, is_last=False)
        return Run(encode, "conversion", deadline=self.deadline, for_client=True)

    async def _await_next(self) -> T | _Large | None:
        call, handler = self._call, self._call.handler
        token = enter(call.model, call.slot, self.deadline)
        self._asked_at = self._clock()
        try:
            if self._generator is None:
                self._generator = self._create_generator()
            made = self._generator.__anext__()
            if handler.watch.is_measured:
                made = measure(made, call.model, handler, self._clock, goes_on=self._index < _MEASURED)
            response = call.respond(await made)
        except StopAsyncIteration:
            handler.watch.is_measured = False
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
        call.model.statistics.add(Numbers.add_response, self._index, outcome, seconds, encoding, now - call.timings.since)
        self._index += 1
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

    def end(self, outcome: ResponseOutcome, *, closes: bool = True) -> Steps[None]:
        """`give_up`, and close the generator before that, if no thread runs it."""
        self.note(outcome)
        if not self._stop():
            return
        try:
            if closes and self._generator is not None:
                is_async = self._call.handler.kind == "async stream"
                yield Await(self._close_async, in_one_task=True) if is_async else Run(self._close_in_thread, "model")
        except QuitWithin as error:  # raised by the model itself, such as by a task that it awaits
            self._log_closing(error)
        finally:
            if self._stop():
                self._call.slot.give_up()

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
