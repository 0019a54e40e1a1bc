"""What runs user code and large conversions: worker threads, and the background event loop of callers that block. Decides nothing."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, TypeVar

from .._core.effects import CancelledWithin, Pool, QuitWithin, Stopped
from .waiting import attended, done, finished

T = TypeVar("T")

_IDLE_SECONDS: Final = 10.0
"""How long a worker thread waits for more to do before it ends."""

_END_SECONDS: Final = 1.0
"""How long the end of threads is waited for. Calls have had their time by then: this is for what follows them, such as encoding."""

_STOP_SECONDS: Final = 5.0
"""How long coroutines have to clean up after they were cancelled, before their thread is left behind."""


class Running:
    """Where a server's user code runs.

    Args:
        worker_threads: How many models may be in worker threads at once.
    """

    def __init__(self, worker_threads: int) -> None:
        self._pools: dict[Pool, WorkerThreads] = {
            "thread": WorkerThreads(worker_threads),
            "aside": WorkerThreads(worker_threads),
            "conversion": WorkerThreads(cpus()),  # more of them would only take the interpreter from the event loop
        }
        self.background = BackgroundLoop()

    def submit(self, function: Callable[[], T], pool: Pool) -> Future[T]:
        """Run a function in a worker thread."""
        return self._pools[pool].submit(function)

    async def in_thread(self, function: Callable[[], T], pool: Pool) -> T:
        """The same, awaited. The function goes on if this is cancelled."""
        return await finished(self.submit(function, pool))

    def stop(self) -> None:
        """End the threads and the loop; those that user code does not return from are left behind. Later calls start them anew."""
        self.background.stop()
        for pool in self._pools.values():
            pool.stop()


class WorkerThreads:
    """Threads that start when they are needed and end when they are not. They are daemons: none keeps the process from ending.

    Args:
        most: How many there may be. A call that nobody waits for any more counts until it ends.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._ready = threading.Condition()
        self._jobs: deque[tuple[Future[Any], Context, Callable[[], Any]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._stopping = False
        self._pid = os.getpid()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run a function, with the context variables of the caller."""
        if self._pid != os.getpid():
            self._begin()  # threads do not survive a fork, such as that of gunicorn's workers behind --preload
        future: Future[T] = Future()
        with self._ready:
            self._stopping = False
            self._jobs.append((future, copy_context(), function))
            if self._idle >= len(self._jobs):
                self._ready.notify()
            elif len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name="oip_asgi worker", daemon=True)
                try:
                    thread.start()  # it takes a job when this lock is free
                    self._threads.add(thread)
                except RuntimeError:  # the system has no more threads: those that are there do it, if there are any
                    if not self._threads:
                        self._jobs.pop()
                        raise
        return future

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            with self._ready:
                while not self._jobs:
                    self._idle += 1
                    woken = not self._stopping and self._ready.wait(_IDLE_SECONDS)
                    self._idle -= 1
                    if not self._jobs and (self._stopping or not woken):
                        self._threads.discard(thread)
                        return
                job = self._jobs.popleft()
            _do(*job)
            del job  # an idle thread holds no request's arrays

    def stop(self) -> None:
        """End the threads. One that is in user code ends behind that, and is waited for no longer than a second."""
        if self._pid != os.getpid():
            return
        with self._ready:
            self._stopping = True
            self._ready.notify_all()
            threads = set(self._threads)
        deadline = time.monotonic() + _END_SECONDS
        for thread in threads - {threading.current_thread()}:
            thread.join(max(0.0, deadline - time.monotonic()))


def cpus() -> int:
    """How many CPUs this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can tell those of this process
        return os.cpu_count() or 1


def _do(future: Future[Any], context: Context, function: Callable[[], Any]) -> None:
    try:
        result = context.run(function)
    except BaseException as error:
        future.set_exception(error)
        del future  # the exception knows this frame: together they would live until the next garbage collection
    else:
        future.set_result(result)


class BackgroundLoop:
    """One event loop in a daemon thread, for coroutines of callers that block. It ends with `stop`, or with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def run(self, coroutine: Coroutine[Any, Any, T], deadline: float = math.inf, gone: Future[None] | None = None) -> T:
        """Finish a coroutine on the loop, and return its result.

        Args:
            coroutine: What to finish.
            deadline: When it is cancelled, and awaited to its end, in seconds of `time.monotonic`.
            gone: Done once the client has gone, and then the same happens; None where nobody can tell, or it does not matter.

        Raises:
            DeadlinePassed: The deadline passed first.
            ClientGone: The client went first.
            QuitWithin: It raised what is no `Exception`, such as `SystemExit`.
            Stopped: The loop was stopped meanwhile.
        """
        work = attended(coroutine, deadline, None if gone is None else partial(done, gone))
        try:
            return asyncio.run_coroutine_threadsafe(_contained(work), self._started()).result()
        except CancelledError:
            raise Stopped from None

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # a thread does not survive a fork, such as that of gunicorn's workers behind --preload
            if self._loop is None or self._pid != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                self._thread = threading.Thread(target=_run_forever, args=(self._loop,), name="oip_asgi", daemon=True)
                self._thread.start()
            return self._loop

    def stop(self) -> None:
        """Cancel what runs on the loop, and end it and its thread; a later `run` starts them anew."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_STOP_SECONDS)


async def _contained(work: Awaitable[T]) -> T:
    try:
        return await work
    except CancelledError as error:  # asyncio would take it for its own on its way to the caller
        raise CancelledWithin from error
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        raise QuitWithin from error


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    # a task of a model's own that raises SystemExit ends the loop for all others
    while True:
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
            break
    loop.run_until_complete(_cancel_all())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
