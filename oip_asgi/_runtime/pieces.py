"""How the pieces of a stream leave: each sent as soon as the client has room for it, or handed to a caller
that asks for each.

A caller that asks is a server, or calls a model from Python. `iterate_stream_async` is for callers on an
event loop, and `iterate_stream_blocking` for those in a thread.

Knows no transport.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from .._io import DeadlinePassed, begin, finish
from .._turns import yield_interpreter
from .async_io import AsyncIO
from .blocking_io import BlockingIO
from .runtime import TURN_SECONDS, LoopThreads
from .waiting import result_of

T = TypeVar("T")


async def send_pieces(
    io: AsyncIO,
    here: LoopThreads,
    piece: T,
    items: AsyncGenerator[T, None],
    write: Callable[[T], Coroutine[Any, Any, None]],
) -> None:
    """Send a piece of a stream, and the `items` that follow it, each when the client has room for it."""
    io.begin_trips, turn_ends = here.begin_trips, time.monotonic() + TURN_SECONDS
    try:
        while True:
            try:
                if io.beat is not None and not io.beat.done():
                    await io.call(lambda: asyncio.wait([io.beat]), io.until)
                await io.call(partial(write, piece), io.until)
            except DeadlinePassed as late:
                await write(await items.athrow(late))
            now = io.sent_at = time.monotonic()
            if now > turn_ends:
                turn_began = here.gave_way_at
                if now > turn_began + TURN_SECONDS:
                    # let others run: other tasks, and worker threads, which could wait for the interpreter
                    # for seconds, as an event loop takes it back at once
                    yield_interpreter()
                    here.gave_way_at = time.monotonic()
                    await asyncio.sleep(0)
                    turn_began = time.monotonic()  # it begins now, after the other tasks have run
                turn_ends = turn_began + TURN_SECONDS
            piece = await anext(items)
    except StopAsyncIteration:
        if io.beat is not None:
            await asyncio.wait([io.beat])
    finally:
        await items.aclose()


async def iterate_stream_async(
    make: Callable[[], AsyncGenerator[T, None]], io: AsyncIO, first: T | None = None
) -> AsyncGenerator[Any, None]:
    """The items of a stream, for a caller that asks for each. The stream is made when the first one is asked
    for.

    If the `first` item is there already, this gives None before it. None stands for the head of the response:
    the caller has to take it in time too.

    After a piece, the stream waits until the caller asks for the next one, but not longer than `io.until`.
    Then it goes on without the caller, which gets the outcome when it asks again. If the caller closes the
    generator, the stream is ended.
    """
    items = make()
    # one at most, which no name of this frame holds: what it raises would make a cycle
    expired: list[asyncio.Task[T]] = []

    async def throw() -> T:
        try:
            return await items.athrow(DeadlinePassed())
        finally:
            await io.end()

    def expire() -> None:
        expired.append(asyncio.create_task(throw()))

    try:
        piece = await begin(items) if first is None else None
        while piece is not None or first is not None:
            await io.end()  # another task may ask for the next one
            timer = None
            if io.until != math.inf:
                timer = asyncio.get_running_loop().call_later(max(0.0, io.until - time.monotonic()), expire)
            try:
                yield piece
            finally:
                if timer is not None:
                    timer.cancel()
            if expired:
                piece, first = await expired.pop(), None
            elif first is not None:
                piece, first = first, None
            else:
                piece = await anext(items)
    except StopAsyncIteration:
        return
    finally:
        if expired:
            # which takes what it raised: asyncio would log it
            await asyncio.gather(expired.pop(), return_exceptions=True)
        await items.aclose()
        await io.end()


def iterate_stream_blocking(
    make: Callable[[], AsyncGenerator[T, None]], io: BlockingIO, first: T | None = None
) -> Generator[Any, None, None]:
    """`iterate_stream_async`, for a caller in a thread. The stream goes on in a thread of its own if the
    caller is late."""
    items = make()
    turn = threading.Lock()  # who has it may advance the stream
    # one at most, which no name of this frame holds: what it raises would make a cycle
    expired: list[Future[T]] = []
    timer: threading.Timer | None = None

    def expire() -> None:
        if turn.acquire(blocking=False):
            try:
                # else it has ended with an error, which waits for the caller
                if io.until <= time.monotonic():
                    expired.append(_throw_late(items))
            finally:
                turn.release()

    turn.acquire()
    try:
        piece = finish(anext(items)) if first is None else None
        while True:
            if io.until != math.inf and (timer is None or io.until <= time.monotonic()):
                timer = threading.Timer(io.until - time.monotonic(), copy_context().run, (expire,))
                timer.daemon = True
                timer.start()
            turn.release()
            try:
                yield piece
            finally:
                turn.acquire()
            if expired:
                piece, first = result_of(expired.pop()), None
            elif first is not None:
                piece, first = first, None
            else:
                piece = finish(anext(items))
    except StopAsyncIteration:
        return
    finally:
        if timer is not None:
            timer.cancel()
        io.complete(items.aclose())


def _throw_late(items: AsyncGenerator[T, None]) -> Future[T]:
    """The outcome of a stream whose caller is late: a last item, or what it raises."""
    outcome: Future[T] = Future()
    try:
        outcome.set_result(finish(items.athrow(DeadlinePassed())))
    except BaseException as error:
        outcome.set_exception(error)
    return outcome
