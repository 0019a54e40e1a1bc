"""One event loop in a daemon thread, for coroutines of callers that block. Decides nothing about what they do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from .._protocol.effects import QuitWithin, Stopped
from .threads import call_after_fork

T = TypeVar("T")
M = TypeVar("M")

_STOP_SECONDS: Final = 5.0
"""How long coroutines have to clean up after they were cancelled, before their thread is left behind."""


class Loan:
    """The thread that waits for a coroutine. The coroutine may use it meanwhile if it is a `LentThread`."""

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
    """The event loop. It starts when it is needed, and ends with `stop` or with the process."""

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
            del future  # what it raises knows this frame, so both would live until the next garbage collection

    def begin(self, coroutine: Coroutine[Any, Any, T], loan: Loan) -> Future[T]:
        """Begin a coroutine, which may use the thread that waits for it. The future raises `CancelledError` if the loop is stopped."""
        # under the lock: what is given to a loop after its end would never be finished
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run_forever, args=(self._loop,), name="oip_asgi", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(_contain(coroutine, loan), self._loop)

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


class Outbox(Generic[M, T]):
    """The pieces that a coroutine on the background loop makes, for one thread that asks for each.

    `make` makes the coroutine, which gives each piece to `put` when `asked` is set.
    """

    def __init__(self, background: BackgroundLoop, make: Callable[[Outbox[M, T]], Coroutine[Any, Any, T]]) -> None:
        self._lock = threading.Lock()
        self._next: Future[M | None] = Future()
        self._has_ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.asked = asyncio.Event()
        self.asked.set()
        self._error: BaseException | None = None
        self._loan = background.lend_thread()
        self._made: Future[T] | None = background.begin(make(self), self._loan)
        self._made.add_done_callback(self._end)

    def put(self, piece: M) -> None:
        """Give a piece to the thread. Called on the loop."""
        self._loop = asyncio.get_running_loop()
        self._loan.give_back()
        self.asked.clear()
        self._next.set_result(piece)

    def _end(self, _: Future[T]) -> None:
        with self._lock:
            self._has_ended = True
            if not self._next.done():
                self._next.set_result(None)

    def ask(self, error: BaseException | None = None) -> None:
        """Have the next piece made, or an error raised in its place."""
        with self._lock:
            self._next = Future()
            if self._has_ended:
                self._next.set_result(None)
        self._error = error
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self.asked.set)

    def go_on(self) -> BaseException | None:
        """The thread has asked for the next piece: return what it asks with. Called on the loop."""
        self._loan.take()
        error, self._error = self._error, None
        return error

    def take(self) -> M | None:
        """Wait for the next piece; None if there are no more."""
        try:
            self._loan.wait(self._next)
        except BaseException:  # such as KeyboardInterrupt, of this thread, which waits no longer
            if self._made is not None:
                self._made.cancel()
            raise
        return self._next.result()

    def leave(self, error: BaseException) -> None:
        """Have the coroutine end, if it has not, and wait for that."""
        if self._made is not None:
            self.ask(error)
            self._loan.wait(self._made)
            self._made = None

    def result(self) -> T:
        """What the coroutine returned, after the last piece. To be asked once."""
        made, self._made = self._made, None  # it knows this, and would keep the result until the next garbage collection
        assert made is not None
        return result_of(made)


def result_of(future: Future[T]) -> T:
    """The result of a future that is done. A future is cancelled only if its loop was stopped: then this raises `Stopped`."""
    try:
        return future.result()
    except CancelledError:
        raise Stopped from None
    finally:
        del future  # as in `BackgroundLoop.run`


async def _contain(work: Awaitable[T], loan: Loan) -> T:
    """Await what must not end the event loop, and must not look as if the loop had ended it."""
    task = asyncio.current_task()
    assert task is not None  # this runs in one
    loan.take()
    try:
        return await work
    except BaseException as error:
        is_ours = isinstance(error, asyncio.CancelledError) and task.cancelling()
        if is_ours or (isinstance(error, Exception) and not isinstance(error, CancelledError)):
            raise
        raise QuitWithin from error
    finally:
        loan.give_back()
        loan.end()
        del task


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    # a task of a model's own that raises SystemExit ends the loop for all others
    while True:
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
            break
    loop.run_until_complete(_cancel_all())
    loop.run_until_complete(_close_generators(loop))
    loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _close_generators(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        # another thread may drop a generator while the loop goes through its set of them, which raises
        with suppress(RuntimeError):
            return await loop.shutdown_asyncgens()
