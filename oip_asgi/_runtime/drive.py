"""Finish a generator of effects on an event loop. Carries out each effect, and knows nothing of what it is for.

The pieces of an answer are sent if a driver is given what sends them. Otherwise it stops at each, and goes on when it is called again.

Effects are told apart by `type`: nobody derives from them, and `isinstance` asks the metaclass of Structs, which takes three times as long.
"""

from __future__ import annotations

import asyncio
import math
import time
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Protocol, TypeVar

from .._protocol.effects import (
    PIECES,
    Abandoned,
    Await,
    DeadlinePassed,
    Fed,
    Piece,
    Read,
    Run,
    Send,
    Spawn,
    Start,
    Steps,
    Wait,
)
from .faults import as_failure, is_for_the_host
from .threads import watch_fork
from .waiting import TURN_SECONDS, ClientGone, Gone, Patrol, Watch, begin_waiting, give_way, wait_until_set

T = TypeVar("T")


class ForLoop(Protocol):
    """Worker threads, as the event loop that runs in this thread uses them."""

    patrol: Patrol

    def begin(self, effect: Run, /) -> asyncio.Future[Any]:
        """Run a function in a worker thread. It goes on even if nobody waits for the future any more."""


class Threads(Protocol):
    """Worker threads."""

    def here(self) -> ForLoop:
        """Return them as the event loop that runs in this thread uses them."""


async def drive_async(
    steps: Steps[T], threads: Threads, read: Callable[[Fed], Awaitable[Any]] | None = None, gone: Gone | None = None
) -> T:
    """Finish `steps` that have no pieces."""
    result = await advance_async(steps, threads, read, gone)
    assert not isinstance(result, PIECES)
    return result


async def advance_async(
    steps: Steps[T],
    threads: Threads,
    read: Callable[[Fed], Awaitable[Any]] | None = None,
    gone: Gone | None = None,
    write: Callable[[Piece], Coroutine[Any, Any, None]] | None = None,
    *,
    error: BaseException | None = None,
) -> T | Piece:
    """Carry `steps` on to the next piece, or to their end.

    Args:
        steps: What to carry on.
        threads: Where what blocks runs.
        read: Feeds the request's body into something, and returns what that finishes with.
        gone: Tells that the client has gone. Then `steps` are abandoned, and this raises ClientGone.
        write: Sends a piece; without it, this returns at each.
        error: What to throw into `steps` instead.
    """
    here: ForLoop | None = None
    watch: Watch | None = None
    since = math.inf
    is_abandoned = type(error) is Abandoned
    try:
        effect = next(steps) if error is None else steps.throw(error)
        while True:
            try:
                if type(effect) is Read:
                    assert read is not None  # only requests have bodies
                    if watch is not None:
                        await watch.end()  # only one may receive
                        watch = None
                    value = await read(effect.body)
                else:
                    if here is None:
                        here = threads.here()
                    if watch is None:
                        watch = here.patrol.watch(gone)
                    if type(effect) is Run and not is_abandoned:
                        value = await watch.limit(here.begin(effect), effect.deadline, for_client=effect.for_client)
                    elif type(effect) is Run:  # what closes a generator is run also if this is cancelled before it begins
                        value = await asyncio.shield(here.begin(effect))
                    elif type(effect) is Spawn:
                        _spawn(effect, threads)
                        value = None
                    elif type(effect) is Wait:
                        value = await watch.limit(begin_waiting(effect.signal), effect.deadline, for_client=effect.for_client)
                    elif type(effect) is Await:
                        value = await watch.attend(effect.function(), effect.deadline, for_client=effect.for_client)
                    elif write is None:
                        return effect
                    else:
                        value = await watch.attend(write(effect), effect.deadline, for_client=True)
                        now = time.monotonic()
                        since = min(since, now)
                        if now - since > TURN_SECONDS:
                            since = await give_way()
            except BaseException as raised:
                # what `write` raises is the host's, and not for `steps`
                if _ends(raised, steps) or (isinstance(effect, PIECES) and not isinstance(raised, DeadlinePassed)):
                    if not is_abandoned:
                        await abandon_async(steps, threads)
                    raise
                effect = steps.throw(as_failure(raised))
            else:
                effect = steps.send(value)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        del error  # it refers to this frame: a cycle, which only the garbage collector would free
        if watch is not None:
            await watch.end()


def _ends(error: BaseException, steps: Steps[Any]) -> bool:
    """Whether what an effect raised ends `steps`. If it is for the host, this closes them at once."""
    if isinstance(error, (ClientGone, CancelledError)):
        return True  # the client has gone, or the host cancels
    if isinstance(error, GeneratorExit) or is_for_the_host(error):
        steps.close()
        return True
    return False


async def abandon_async(steps: Steps[Any], threads: Threads) -> None:
    """End `steps` that nobody waits for any more, and do what they ask for to clean up. Do nothing if they have ended.

    If this is cancelled, only what a worker thread does for them is still done.
    """
    try:
        with suppress(Abandoned):
            await advance_async(steps, threads, error=Abandoned())
    finally:
        steps.close()


def _spawn(effect: Spawn, threads: Threads) -> None:
    loop = asyncio.get_running_loop()
    is_forked = watch_fork()
    effect.is_lost = lambda: loop.is_closed() or is_forked()
    gone = None if effect.unwanted is None else partial(wait_until_set, effect.unwanted)
    part = _finish(effect.part, threads, gone)
    task = loop.create_task(part, context=Context()) if effect.is_apart else loop.create_task(part)
    effect.cancel = task.cancel
    task.add_done_callback(lambda _: effect.ended.set())
    effect.ended.then(lambda: task)  # an event loop does not keep its tasks, but the signal keeps what it calls


async def _finish(part: Steps[None], threads: Threads, gone: Gone | None) -> None:
    with suppress(ClientGone):
        await drive_async(part, threads, gone=gone)


async def pieces_async(steps: Steps[Any], threads: Threads, start: Start | None = None) -> AsyncGenerator[Any, None]:
    """The pieces of `steps` from here on, for a caller on this event loop that asks for each.

    After a piece, `steps` wait until the caller asks for the next one, but not longer than the piece's deadline. Then they go on without
    the caller, which gets the outcome when it asks again. If the caller closes the generator, `steps` are ended.
    """
    expired: asyncio.Task[Any] | None = None

    def expire() -> None:
        nonlocal expired
        expired = asyncio.create_task(advance_async(steps, threads, error=DeadlinePassed()))

    try:
        piece: Any = start or await advance_async(steps, threads)
        while isinstance(piece, PIECES):
            timer = None
            if piece.deadline != math.inf:
                timer = asyncio.get_running_loop().call_later(max(0.0, piece.deadline - time.monotonic()), expire)
            try:
                yield piece.piece if type(piece) is Send else piece
            finally:
                if timer is not None:
                    timer.cancel()
            if expired is None:
                piece = await advance_async(steps, threads)
            else:
                piece, expired = await expired, None
    finally:
        if expired is not None:
            await asyncio.gather(expired, return_exceptions=True)  # which takes what it raised: asyncio would log it
        await abandon_async(steps, threads)
