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
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, final

from .._models.model import Model
from .._models.statistics import ResponseOutcome
from .._protocol.effects import (
    Abandoned,
    Await,
    DeadlinePassed,
    QuitWithin,
    Run,
    Send,
    Signal,
    Start,
    Steps,
    Stopped,
    Wait,
    finish,
)
from .._protocol.errors import InferenceError, InvalidRequest, ModelFailed, TimedOut
from .._protocol.log import log_raised, name_request
from .._protocol.tensors import InferenceResponse
from .call import Call, ModelRaised, is_short
from .call_stack import enter, leave
from .copy_rule import copy_small
from .engine import Engine
from .failures import FAILURES, as_error
from .held_loop import measure
from .pipeline import answer_once, infer
from .record import record_end
from .wire_format import WireFormat

T = TypeVar("T")

_END: Final = object()

_MEASURED: Final = 8
"""How many items of the first stream of a model are measured, if it has so many: how long each holds the event loop."""

_Large: TypeAlias = tuple[InferenceResponse, float, float]
"""A response that a worker thread must encode, when the function was asked for it, and when the function returned it."""

_logger: Final = logging.getLogger("oip_asgi")


@final
class Stream(Generic[T]):
    """The answers of one request."""

    __slots__ = ("_engine", "_model", "_start", "_wire", "has_begun", "has_many", "wants_one")

    def __init__(self, engine: Engine, model: Model, wire: WireFormat[T], start: Start | None = None) -> None:
        self._engine = engine
        self._model = model
        self._wire = wire
        self._start = start
        self.wants_one = False
        """True if a model that can also answer with one response shall do so."""
        self.has_begun = False
        self.has_many = False
        """True if a generator answers. Its model may have another function by then."""

    def run(self) -> Steps[None]:
        """Send each answer. If this ends before the model's generator does, close the generator."""
        return infer(self._engine, self._model, self._wire, self._answer)

    def _answer(self, call: Call[T]) -> Steps[None]:
        if self.wants_one and call.handler.once is not None:
            call.handler = call.handler.once
        self.has_many = call.handler.streams
        if not self.has_many:
            only_answer = yield from finish(answer_once(call))
            yield from self._begin(math.inf)
            yield Send(only_answer)
            return
        reader = _ItemReader(call)
        try:
            answer = yield from reader.read_first()
            yield from self._begin(reader.until)
            while answer is not None:
                yield Send(answer, reader.until)
                answer = yield from reader.read_next()
        except FAILURES as failure:
            if type(failure) is not Stopped:  # a stopped generator runs no more, and neither does its event loop or thread
                yield from reader.close()
            reader.note_end("fail")
            raise call.note(reader.as_error(failure), failure.__cause__) from failure.__cause__
        except (Exception, Abandoned) as error:
            yield from reader.close()
            reader.note_end("cancel")
            call.note(error)
            raise
        except GeneratorExit as error:
            reader.note_end("cancel")
            call.note(error)
            raise
        finally:
            reader.give_up()
        reader.note_end("empty_response")
        call.timings.returned = call.timings.answered = self._engine.clock()
        record_end(call.model, call.timings, call.span, call.timings.answered)

    def _begin(self, deadline: float) -> Steps[None]:
        self.has_begun = True
        if self._start is not None:
            yield Start(self._start.status, self._start.headers, deadline)


def take_only_answer(model: Model, stream: Stream[T]) -> Steps[T]:
    """Return the only answer of a request. More than one, or none, is an error."""
    answers: list[T] = []

    def take(answer: Send) -> Steps[None]:
        if answers:
            raise InvalidRequest(f"{model} answered more than once: use generate_stream")
        answers.append(answer.piece)
        yield from ()

    stream.wants_one = True
    yield from redirect_pieces(take, stream.run())
    if not answers:
        _logger.error("%s answered nothing, where one response was asked for", model)
        raise ModelFailed(f"{model} answered nothing: generate_stream takes any number of responses")
    return answers[0]


def redirect_pieces(take: Callable[[Send], Steps[None]], steps: Steps[None]) -> Steps[None]:
    """Run `steps`, and give each piece to `take` instead of the driver. If `take` raises, throw that into `steps`."""
    try:
        effect = next(steps)
        while True:
            try:
                value = None
                if type(effect) is Send:
                    yield from take(effect)
                else:
                    value = yield effect
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(value)
    except StopIteration:
        return


@final
class _ItemReader(Generic[T]):
    """Runs the generator of one request, from item to item."""

    def __init__(self, call: Call[T]) -> None:
        self._call = call
        self._clock = call.engine.clock
        self.until = call.timings.since + call.model.stream_timeout
        self._generator: Any = None
        self._context: Context | None = None
        self._lock = threading.Lock()
        self._is_running = False
        self._is_closing = False
        self._has_answered = False
        self._has_failed = False
        self._index = 0
        self._asked_at = self._ended_at = 0.0
        self._large: _Large | None = None

    def read_first(self) -> Steps[T | None]:
        """Return the first item, encoded. None if there is none."""
        call, slot = self._call, self._call.slot
        if not call.is_decoded:
            yield Run(call.decode_in_thread, "conversion", slot.turn, deadline=self._find_deadline(), for_client=True)
        if call.handler.kind == "async stream":
            if slot.turn is not None:
                yield Wait(slot.turn, self._find_deadline(), for_client=True)
            if slot.is_over:
                raise Stopped
            self._note_start()
        answer = yield from self.read_next(slot.turn)
        self._has_answered = True
        return answer

    def read_next(self, turn: Signal | None = None) -> Steps[T | None]:
        """Return the next item, encoded. None after the last."""
        call, deadline = self._call, self._find_deadline()
        if call.handler.kind == "async stream":
            answer: T | None = yield Await(self._await_next, deadline, for_client=True)
            return answer if self._large is None else (yield from self._encode_in_thread(self._large, deadline))
        late = None if deadline == math.inf else call.log_late
        answer = yield Run(self._next_in_thread, "model", turn, deadline, for_client=True, late=late)
        return answer

    def _find_deadline(self) -> float:
        return self.until if self._has_answered else min(self.until, self._call.deadline)

    def _encode_in_thread(self, large: _Large, deadline: float) -> Steps[T]:
        """Encode a large response in a worker thread."""
        self._large = None
        response, since, returned = large
        copy_small(response.outputs)
        encode = partial(self._call.encode_in_thread, response, is_last=False)
        try:
            encoded: T = yield Run(encode, "conversion", deadline=deadline, for_client=True)
        except InferenceError:
            self._note_response("fail", since, returned)
            raise
        self._note_response("success", since, returned)
        return encoded

    async def _await_next(self) -> T | None:
        """Return the next item, encoded. None after the last one, or if the item is put into `_large`."""
        call, clock = self._call, self._clock
        token = enter(call.model, call.slot)
        since = self._asked_at = clock()
        try:
            if self._generator is None:
                self._generator = self._create_generator()
            made, handler = self._generator.__anext__(), call.handler
            if handler.is_measured:
                made = measure(made, call.model, handler, clock, goes_on=self._index < _MEASURED)
            response = call.respond(await made)
        except StopAsyncIteration:
            call.handler.is_measured = False
            self._ended_at = clock()
            return None
        except InferenceError:
            self._note_response("fail", since, clock())
            raise
        except Exception as error:
            self._note_response("fail", since, clock())
            raise ModelRaised from error
        finally:
            leave(token)
        returned = clock()
        if returned >= self.until:  # if the function never awaits, no timer can interrupt it
            raise DeadlinePassed
        if not is_short(call, response):
            self._large = response, since, returned
            return None
        return self._encode(response, since, returned)

    def _encode(self, response: InferenceResponse, since: float, returned: float) -> T:
        """Encode a response in this thread, and record it."""
        try:
            answer = self._call.encode(response)
        except InferenceError:
            self._note_response("fail", since, returned)
            raise
        self._note_response("success", since, returned)
        return answer

    def _note_start(self) -> None:
        call = self._call
        if not call.timings.started:
            call.timings.started = call.timings.called = call.engine.clock()

    def _note_response(self, outcome: Literal["success", "fail"], since: float, returned: float) -> None:
        """Record one response: its outcome, and how long the function took. If nobody waits for it any more, do nothing."""
        if self._is_closing:
            return
        self._has_failed = outcome == "fail"
        call, now = self._call, self._clock()
        call.model.statistics.record_response(self._index, outcome, returned - since, now - returned, now - call.timings.since)
        self._index += 1

    def note_end(self, outcome: ResponseOutcome) -> None:
        """Record how the stream ended. Do nothing if the function was not called, or the last response failed."""
        if self._generator is not None and not self._has_failed:
            call, now = self._call, self._clock()
            seconds = 0.0 if outcome == "cancel" else (self._ended_at or now) - self._asked_at
            call.model.statistics.record_response(self._index, outcome, seconds, 0.0, now - call.timings.since)

    def _create_generator(self) -> Any:
        args, kwargs = self._call.take_arguments()
        return self._call.handler.function(*args, **kwargs)

    def _next_in_thread(self) -> T | None:
        slot = self._call.slot
        if not slot.begin():
            raise Stopped
        try:
            with self._lock:
                if self._is_closing:
                    raise Stopped
                self._is_running = True
            try:
                return self._run_next()
            finally:
                if self._end_run():
                    self._close_here()
        finally:
            slot.end(is_last=False)

    def _end_run(self) -> bool:
        """Record that the thread has come back. True if the request was given up meanwhile."""
        with self._lock:
            self._is_running = False
            return self._is_closing

    def _run_next(self) -> T | None:
        call = self._call
        self._note_start()
        since = self._asked_at = self._clock()
        try:
            if self._context is None:
                # one context for all items: a generator may set a context variable, and reset it after a yield
                self._context = copy_context()
                self._context.run(enter, call.model, call.slot)
                self._generator = self._context.run(self._create_generator)
            item = self._context.run(next, self._generator, _END)
            if item is _END:
                self._ended_at = self._clock()
                return None
            response = call.respond(item)
        except InferenceError:
            self._note_response("fail", since, self._clock())
            raise
        except Exception as error:
            self._note_response("fail", since, self._clock())
            raise ModelRaised from error
        returned = self._clock()
        if returned >= self.until:
            raise DeadlinePassed
        return self._encode(response, since, returned)

    def close(self) -> Steps[None]:
        """Close the generator if it waits. If it runs, its thread closes it afterwards."""
        with self._lock:
            self._is_closing = True
            is_running = self._is_running
        if self._generator is None or is_running:
            return
        try:
            yield Await(self._close_async) if self._call.handler.kind == "async stream" else Run(self._close_in_thread, "model")
        except QuitWithin as error:  # raised by the model itself, such as by a task that it awaits
            self._log_closing(error)

    def _close_in_thread(self) -> None:
        slot = self._call.slot
        is_held = slot.begin()  # not if the request was given up meanwhile
        try:
            self._close_here()
        finally:
            if is_held:
                slot.end(is_last=False)

    def _close_here(self) -> None:
        if self._context is None or self._generator is None:
            return
        try:
            self._context.run(self._generator.close)
        except Exception as error:
            self._log_closing(error)

    async def _close_async(self) -> None:
        try:
            await self._generator.aclose()
        except Exception as error:
            self._log_closing(error)

    def _log_closing(self, error: Exception) -> None:
        call, request = self._call, name_request(self._call.timings.id)
        log_raised(logging.ERROR, error, "%s failed when the stream for %s was closed", call.model, request, extra=call.log_fields())

    def give_up(self) -> None:
        """End the request, and give its slot back."""
        with self._lock:
            self._is_closing = True
        self._call.slot.give_up()

    def as_error(self, failure: Exception) -> InferenceError:
        """Convert one of `FAILURES` to the error for the client."""
        call = self._call
        if type(failure) is not DeadlinePassed or self._find_deadline() != self.until:
            return as_error(call, failure)
        if failure.__cause__ is not None:
            call.log_late(failure.__cause__)
        seconds, request = call.model.stream_timeout, name_request(call.timings.id)
        _logger.warning("%s streamed for more than %g seconds for %s", call.model, seconds, request, extra=call.log_fields())
        return TimedOut(f"{call.model} did not end its stream within {seconds:g} seconds, its stream_timeout")
