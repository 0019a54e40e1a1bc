"""The executor of models with `max_batch_size=`: one call answers requests that wait and can be merged.

Each request runs on its own event loop or thread, and waits for a slot. The one that gets it takes others along, and each gets its part. A
request watches its own delay, by the deadline of its own wait, so no thread is needed for that.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, TypeVar

from .._models.batches import Batches, Place
from .._models.options import Batching
from .._protocol.effects import DeadlinePassed, Run, Signal, Spawn, Steps, Stopped, Wait
from .batch_key import count_rows, make_key
from .call import Call
from .call_stack import current_calls
from .execution import Execution, Member

T = TypeVar("T")


def answer_in_batch(call: Call[T], batching: Batching) -> Steps[T]:
    """Answer a request that has a slot or waits for one, together with others if possible."""
    if not call.is_decoded:
        yield Run(call.decode, "conversion", deadline=call.deadline, for_client=True)
        call.timings.entered = call.engine.clock()
    place, limiter = call.slot, call.model.limiter
    assert isinstance(place, Place)
    assert isinstance(limiter, Batches)
    rows = count_rows(call.decoded.tensors.values())
    call.timings.rows = 1 if rows is None else rows
    member = Member(call, rows, current_calls(), place.turn)
    place.request = member
    try:
        if place.turn is not None:
            yield from _wait_for_turn(member, place, place.turn, limiter, batching)
        if not member.is_done():
            start = partial(_start, limiter, place, batching)
            if call.handler.kind == "async":
                yield from _run_apart(start(), member)
            elif call.handler.kind == "inline":
                call.engine.call_here(lambda: start().run())
            else:
                yield Run(lambda: start().run(), "model", deadline=call.deadline, for_client=True)
        return member.finish()
    finally:
        member.leave()
        place.request = None


def _wait_for_turn(member: Member[Any], place: Place, turn: Signal, limiter: Batches, batching: Batching) -> Steps[None]:
    """Wait until a request has a slot, or another request's call has answered it."""
    call, delay = member.call, 0.0
    key = make_key(call.handler, call.decoded, call.engine.codecs) if member.rows and member.rows <= batching.most else None
    if key is not None and not call.engine.stopping:
        # half of the time that is left is for the call
        delay = max(0.0, min(batching.delay, (call.deadline - call.timings.entered) / 2))
    place.key, place.rows = key, member.rows or 0
    place.due = due = call.timings.entered + delay
    place.is_due |= not delay
    if limiter.share(place):
        return
    if place.is_due:
        due = math.inf
    while True:
        try:
            yield Wait(turn, min(due, call.deadline), for_client=True)
            break
        except DeadlinePassed:
            if call.deadline <= due:
                raise
            due = math.inf
            limiter.hold_back_no_longer(place)
    if place.is_left and not member.is_done():
        raise Stopped


def _start(limiter: Batches, place: Place, batching: Batching) -> Execution:
    members = limiter.collect(place)
    if not members:
        raise Stopped
    return Execution(place, members, batching)


def _run_apart(execution: Execution, member: Member[Any]) -> Steps[None]:
    """Call a coroutine function in a task of its own, as any client that waits may leave. Return when it has ended."""
    member.done = done = Signal()
    apart = Spawn(execution.run_in_task(), unwanted=execution.unwanted, is_apart=True)
    apart.ended.then(execution.end)  # its event loop may end before it has begun
    try:
        yield apart
    except BaseException:
        execution.end()
        raise
    yield Wait(done, member.call.deadline, for_client=True)
