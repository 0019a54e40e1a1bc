"""Waiting on an event loop, no longer than a deadline and a client allow. Decides nothing.

What takes too long is cancelled once, so that it can clean up, and awaited to its end.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from types import coroutine
from typing import Any, Final, TypeAlias, TypeVar, final

from .._protocol.effects import CancelledWithin, DeadlinePassed, Signal
from .._protocol.interpreter import yield_interpreter

T = TypeVar("T")

Gone: TypeAlias = Callable[[], Awaitable[bool]]
"""Waits for the next message of the client, and says whether it was that the client has gone."""

_TURN_SECONDS: Final = 0.003
"""How long items of a stream may be made one after the other while nothing waits. Another request on the event loop waits for some turns,
as it takes several steps. To let others run costs a thirtieth of a turn."""

_UNWATCHED_SECONDS: Final = 0.03
"""How long a call may take before its client is watched: most calls are shorter, and pay nothing."""

_ASKED_AGAIN_SECONDS: Final = 0.1
"""How long until a server is asked again that does not wait with its answer."""


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("oip_asgi needs an event loop of asyncio or uvloop: run the server with one, not with trio") from None


def check_may_block(name: str, awaited: str) -> None:
    """Refuse to block a thread in which an event loop runs: everything on it would stand still."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{name} would block the event loop that runs in this thread: write {awaited}")


@final
class Turns:
    """Makes a task that never waits let others run: other tasks, and worker threads, which could wait for the interpreter for seconds, as
    an event loop takes it back at once."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = time.monotonic()

    def is_over(self) -> bool:
        """Whether others should run now, as `pass_on` lets them."""
        return time.monotonic() - self._since >= _TURN_SECONDS

    async def pass_on(self) -> None:
        """Let others run; then another turn begins."""
        yield_interpreter()
        await asyncio.sleep(0)
        self._since = time.monotonic()


class ClientGone(Exception):
    """The client went before there was a result."""


Reason: TypeAlias = type[DeadlinePassed | ClientGone]
"""Why work is stopped."""


async def until_gone(gone: Gone) -> None:
    """Wait until the client has gone."""
    is_gone = await _says_gone(gone)
    while not is_gone:
        await asyncio.sleep(_ASKED_AGAIN_SECONDS)
        is_gone = await _says_gone(gone)


async def _says_gone(gone: Gone) -> bool:
    is_gone = False
    with suppress(Exception):
        is_gone = await gone()
    if _task().cancelling():
        raise asyncio.CancelledError
    return is_gone


async def signalled(signal: Signal, deadline: float = math.inf, gone: Gone | None = None) -> None:
    """Wait until a signal is set, by whatever thread."""
    if signal.is_set():
        return
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if _is_running_here(loop):
            _finish(future)  # to wake the loop would cost two system calls and a round of it
            return
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_finish, future)

    signal.then(wake)
    await arrival(future, deadline, gone)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop runs in this thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def until_set(signal: Signal) -> bool:
    """Wait until a signal is set that says that nobody waits any more, as `Gone` says it."""
    await signalled(signal)
    return True


def _fail(future: asyncio.Future[Any], reason: Reason) -> None:
    if not future.done():
        future.set_exception(reason())


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def arrival(future: asyncio.Future[T], deadline: float, gone: Gone | None) -> T:
    """The result of a future of this event loop."""

    watch = None if deadline == math.inf and gone is None else _Watch(partial(_fail, future), deadline, gone)
    try:
        return await future
    finally:
        if watch is not None:
            await watch.end()
        del future, watch  # what it raises knows this frame: together they would live until the next garbage collection


async def attended(work: Coroutine[Any, Any, T], deadline: float = math.inf, gone: Gone | None = None) -> T:
    """The result of `work`, unless that takes too long: then it is cancelled, and awaited to its end."""
    try:
        try:
            rest = _rest(work, work.send(None))
        except StopIteration as end:
            result: T = end.value
            return result
        if deadline == math.inf and gone is None:
            return await rest
        return await _Attendance(_task()).attend(rest, deadline, gone)
    except asyncio.CancelledError as error:
        if _task().cancelling():
            raise
        raise CancelledWithin from error


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # a coroutine of ours is always some task's
    return task


@coroutine
def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """What is left of a coroutine that has been begun, and waits for what it yielded to the event loop."""
    while True:
        thrown: BaseException | None = None
        try:
            sent = yield waits_for
        except BaseException as error:
            thrown = error
        waits_for = None  # it may keep what it raises, and that knows this frame: otherwise a cycle, as in `arrival`
        # not in the handler: what the work raises from here on has nothing to do with what it was thrown, if it took that
        try:
            waits_for = work.send(sent) if thrown is None else work.throw(thrown)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            del thrown


@final
class _Watch:
    """A deadline and a client, watched while something is awaited."""

    __slots__ = ("_gone", "_stop", "_timers", "_watcher")

    def __init__(self, stop: Callable[[Reason], None], deadline: float, gone: Gone | None) -> None:
        self._stop = stop
        self._gone = gone
        self._watcher: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()
        if deadline != math.inf:
            self._timers.append(loop.call_later(max(0.0, deadline - time.monotonic()), stop, DeadlinePassed))
        if gone is not None:
            self._timers.append(loop.call_later(_UNWATCHED_SECONDS, self._start, loop))

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watcher = loop.create_task(self._watch_client())

    async def _watch_client(self) -> None:
        assert self._gone is not None  # only then is there somebody to watch
        await until_gone(self._gone)
        self._stop(ClientGone)

    async def end(self) -> None:
        """Watch no longer."""
        for timer in self._timers:
            timer.cancel()
        if self._watcher is not None:
            watcher, self._watcher = self._watcher, None  # its end knows this: otherwise a cycle, as in `arrival`
            watcher.cancel()
            await asyncio.wait([watcher])


@final
class _Attendance:
    """`attended`, by timers alone as long as nothing takes long."""

    __slots__ = ("_reason", "_task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._reason: Reason | None = None
        self._task = task

    async def attend(self, work: Awaitable[T], deadline: float, gone: Gone | None) -> T:
        cancelled_before = self._task.cancelling()
        raised: Exception | None = None
        try:
            watch = _Watch(self._stop, deadline, gone)
            try:
                result = await work
            finally:
                await watch.end()
        except (Exception, asyncio.CancelledError) as error:
            # after it was stopped, that is its end in order, or another error on its way out
            if not self._was_stopped(cancelled_before):
                del self._task
                raise
            raised = error if isinstance(error, Exception) else None
        else:
            if not self._was_stopped(cancelled_before):
                return result
        assert self._reason is not None  # _was_stopped says so
        try:
            raise self._reason from raised
        finally:
            del raised, self._task  # otherwise cycles, as in `arrival`

    def _was_stopped(self, cancelled_before: int) -> bool:
        """Whether it was this that cancelled the task, and nobody else beside it."""
        return self._reason is not None and self._task.uncancel() <= cancelled_before

    def _stop(self, reason: Reason) -> None:
        if self._reason is None:
            self._reason = reason
            self._task.cancel()
