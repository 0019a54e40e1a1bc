"""Finish a generator of effects: blocking, or awaiting. Carries out each effect, and knows nothing of what it is for.

The pieces of an answer are sent where a driver is given what sends them. Otherwise it stops at each, and goes on when it is called again.

Effects are told apart by `type`: nobody derives from them, and `isinstance` asks the metaclass of Structs, which takes three times as long.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Protocol, TypeVar

from .._protocol.effects import (
    PIECES,
    Abandoned,
    Await,
    DeadlinePassed,
    Effect,
    Fed,
    Piece,
    Read,
    Run,
    Send,
    Signal,
    Spawn,
    Start,
    Steps,
    Wait,
)
from .faults import as_failure, call_here, is_for_the_host
from .runtime import Runtime, wait_for
from .waiting import ClientGone, Gone, Turns, attended, running_loop, signalled, until_set

T = TypeVar("T")


class Threads(Protocol):
    """Worker threads that an event loop may wait for."""

    async def run(self, effect: Run, gone: Gone | None = None, /) -> Any:
        """Run a function in one of them. It goes on if this is cancelled."""


def drive(steps: Steps[T], runtime: Runtime, read: Callable[[Fed], Any] | None = None, gone: Signal | None = None) -> T:
    """Finish `steps`, which hand on no pieces, in this thread. The arguments are those of `advance`."""
    result = advance(steps, runtime, read, gone)
    assert not isinstance(result, PIECES)
    return result


def advance(
    steps: Steps[T],
    runtime: Runtime,
    read: Callable[[Fed], Any] | None = None,
    gone: Signal | None = None,
    error: Exception | None = None,
) -> T | Piece:
    """Carry `steps` on to the next piece, or to their end, in this thread."""
    try:
        effect = next(steps) if error is None else steps.throw(error)
        while True:
            if type(effect) is Start or type(effect) is Send:
                return effect
            try:
                value = carry_out(effect, runtime, read, gone)
            except ClientGone:
                abandon(steps, runtime)
                raise
            except Exception as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(value)
    except StopIteration as end:
        result: T = end.value
        return result


def abandon(steps: Steps[Any], runtime: Runtime) -> None:
    """End `steps` that nobody waits for any more, with what they ask for to clean up; nothing where they have ended."""
    try:
        effect = steps.throw(Abandoned())
        while True:
            try:
                value = carry_out(effect, runtime, None, None)
            except Exception as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(value)
    except (StopIteration, Abandoned):
        return


def carry_out(effect: Effect, runtime: Runtime, read: Callable[[Fed], Any] | None, gone: Signal | None) -> Any:
    """The result of an effect that is no piece, in this thread. The arguments are those of `advance`."""
    if type(effect) is Read:
        assert read is not None  # only requests have bodies
        return read(effect.body)
    if type(effect) is Spawn:
        work = partial(drive, effect.part, runtime, gone=effect.unwanted)
        return runtime.spawn(partial(Context().run, work) if effect.is_apart else work, effect.ended)
    assert type(effect) is Run or type(effect) is Wait or type(effect) is Await  # pieces are handed on
    leaving = gone if effect.for_client else None
    if leaving is not None and leaving.is_set():
        raise ClientGone
    if type(effect) is Run and effect.deadline == math.inf and (effect.after is None or effect.after.is_set()):
        return call_here(effect.function)
    with runtime.waiting():
        if type(effect) is Wait:
            return wait_for(effect.signal, effect.deadline, leaving)
        if type(effect) is Await:
            if effect.shared_task is not None:
                return runtime.background.run_shared(effect.shared_task, effect, leaving)
            return runtime.background.run(effect.function(), effect.deadline, leaving)
        if effect.after is not None:
            wait_for(effect.after, effect.deadline, leaving)
        if effect.deadline != math.inf:
            return runtime.call(effect, leaving)
    return call_here(effect.function)


async def drive_async(
    steps: Steps[T],
    threads: Threads,
    read: Callable[[Fed], Awaitable[Any]] | None = None,
    gone: Gone | None = None,
    write: Callable[[Piece], Coroutine[Any, Any, None]] | None = None,
) -> T:
    """Finish `steps` on this event loop. The arguments are those of `advance_async`; without `write`, `steps` have no pieces."""
    result = await advance_async(steps, threads, read, gone, write)
    assert not isinstance(result, PIECES)
    return result


async def advance_async(
    steps: Steps[T],
    threads: Threads,
    read: Callable[[Fed], Awaitable[Any]] | None = None,
    gone: Gone | None = None,
    write: Callable[[Piece], Coroutine[Any, Any, None]] | None = None,
    error: Exception | None = None,
) -> T | Piece:
    """Carry `steps` on to the next piece, or to their end, on this event loop, with what blocks in worker threads."""
    turns: Turns | None = None
    try:
        effect = next(steps) if error is None else steps.throw(error)
        while True:
            try:
                if type(effect) is Run:
                    value = await threads.run(effect, gone)
                elif type(effect) is Read:
                    assert read is not None  # only requests have bodies
                    value = await read(effect.body)
                elif type(effect) is Await:
                    value = await attended(effect.function(), effect.deadline, gone if effect.for_client else None)
                elif type(effect) is Wait:
                    await signalled(effect.signal, effect.deadline, gone if effect.for_client else None)
                    value = None
                elif type(effect) is Spawn:
                    _spawn(effect, threads)
                    value = None
                elif write is None:
                    return effect
                else:
                    try:
                        await attended(write(effect), effect.deadline)
                    except DeadlinePassed:
                        write = _refuse  # part of it may have left
                        raise
                    except Exception:  # it is the host's, and not for `steps`
                        await abandon_async(steps, threads)
                        raise
                    if turns is None:
                        turns = Turns()
                    elif turns.is_over():
                        await turns.pass_on()
                    value = None
            except BaseException as error:
                if ends(error, steps):
                    await abandon_async(steps, threads)
                    raise
                effect = steps.throw(as_failure(error))
            else:
                effect = steps.send(value)
    except StopIteration as end:
        result: T = end.value
        return result


async def _refuse(_: Piece) -> None:
    raise ClientGone


def ends(error: BaseException, steps: Steps[Any]) -> bool:
    """Whether what an effect raised ends `steps`. What is the host's own closes them at once."""
    if isinstance(error, (ClientGone, CancelledError)):
        return True  # the client has gone, or the host cancels
    if isinstance(error, GeneratorExit) or is_for_the_host(error):
        steps.close()
        return True
    return False


async def abandon_async(steps: Steps[Any], threads: Threads) -> None:
    """`abandon` on this event loop. If it is cancelled, it cleans up no further than what a worker thread does."""
    try:
        effect = steps.throw(Abandoned())
        while True:
            try:
                value = None
                if type(effect) is Run:
                    # what closes a generator is run also if this is cancelled before it begins
                    value = await asyncio.shield(threads.run(effect))
                elif type(effect) is Await:
                    value = await attended(effect.function())
                else:
                    assert type(effect) is Wait  # nothing else cleans up
                    await signalled(effect.signal, effect.deadline)
            except BaseException as error:
                if isinstance(error, (CancelledError, GeneratorExit)) or is_for_the_host(error):
                    raise
                effect = steps.throw(as_failure(error))
            else:
                effect = steps.send(value)
    except (StopIteration, Abandoned):
        return
    finally:
        steps.close()


def _spawn(effect: Spawn, threads: Threads) -> None:
    loop = running_loop()
    effect.is_lost = loop.is_closed
    driven = _driven(effect, threads)
    task = loop.create_task(driven, context=Context()) if effect.is_apart else loop.create_task(driven)
    effect.cancel = task.cancel
    task.add_done_callback(lambda _: effect.ended.set())
    effect.ended.then(lambda: task)  # an event loop does not keep its tasks, but the signal keeps what it calls


async def _driven(effect: Spawn, threads: Threads) -> None:
    with suppress(ClientGone):
        await drive_async(effect.part, threads, gone=None if effect.unwanted is None else partial(until_set, effect.unwanted))
