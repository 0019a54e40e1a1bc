"""Worker threads for user code and large conversions. Decides nothing about what they do.

A trip to a thread and back costs two wake-ups, which on a busy machine take longer than most models. So jobs share them: while a thread
is awake, further jobs wait for it a millisecond before another thread is woken, and an `Inbox` brings several results back at once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from typing import Any, Final, Protocol, final

PATIENCE: Final = 0.001
"""Seconds that a job waits for a thread that is awake. One that runs its job for longer is taken to block."""

_IDLE_SECONDS: Final = 10.0
"""How long a worker thread waits for more to do before it ends."""

_END_SECONDS: Final = 1.0
"""How long the end of threads is waited for. Calls have had their time by then."""


class Receiver(Protocol):
    """Where the outcome of a job goes."""

    def is_gone(self) -> bool:
        """Whether nobody waits for it any more, so that it need not start."""

    def receive(self, result: Any, error: BaseException | None) -> None:
        """Take the outcome, in the thread of the job."""


@final
class WorkerThreads:
    """Threads that start when they are needed and end when they are not. They are daemons: none keeps the process from ending."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()
        call_after_fork(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[tuple[Callable[..., Any], Callable[[], Any], Receiver]] = deque()
        self._idle: list[_Worker] = []  # the last to fall asleep is woken first
        self._workers: set[_Worker] = set()
        self._is_stopping = False
        self._waiting = 0

    def submit(self, function: Callable[[], Any], receiver: Receiver, *, is_patient: bool = False) -> bool:
        """Run a function, with the context variables of the caller."""
        now = time.monotonic()
        run = copy_context().run
        with self._lock:
            self._is_stopping = False
            self._jobs.append((run, function, receiver))
            if is_patient and self._has_time(now):
                return True
            self._add_thread()
            return False

    def hurry(self) -> bool:
        """Wake threads for jobs that have waited for long enough. Returns whether others still wait."""
        now = time.monotonic()
        with self._lock:
            if self._jobs and not self._has_time(now):
                for _ in range(len(self._jobs)):
                    self._add_thread()
            return bool(self._jobs)

    def _has_time(self, now: float) -> bool:
        """Whether a thread is awake that has not been at its job for long."""
        for worker in self._workers:  # noqa: SIM110  (a generator costs more than all of it)
            if worker.is_awake and now - worker.since < PATIENCE:
                return True
        return False

    def _add_thread(self) -> None:
        if self._idle:
            worker = self._idle.pop()
            worker.is_awake = True
            worker.since = time.monotonic()
            worker.wake.release()
        elif len(self._workers) < self._most + self._waiting:
            worker = _Worker(self)
            try:
                worker.start()  # it takes a job when the lock is free
                self._workers.add(worker)
            except RuntimeError:  # the system has no more threads: those that are there do it, if there are any
                if not self._workers:
                    self._jobs.pop()
                    raise

    @contextmanager
    def without_one(self) -> Iterator[None]:
        """Within this, one of the threads waits, and another may take its place."""
        with self._lock:
            self._waiting += 1
            if self._jobs:
                self._add_thread()
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def work(self, worker: _Worker) -> None:
        """Do jobs, in the thread of a worker."""
        while True:
            receiver: Receiver | None = None
            with self._lock:
                if self._jobs:
                    run, function, receiver = self._jobs.popleft()
                    worker.since = time.monotonic()
                elif self._is_stopping:
                    self._workers.discard(worker)
                    return
                else:
                    self._idle.append(worker)
                    worker.is_awake = False
            if receiver is None:
                if not worker.wake.acquire(True, _IDLE_SECONDS) and self._retire(worker):
                    return
                continue
            if not receiver.is_gone():
                try:
                    result = run(function)
                except BaseException as error:
                    receiver.receive(None, error)
                else:
                    receiver.receive(result, None)
                    del result
            del run, function, receiver  # an idle thread holds no request's arrays, and what was raised knows this frame

    def _retire(self, worker: _Worker) -> bool:
        """Let go of a thread that nobody has woken for long. False if somebody has just now."""
        with self._lock:
            if worker.is_awake:
                worker.wake.acquire()
                return False
            self._idle.remove(worker)
            self._workers.discard(worker)
            return True

    def stop(self) -> None:
        """End the threads. One that is in user code ends after that, and is waited for no longer than a second."""
        with self._lock:
            self._is_stopping = True
            workers = list(self._workers)
            while self._idle:
                self._add_thread()
        deadline = time.monotonic() + _END_SECONDS
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join(max(0.0, deadline - time.monotonic()))


@final
class _Worker(threading.Thread):
    """One thread, and the lock on which it sleeps."""

    def __init__(self, pool: WorkerThreads) -> None:
        super().__init__(name="oip_asgi worker", daemon=True)
        self.pool = pool
        self.is_awake = True
        self.since = time.monotonic()
        self.wake = threading.Lock()
        self.wake.acquire()

    def run(self) -> None:
        self.pool.work(self)


def waiting() -> AbstractContextManager[None]:
    """Within this, the calling thread waits. If it is a worker thread, another may take its place: else jobs could wait for each other."""
    thread = threading.current_thread()
    return thread.pool.without_one() if isinstance(thread, _Worker) else nullcontext()


def call_after_fork(method: Callable[[], None]) -> None:
    """Call a method in each process forked from this one, where no thread is left: gunicorn's workers with --preload, for one.

    Its object is not kept alive.
    """
    if sys.platform == "win32":
        return
    kept = weakref.WeakMethod(method)

    def call() -> None:
        found = kept()
        if found is not None:
            found()

    os.register_at_fork(after_in_child=call)


def cpus() -> int:
    """How many CPUs this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can tell those of this process
        return os.cpu_count() or 1
