"""The executor of models with `max_batch_size=`: one call answers requests that wait and can be merged.

Two requests may share a call if they differ only in their rows, so that their answers stay the same. Each
request runs on its own event loop or thread, and waits for a slot. The one that gets it takes others along,
and each gets its part. Each waits with its own delay as the deadline, so no thread has to watch the delays.
`Batches` of `_models/limiter` decides when a batch starts. A request that goes or is late leaves it, and the
others are answered: `Member.leave` of `batch_call`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, TypeVar

from .._codecs.column_dtypes import CATEGORIES, DTYPE
from .._codecs.dataframes import PandasCodec
from .._extensions.common import OF_TREATMENT
from .._io import IO, DeadlinePassed, Signal
from .._models.handler import Handler
from .._models.limiter import Batches, BatchSlot
from .._protocol.schemas import Parameters
from .._protocol.tensors import Tensor
from .batch_call import Execution, Member
from .call import Call
from .decoding import Decoded
from .failures import make_chain_error
from .user_code import current_calls, find_latest_turn

T = TypeVar("T")

_NOTHING: Final[frozenset[Hashable]] = frozenset()


async def answer_in_batch(call: Call[T], io: IO) -> T:
    """Answer a request that has a slot or waits for one, together with others if possible."""
    if call.body is not None:
        await io.run(call.decode, "conversion", deadline=call.deadline)
        call.timings.entered = call.engine.clock()
    slot, limiter = call.slot, call.model.limiter
    assert isinstance(slot, BatchSlot)
    assert isinstance(limiter, Batches)
    rows = _count_rows(call.expand().tensors.values())
    call.timings.rows = 1 if rows is None else rows
    member: Member[T] = Member(call, rows, current_calls(), slot.turn)
    try:
        if slot.turn is not None and not _join_batch(member, slot, limiter):
            await _wait_for_turn(call, slot, slot.turn, limiter, io)
        if slot.state == "running":
            if call.handler.kind == "async":
                await _run_apart(Execution(limiter, slot, member), member, io)
            elif call.handler.kind == "inline":
                call.engine.call_here(lambda: Execution(limiter, slot, member).run())
            else:
                await io.run(lambda: Execution(limiter, slot, member).run(), "model", deadline=call.deadline)
        return member.finish()
    except BaseException:
        member.leave()
        raise


def _join_batch(member: Member[Any], slot: BatchSlot, limiter: Batches) -> bool:
    """Let a request share a call, if it can be merged with others. True if its turn has come already."""
    call, rows, key = member.call, member.rows or 0, None
    if 0 < rows <= limiter.most:
        key = _make_key(call.handler, call.expand())
    slot.due = call.timings.entered
    if key is not None and not call.engine.stopping:
        # half of the time that is left is for the call
        slot.due += max(0.0, min(call.model.options.max_batch_delay, (call.deadline - slot.due) / 2))
    if slot.due <= call.timings.entered:
        slot.is_due = True
    return limiter.share(slot, member, key, rows)


async def _wait_for_turn(call: Call[Any], slot: BatchSlot, turn: Signal, limiter: Batches, io: IO) -> None:
    """Wait until a request has its turn, or another one has taken it along."""
    if not slot.is_due:
        try:
            await io.wait(turn, slot.due)
            return
        except DeadlinePassed:
            limiter.hold_back_no_longer(slot)
    await wait_within_calls(call, turn, io)
    await io.wait(turn, call.deadline)


async def wait_within_calls(call: Call[Any], turn: Signal, io: IO) -> None:
    """Wait for a slot, if the call is made within others, as long as such a call may."""
    latest = find_latest_turn(call.timings.entered)
    if latest < call.deadline:
        try:
            await io.wait(turn, latest)
        except DeadlinePassed:
            if call.slot.state == "waiting":
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


def _count_rows(tensors: Iterable[Tensor]) -> int | None:
    """How many rows a request has: the first dimension of its inputs. None if an input has no dimension, or
    they differ."""
    rows: int | None = None
    for tensor in tensors:
        shape = tensor.array.shape
        if not shape or (rows is not None and shape[0] != rows):
            return None
        rows = shape[0]
    return rows


def _make_key(handler: Handler, decoded: Decoded) -> Hashable | None:
    """Make what all requests of a batch have in common: everything but rows that the function or a codec can
    see. None if it runs alone."""
    binding, request, content_type = decoded.binding, decoded.request, decoded.content_type
    whole, rows = binding.arguments.whole, binding.arguments.rows
    if whole is not None and whole.codec is not PandasCodec and rows is None:
        return None  # a client asks for a codec that may want a whole request
    if not binding.inputs.scalars.isdisjoint(decoded.tensors):
        return None  # it is one for all rows; as a parameter, it is part of the key
    parts: list[Hashable] = []
    for name, tensor in decoded.tensors.items():
        parameters, array = tensor.parameters, tensor.array
        said = parameters.get("content_type", content_type) if parameters else content_type
        entry = binding.inputs.entries.get(name)
        expected = handler.content_type if entry is None else entry.content_type
        if said is not None and said != expected and handler.codecs.is_users(str(said)):
            return None
        read_as = expected if said is None else said
        # rows depend on each other: a column of dates has one unit, by their years, and all have an offset
        # from UTC or none has
        depends = read_as in ("pd_json", "datetime") or (
            parameters.get(DTYPE) == "category" and CATEGORIES not in parameters
        )
        if depends and rows is None:
            return None
        parts.append(
            (name, array.dtype, array.shape[1:], _freeze_parameters(parameters) if parameters else _NOTHING)
        )
    if binding.arguments.of_one_request is not None:
        parts.append(
            tuple((output.name, _freeze_parameters(output.parameters or {})) for output in decoded.outputs)
        )
    elif whole is None and binding.arguments.rest is None and len(parts) > 1:
        # each goes to a parameter of its own; otherwise they are columns, whose order matters
        parts.sort(key=str)
    return (
        handler,
        binding,
        content_type,
        _freeze_parameters(request.parameters) if request.parameters else _NOTHING,
        tuple(parts),
    )


def _freeze_parameters(parameters: Parameters) -> frozenset[Hashable]:
    # as text: 1, 1.0 and true are equal, and so are 0.0 and -0.0
    return frozenset((name, repr(value)) for name, value in parameters.items() if name not in OF_TREATMENT)
