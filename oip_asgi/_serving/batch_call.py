"""One call of a function for one or more requests: it merges their rows, splits the result, and gives each its own part or error.

`batch` decides where and when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

import msgspec

from .._io import IO, DeadlinePassed, Part, QuitWithin, Signal, Stopped
from .._models.batch_queue import Batches, BatchSlot
from .._models.estimators import refuses_request
from .._models.statistics import Numbers
from .._protocol.errors import InferenceError, copy_error
from .._protocol.log import log_fields, log_raised
from .._protocol.tensors import InferenceRequest, InferenceResponse
from .batch_rows import merge_requests, split_result
from .call import Call, ModelRaised, may_encode_here
from .call_stack import CallStack, set_calls
from .failures import find_hint
from .held_loop import measure_steps
from .host_errors import convert_host_error
from .record import Tracer

T = TypeVar("T")

_ENDS: Final = (DeadlinePassed, Stopped, QuitWithin)
"""What ends a call from outside the function."""


class Member(msgspec.Struct, Generic[T], eq=False):
    """One request among those that share a call. Once it is `done`, it has a response or an error, unless the call was stopped."""

    call: Call[T]
    rows: int | None  # None if they cannot be counted
    calls: CallStack
    done: Signal | None  # None if nobody waits for it
    execution: Execution | None = None  # if it must know when the request has left
    has_left: bool = False
    response: InferenceResponse | None = None
    answer: T | None = None  # a long response as it leaves
    error: Exception | None = None

    def finish(self) -> T:
        """Return its answer, or raise its error."""
        error, self.error = self.error, None  # its traceback refers to this: a cycle, which only the garbage collector would free
        try:
            if self.call.engine.clock() >= self.call.deadline:
                raise DeadlinePassed from error
            if error is not None:
                raise error
        finally:
            del error
        if self.response is None:
            raise Stopped
        return self.call.encode(self.response) if self.answer is None else self.answer

    def leave(self) -> None:
        """Record that its request was given up."""
        with self.call.model.limiter.lock:
            self.has_left = True
            error, self.error = self.error, None
            if self.execution is not None:
                self.execution.record_leave()
        if error is not None:
            self.call.log_late(error)


class Execution:
    """One call for all requests of a batch; more calls if some requests must be retried alone. It begins the use of a slot, and ends it."""

    def __init__(self, limiter: Batches, slot: BatchSlot, member: Member[Any]) -> None:
        self._members: list[Member[Any]] = limiter.collect(slot, member)
        if not self._members:
            raise Stopped
        call = self._members[0].call
        self._deadline = max([member.call.deadline for member in self._members])
        self.unwanted: Signal | None = None
        """Set when all members have left."""
        self._slot: BatchSlot | None = slot
        self._handler, self._model, self._engine = call.handler, call.model, call.engine
        self._retries_alone = self._model.options.retry_alone
        self._long: list[tuple[Member[Any], InferenceResponse]] = []

    def run(self) -> None:
        """Call a plain function, and end the call."""
        try:
            try:
                Context().run(self.call().send, None)
            except StopIteration:  # it never awaits, so that is its end
                if self._long:
                    self._encode_long()
        except BaseException as error:
            self._fail_rest(error)
            raise
        finally:
            self.end()

    def make_apart(self) -> Part:
        """What calls a coroutine function in a task of its own, as any client that waits may leave, and ends the call."""
        self.unwanted = Signal()
        with self._model.limiter.lock:
            for member in self._members:
                member.execution = self
            self.record_leave()  # all may have left before they knew this
        apart = Part(self._run_in_task, self.unwanted, is_apart=True)
        apart.ended.then(self.end)  # also if its event loop ends before the task has begun
        return apart

    async def _run_in_task(self, io: IO) -> None:
        try:
            await io.call(self.call, self._deadline)
            if self._long:
                await io.run(self._encode_long, "conversion")
        except Exception as error:
            self._fail_rest(error)
        finally:
            self.end()

    def record_leave(self) -> None:
        """Record that one of the requests was given up. The caller holds the lock."""
        if self.unwanted is not None and all(member.has_left for member in self._members):
            self.unwanted.set()

    def end(self) -> None:
        """Give the slot back and wake all requests. A second call does nothing."""
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.end(is_last=True)
            for member in self._members:
                member.execution = None
                if member.done is not None:
                    member.done.set()

    # The call

    async def call(self) -> None:
        """Call the function, in a context of its own. If it is a plain one, this never awaits."""
        assert self._slot is not None  # it has not ended
        callers = dict.fromkeys([caller for member in self._members for caller in member.calls])
        set_calls((*callers, (self._model, self._slot, self._deadline)))
        tracer = self._engine.tracer
        with nullcontext() if tracer is None else self._enter_span(tracer):
            groups = [self._members]
            while groups:
                members = [member for member in groups.pop(0) if not member.has_left]
                if members:
                    groups += await self._answer(members)

    def _enter_span(self, tracer: Tracer) -> AbstractContextManager[object]:
        spans = [member.call.span for member in self._members if member.call.span is not None]
        if len(spans) == len(self._members) == 1:
            return spans[0].active()
        return tracer.together(self._model, _sum_rows(self._members), spans) if spans else nullcontext()

    async def _answer(self, members: list[Member[Any]]) -> list[list[Member[Any]]]:
        """Answer requests by one call. Return the groups that need further calls."""
        clock, statistics = self._engine.clock, self._model.statistics
        started = clock()
        try:
            args, kwargs = self._make_arguments(members)
        except Exception as error:
            if len(members) == 1:
                self._fail(members, error)
                return []
            sound = [member for member in members if self._can_make_arguments(member)]
            return [sound] if len(sound) < len(members) else [[member] for member in members]
        called, rows = clock(), 0
        for member in members:
            timings = member.call.timings
            timings.started, timings.called, timings.returned = started, called, 0.0
            rows += timings.rows
        try:
            result = self._handler.function(*args, **kwargs)
            if self._handler.kind == "async":
                result = await (measure_steps(result, self._model, self._handler, clock) if self._handler.watch.is_measured else result)
            returned = clock()
            for member in members:
                member.call.timings.returned = returned
            self._share_out(members, result)
        except Exception as error:
            statistics.add(Numbers.add_execution, rows, {"compute_input": called - started})
            is_refusal = refuses_request(self._handler.function, error)  # of one request, which the others need not pay for
            if (self._retries_alone or is_refusal) and len(members) > 1:
                if not is_refusal:
                    self._log(members, error, ", so each of them is tried alone")
                return [[member] for member in members]
            self._fail(members, error)
        else:
            stages = {"compute_input": called - started, "compute_infer": returned - called, "compute_output": clock() - returned}
            statistics.add(Numbers.add_execution, rows, stages)
        return []

    def _make_arguments(self, members: list[Member[Any]]) -> tuple[list[Any], dict[str, Any]]:
        """Make the arguments of the function for some requests together."""
        decoded = members[0].call.decoded
        if len(members) > 1:
            tensors = merge_requests([member.call.decoded.tensors for member in members], writable=self._model.options.writable)
            first = decoded.request
            request = InferenceRequest(list(tensors.values()), None, first.parameters, first.outputs, first.decoders)
            decoded = msgspec.structs.replace(decoded, request=request, tensors=tensors)
        return decoded.binding.make_arguments(decoded)

    def _can_make_arguments(self, member: Member[Any]) -> bool:
        """True if the arguments of a request can be made. If not, only this request fails."""
        try:
            member.call.decoded.binding.make_arguments(member.call.decoded)
        except Exception as error:
            self._fail([member], error)
            return False
        return True

    def _share_out(self, members: list[Member[Any]], result: Any) -> None:
        """Give each request its part of a result."""
        rows = [member.rows for member in members if member.rows is not None]
        results = split_result(result, rows, self._handler.answers) if rows else [result]
        for member, part in zip(members, results, strict=True):
            try:
                response = member.response = member.call.respond(part)
                if not may_encode_here(member.call, response):
                    self._long.append((member, response))
            except Exception as error:
                self._fail([member], error)

    def _encode_long(self) -> None:
        """Encode long responses within the slot of the call, so that they cannot pile up after it."""
        for member, response in self._long:
            if not member.has_left:
                try:
                    member.answer = member.call.encode(response)
                except Exception as error:
                    member.error = error

    # Failures

    def _fail_rest(self, error: BaseException) -> None:
        """Fail all requests that have no response and no error yet."""
        if not isinstance(error, Exception):
            cause, error = error, QuitWithin()
            error.__cause__ = cause
        self._fail([member for member in self._members if member.response is None and member.error is None], error)

    def _fail(self, members: list[Member[Any]], error: Exception) -> None:
        """Fail some requests, each with an error of its own, as each raises it."""
        error = convert_host_error(error) or error
        if isinstance(error, (InferenceError, *_ENDS)):
            for member in members:
                with self._model.limiter.lock:
                    if not member.has_left:  # else nobody takes it, and its traceback refers to this: a cycle
                        member.error = error if len(members) == 1 else copy_error(error)
            return
        if len(members) > 1:
            self._log(members, error, "")
        for member in members:
            raised = ModelRaised()
            raised.__cause__ = error
            raised.is_logged = len(members) > 1
            with self._model.limiter.lock:
                has_left = member.has_left
                member.error = None if has_left else raised
            if has_left:
                member.call.log_late(raised)

    def _log(self, members: list[Member[Any]], error: Exception, then: str) -> None:
        model, since = self._model, min(member.call.timings.since for member in members)
        fields = log_fields(model.name, model.version, None, self._engine.clock() - since)
        message, hint = "%s failed on a batch of %d requests with %d rows%s%s", find_hint(error, members[0].call)
        log_raised(error, message, model, len(members), _sum_rows(members), then, hint, extra=fields)


def _sum_rows(members: Sequence[Member[Any]]) -> int:
    return sum([member.call.timings.rows for member in members])
