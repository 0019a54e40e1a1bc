"""Threads: the workers, in which each `def` runs, so that it does not block the event loop; and the one that
calls methods after a time. Decides nothing about what they do.

`Runtime` of `runtime` has three pools: for models, for hooks, and one thread for each CPU for conversions.

A trip to a thread and back costs two wake-ups, which on a busy machine take longer than most models. So jobs
share them: while a thread is awake, further jobs wait for it a millisecond before another thread is woken,
and `LoopThreads` brings several results back at once.
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
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol

PATIENCE: Final = 0.001
"""Seconds that a job waits for a thread that is awake. A thread that runs its job for longer is assumed to
block."""

_IDLE_SECONDS: Final = 10.0
"""How long a worker thread waits for more to do before it ends."""

_END_SECONDS: Final = 1.0
"""How long the end of threads is waited for. Calls have had their time by then."""

_MOST_SECONDS: Final = 3600.0
"""The thread of alarms looks again after so long: not every system can sleep as long as it is asked to."""


class Job(Protocol):
    """What a worker thread does for somebody who waits for its outcome."""

    def run(self) -> None:
        """Do it, unless nobody waits any more. Never raises."""


class WorkerThreads:
    """Threads that start when they are needed and end when they are not. They are daemons: none keeps the
    process from ending."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.after_job: Callable[[], object] | None = None
        """Called in a thread after each job. It must not raise."""
        self._begin()
        call_after_fork(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._idle: list[_Worker] = []  # the last to fall asleep is woken first
        self._workers: set[_Worker] = set()
        self._last: _Worker | None = None  # the last to be woken, or to take a job, while it is awake
        self._patience_ends = 0.0  # until when patient jobs wait for it
        self._is_stopping = False
        self._waiting = 0

    def submit(self, job: Job, *, is_patient: bool = False) -> bool:
        """Have a job done. A patient job may wait for a thread that is awake; returns whether it does."""
        with self._lock:
            self._is_stopping = False
            self._jobs.append(job)
            if is_patient and time.monotonic() < self._patience_ends:
                return True
            self._add_thread()
            return False

    def hurry(self) -> bool:
        """Wake threads for jobs that have waited for long enough. Returns whether more jobs wait, and a
        thread may still be woken."""
        with self._lock:
            if self._jobs and time.monotonic() >= self._patience_ends:
                for _ in range(len(self._jobs)):
                    self._add_thread()
            return bool(self._jobs) and (bool(self._idle) or len(self._workers) < self.most + self._waiting)

    def _add_thread(self) -> None:
        if self._idle:
            worker = self._idle.pop()
            worker.is_awake, self._last, self._patience_ends = True, worker, time.monotonic() + PATIENCE
            worker.wake.release()
        elif len(self._workers) < self.most + self._waiting:
            worker = _Worker(self)
            try:
                worker.start()  # it takes a job when the lock is free
                self._workers.add(worker)
                self._last, self._patience_ends = worker, time.monotonic() + PATIENCE
            except (
                RuntimeError
            ):  # the system has no more threads: those that are there do it, if there are any
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
            job: Job | None = None
            with self._lock:
                if self._jobs:
                    job = self._jobs.popleft()
                    self._last, self._patience_ends = worker, time.monotonic() + PATIENCE
                else:
                    worker.is_awake = False
                    # it refers to this: a cycle, which only the garbage collector would free
                    if self._last is worker:
                        self._last, self._patience_ends = None, 0.0
                    if self._is_stopping:
                        self._workers.discard(worker)
                        return
                    self._idle.append(worker)
            if job is not None:
                job.run()
                if self.after_job is not None:
                    self.after_job()
            elif not worker.wake.acquire(True, _IDLE_SECONDS) and self._retire(worker):
                return
            del job  # an idle thread holds no request's arrays

    def _retire(self, worker: _Worker) -> bool:
        """Let a thread end that was not woken for long. False if it has just been woken."""
        with self._lock:
            if worker.is_awake:
                worker.wake.acquire()
                return False
            self._idle.remove(worker)
            self._workers.discard(worker)
            return True

    def stop(self) -> None:
        """End the threads. One that is in user code ends after that, and is waited for no longer than a
        second."""
        with self._lock:
            self._is_stopping = True
            workers = list(self._workers)
            while self._idle:
                self._add_thread()
        deadline = time.monotonic() + _END_SECONDS
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join(max(0.0, deadline - time.monotonic()))


class _Worker(threading.Thread):
    """One thread, and the lock on which it sleeps."""

    def __init__(self, pool: WorkerThreads) -> None:
        super().__init__(name="oip_asgi worker", daemon=True)
        self.pool = pool
        self.is_awake = True
        self.wake = threading.Lock()
        self.wake.acquire()

    def run(self) -> None:
        self.pool.work(self)


class Alarms:
    """The methods that are to be called. The thread, a daemon, starts with the first method, and ends after
    the last."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, weakref.WeakMethod[Callable[[], object]]]] = []
        self._number = count()
        self._begin()
        call_after_fork(self._go_on)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def _go_on(self) -> None:
        """In a process forked from this one, no thread is left, and what is due there is due here."""
        self._begin()
        with self._changed:
            self._wake()

    def set(self, seconds: float, method: Callable[[], object]) -> None:
        """Call a method, which must not raise, after so many seconds. Its object is not kept alive."""
        with self._changed:
            heappush(self._due, (time.monotonic() + seconds, next(self._number), weakref.WeakMethod(method)))
            self._wake()

    def _wake(self) -> None:
        if self._thread is None and self._due:
            thread = threading.Thread(target=self._run, name="oip_asgi alarms", daemon=True)
            thread.start()  # raises where the system has no more threads
            self._thread = thread
        self._changed.notify()

    def stop(self) -> None:
        """End the thread. What is due stays due: the next `set` starts it again."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            method = due()
            if method is not None:
                method()
            del method

    def _wait(self) -> weakref.WeakMethod[Callable[[], object]] | None:
        """The next method that is due, when it is; None if this thread is not wanted any more."""
        thread = threading.current_thread()
        with self._changed:
            while self._thread is thread:
                if not self._due:
                    self._thread = None
                    break
                seconds = self._due[0][0] - time.monotonic()
                if seconds <= 0:
                    return heappop(self._due)[2]
                self._changed.wait(min(seconds, _MOST_SECONDS))
        return None


def waiting() -> AbstractContextManager[None]:
    """Within this, the calling thread waits. If it is a worker thread, another may take its place: else jobs
    could wait for each other."""
    thread = threading.current_thread()
    return thread.pool.without_one() if isinstance(thread, _Worker) else nullcontext()


def call_after_fork(method: Callable[[], None]) -> None:
    """Call a method in each process forked from this one, where no thread is left: gunicorn's workers with
    --preload, for one.

    Its object is not kept alive.
    """
    if sys.platform == "win32":
        return
    kept = weakref.WeakMethod(method)

    def call() -> None:
        bound = kept()
        if bound is not None:
            bound()

    os.register_at_fork(after_in_child=call)


def watch_fork() -> Callable[[], bool]:
    """Return what tells whether this process was forked after now."""
    process = os.getpid()
    return lambda: os.getpid() != process


def count_cpus() -> int:
    """How many CPUs this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can tell those of this process
        return os.cpu_count() or 1
