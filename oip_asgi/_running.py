"""What waits: worker threads, and the background event loop of WSGI. Decides nothing and knows no requests."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")


class Running:
    """Where a server's user code runs.

    Args:
        worker_threads: How many models may be in worker threads at once, for each event loop.
    """

    def __init__(self, worker_threads: int) -> None:
        self._worker_threads = worker_threads
        # one pair for each event loop, the server's own: the process-wide default belongs to the host
        self._limiters: RunVar[dict[bool, anyio.CapacityLimiter]] = RunVar("oip_asgi")
        self.background = BackgroundLoop()

    async def in_thread(self, function: Callable[[], T], *, aside: bool) -> T:
        """Run a blocking function in a worker thread: among the models', or aside from them."""
        limiters = self._limiters.get(None)
        if limiters is None:
            limiters = {key: anyio.CapacityLimiter(self._worker_threads) for key in (False, True)}
            self._limiters.set(limiters)
        return await anyio.to_thread.run_sync(function, limiter=limiters[aside])


class BackgroundLoop:
    """One event loop in a daemon thread, for coroutines of callers that block. It ends with `stop`, or with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Finish a coroutine on the loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started()).result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # a thread does not survive a fork, such as that of gunicorn's workers behind --preload
            if self._loop is None or self._pid != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._loop.run_forever, name="oip_asgi", daemon=True)
                self._thread.start()
            return self._loop

    def stop(self) -> None:
        """End the loop and its thread; a later `run` starts them anew."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is not None and thread is not None and self._pid == os.getpid():
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()
