"""Waiting: for a signal, in a thread or on an event loop; for a client to go; and in a thread for a
coroutine, which the event loop in the background runs.

If a model raises a BaseException that is no Exception, such as SystemExit, it is decided here who gets it:
the host, or the client as a 500. Knows no requests.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from .._io import ClientGone, DeadlinePassed, QuitWithin, Signal, Stopped
from .threads import call_after_fork

T = TypeVar("T")

_ASKED_AGAIN_SECONDS: Final = 0.1
"""Some servers do not wait until the client has gone, but say at once that it has not. They are asked again
after so long."""

_ENDS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""These end a thread, a task or the process."""

_HOSTS: Final = frozenset({"gevent", "greenlet", "eventlet"})
"""The host waits for exceptions of these packages, such as gevent's timeouts. Any other error that is not an
`Exception` is a mistake of the model, such as a panic in a library that is written in Rust."""


def is_on_loop() -> bool:
    """True if an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_may_block(name: str, awaited: str) -> None:
    """Refuse to block a thread in which an event loop runs: everything on it would stand still."""
    if is_on_loop():
        raise RuntimeError(f"{name} would block the event loop that runs in this thread: write {awaited}")


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


def begin_waiting(signal: Signal) -> asyncio.Future[None]:
    """Return a future of this event loop that is done when a signal is set, by whatever thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                finish()  # to wake the loop would cost two system calls and a round of it
                return
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(finish)

    signal.then(wake)
    return future


async def wait_until_set(signal: Signal) -> bool:
    """Wait on this event loop until a signal is set. Returns True: as a `Gone`, that means that the client
    has gone."""
    await begin_waiting(signal)
    return True


async def wait_until_gone(gone: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the client has gone."""
    while True:
        with suppress(Exception):
            if await gone():
                return
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # and `gone` took that for something else
            raise asyncio.CancelledError
        await asyncio.sleep(_ASKED_AGAIN_SECONDS)


def is_for_the_host(error: BaseException) -> bool:
    """Whether what a call raised is the host's, or means more than that the call has failed."""
    if isinstance(error, _ENDS):
        # a signal may have raised it, but only in the main thread; in any other thread, it would end a thread
        # of the host
        return threading.current_thread() is threading.main_thread()
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_for_the_host, error.exceptions))
    return not isinstance(error, Exception) and any(
        kind.__module__.partition(".")[0] in _HOSTS for kind in type(error).__mro__
    )


def as_failure(error: BaseException) -> Exception:
    """The `Exception` for whatever a call has raised: futures take no other."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    failure = RuntimeError("it raised StopIteration") if isinstance(error, StopIteration) else QuitWithin()
    failure.__cause__ = error
    return failure


def call_here(function: Callable[[], T]) -> T:
    """The result of a call in this thread."""
    try:
        return function()
    except BaseException as error:
        if isinstance(error, Exception) or (
            is_for_the_host(error) and not isinstance(error, (asyncio.CancelledError, GeneratorExit))
        ):
            raise  # those two cannot reach a function from outside
        raise as_failure(error) from error


# The event loop in the background

_STOP_SECONDS: Final = 5.0
"""How long coroutines have to clean up after they were cancelled, before their thread is left behind."""


class Loan:
    """The thread that waits for a coroutine. The coroutine may use it meanwhile if it is a `_LentThread` of
    `django`."""

    def take(self) -> None:
        """Let the coroutine that calls this use the thread."""

    def give_back(self) -> None:
        """Undo `take`, before the thread does something else, or at the end."""

    def end(self) -> None:
        """Take no more jobs for the thread."""

    def wait(self, awaited: Future[Any]) -> None:
        """Wait in the thread until a future is done, and meanwhile do what the coroutine asks for."""
        with suppress(CancelledError):
            awaited.exception()


class BackgroundLoop:
    """One event loop in a daemon thread, for coroutines of callers that block. It starts when it is needed,
    and ends with `stop` or with the process."""

    def __init__(self) -> None:
        self.lend_thread: type[Loan] = Loan
        self._begin()
        call_after_fork(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Finish a coroutine on the loop, and return its result."""
        loan = self.lend_thread()
        future = self.begin(coroutine, loan)
        try:
            loan.wait(future)
            return result_of(future)
        finally:
            # what it raises refers to this frame: a cycle, which only the garbage collector would free
            del future

    def begin(self, coroutine: Coroutine[Any, Any, T], loan: Loan) -> Future[T]:
        """Begin a coroutine, which may use the thread that waits for it. The future raises `CancelledError`
        if the loop is stopped."""
        # under the lock: what is given to a loop after its end would never be finished
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_run_forever, args=(loop,), name="oip_asgi", daemon=True)
                thread.start()  # raises where the system has no more threads
                self._loop, self._thread = loop, thread
            return asyncio.run_coroutine_threadsafe(_await_with_loan(loan, coroutine), self._loop)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, unless it was stopped."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function)

    def is_stopped(self) -> bool:
        """Whether the loop that runs in this thread is one that was stopped."""
        return self._loop is not asyncio.get_running_loop()

    def stop(self) -> None:
        """Cancel what runs on the loop, and end it and its thread; a later `run` starts them anew."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        if thread is not None:
            thread.join(_STOP_SECONDS)


class LoopTask:
    """One task on the background loop, which awaits one coroutine after the other for a thread: an
    asynchronous generator needs that."""

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background
        self._lock = threading.Lock()
        self._work: Callable[[], Coroutine[Any, Any, Any]] | None = None
        self._result: Future[Any] = Future()
        self.has_ended = False
        self._asked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # where it runs, once it does
        self._loan = background.lend_thread()
        self._served = background.begin(self._serve(), self._loan)
        self._served.add_done_callback(self._end)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await a coroutine in the task, and return its result."""
        with self._lock:
            if self.has_ended:
                raise Stopped
            result = self._result = Future[T]()
        self._work = work
        self._background.call_soon(self._ask)
        try:
            self._loan.wait(result)
        except BaseException:  # such as KeyboardInterrupt, of this thread, which waits no longer
            self._served.cancel()
            raise
        try:
            return result_of(result)
        finally:
            del result  # as in `BackgroundLoop.run`

    def end(self) -> None:
        """End the task, and wait for that."""
        self._background.call_soon(self._ask)
        self._loan.wait(self._served)
        del self._served  # it refers to this: otherwise a cycle

    def _ask(self) -> None:
        if self._loop in (None, asyncio.get_running_loop()):  # else it was stopped, and there is a new one
            self._asked.set()

    def _end(self, _: Future[None]) -> None:
        with self._lock:
            self.has_ended = True
        self._result.cancel()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        while True:
            self._loan.give_back()
            await self._wait_until_asked()
            self._loan.take()
            work, self._work = self._work, None
            if work is None:
                return
            try:
                result = await _contain_exits(work())
            except (Exception, ClientGone) as error:
                self._result.set_exception(error)
            else:
                self._result.set_result(result)
                del result
            del work

    async def _wait_until_asked(self) -> None:
        """Wait for the next coroutine. If the task is cancelled meanwhile, as by a model's `asyncio.timeout`,
        that coroutine is."""
        task, is_cancelled = asyncio.current_task(), False
        assert task is not None  # this runs in one
        while not self._asked.is_set():
            try:
                await self._asked.wait()
            except asyncio.CancelledError:
                if self._background.is_stopped():
                    raise
                task.uncancel()
                is_cancelled = True
        self._asked.clear()
        if is_cancelled:
            task.cancel()


def result_of(future: Future[T]) -> T:
    """The result of a future that is done. A future is cancelled only if its loop was stopped: then this
    raises `Stopped`."""
    try:
        return future.result()
    except CancelledError:
        raise Stopped from None
    finally:
        del future  # as in `BackgroundLoop.run`


async def _await_with_loan(loan: Loan, work: Awaitable[T]) -> T:
    """Await a coroutine that may use the thread which waits for it."""
    loan.take()
    try:
        return await _contain_exits(work)
    finally:
        loan.give_back()
        loan.end()


async def _contain_exits(work: Awaitable[T]) -> T:
    """Await a coroutine. What it raises must not end the event loop, and must not look as if the loop had
    been stopped."""
    task = asyncio.current_task()
    assert task is not None  # this runs in one
    try:
        return await work
    except ClientGone:
        raise
    except BaseException as error:
        is_ours = isinstance(error, asyncio.CancelledError) and task.cancelling()
        if is_ours or (isinstance(error, Exception) and not isinstance(error, CancelledError)):
            raise
        raise QuitWithin from error
    finally:
        del task


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    # if a task that a model has made raises SystemExit, that ends the loop for all others
    while True:
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
            break
    loop.run_until_complete(_end_all(loop))
    loop.close()


async def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks, then close the generators that are left."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    while True:
        # another thread may drop a generator while the loop goes through its set of them, which raises
        with suppress(RuntimeError):
            return await loop.shutdown_asyncgens()
