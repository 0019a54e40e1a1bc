"""An answer in pieces that the background event loop makes, for a caller that blocks and whose requests come as an iterator.

Each keeps two threads waiting: the caller's, for pieces, and one for requests. Decides nothing.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, final

from .._core.effects import PIECES, Send, Signal, Steps
from .drive import abandon_async, advance_async
from .runtime import Runtime
from .waiting import ClientGone

T = TypeVar("T")
M = TypeVar("M")


@final
class Requests(Generic[M]):
    """Messages of an iterator that blocks, for a coroutine.

    Args:
        messages: The iterator. It ends, or raises, when the call has ended.
    """

    def __init__(self, messages: Iterator[M]) -> None:
        self._messages = messages
        self._asked: SimpleQueue[asyncio.Future[M | None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def receive(self) -> M | None:
        """The next message; None behind the last."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="oip_asgi requests", daemon=True)
            self._thread.start()
        future: asyncio.Future[M | None] = asyncio.get_running_loop().create_future()
        self._asked.put(future)
        return await future

    def end(self) -> None:
        """Nobody asks any more."""
        self._asked.put(None)

    def _serve(self) -> None:
        while (future := self._asked.get()) is not None:
            message = None
            with suppress(Exception):  # the call has ended
                message = next(self._messages, None)
            with suppress(RuntimeError):  # the event loop has ended
                future.get_loop().call_soon_threadsafe(_finish, future, message)


def _finish(future: asyncio.Future[M | None], message: M | None) -> None:
    if not future.done():
        future.set_result(message)


def pieces(steps: Steps[T], runtime: Runtime, ended: Signal, deadline: float = math.inf) -> Generator[Any, None, T | None]:
    """What `steps` hand on, made on the background event loop, for this thread.

    Args:
        steps: What hands on the pieces.
        runtime: What has that event loop, and carries out the rest.
        ended: Set when nobody takes pieces any more, by whatever thread: then `steps` are ended.
        deadline: When `steps` are ended, in seconds of `time.monotonic`.

    Returns:
        The result of `steps`; None where they did not come to it.

    Raises:
        DeadlinePassed: The deadline passed first.
    """
    made: SimpleQueue[tuple[Any, Callable[[], object]] | None] = SimpleQueue()

    async def make() -> T:
        loop = asyncio.get_running_loop()
        try:
            piece = await advance_async(steps, runtime)
            while type(piece) is Send:
                taken: asyncio.Future[None] = loop.create_future()
                made.put((piece.piece, partial(loop.call_soon_threadsafe, _finish, taken, None)))
                await taken
                piece = await advance_async(steps, runtime)
            assert not isinstance(piece, PIECES)  # a call has no head, and hands on each message by itself
            return piece
        finally:
            await abandon_async(steps, runtime)

    making = runtime.background.begin(make(), deadline, ended)
    making.add_done_callback(lambda _: made.put(None))
    while (item := made.get()) is not None:
        piece, take = item
        yield piece
        with suppress(RuntimeError):  # the event loop has ended
            take()
    with suppress(ClientGone, CancelledError):
        return making.result()
    return None
