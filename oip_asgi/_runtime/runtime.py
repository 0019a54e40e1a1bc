"""Where a server's effects are carried out: its worker threads and its background event loop. Decides nothing about what they do."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, final

from .._protocol.effects import DeadlinePassed, Run, Signal, Work
from .background import BackgroundLoop
from .faults import as_failure
from .threads import PATIENCE, WorkerThreads, cpus
from .waiting import ClientGone, running_loop, wait_for


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

    async def run(self, effect: Run) -> Any:
        """Run a function in a worker thread, and await its result. If this is cancelled, the function goes on."""
        loop = running_loop()
        inbox = self._inboxes.get(loop)
        if inbox is None:
            inbox = self._inboxes[loop] = Inbox(loop)
        future: asyncio.Future[Any] = loop.create_future()
        job, pool = _LoopJob(effect, future, inbox), self._pools[effect.work]
        if effect.after is None:
            inbox.submit(pool, effect.function, job)
        else:
            # with the context variables of this request, whichever thread sets the signal
            effect.after.then(partial(copy_context().run, pool.submit, effect.function, job))
        try:
            return await future
        finally:
            del future, job  # what it raises knows this frame: together they would live until the next garbage collection

    def call(self, effect: Run, gone: Signal | None = None) -> Any:
        """Run a function in a worker thread, and wait for its result in this one."""
        future, ended = _Outcome(), Signal()
        future.add_done_callback(lambda _: ended.set())
        self._pools[effect.work].submit(effect.function, future)
        try:
            wait_for(ended, effect.deadline, gone)
        except (DeadlinePassed, ClientGone):
            if not future.cancel() and effect.late is not None:
                future.add_done_callback(partial(_tell, effect.late))
            raise
        try:
            return future.result()
        finally:
            del future  # as in `run`

    def spawn(self, function: Callable[[], Any], ended: Signal) -> None:
        """Run a function in a worker thread of hooks, and set a signal after it. What it raises is nobody's."""
        future = _Outcome()
        future.add_done_callback(lambda _: ended.set())
        self._pools["hook"].submit(function, future)

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
        """Give a job to a pool, and see to it that it starts soon if all threads turn out to be busy for long."""
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
        """Give the outcome to the coroutine that waits, on its event loop; in any thread if none waits any more."""
        future = self._future
        if future.done():
            if error is not None and self._effect.late is not None:
                self._effect.late(error)
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


@final
class _Outcome(Future[Any]):
    """The outcome of a job that a thread waits for, or nobody."""

    def is_gone(self) -> bool:
        return not self.set_running_or_notify_cancel()

    def receive(self, result: Any, error: BaseException | None) -> None:
        if error is None:
            self.set_result(result)
        else:
            self.set_exception(as_failure(error))


def _tell(late: Callable[[BaseException], None], future: Future[Any]) -> None:
    with suppress(CancelledError):
        error = future.exception()
        if error is not None:
            late(error)
