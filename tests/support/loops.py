"""Event loops that stay from one request to the next, as a server's does: making one for each request costs more than the request."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Loop:
    """An event loop of one thread. It is closed when the thread ends, or when nobody can ask any more."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, _close, self._loop)  # which keeps the loop whole until then, as `__del__` would not

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(coroutine)
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:  # as asyncio.run does: some hosts leave theirs to it
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left))


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop when the generators that its last request has left are closed: those within others take a turn of the loop each."""
    try:
        asyncio.get_running_loop()  # the collector may call this where one runs, and then no other can
    except RuntimeError:
        while left := asyncio.all_tasks(loop):
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class Loops(threading.local):
    """An event loop for each thread that asks."""

    def __init__(self) -> None:
        self._own = _Loop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns, as by `asyncio.run`; the loop stays."""
        return self._own.run(coroutine)
