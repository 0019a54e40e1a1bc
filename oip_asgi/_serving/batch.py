"""The executor of models with `max_batch_size=`: one call answers requests that wait and can be merged.

Each request runs on its own event loop or thread, and waits for a slot. The one that gets it takes others along, and each gets its part.
Each waits with its own delay as the deadline, so no thread has to watch the delays. `batch_queue` decides when a batch starts.
A request that goes or is late leaves it, and the others are answered: `Member.leave` of `batch_call`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from .._io import IO, DeadlinePassed, Signal
from .._models.batch_queue import Batches, Place
from .batch_call import Execution, Member
from .batch_key import count_rows, make_key
from .call import Call
from .call_stack import current_calls
from .failures import make_chain_error

T = TypeVar("T")


async def answer_in_batch(call: Call[T], io: IO) -> T:
    """Answer a request that has a slot or waits for one, together with others if possible."""
    if call.body is not None:
        await io.run(call.decode, "conversion", deadline=call.deadline)
        call.timings.entered = call.engine.clock()
    place, limiter = call.slot, call.model.limiter
    assert isinstance(place, Place)
    assert isinstance(limiter, Batches)
    rows = count_rows(call.decoded.tensors.values())
    call.timings.rows = 1 if rows is None else rows
    member: Member[T] = Member(call, rows, current_calls(), place.turn)
    try:
        if place.turn is not None and not _join(member, place, limiter):
            await _wait_for_turn(call, place, place.turn, limiter, io)
        if not place.is_over:
            if call.handler.kind == "async":
                await _run_apart(Execution(limiter, place, member), member, io)
            elif call.handler.kind == "inline":
                call.engine.call_here(lambda: Execution(limiter, place, member).run())
            else:
                await io.run(lambda: Execution(limiter, place, member).run(), "model", deadline=call.deadline)
        return member.finish()
    except BaseException:
        member.leave()
        raise


def _join(member: Member[Any], place: Place, limiter: Batches) -> bool:
    """Let a request share a call. True if its turn has come already."""
    call, delay = member.call, 0.0
    if member.rows and member.rows <= limiter.most:
        place.key, place.rows = make_key(call.handler, call.decoded, call.handler.codecs), member.rows
    if place.key is not None and not call.engine.stopping:
        # half of the time that is left is for the call
        delay = max(0.0, min(call.model.options.max_batch_delay, (call.deadline - call.timings.entered) / 2))
    place.due = call.timings.entered + delay
    if not delay:
        place.is_due = True
    return limiter.share(place, member)


async def _wait_for_turn(call: Call[Any], place: Place, turn: Signal, limiter: Batches, io: IO) -> None:
    """Wait until a request has its turn, or another one has taken it along."""
    if not place.is_due:
        try:
            await io.wait(turn, place.due)
            return
        except DeadlinePassed:
            limiter.hold_back_no_longer(place)
    await wait_within_calls(call, turn, io)
    await io.wait(turn, call.deadline)


async def wait_within_calls(call: Call[Any], turn: Signal, io: IO) -> None:
    """Wait for a slot, if the call is made within others, until `latest_turn`."""
    if call.latest_turn < call.deadline:
        try:
            await io.wait(turn, call.latest_turn)
        except DeadlinePassed:
            if call.slot.is_waiting:
                raise make_chain_error(call.model) from None


async def _run_apart(execution: Execution, member: Member[Any], io: IO) -> None:
    """Call a coroutine function, and wait for its end."""
    member.done = done = Signal()
    try:
        io.spawn(execution.make_apart())
    except BaseException:
        execution.end()
        raise
    await io.wait(done, member.call.deadline)
