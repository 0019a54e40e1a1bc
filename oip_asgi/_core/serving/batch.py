"""The executor of models with `max_batch_size=`: requests that wait, and could be one, are answered by one call.

Each request is driven by its own event loop or thread, which waits for its part. The first of a batch leads it: the call runs where that
one waits, and it holds the model's slot. Where it goes before the call has begun, the next one leads. Who is due first keeps the time of
a batch that is held back, by the deadline of its own wait, so there is no thread for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ..effects import Await, DeadlinePassed, Run, Signal, Spawn, Steps, Stopped, Wait
from ..models.batches import Waiting
from ..models.limiter import Slot
from ..models.options import Batching
from ..tensors import InferenceResponse
from .batch_key import key_of, rows_of
from .batch_member import Member, is_long, run_alone
from .call import Call
from .execution import Execution

T = TypeVar("T")


def batched(call: Call[T], batching: Batching) -> Steps[T]:
    """Answer a request that has a slot, or waits for one, together with others where that is possible.

    Raises:
        InferenceError: As the function raised it, or the request is wrong.
        ModelRaised: The function raised something else, or its result cannot be a response.
        DeadlinePassed: It took too long.
        Stopped: The server stops, or the model is unloaded.
    """
    member = Member(call)
    try:
        is_for_thread = call.handler.kind == "thread"
        if not call.is_decoded and (call.slot.turn is not None or not is_for_thread):
            yield Run(partial(_decode, call), "conversion", deadline=call.deadline, for_client=True)
        if call.slot.turn is not None:
            _join(member, batching)
            yield from _until_it_leads_or_is_done(member)
        if not member.is_done:
            if is_for_thread or call.handler.kind == "inline":
                return (yield from _lead(member, batching))
            yield from _lead_async(member, batching)
        return (yield from _finished(member))
    finally:
        member.leave()


def _decode(call: Call[Any]) -> None:
    """Decode a long request in a worker thread, while it has a place in the queue or a slot."""
    if not call.slot.begin():
        raise Stopped
    try:
        call.decode()
    finally:
        call.slot.end(is_last=False)


def _join(member: Member[Any], batching: Batching) -> None:
    call = member.call
    call.entered = now = call.engine.clock()
    hold = 0.0 if call.engine.stopping else batching.delay
    if call.deadline != math.inf:
        hold = max(0.0, min(hold, (call.deadline - now) / 2))  # the rest of its time is for the call
    rows, key = _count(member), None
    if rows and rows <= batching.most:
        key = key_of(call.handler, call.binding, call.request, call.tensors, call.content_type, call.engine.codecs)
    member.waiting = Waiting(rows or 0, now + hold, member)
    call.model.limiter.share(call.slot, key, member.waiting)


def _count(member: Member[Any]) -> int | None:
    """Note, and return, the rows of a request, None where they cannot be counted."""
    member.rows = rows_of(member.call.tensors.values())
    member.call.rows = 1 if member.rows is None else member.rows
    return member.rows


def _until_it_leads_or_is_done(member: Member[Any]) -> Steps[None]:
    call, waiting = member.call, member.waiting
    slot, limiter = call.slot, call.model.limiter
    assert waiting is not None  # it has joined
    while True:
        turn = slot.turn
        leads, due = limiter.standing(slot)
        if leads or member.is_done:
            return
        if slot.is_left and not waiting.is_taken:
            raise Stopped
        assert turn is not None  # it is that of a request that waits
        try:
            yield Wait(turn, min(due, call.deadline), for_client=True)
        except DeadlinePassed:
            if call.deadline <= due:
                raise
            limiter.tell_due(slot, due)


def _lead(member: Member[T], batching: Batching) -> Steps[T]:
    """Call a plain function, in one trip to a worker thread."""
    call, work = member.call, partial(_in_thread, member, batching)
    while True:
        late = None if call.deadline == math.inf else call.failed_late
        if call.handler.kind == "inline":
            answer: T | None = call.engine.call_here(work)
        else:
            answer = yield Run(work, "model", deadline=call.deadline, for_client=True, late=late)
        if answer is not None:
            return answer
        # the decoded request asks for a shorter timeout than the trip had


def _in_thread(member: Member[T], batching: Batching) -> T | None:
    """All of the call, and the answer of the request that leads it; None where that is to be waited for with a shorter timeout."""
    call, slot = member.call, member.call.slot
    waiting = call.model.limiter.begin_batch(slot)
    if waiting is None:
        raise Stopped
    is_last = True
    try:
        is_last = call.decode_in_time()
        if not is_last:
            return None
        if not waiting:
            _count(member)  # it did not wait
        if len(waiting) < 2:
            return call.answer_in_time(partial(run_alone, member))
        return call.answer_in_time(partial(_executed, _execution(waiting, batching), member))
    finally:
        slot.end(is_last=is_last)


def _execution(waiting: list[Waiting], batching: Batching) -> Execution:
    """The call of a batch that has begun."""
    members: list[Member[Any]] = [each.item for each in waiting]
    for other in members[1:]:
        turn = other.call.slot.turn
        assert turn is not None  # it has waited
        other.wake = turn.set
    return Execution(members, batching)


def _executed(execution: Execution, member: Member[T]) -> InferenceResponse:
    """The response of the request that leads."""
    try:
        execution.run()
        execution.encode_long(but=member)
    finally:
        execution.release()
    return member.taken()


def _lead_async(member: Member[Any], batching: Batching) -> Steps[None]:
    """Call a coroutine function beside all who wait, as any of them may go. Comes back when it is done."""
    call, slot = member.call, member.call.slot
    waiting = call.model.limiter.begin_batch(slot)
    if waiting is None:
        raise Stopped
    done = Signal()
    member.wake = done.set
    if not waiting:
        _count(member)  # it did not wait
    execution = _execution(waiting, batching) if waiting else Execution([member], batching)
    execution.unwanted = Signal()
    end = _Once(execution, slot)
    beside = Spawn(_beside(execution, end), unwanted=execution.unwanted, is_apart=True)
    beside.ended.then(end)  # its event loop may end before it has begun
    try:
        yield beside
    except Exception as error:
        execution.fail(error)
        end()
    yield Wait(done, call.deadline, for_client=True)


def _beside(execution: Execution, end: Callable[[], None]) -> Steps[None]:
    try:
        yield Await(execution.run_async, execution.deadline, for_client=True)
        if execution.has_long():
            yield Run(execution.encode_long, "conversion", for_client=True)
    except Exception as failure:
        execution.fail(failure)
    finally:
        end()


class _Once:
    """Ends an execution that runs beside all who wait for it, the first time that it is called, by any thread."""

    def __init__(self, execution: Execution, slot: Slot) -> None:
        self._left = [(execution, slot)]

    def __call__(self) -> None:
        try:
            execution, slot = self._left.pop()
        except IndexError:
            return
        execution.fail(Stopped())
        execution.release()
        slot.end(is_last=True)


def _finished(member: Member[T]) -> Steps[T]:
    """The answer of a request that is done."""
    call, response = member.call, member.taken()
    if member.answer is not None:
        return member.answer
    if not is_long(call, response):
        return call.encode(response)
    encoded: T = yield Run(partial(call.encode, response), "conversion", deadline=call.deadline, for_client=True)
    return encoded
