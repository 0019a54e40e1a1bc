"""The pieces of an answer for a caller that asks for each: a server of WSGI, Django, or Python.

A piece waits for its caller until its deadline. Then the steps go on without it, and the caller finds what became of them.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from typing import Any

from .._protocol.effects import PIECES, DeadlinePassed, Send, Signal, Start, Steps
from .drive import Threads, abandon, abandon_async, advance, advance_async
from .runtime import Runtime


def pieces(steps: Steps[Any], runtime: Runtime, start: Start | None = None) -> Generator[Any, None, None]:
    """The pieces of `steps` from here on. If nobody asks for more, `steps` are ended."""
    turn = threading.Lock()  # who has it may advance them
    expired: Future[Any] | None = None
    timer: Future[None] | None = None

    def expire() -> None:
        nonlocal expired
        if not turn.acquire(blocking=False):
            return
        expired = Future()
        try:
            expired.set_result(advance(steps, runtime, error=DeadlinePassed()))
        except Exception as error:
            expired.set_exception(error)
        finally:
            turn.release()

    async def wait(deadline: float) -> None:
        await asyncio.sleep(max(0.0, deadline - time.monotonic()))
        runtime.spawn(expire, Signal())

    turn.acquire()
    try:
        piece: Any = start or advance(steps, runtime)
        while isinstance(piece, PIECES):
            if piece.deadline != math.inf and (timer is None or piece.deadline <= time.monotonic()):
                timer = runtime.background.begin(wait(piece.deadline))
            turn.release()
            try:
                yield piece.piece if type(piece) is Send else piece
            finally:
                turn.acquire()
            if expired is None:
                piece = advance(steps, runtime)
            else:
                piece, expired = expired.result(), None
    finally:
        if timer is not None:
            timer.cancel()
        abandon(steps, runtime)


async def pieces_async(steps: Steps[Any], threads: Threads, start: Start | None = None) -> AsyncGenerator[Any, None]:
    """`pieces` on this event loop."""
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
