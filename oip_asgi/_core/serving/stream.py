"""The answers of one request, one at a time: those of a generator, or the only one of a plain model. Knows no transport.

A generator is asked for its next item when the last one was taken. It holds its slot until it has ended or is closed, and is closed in a
worker thread if it is a plain one, never while it runs.
"""

from __future__ import annotations

import logging
import math
import threading
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Generic, TypeVar, final

from ..effects import Abandoned, Await, DeadlinePassed, Run, Send, Steps, Stopped, Wait
from ..errors import InferenceError, InvalidRequest, ModelFailed, TimedOut, shown
from ..limits import ON_LOOP
from ..log import log_raised
from ..models.model import Model
from ..tensors import InferenceResponse
from .call import Call, ModelRaised
from .engine import Engine
from .form import Form
from .lasting import is_new
from .nesting import enter, leave
from .pipeline import FAILURES, answered, as_error, opened

R = TypeVar("R")
T = TypeVar("T")

_END: Final = object()

_logger: Final = logging.getLogger("oip_asgi")


@final
class Answers(Generic[T]):
    """The answers of one request.

    Args:
        engine: The server.
        model: The model that is asked for.
        form: How the request arrives and each response leaves.
    """

    def __init__(self, engine: Engine, model: Model, form: Form[T]) -> None:
        self.model = model
        self._engine = engine
        self._form = form
        self._pulled: _Pulled[T] | None = None
        self._is_over = False

    def next(self) -> Steps[T | None]:
        """The next answer, None behind the last. Whatever is raised, the generator has been closed then.

        Raises:
            InferenceError: The request is wrong or not admitted, or the model raised, failed, or took too long.
        """
        if self._is_over:
            return None
        if self._pulled is None:
            call = yield from opened(self._engine, self.model, self._form, may_stream=True)
            if not call.handler.streams:
                self._is_over = True
                return (yield from answered(call))
            self._pulled = _Pulled(call)
        try:
            answer = yield from self._pulled.next()
        except FAILURES as failure:
            if type(failure) is not Stopped:  # what was stopped runs no more, and where it ran is gone
                yield from self.close()
            self.give_up()
            raise self._pulled.as_error(failure) from failure.__cause__
        except (Exception, Abandoned):
            yield from self.close()
            raise
        if answer is None:
            self.give_up()
        return answer

    def close(self) -> Steps[None]:
        """Close the generator, so that its `finally` runs; nothing where it has ended."""
        pulled = self._pulled
        if pulled is not None and not self._is_over:
            yield from pulled.close()
        self.give_up()

    def give_up(self) -> None:
        """End it without waiting for anything. A generator that runs in a thread is closed when it comes back."""
        self._is_over = True
        if self._pulled is not None:
            self._pulled.give_up()


def closing(answers: Answers[Any], steps: Steps[R]) -> Steps[R]:
    """Finish `steps`, which take answers, and close the generator where they end before it."""
    try:
        return (yield from steps)
    except (Exception, Abandoned):
        yield from answers.close()
        raise
    finally:
        answers.give_up()


def handed_on(answers: Answers[Any]) -> Steps[None]:
    """Hand on each answer of a request.

    Raises:
        InferenceError: As `Answers.next` says.
    """
    return (yield from closing(answers, _handed_on(answers)))


def _handed_on(answers: Answers[Any]) -> Steps[None]:
    while (answer := (yield from answers.next())) is not None:
        yield Send(answer)


def only(answers: Answers[T]) -> Steps[T]:
    """The only answer of a request.

    Raises:
        InferenceError: There is none, or there are several, or as `Answers.next` says.
    """
    return (yield from closing(answers, _only(answers)))


def _only(answers: Answers[T]) -> Steps[T]:
    answer = yield from answers.next()
    if answer is None:
        _logger.error("%s answered nothing, where one response was asked for", answers.model)
        raise ModelFailed(f"{answers.model} answered nothing: generate_stream takes any number of responses")
    if (yield from answers.next()) is not None:
        raise InvalidRequest(f"{answers.model} answered more than once: use generate_stream")
    return answer


@final
class _Pulled(Generic[T]):
    """The generator of one request, which waits between two items for somebody to ask for the next.

    Args:
        call: The request, which has entered.
    """

    def __init__(self, call: Call[T]) -> None:
        self._call = call
        self._until = call.since + call.model.stream_timeout
        self._generator: Any = None
        self._context: Context | None = None
        self._lock = threading.Lock()
        self._is_running = False
        self._is_closing = False
        self._has_answered = False

    @property
    def _deadline(self) -> float:
        return self._until if self._has_answered else min(self._until, self._call.deadline)

    def next(self) -> Steps[T | None]:
        """The next item as it leaves, None behind the last."""
        call, slot = self._call, self._call.slot
        if not call.is_decoded:
            yield Run(call.decode_in_thread, "conversion", slot.turn, deadline=self._deadline, for_client=True)
        if call.handler.kind == "async stream":
            if self._generator is None:
                yield from self._turn()
            answer = yield from self._next_async()
        else:
            deadline = self._deadline
            late = None if deadline == math.inf else call.failed_late
            reconsider = call.model.limiter.reconsider
            answer = yield Run(self._next_in_thread, "model", slot.turn, reconsider, deadline, for_client=True, late=late)
        self._has_answered = True
        return answer

    def _turn(self) -> Steps[None]:
        slot = self._call.slot
        if slot.turn is not None:
            yield Wait(slot.turn, self._deadline, for_client=True)
        if slot.is_left:
            raise Stopped

    def _next_async(self) -> Steps[T | None]:
        call, deadline = self._call, self._deadline
        response: InferenceResponse | None = yield Await(self._await_next, deadline, for_client=True)
        if response is None:
            return None
        if call.form.encoding_cost(call.request, response) <= ON_LOOP:
            return call.encode(response)
        encode = partial(call.encode_in_thread, response, is_last=False)
        encoded: T = yield Run(encode, "conversion", deadline=deadline, for_client=True)
        return encoded

    async def _await_next(self) -> InferenceResponse | None:
        call = self._call
        token = enter(call.model, call.slot)
        try:
            if self._generator is None:
                self._generator = self._made()
            item = await self._generator.__anext__()
            return call.respond(item, is_new(item))
        except StopAsyncIteration:
            return None
        except InferenceError:
            raise
        except Exception as error:
            raise ModelRaised from error
        finally:
            leave(token)

    def _made(self) -> Any:
        args, kwargs = self._call.binding.arguments(self._call)
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
                if self._is_to_close():
                    self._close_here()
        finally:
            slot.end(is_last=False)

    def _is_to_close(self) -> bool:
        """Note that the thread has come back. Returns whether the request was given up meanwhile."""
        with self._lock:
            self._is_running = False
            return self._is_closing

    def _run_next(self) -> T | None:
        call = self._call
        try:
            if self._context is None:
                # one for all items: what a generator sets in a context variable, it may reset behind a yield
                self._context = copy_context()
                self._context.run(enter, call.model, call.slot)
                self._generator = self._context.run(self._made)
            item = self._context.run(next, self._generator, _END)
            if item is _END:
                return None
            response = call.respond(item, is_new(item))
        except InferenceError:
            raise
        except Exception as error:
            raise ModelRaised from error
        return call.encode(response)

    def close(self) -> Steps[None]:
        """Close the generator where it waits; one that runs is closed when it comes back."""
        with self._lock:
            self._is_closing = True
            is_running = self._is_running
        if self._generator is None or is_running:
            return
        if self._call.handler.kind == "async stream":
            yield Await(self._close_async)
        else:
            yield Run(self._close_here, "model")

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
        call = self._call
        log_raised(logging.ERROR, error, "%s failed when the stream for the request with id %s was closed", call.model, shown(call.id))

    def give_up(self) -> None:
        """The request ends here."""
        with self._lock:
            self._is_closing = True
        self._call.slot.give_up()

    def as_error(self, failure: Exception) -> InferenceError:
        """The error for the client that one of `FAILURES` is."""
        call = self._call
        if type(failure) is not DeadlinePassed or self._deadline != self._until:
            return as_error(call, failure)
        if failure.__cause__ is not None:
            call.failed_late(failure.__cause__)
        seconds = call.model.stream_timeout
        _logger.warning("%s streamed for more than %g seconds for the request with id %s", call.model, seconds, shown(call.id))
        return TimedOut(f"{call.model} did not end its stream within {seconds:g} seconds, its stream_timeout")
