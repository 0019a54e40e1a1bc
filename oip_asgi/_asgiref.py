"""Lets a thread that waits for the background event loop run, meanwhile, what the coroutine passes to asgiref's `sync_to_async`.

asgiref runs that in the thread that called the coroutine, as it may use that thread's database connections. If the thread only waited,
the two would wait for each other. Knows asgiref, and nothing of Django.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import AsyncToSync, SyncToAsync

from ._runtime.background import Loan

P = ParamSpec("P")
T = TypeVar("T")


class LentThread(Loan, Executor):
    """Runs jobs in the thread that calls `wait`. After `end`, it passes them to asgiref's own thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._serves = True
        self._before: Any = None

    def take(self) -> None:
        self._before = getattr(AsyncToSync.executors, "current", None)
        AsyncToSync.executors.current = self

    def give_back(self) -> None:
        # before asgiref 3.9, the caller's own context has the same value
        AsyncToSync.executors.current = self._before

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._serves:
                self._jobs.put(partial(_run, future, partial(function, *args, **kwargs)))
                return future
        return SyncToAsync.single_thread_executor.submit(function, *args, **kwargs)

    def wait(self, awaited: Future[Any]) -> None:
        """Run what is submitted until a future is done."""
        awaited.add_done_callback(lambda _: self._jobs.put(None))
        work = vars(SyncToAsync.threadlocal)  # asgiref writes here which event loop this thread works for
        before = dict(work)
        try:
            while (job := self._jobs.get()) is not None:
                job()
        finally:
            work.clear()
            work.update(before)

    def end(self) -> None:
        """Take no more jobs, as the coroutine has ended. Those that wait still run."""
        with self._lock:
            self._serves = False


def _run(future: Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
        del future  # the traceback refers to this frame: without this it would be a cycle
    else:
        future.set_result(result)
