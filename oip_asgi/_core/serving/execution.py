"""One call of a function for one request or several: their rows are merged, the result is split, and each gets its own part or error.

Plain functions, as in `call`: which of them runs where, and when, is decided in `batch`.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeAlias, final

import msgspec

from ..datatypes import Array
from ..effects import CancelledWithin, DeadlinePassed, QuitWithin, Signal, Stopped
from ..errors import InferenceError
from ..log import log_fields, log_raised
from ..models.binding import Binding
from ..models.options import Batching
from ..tensors import InferenceContext, InferenceRequest, Tensor
from .advice import hint, told_by_host
from .batch_member import Member, is_long
from .batch_rows import merged, split
from .call import ModelRaised
from .lasting import is_new, lasting
from .nesting import enter_together, leave

_ENDS: Final = (DeadlinePassed, Stopped, CancelledWithin, QuitWithin)
"""What ends a call from outside of the function."""


class _Merged(msgspec.Struct, frozen=True, eq=False):
    """What arguments are made of for several requests."""

    binding: Binding
    tensors: dict[str, Tensor]
    content_type: str | None
    request: InferenceRequest

    def context(self) -> InferenceContext:
        raise AssertionError("a model that takes it has no batches")


_Arguments: TypeAlias = tuple[list[Any], dict[str, Any]]
_Calls: TypeAlias = Generator[_Arguments, tuple[Any, bool], None]
"""Hands on the arguments of each call, and is sent its result, and whether that is new, or thrown what it raised."""


@final
class Execution:
    """One call for all requests of a batch; more where some of them have to be called alone.

    Args:
        members: The requests, the one that leads first.
        batching: What the model's options say.
    """

    def __init__(self, members: Sequence[Member[Any]], batching: Batching) -> None:
        lead = members[0].call
        self.members = members
        self.handler = lead.handler
        self.unwanted: Signal | None = None
        """To be set when nobody waits for any of them any more."""
        self._model, self._engine, self._slot = lead.model, lead.engine, lead.slot
        self._binding, self._content_type = lead.binding, lead.content_type
        self._batching = batching
        for member in members:
            member.execution = self

    @property
    def deadline(self) -> float:
        """When the last of them is given up."""
        return max(member.call.deadline for member in self.members)

    def left(self) -> None:
        """One of the requests was answered, or given up."""
        if self.unwanted is not None and all(member.has_left for member in self.members):
            self.unwanted.set()

    # The call

    def run(self) -> None:
        """Call the function in this thread. What it raises becomes the error of each request.

        It sees no context variables of a request, as it would see those of one request only.
        """
        try:
            Context().run(self._run)
        except BaseException as error:
            self.fail(error if isinstance(error, Exception) else _quit(error))
            raise

    def _run(self) -> None:
        token = enter_together(self._model, self._slot, [member.held for member in self.members])
        function, calls = self.handler.function, self._calls()
        try:
            with self._span():
                arguments = next(calls, None)
                while arguments is not None:
                    args, kwargs = arguments
                    try:
                        result = function(*args, **kwargs)
                        new = is_new(result)
                    except Exception as error:
                        arguments = _thrown(calls, error)
                    else:
                        arguments = _sent(calls, (result, new))
                        del result
        finally:
            leave(token)

    async def run_async(self) -> None:
        """`run` for a coroutine function, in a task of its own."""
        token = enter_together(self._model, self._slot, [member.held for member in self.members])
        function, calls = self.handler.function, self._calls()
        try:
            with self._span():
                arguments = next(calls, None)
                while arguments is not None:
                    args, kwargs = arguments
                    try:
                        result = await function(*args, **kwargs)
                        new = is_new(result)
                    except Exception as error:
                        arguments = _thrown(calls, error)
                    else:
                        arguments = _sent(calls, (result, new))
                        del result
        finally:
            leave(token)

    def _span(self) -> AbstractContextManager[object]:
        tracer = self._engine.tracer
        spans = [member.call.span for member in self.members if member.call.span is not None]
        if tracer is None or not spans:
            return nullcontext()
        if len(self.members) == 1:
            return spans[0].active()
        return tracer.together(self._model, sum(member.call.rows or 0 for member in self.members), spans)

    def _calls(self) -> _Calls:
        groups = deque([list(self.members)])
        while groups:
            group = [member for member in groups.popleft() if not member.has_left]
            started = self._engine.clock()
            prepared = self._prepared(group)
            if prepared is None:
                groups.extend([member] for member in group)
                continue
            group, request, arguments = prepared
            if not group:
                continue
            called = self._engine.clock()
            for member in group:
                member.call.started, member.call.called = started, called
            try:
                result, new = yield arguments
                returned = self._engine.clock()
                for member in group:
                    member.call.returned = returned
                self._share_out(group, result, new, request)
            except Exception as error:
                self._record(group, started, called)
                if self._batching.retry_alone and len(group) > 1:
                    self._log(group, error, ", so each of them is tried alone")
                    groups.extend([member] for member in group)
                else:
                    self._fail(group, error)
            else:
                self._record(group, started, called, returned)

    def _prepared(self, group: list[Member[Any]]) -> tuple[list[Member[Any]], InferenceRequest, _Arguments] | None:
        """Make the arguments for some requests.

        Returns:
            Those of the requests whose tensors hold what their content types say, which may be none, what they are as one request, and
            the arguments. None where they cannot be merged.
        """
        binding = self._binding
        while group:
            lead = group[0].call
            request = lead.request
            try:
                if len(group) == 1:
                    return group, request, binding.arguments(lead)
                tensors = merged([member.call.tensors for member in group], writable=self._model.options.writable)
                request = InferenceRequest(list(tensors.values()), None, request.parameters, [], request.decoders)
                return group, request, binding.arguments(_Merged(binding, tensors, self._content_type, request))
            except Exception as error:
                if len(group) == 1:
                    self._fail(group, error)
                    break
            sound = [member for member in group if self._is_sound(member)]
            if len(sound) == len(group):
                return None
            group = sound
        return [], InferenceRequest([]), ([], {})

    def _is_sound(self, member: Member[Any]) -> bool:
        """Whether the arguments of a request can be made. One of them cannot, and that is the error of that request alone."""
        try:
            self._binding.arguments(member.call)
        except Exception as error:
            self._fail([member], error)
            return False
        return True

    def _share_out(self, group: list[Member[Any]], result: Any, new: bool, request: InferenceRequest) -> None:
        """Give each request its part of a result."""
        keep = _as_it_is if new else partial(lasting, request=request)
        rows = [member.rows for member in group if member.rows is not None]
        results, last = [result], False
        if rows:
            parts = split(result, rows, self.handler.answers, keep)
            results, last = parts.results, parts.last
        for member, part in zip(group, results, strict=True):
            try:
                response = member.call.respond(part, lasts=True)
                if not last:
                    for tensor in response.outputs:
                        tensor.array = lasting(tensor.array, request)
                member.response = response
            except Exception as error:
                self._fail([member], error)

    # What came of it

    def _record(self, group: list[Member[Any]], started: float, called: float, returned: float | None = None) -> None:
        now = self._engine.clock()
        rows = sum(member.call.rows or 0 for member in group)
        infer = None if returned is None else returned - called
        self._model.statistics.record_execution(rows, called - started, infer, 0.0 if returned is None else now - returned)

    def fail(self, error: Exception) -> None:
        """Let all requests fail that have nothing yet."""
        waiting = [member for member in self.members if not member.has_outcome]
        if not isinstance(error, _ENDS):
            self._fail(waiting, error)
            return
        for place, member in enumerate(waiting):
            own = type(error)()
            own.__cause__ = None if place and isinstance(error, DeadlinePassed) else error.__cause__  # what comes late is logged once
            member.fail(own)

    def _fail(self, group: list[Member[Any]], error: Exception) -> None:
        error = told_by_host(error) or error
        if isinstance(error, InferenceError):
            for member in group:
                member.fail(error if len(group) == 1 else _copied(error))
            return
        if len(group) > 1:
            self._log(group, error, "")
        for member in group:
            raised = ModelRaised()
            raised.__cause__ = error
            raised.is_logged = len(group) > 1
            member.fail(raised)

    def _log(self, group: list[Member[Any]], error: Exception, then: str) -> None:
        rows, since = sum(member.call.rows or 0 for member in group), min(member.call.since for member in group)
        fields = log_fields(self._model.name, self._model.version, None, self._engine.clock() - since)
        message, advice = "%s failed on a batch of %d requests with %d rows%s%s", hint(error, self._model)
        log_raised(logging.ERROR, error, message, self._model, len(group), rows, then, advice, extra=fields)

    def encode_long(self, *, but: Member[Any] | None = None) -> None:
        """Encode the responses that take long, within the slot of the call, so that they cannot pile up behind it."""
        for member in self.members:
            call, response = member.call, member.response
            if member is but or response is None or member.has_left:
                continue
            if is_long(call, response):
                try:
                    member.answer = call.encode(response)
                except Exception as error:
                    member.fail(error)

    def has_long(self) -> bool:
        """Whether there is one for `encode_long`."""
        return any(member.response is not None and is_long(member.call, member.response) for member in self.members)

    def release(self) -> None:
        """Wake all who wait."""
        for member in self.members:
            member.is_done = True
            member.wake()


def _as_it_is(array: Array) -> Array:
    return array


def _sent(calls: _Calls, value: tuple[Any, bool]) -> _Arguments | None:
    try:
        return calls.send(value)
    except StopIteration:
        return None


def _thrown(calls: _Calls, error: Exception) -> _Arguments | None:
    try:
        return calls.throw(error)
    except StopIteration:
        return None


def _quit(error: BaseException) -> QuitWithin:
    quitting = QuitWithin()
    quitting.__cause__ = error
    return quitting


def _copied(error: InferenceError) -> InferenceError:
    """An error of its own for each request, as each is raised in a place of its own."""
    try:
        return copy.copy(error)
    except Exception:  # of a class that cannot be copied
        return InferenceError(str(error), status=error.status, headers=error.headers)
