"""One event loop in a daemon thread, for coroutines of callers that block. Decides nothing about what they do."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, final

from .._protocol.effects import Await, CancelledWithin, QuitWithin, SharedTask, Signal, Stopped
from .forks import call_after_fork
from .waiting import attended, until_set

T = TypeVar("T")

_Begin: TypeAlias = Callable[[], Coroutine[Any, Any, T]]

_STOP_SECONDS: Final = 5.0
"""How long coroutines have to clean up after they were cancelled, before their thread is left behind."""


class LendThread(Protocol):
    """Lets a coroutine use the thread that waits for it."""

    def __call__(self, begin: _Begin[T], /) -> tuple[_Begin[T], Callable[[Future[T]], object]]:
        """What begins the coroutine instead, on the event loop, and what waits for it, in this thread."""


@final
class BackgroundLoop:
    """The event loop. It starts when it is needed, and ends with `stop` or with the process."""

    def __init__(self) -> None:
        self.lend_thread: LendThread = _lend_nothing
        self._begin()
        call_after_fork(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T], deadline: float = math.inf, gone: Signal | None = None) -> T:
        """Finish a coroutine on the loop, and return its result."""
        begin, wait = self.lend_thread(lambda: _attended(coroutine, deadline, gone))
        return _result(self._start_coroutine(begin()), wait)

    def run_shared(self, shared_task: SharedTask, effect: Await, gone: Signal | None) -> Any:
        """`run`, in the same task as all others that have the same `shared_task`."""
        begin, wait = self.lend_thread(lambda: _attended(effect.function(), effect.deadline, gone))
        future: Future[Any] = Future()
        with self._lock:
            if shared_task.kept is None:
                loop = self._started()
                shared_task.kept = _InTurn(loop, lambda: self._loop is not loop)
                shared_task.end = shared_task.kept.end
                asyncio.run_coroutine_threadsafe(shared_task.kept.serve(), loop)
            kept: _InTurn = shared_task.kept
            if kept.loop is not self._loop:
                raise Stopped
            kept.loop.call_soon_threadsafe(kept.put, begin, future)
        try:
            return _result(future, wait)
        except Exception:
            raise
        except BaseException:  # such as KeyboardInterrupt, of this thread, which waits no longer: others of the task must not wait either
            kept.give_up(future)
            raise

    def begin(self, coroutine: Coroutine[Any, Any, T], deadline: float = math.inf, gone: Signal | None = None) -> Future[T]:
        """Begin what `run` finishes. The future raises `CancelledError` where the loop is stopped."""
        return self._start_coroutine(_attended(coroutine, deadline, gone))

    def _start_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        # under the lock: what is handed to a loop after its end would never be finished
        with self._lock:
            return asyncio.run_coroutine_threadsafe(_contained(coroutine), self._started())

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run_forever, args=(self._loop,), name="oip_asgi", daemon=True)
            self._thread.start()
        return self._loop

    def stop(self) -> None:
        """Cancel what runs on the loop, and end it and its thread; a later `run` starts them anew."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        if thread is not None:
            thread.join(_STOP_SECONDS)


def _attended(coroutine: Coroutine[Any, Any, T], deadline: float, gone: Signal | None) -> Coroutine[Any, Any, T]:
    return attended(coroutine, deadline, None if gone is None else partial(until_set, gone))


@final
class _InTurn:
    """Coroutines that one task of a loop finishes, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_stopped: Callable[[], bool]) -> None:
        self.loop = loop
        self._is_stopped = is_stopped
        self._waiting: asyncio.Queue[tuple[Callable[[], Coroutine[Any, Any, Any]], Future[Any]] | None] = asyncio.Queue()
        self._has_ended = False
        self._task: asyncio.Task[Any] | None = None
        self._running: Future[Any] | None = None

    def put(self, work: Callable[[], Coroutine[Any, Any, Any]], future: Future[Any]) -> None:
        """Finish one more. Called on the loop."""
        if self._has_ended:
            future.cancel()
        else:
            self._waiting.put_nowait((work, future))

    def end(self) -> None:
        """No more will come. Called by any thread."""
        self._call(partial(self._waiting.put_nowait, None))

    def give_up(self, future: Future[Any]) -> None:
        """Nobody waits for the result of one any more. Called by any thread."""
        future.cancel()
        self._call(partial(self._cancel, future))

    def _call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(function)

    def _cancel(self, future: Future[Any]) -> None:
        if self._running is future and self._task is not None:
            self._task.cancel()

    async def serve(self) -> None:
        """Finish them."""
        self._task = task = asyncio.current_task()
        assert task is not None  # it is one
        try:
            while (item := await self._next(task)) is not None:
                work, future = item
                if future.cancelled():
                    continue
                self._running = future
                try:
                    result = await _contained(work())
                except asyncio.CancelledError:
                    future.cancel()
                    if self._is_stopped():
                        raise
                    task.uncancel()  # by `give_up`
                except Exception as error:
                    with suppress(InvalidStateError):  # nobody waits any more
                        future.set_exception(error)
                else:
                    with suppress(InvalidStateError):
                        future.set_result(result)
                self._running = None
                del item, work, future  # what it raises knows this frame: a cycle else
        finally:
            self._has_ended = True
            while not self._waiting.empty():
                left = self._waiting.get_nowait()
                if left is not None:
                    left[1].cancel()

    async def _next(self, task: asyncio.Task[Any]) -> tuple[Callable[[], Coroutine[Any, Any, Any]], Future[Any]] | None:
        """The next one; None where no more come. What cancels the task meanwhile, as `asyncio.timeout` does, is meant for that one."""
        is_cancelled = False
        while True:
            try:
                item = await self._waiting.get()
                break
            except asyncio.CancelledError:
                if self._is_stopped():
                    raise
                task.uncancel()
                is_cancelled = True
        if is_cancelled and item is not None:
            task.cancel()
        return item


def _lend_nothing(begin: _Begin[T], /) -> tuple[_Begin[T], Callable[[Future[T]], object]]:
    return begin, Future.result


def _result(future: Future[T], wait: Callable[[Future[T]], object]) -> T:
    try:
        wait(future)
        return future.result()
    except CancelledError:
        raise Stopped from None
    finally:
        del future  # what it raises knows this frame: together they would live until the next garbage collection


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
