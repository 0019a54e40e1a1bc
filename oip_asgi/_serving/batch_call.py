"""One call of a function for one or more requests: it merges their rows, splits the result, and gives each
its own part or error.

`batch` decides where and when it runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from itertools import accumulate, pairwise
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np

from .._codecs.dataframes import is_frame, is_series, keep_own_categories, to_pandas
from .._io import IO, DeadlinePassed, Part, QuitWithin, Signal, Stopped, finish
from .._models.callables import Outputs
from .._models.estimators import refuses_request
from .._models.limiter import Batches, BatchSlot
from .._models.results import to_response
from .._models.statistics import Numbers
from .._protocol.datatypes import Array, datatype_of
from .._protocol.errors import InferenceError, ModelFault, copy_error, log_fields, log_raised, show
from .._protocol.specs import write_spec
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor, make_tensor
from .call import Call, Made, ModelRaised, Unmade, respond
from .failures import find_hint
from .observing import Tracer
from .user_code import CallStack, convert_host_error, set_calls, watch_steps

T = TypeVar("T")

_ENDS: Final = (DeadlinePassed, Stopped, QuitWithin)
"""What ends a call from outside the function."""


class Member(msgspec.Struct, Generic[T], eq=False):
    """One request among those that share a call. Once it is `done`, it has a response or an error, unless the
    call was stopped."""

    call: Call[T]
    rows: int | None  # None if they cannot be counted
    callers: CallStack  # the calls within which it is made
    done: Signal | None  # None if nobody waits for it
    execution: Execution | None = None  # if it must know when the request has left
    has_left: bool = False
    answer: T | None = None
    error: Exception | None = None

    def finish(self) -> T:
        """Return its answer, or raise its error."""
        # its traceback refers to this: a cycle, which only the garbage collector would free
        error, self.error = self.error, None
        try:
            if self.call.engine.clock() >= self.call.deadline:
                raise DeadlinePassed from error
            if error is not None:
                raise error
        finally:
            del error
        if self.answer is None:
            raise Stopped
        return self.answer

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
    """One call for all requests of a batch; more calls if some requests must be retried alone. It begins the
    use of a slot, and ends it."""

    def __init__(self, limiter: Batches, slot: BatchSlot, member: Member[Any]) -> None:
        self._members: list[Member[Any]] = limiter.collect(slot, member)
        call = self._members[0].call
        self._deadline = max([member.call.deadline for member in self._members])
        self._unwanted = Signal()  # set when all members have left
        self._slot: BatchSlot | None = slot
        self._handler, self._model, self._engine = call.handler, call.model, call.engine
        self._long: list[tuple[Member[Any], Made | Unmade]] = []
        """Long responses."""

    def run(self) -> None:
        """Call a plain function, and end the call."""
        try:
            Context().run(finish, self.call())  # it never awaits
            self._encode_long()
        except BaseException as error:
            self._fail_rest(error)
            raise
        finally:
            self.end()

    def make_apart(self) -> Part:
        """What calls a coroutine function in a task of its own, as any client that waits may leave, and ends
        the call."""
        with self._model.limiter.lock:
            for member in self._members:
                member.execution = self
            self.record_leave()  # all may have left before they knew this
        apart = Part(self._run_in_task, self._unwanted, is_apart=True)
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
        if all(member.has_left for member in self._members):
            self._unwanted.set()

    def end(self) -> None:
        """Give the slot back and wake all requests. A second call does nothing."""
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.end_part(is_last=True)
            for member in self._members:
                member.execution = None
                if member.done is not None:
                    member.done.set()

    # The call

    async def call(self) -> None:
        """Call the function, in a context of its own. If it is a plain one, this never awaits."""
        assert self._slot is not None  # it has not ended
        callers = dict.fromkeys([caller for member in self._members for caller in member.callers])
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
        return (
            tracer.together(self._model.name, self._model.version, _sum_rows(self._members), spans)
            if spans
            else nullcontext()
        )

    async def _answer(self, members: list[Member[Any]]) -> list[list[Member[Any]]]:
        """Answer requests by one call. Return the groups that need further calls."""
        clock, rows = self._engine.clock, _sum_rows(members)
        started, called = clock(), 0.0
        try:
            args, kwargs = self._make_arguments(members)
            called = clock()
            for member in members:
                timings = member.call.timings
                timings.started, timings.called, timings.returned = started, called, 0.0
            result = self._handler.function(*args, **kwargs)
            if self._handler.kind == "async":
                result = await watch_steps(result, self._model, self._handler, clock)
            returned = clock()
            for member in members:
                member.call.timings.returned = returned
            self._share_out(members, result)
        except Exception as error:
            if called:
                self._count(rows, compute_input=called - started)
            if len(members) == 1 or isinstance(error, ModelFault):
                self._fail(members, error)
                return []
            if not called:
                sound = [member for member in members if self._can_make_arguments(member)]
                if len(sound) < len(members):
                    return [sound]
            # one bad input costs no other request its answer
            if not (
                isinstance(convert_host_error(error) or error, InferenceError)
                or refuses_request(self._handler.function, error)
            ):
                self._log(members, error, ", so each of them is tried alone")
            return [[member] for member in members]
        self._count(
            rows,
            compute_input=called - started,
            compute_infer=returned - called,
            compute_output=clock() - returned,
        )
        return []

    def _count(self, rows: int, **stages: float) -> None:
        self._model.statistics.add(Numbers.add_execution, rows, stages)

    def _make_arguments(self, members: list[Member[Any]]) -> tuple[list[Any], dict[str, Any]]:
        """Make the arguments of the function for some requests together."""
        decoded = members[0].call.expand()
        if len(members) > 1:
            tensors = merge_requests([member.call.expand().tensors for member in members])
            first = decoded.request
            request = InferenceRequest(list(tensors.values()), None, first.parameters, first.outputs)
            decoded = msgspec.structs.replace(decoded, request=request, tensors=tensors)
        return members[0].call.make_arguments(decoded)

    def _can_make_arguments(self, member: Member[Any]) -> bool:
        """True if the arguments of a request can be made. If not, only this request fails."""
        try:
            self._make_arguments([member])
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
                response = respond(member.call, part)
                member.answer = member.call.encode_here(response)
                if member.answer is None:
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
        self._fail(
            [member for member in self._members if member.answer is None and member.error is None], error
        )

    def _fail(self, members: list[Member[Any]], error: Exception) -> None:
        """Fail some requests, each with an error of its own, as each raises it."""
        error, is_shared = convert_host_error(error) or error, len(members) > 1
        is_for_client = isinstance(error, (InferenceError, *_ENDS))
        if is_shared and not is_for_client:
            self._log(members, error, "")
        for member in members:
            own: Exception
            if is_for_client:
                own = copy_error(error) if is_shared else error
            else:
                own = ModelRaised()
                own.__cause__, own.is_logged = error, is_shared
            with self._model.limiter.lock:
                has_left = member.has_left
                # if nobody takes it: its traceback refers to this, which is a cycle
                member.error = None if has_left else own
            if has_left:
                member.call.log_late(own)

    def _log(self, members: list[Member[Any]], error: Exception, then: str) -> None:
        model, since = self._model, min(member.call.timings.since for member in members)
        fields = log_fields(model.name, model.version, None, self._engine.clock() - since)
        message = "%s failed on a batch of %d requests with %d rows%s%s"
        hint = find_hint(error, members[0].call)
        log_raised(error, message, model, len(members), _sum_rows(members), then, hint, extra=fields)


def _sum_rows(members: Sequence[Member[Any]]) -> int:
    return sum([member.call.timings.rows for member in members])


# Rows of several requests. A result is split as the function returned it, before it becomes tensors: so the
# datatype of a list, or the content type of a column, depends only on the request's own rows.


def merge_requests(requests: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Make one tensor for each input, with the rows of all requests in order."""
    tensors: dict[str, Tensor] = {}
    for name, first in requests[0].items():
        array: Array = np.concatenate([own[name].array for own in requests])
        array.flags.writeable = False
        tensors[name] = make_tensor(name, array, first.parameters)
    return tensors


def split_result(result: Any, rows: Sequence[int], outputs: Outputs) -> list[Any]:
    """Split a result into what the function would have returned for each request."""
    bounds = list(pairwise(accumulate(rows, initial=0)))
    result = to_pandas(result)
    if (
        is_frame(result)
        or not outputs.codecs.are_extended
        or outputs.codecs.request_codec_for_value(result) is None
    ):
        cut = _cut_result(result, bounds, outputs)
        if cut is not None:
            return cut
    response = result if isinstance(result, InferenceResponse) else to_response(result, outputs, {})
    cuts = [list(_cut_rows(tensor.name, tensor.array, bounds)) for tensor in response.outputs]
    parts: list[Any] = []
    for index in range(len(rows)):
        tensors = [
            Tensor(tensor.name, cut[index], tensor.parameters)
            for tensor, cut in zip(response.outputs, cuts, strict=True)
        ]
        parts.append(
            InferenceResponse(tensors, response.parameters, None, response.model_name, response.model_version)
        )
    return parts


def _cut_result(result: Any, bounds: list[tuple[int, int]], outputs: Outputs) -> list[Any] | None:
    """Split a result that is an array, a list, a column or a frame, or a collection of these. None for any
    other."""
    values, names = [result], [_name_output(0, outputs)]
    join: Callable[[tuple[Any, ...]], Any] = operator.itemgetter(0)
    if isinstance(result, Mapping):
        keys, values, names = list(result), list(result.values()), list(map(str, result))
        join = lambda own: dict(zip(keys, own, strict=True))  # noqa: E731  (the other ways to join are no functions of ours)
    elif isinstance(result, tuple) or (
        isinstance(result, list) and len(outputs.declared) > 1 and outputs.returned.request_codec is None
    ):
        values, names = list(result), [_name_output(index, outputs) for index in range(len(result))]
        join = tuple
    if not outputs.declared:
        for name, value in zip(names, values, strict=True):
            _check_is_clear(name, value, outputs)
    if not values or not all(
        isinstance(each, (np.ndarray, list)) or is_series(each) or is_frame(each) for each in values
    ):
        return None
    cuts = [_cut_rows(name, value, bounds) for name, value in zip(names, values, strict=True)]
    return list(map(join, zip(*cuts, strict=True)))


def _check_is_clear(name: str, value: Any, outputs: Outputs) -> None:
    """Refuse a list of arrays: whether they are rows or outputs, nothing shows, as there may be as many of
    both."""
    arrays = [each for each in value if getattr(each, "ndim", 0)] if isinstance(value, list) else []
    if not arrays or outputs.names_codec or outputs.codecs.tensor_codec_for_value(value) is not None:
        return
    datatype = datatype_of(arrays[0].dtype) if isinstance(arrays[0], np.ndarray) else None
    spec = write_spec("output_0", datatype or "FP32", [-1, *arrays[0].shape[1:]])
    raise ModelFault(
        f"output {show(name)} is a list of arrays, which may be rows or outputs: if each is an output, "
        "declare each of them, as in "
        f"outputs=[{spec}, ...]; if each is a row, return numpy.stack(...) of them"
    )


def _name_output(index: int, outputs: Outputs) -> str:
    return outputs.declared[index].name if index < len(outputs.declared) else f"output_{index}"


def _cut_rows(name: str, value: Any, bounds: list[tuple[int, int]]) -> Sequence[Any]:
    """Cut out the rows of each request, as views if possible. There must be one for each row of the
    inputs."""
    shape, rows = getattr(value, "shape", None), bounds[-1][1]
    if shape is None:
        shape = (len(value),)
    if not shape or shape[0] != rows:
        has = f"{shape[0]} rows" if shape else "no rows"
        raise ModelFault(
            f"output {show(name)} has {has}, but the inputs have {rows}: with max_batch_size= each has a "
            "row in each output"
        )
    if isinstance(value, (np.ndarray, list)):
        return [value] if len(bounds) == 1 else [value[start:end] for start, end in bounds]
    return [keep_own_categories(value.iloc[start:end]) for start, end in bounds]
