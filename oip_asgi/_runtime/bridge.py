"""An answer in messages that the background event loop makes, for a caller that blocks and whose requests come as an iterator.

Each keeps two threads waiting: the caller's, for pieces, and one for requests. Decides nothing.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, final

from .._protocol.effects import Signal, Steps
from .drive import drive_async
from .runtime import Runtime
from .waiting import ClientGone

T = TypeVar("T")
M = TypeVar("M")


@final
class Requests(Generic[M]):
    """Messages of an iterator that blocks, for a coroutine."""

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


def written(
    begin: Callable[[Callable[[M], Coroutine[Any, Any, None]]], Steps[T]], runtime: Runtime, ended: Signal, deadline: float = math.inf
) -> Generator[M, None, T | None]:
    """What steps write, made on the background event loop, for this thread."""
    made: SimpleQueue[tuple[M, Callable[[], object]] | None] = SimpleQueue()

    async def write(message: M) -> None:
        loop = asyncio.get_running_loop()
        taken: asyncio.Future[None] = loop.create_future()
        made.put((message, partial(loop.call_soon_threadsafe, _finish, taken, None)))
        await taken

    making = runtime.background.begin(drive_async(begin(write), runtime), deadline, ended)
    making.add_done_callback(lambda _: made.put(None))
    while (item := made.get()) is not None:
        message, take = item
        yield message
        with suppress(RuntimeError):  # the event loop has ended
            take()
    with suppress(ClientGone, CancelledError):
        return making.result()
    return None
