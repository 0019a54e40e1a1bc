"""Where a server's effects are carried out: its worker threads and its background event loop. Decides nothing about what they do."""

from __future__ import annotations

import asyncio
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, final

from .._protocol.effects import DeadlinePassed, Run, Signal, Work
from .background import BackgroundLoop
from .faults import as_failure
from .threads import PATIENCE, WorkerThreads, cpus
from .waiting import ClientGone, Gone, arrival, running_loop


@final
class Runtime:
    """What runs user code and large conversions for callers that block and callers that await."""

    def __init__(self, worker_threads: int) -> None:
        # more threads for conversions would only take the interpreter from the event loop
        self._pools: dict[Work, WorkerThreads] = {
            "model": WorkerThreads(worker_threads),
            "hook": WorkerThreads(worker_threads),
            "conversion": WorkerThreads(cpus()),
        }
        self._inboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Inbox] = weakref.WeakKeyDictionary()
        self.background = BackgroundLoop()

    async def run(self, effect: Run, gone: Gone | None = None) -> Any:
        """Run a function in a worker thread, and await its result."""
        loop = running_loop()
        inbox = self._inbox(loop)
        future: asyncio.Future[Any] = loop.create_future()
        job = _LoopJob(effect, future, inbox)
        pool = self._pools[effect.work]
        if effect.after is None:
            inbox.submit(pool, effect.function, job)
        else:
            # with the context variables of this request, whichever thread sets the signal
            effect.after.then(partial(copy_context().run, pool.submit, effect.function, job))
        gone = gone if effect.for_client else None
        try:
            if gone is None and effect.deadline == math.inf:
                return await future
            return await arrival(future, effect.deadline, gone)
        finally:
            del future, job  # what it raises knows this frame: together they would live until the next garbage collection

    def _inbox(self, loop: asyncio.AbstractEventLoop) -> Inbox:
        inbox = self._inboxes.get(loop)
        if inbox is None:
            inbox = self._inboxes[loop] = Inbox(loop)
        return inbox

    def call(self, effect: Run, gone: Signal | None = None) -> Any:
        """Run a function in a worker thread, and wait for its result in this one."""
        job = _WaitedJob(effect)
        self._pools[effect.work].submit(effect.function, job)
        return job.wait(effect.deadline, gone)

    def spawn(self, function: Callable[[], Any], ended: Signal) -> None:
        """Run a function in a worker thread of hooks, and set a signal behind it."""
        self._pools["hook"].submit(function, _Ending(ended))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this, the calling thread waits. If it is a worker thread, another may take its place: else jobs could wait for each
        other."""
        pools = [pool for pool in self._pools.values() if pool.begin_to_wait()]
        try:
            yield
        finally:
            for pool in pools:
                pool.end_to_wait()

    def stop(self) -> None:
        """End the threads and the loop; those that user code does not return from are left behind. Later calls start them anew."""
        self.background.stop()
        for pool in self._pools.values():
            pool.stop()


@final
class Inbox:
    """Results on their way from worker threads to one event loop: one queue, and at most one wake-up under way."""

    __slots__ = ("__weakref__", "_is_woken", "_loop", "_outcomes", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # a weak reference, as the runtime keeps this as long as the loop
        self._loop = weakref.ref(loop)
        self._outcomes: deque[tuple[_LoopJob, Any, BaseException | None]] = deque()
        self._is_woken = False
        self._waiting: set[WorkerThreads] = set()

    def submit(self, pool: WorkerThreads, function: Callable[[], Any], job: _LoopJob) -> None:
        """Hand a job to a pool, and see to it that it starts soon where all threads turn out to be busy for long."""
        if pool.submit(function, job, is_patient=True) and pool not in self._waiting:
            self._waiting.add(pool)
            asyncio.get_running_loop().call_later(PATIENCE, self._hurry, pool)

    def _hurry(self, pool: WorkerThreads) -> None:
        if pool.hurry():
            asyncio.get_running_loop().call_later(PATIENCE, self._hurry, pool)
        else:
            self._waiting.discard(pool)

    def put(self, job: _LoopJob, result: Any, error: BaseException | None) -> None:
        """Bring an outcome to the loop; called by worker threads."""
        self._outcomes.append((job, result, error))
        if self._is_woken:
            return
        self._is_woken = True
        loop = self._loop()
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_woken = False  # before the queue is emptied: what comes from here on may need a wake-up of its own
        while self._outcomes:
            job, result, error = self._outcomes.popleft()
            job.finish(result, error)
            del job, result, error


@final
class _LoopJob:
    """A job that an event loop waits for."""

    __slots__ = ("_effect", "_future", "_inbox")

    def __init__(self, effect: Run, future: asyncio.Future[Any], inbox: Inbox) -> None:
        self._effect = effect
        self._future = future
        self._inbox = inbox

    def is_gone(self) -> bool:
        return self._future.done()

    def receive(self, result: Any, error: BaseException | None) -> None:
        failure = None if error is None else as_failure(error)
        if self._future.done():  # nobody waits any more, and maybe the event loop has ended too
            self.finish(result, failure)
        else:
            self._inbox.put(self, result, failure)

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Hand the outcome to the coroutine that waits, on its event loop; in any thread where none waits any more."""
        future = self._future
        if future.done():
            if error is not None and self._effect.late is not None and not future.cancelled():
                self._effect.late(error)
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


@final
class _WaitedJob:
    """A job that a thread waits for."""

    __slots__ = ("_done", "_effect", "_error", "_is_left", "_lock", "_result")

    def __init__(self, effect: Run) -> None:
        self._effect = effect
        self._done = Signal()
        self._lock = threading.Lock()
        self._is_left = False
        self._result: Any = None
        self._error: BaseException | None = None

    def is_gone(self) -> bool:
        return self._is_left

    def receive(self, result: Any, error: BaseException | None) -> None:
        with self._lock:
            self._result, self._error = result, None if error is None else as_failure(error)
            is_left = self._is_left
            if not is_left:
                self._done.set()
        if is_left and error is not None and self._effect.late is not None:
            self._effect.late(error)

    def wait(self, deadline: float, gone: Signal | None) -> Any:
        try:
            wait_for(self._done, deadline, gone)
        except (DeadlinePassed, ClientGone):
            with self._lock:
                self._is_left = not self._done.is_set()
            if self._is_left:
                raise
        error = self._error
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error, self._error  # cycles else


def wait_for(signal: Signal, deadline: float = math.inf, gone: Signal | None = None) -> None:
    """Wait in this thread until a signal is set."""
    if signal.is_set():
        return
    event = threading.Event()
    signal.then(event.set)
    if gone is not None:
        gone.then(event.set)
    is_in_time = event.wait(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))
    if not signal.is_set():
        raise ClientGone if is_in_time else DeadlinePassed


@final
class _Ending:
    """Sets a signal when a job has ended."""

    __slots__ = ("_ended",)

    def __init__(self, ended: Signal) -> None:
        self._ended = ended

    def is_gone(self) -> bool:
        return False

    def receive(self, result: Any, error: BaseException | None) -> None:  # noqa: ARG002  (a generator of its own says what came of it)
        self._ended.set()
