"""Lets a thread that waits for the background event loop run, meanwhile, what the coroutine passes to asgiref's `sync_to_async`.

asgiref runs that in the thread that called the coroutine, as it may use that thread's database connections. If the thread only waited,
the two would wait for each other. Knows asgiref, and nothing of Django.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import AsyncToSync, SyncToAsync

P = ParamSpec("P")
T = TypeVar("T")


def lend_thread(begin: Callable[[], Coroutine[Any, Any, T]]) -> tuple[Callable[[], Coroutine[Any, Any, T]], Callable[[Future[T]], object]]:
    """Return two functions: one begins a coroutine that may use this thread, the other runs its jobs here until a future is done."""
    thread = _Thread()

    async def borrow() -> T:
        executors = AsyncToSync.executors
        before = getattr(executors, "current", None)
        executors.current = thread
        try:
            return await begin()
        finally:
            executors.current = before  # before asgiref 3.9, the caller's own context has the same value
            thread.end()

    return borrow, thread.serve


class _Thread(Executor):
    """Runs jobs in the thread that calls `serve`. After `end`, it passes them to asgiref's own thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._serves = True

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._serves:
                self._jobs.put(partial(_run, future, partial(function, *args, **kwargs)))
                return future
        return SyncToAsync.single_thread_executor.submit(function, *args, **kwargs)

    def serve(self, awaited: Future[Any]) -> None:
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
