"""The executor of models with `max_batch_size=`: one call answers requests that wait and can be merged.

Each request runs on its own event loop or thread. The request that gets a slot collects others that wait, and makes the call; the others
wait for their part. If its client leaves before it has collected, it gives the slot back, as for a call of its own. Each request watches
its own delay, by the deadline of its own wait, so no thread is needed for that.
"""

from __future__ import annotations

import math
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from .._models.batches import Waiting
from .._models.options import Batching
from .._protocol.effects import Await, DeadlinePassed, Run, Signal, Spawn, Steps, Stopped, Wait
from .._protocol.errors import ModelFault
from .._protocol.tensors import InferenceResponse
from .batch_key import make_key
from .batch_rows import check_rows
from .call import Call, ModelRaised, is_short
from .call_stack import CallStack, set_calls
from .execution import Execution, Member

T = TypeVar("T")


def answer_in_batch(call: Call[T], batching: Batching) -> Steps[T]:
    """Answer a request that has a slot or waits for one, together with others if possible."""
    member, kind = Member(call), call.handler.kind
    try:
        if not call.is_decoded and (call.slot.turn is not None or kind != "thread"):
            yield Run(partial(_decode, call), "conversion", deadline=call.deadline, for_client=True)
        if call.slot.turn is not None:
            yield from _wait_for_turn(member, call.slot.turn, batching)
        if not member.is_done:
            if kind != "async":
                return (yield from _collect(member, batching))
            yield from _collect_async(member, batching)
        return (yield from _finish(member))
    finally:
        member.leave()


def _decode(call: Call[Any]) -> None:
    """Decode a long request in a worker thread, while it waits in the queue or has a slot."""
    if not call.slot.begin():
        raise Stopped
    try:
        call.decode()
    finally:
        call.slot.end(is_last=False)


def _wait_for_turn(member: Member[Any], turn: Signal, batching: Batching) -> Steps[None]:
    """Wait until a request has a slot, or another request's call has answered it."""
    call = member.call
    call.timings.entered = now = call.engine.clock()
    key, rows, delay = None, member.count(), 0.0 if call.engine.stopping else batching.delay
    if rows and rows <= batching.most:
        key = make_key(call.handler, call.decoded, call.engine.codecs)
    if key is None:
        key, delay = member, 0.0  # it runs alone
    elif call.deadline != math.inf:
        delay = max(0.0, min(delay, (call.deadline - now) / 2))  # the rest of its time is for the call
    due = now + delay if delay else math.inf
    call.model.limiter.share(call.slot, key, Waiting(member, rows or 0, now + delay, not delay))
    while not turn.is_set():
        try:
            yield Wait(turn, min(due, call.deadline), for_client=True)
        except DeadlinePassed:
            if call.deadline <= due:
                raise
            due = math.inf
            call.model.limiter.hold_back_no_longer(call.slot)
    if call.slot.is_left and not member.is_done:
        raise Stopped


def _collect(member: Member[T], batching: Batching) -> Steps[T]:
    """Call a plain function, in one trip to a worker thread or in this thread."""
    call, work = member.call, partial(_collect_here, member, batching)
    while True:
        if call.handler.kind == "inline":
            answer: T | None = call.engine.call_here(work)
        else:
            late = None if call.deadline == math.inf else call.log_late
            answer = yield Run(work, "model", deadline=call.deadline, for_client=True, late=late)
        if answer is not None:
            return answer
        # the decoded request asks for a shorter timeout than the trip had


def _collect_here(member: Member[T], batching: Batching) -> T | None:
    """Make the whole call, and return the answer of the request that made it. None if that request asks for a shorter timeout."""
    call, slot = member.call, member.call.slot
    waiting = call.model.limiter.collect(slot)
    if waiting is None:
        raise Stopped
    is_last = True
    try:
        is_last = call.is_decoded or call.decode_in_time()
        if not is_last:
            return None
        if len(waiting) > 1:
            execution = Execution(member, waiting, batching)
            return call.answer_in_time(partial(_run, execution, member))
        if not waiting:
            member.count()  # it did not wait
        return call.answer_in_time(partial(_run_alone, member))
    finally:
        slot.end(is_last=is_last)


def _run(execution: Execution, member: Member[Any]) -> InferenceResponse:
    """Call the function for all, and return the response of the request that makes the call."""
    try:
        execution.run()
        execution.encode_long(but=member)
    finally:
        execution.wake()
    return member.take()


def _run_alone(member: Member[Any]) -> InferenceResponse:
    """Call the function for one request only. An `Execution` for it would take four times as long."""
    call, timings, rows = member.call, member.call.timings, member.rows
    timings.started = call.engine.clock()
    timings.called = timings.returned = 0.0
    try:
        response: InferenceResponse = Context().run(_run_within, call, member.calls)
        if rows is not None:
            for tensor in response.outputs:
                check_rows(tensor.name, tensor.array.shape, rows)
    except ModelFault as fault:
        raise ModelRaised from fault
    finally:
        if rows == 1:
            timings.rows = None  # it counts as a request of a model without batches
        elif timings.called:
            infer, made = None, 0.0
            if timings.returned:
                infer, made = timings.returned - timings.called, call.engine.clock() - timings.returned
            call.model.statistics.record_execution(timings.rows or 0, timings.called - timings.started, infer, made)
    return response


def _run_within(call: Call[Any], within: CallStack) -> InferenceResponse:
    set_calls(within)
    return call.run() if call.span is None else call.run_in_span()


def _collect_async(member: Member[Any], batching: Batching) -> Steps[None]:
    """Call a coroutine function in a task of its own, as any client that waits may leave. Return when it has ended."""
    call = member.call
    waiting = call.model.limiter.collect(call.slot)
    if waiting is None:
        raise Stopped
    if not waiting:
        member.count()  # it did not wait
    done = Signal()
    member.wake = done.set
    execution = Execution(member, waiting, batching)
    execution.unwanted = Signal()
    beside = Spawn(_run_in_task(execution), unwanted=execution.unwanted, is_apart=True)
    beside.ended.then(execution.end)  # its event loop may end before it has begun
    try:
        yield beside
    except Exception as error:
        execution.fail(error)
        execution.end()
    yield Wait(done, call.deadline, for_client=True)


def _run_in_task(execution: Execution) -> Steps[None]:
    try:
        yield Await(execution.call, execution.deadline, for_client=True)
        if execution.has_long():
            yield Run(execution.encode_long, "conversion", for_client=True)
    except Exception as failure:
        execution.fail(failure)
    finally:
        execution.end()


def _finish(member: Member[T]) -> Steps[T]:
    """Return the answer of a request whose call has ended."""
    call, response = member.call, member.take()
    if member.answer is not None:
        return member.answer
    if is_short(call, response):
        return call.encode(response)
    encoded: T = yield Run(partial(call.encode, response), "conversion", deadline=call.deadline, for_client=True)
    return encoded
