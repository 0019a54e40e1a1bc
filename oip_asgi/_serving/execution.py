"""One call of a function for one or more requests: it merges their rows, splits the result, and gives each its own part or error.

`batch` decides where and when it runs.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from typing import Any, Final, Generic, TypeAlias, TypeVar, final

import msgspec

from .._models.batches import Waiting
from .._models.binding import Binding
from .._models.options import Batching
from .._protocol.effects import CancelledWithin, DeadlinePassed, QuitWithin, Signal, Stopped
from .._protocol.errors import InferenceError, error_text
from .._protocol.log import log_fields, log_raised
from .._protocol.tensors import InferenceContext, InferenceRequest, InferenceResponse, Tensor
from .batch_key import count_rows
from .batch_rows import merge, split
from .call import Call, ModelRaised, is_short
from .call_stack import CallStack, current_calls, enter_for_batch, leave
from .copy_rule import copy_small
from .error_hints import convert_host_error, find_hint

T = TypeVar("T")

_ENDS: Final = (DeadlinePassed, Stopped, CancelledWithin, QuitWithin)
"""What ends a call from outside the function."""

_Arguments: TypeAlias = tuple[list[Any], dict[str, Any]]


class _Merged(msgspec.Struct, frozen=True, eq=False):
    """Several requests, as `Binding.arguments` takes one."""

    binding: Binding
    tensors: dict[str, Tensor]
    content_type: str | None
    request: InferenceRequest

    def context(self) -> InferenceContext:
        raise AssertionError("a model that takes it has no batches")


@final
class Member(Generic[T]):
    """One request among those that share a call."""

    __slots__ = ("answer", "call", "calls", "error", "execution", "has_left", "is_done", "response", "rows", "wake")

    def __init__(self, call: Call[T]) -> None:
        self.call = call
        self.rows: int | None = None
        self.calls: CallStack = current_calls()
        self.execution: Execution | None = None
        self.wake: Callable[[], object] = _do_nothing
        self.is_done = False
        self.has_left = False
        self.response: InferenceResponse | None = None
        self.error: Exception | None = None
        self.answer: T | None = None

    def count(self) -> int | None:
        """Count and record the rows of the request. None if they cannot be counted."""
        self.rows = count_rows(self.call.decoded.tensors.values())
        self.call.timings.rows = 1 if self.rows is None else self.rows
        return self.rows

    def take(self) -> InferenceResponse:
        """Return its response, or raise its error."""
        error, self.error = self.error, None  # its traceback knows this: together they would live until the next garbage collection
        if error is None:
            assert self.response is not None  # it is done
            return self.response
        try:
            raise error
        finally:
            del error

    def leave(self) -> None:
        """Record that nobody waits for it any more."""
        self.has_left = True
        self.error = None  # its traceback refers to this member, and so does the execution: without this they would be cycles
        execution, self.execution = self.execution, None
        if execution is not None:
            execution.record_leave()


@final
class Execution:
    """One call for all requests of a batch; more calls if some requests must be retried alone."""

    def __init__(self, member: Member[Any], waiting: Sequence[Waiting], batching: Batching) -> None:
        call = member.call
        self.unwanted: Signal | None = None
        """Set when nobody waits for any of them any more."""
        self._members: list[Member[Any]] = [each.request for each in waiting] or [member]
        self._handler, self._model, self._engine, self._slots = call.handler, call.model, call.engine, [call.slot]
        self._binding, self._content_type = call.decoded.binding, call.decoded.content_type
        self._retries_alone = batching.retry_alone
        self._slot = call.slot
        for each in self._members:
            each.execution = self
            if each is not member:
                turn = each.call.slot.turn
                assert turn is not None  # it has waited
                each.wake = turn.set

    @property
    def deadline(self) -> float:
        """The latest deadline of its requests."""
        return max(member.call.deadline for member in self._members)

    def record_leave(self) -> None:
        """Record that one of the requests was answered or given up."""
        if self.unwanted is not None and all(member.has_left for member in self._members):
            self.unwanted.set()

    def wake(self) -> None:
        """Wake all requests that wait."""
        for member in self._members:
            member.is_done = True
            member.wake()

    def end(self) -> None:
        """Give the slot back and wake all requests, at the first call, from any thread."""
        try:
            slot = self._slots.pop()
        except IndexError:
            return
        self.fail(Stopped())
        self.wake()
        slot.end(is_last=True)

    # The call

    def run(self) -> None:
        """`call` a plain function in this thread. If it raises, each request fails with that."""
        try:
            Context().run(_run_to_end, self)
        except BaseException as error:
            self.fail(error if isinstance(error, Exception) else _convert_quit(error))
            raise

    async def call(self) -> None:
        """Call the function. If it is a plain one, this never awaits."""
        token = enter_for_batch(self._model, self._slot, [member.calls for member in self._members])
        try:
            with self._enter_span():
                await self._answer(self._members)
        finally:
            leave(token)

    def _enter_span(self) -> AbstractContextManager[object]:
        tracer = self._engine.tracer
        spans = [member.call.span for member in self._members if member.call.span is not None]
        if tracer is None or not spans:
            return nullcontext()
        if len(self._members) == 1:
            return spans[0].active()
        return tracer.together(self._model, _count_rows(self._members), spans)

    async def _answer(self, members: list[Member[Any]]) -> None:
        """Answer requests by one call. If that fails, answer by further calls the requests that may succeed alone."""
        members = [member for member in members if not member.has_left]
        if members:
            for others in await self._answer_together(members):
                await self._answer(others)

    async def _answer_together(self, members: list[Member[Any]]) -> list[list[Member[Any]]]:
        """Answer requests by one call. Return the groups that need further calls."""
        clock = self._engine.clock
        started = clock()
        try:
            args, kwargs = self._make_arguments(members)
        except Exception as error:
            if len(members) == 1:
                self._fail(members, error)
                return []
            sound = [member for member in members if self._can_make_arguments(member)]
            return [sound] if len(sound) < len(members) else [[member] for member in members]
        called = clock()
        for member in members:
            timings = member.call.timings
            timings.started, timings.called = started, called
        try:
            result = self._handler.function(*args, **kwargs)
            if self._handler.kind == "async":
                result = await result
            returned = clock()
            for member in members:
                member.call.timings.returned = returned
            self._share_out(members, result)
        except Exception as error:
            self._model.statistics.record_execution(_count_rows(members), called - started, None, 0.0)
            if self._retries_alone and len(members) > 1:
                self._log(members, error, ", so each of them is tried alone")
                return [[member] for member in members]
            self._fail(members, error)
        else:
            self._model.statistics.record_execution(_count_rows(members), called - started, returned - called, clock() - returned)
        return []

    def _make_arguments(self, members: list[Member[Any]]) -> _Arguments:
        """Make the arguments of the function for some requests together."""
        call, binding = members[0].call, self._binding
        if len(members) == 1:
            return binding.arguments(call.decoded)
        tensors = merge([member.call.decoded.tensors for member in members], writable=self._model.options.writable)
        request = InferenceRequest(list(tensors.values()), None, call.decoded.request.parameters, [], call.decoded.request.decoders)
        return binding.arguments(_Merged(binding, tensors, self._content_type, request))

    def _can_make_arguments(self, member: Member[Any]) -> bool:
        """True if the arguments of a request can be made. If not, only this request fails."""
        try:
            self._binding.arguments(member.call.decoded)
        except Exception as error:
            self._fail([member], error)
            return False
        return True

    def _share_out(self, members: list[Member[Any]], result: Any) -> None:
        """Give each request its part of a result."""
        rows = [member.rows for member in members if member.rows is not None]
        results = split(result, rows, self._handler.answers) if rows else [result]
        for member, part in zip(members, results, strict=True):
            try:
                response = member.call.respond(part)
                copy_small(response.outputs)  # it is encoded after the slot has ended
                member.response = response
            except Exception as error:
                self._fail([member], error)

    # The outcome

    def fail(self, error: Exception) -> None:
        """Fail all requests that have no response and no error yet."""
        waiting = [member for member in self._members if member.response is None and member.error is None]
        if not isinstance(error, _ENDS):
            self._fail(waiting, error)
            return
        for place, member in enumerate(waiting):
            member.error = type(error)()
            # a late exception is logged once
            member.error.__cause__ = None if place and isinstance(error, DeadlinePassed) else error.__cause__

    def _fail(self, members: list[Member[Any]], error: Exception) -> None:
        error = convert_host_error(error) or error
        if isinstance(error, InferenceError):
            for member in members:
                member.error = error if len(members) == 1 else _copy_error(error)
            return
        if len(members) > 1:
            self._log(members, error, "")
        for member in members:
            member.error = raised = ModelRaised()
            raised.__cause__ = error
            raised.is_logged = len(members) > 1

    def _log(self, members: list[Member[Any]], error: Exception, then: str) -> None:
        fields = log_fields(
            self._model.name, self._model.version, None, self._engine.clock() - min(member.call.timings.since for member in members)
        )
        message, hint = "%s failed on a batch of %d requests with %d rows%s%s", find_hint(error, self._model)
        log_raised(logging.ERROR, error, message, self._model, len(members), _count_rows(members), then, hint, extra=fields)

    def encode_long(self, *, but: Member[Any] | None = None) -> None:
        """Encode long responses within the slot of the call, so that they cannot pile up after it."""
        for member, response in self._find_long():
            if member is not but:
                try:
                    member.answer = member.call.encode(response)
                except Exception as error:
                    member.error = error

    def has_long(self) -> bool:
        """True if `encode_long` has something to encode."""
        return bool(self._find_long())

    def _find_long(self) -> list[tuple[Member[Any], InferenceResponse]]:
        having = [(member, member.response) for member in self._members if member.response is not None and not member.has_left]
        return [(member, response) for member, response in having if not is_short(member.call, response)]


def _run_to_end(execution: Execution) -> None:
    """Run a call that never awaits."""
    try:
        execution.call().send(None)
    except StopIteration:
        return


def _count_rows(members: Sequence[Member[Any]]) -> int:
    return sum(member.call.timings.rows or 0 for member in members)


def _convert_quit(error: BaseException) -> QuitWithin:
    quitting = QuitWithin()
    quitting.__cause__ = error
    return quitting


def _copy_error(error: InferenceError) -> InferenceError:
    """Copy an error, as each request raises its own."""
    try:
        return copy.copy(error)
    except Exception:  # its class cannot be copied
        return InferenceError(error_text(error), status=error.status, headers=error.headers)


def _do_nothing() -> None:
    pass
