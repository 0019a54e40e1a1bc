"""Waiting on an event loop: for what threads finish, and no longer than a deadline and a client allow. Decides nothing.

Under asyncio what takes too long is cancelled once, so that it can clean up; under trio, as everything there, by a scope.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import coroutine
from typing import Any, Final, TypeAlias, TypeVar

import anyio

from .._core.effects import Apart, CancelledWithin, DeadlinePassed

T = TypeVar("T")

Gone: TypeAlias = Callable[[], Awaitable[bool]]
"""Waits for word of the client, and says whether that was that it has gone."""

_UNWATCHED_SECONDS: Final = 0.03
"""How long a call may take before anybody looks whether the client is still there: most calls are shorter, and pay nothing."""


class ClientGone(Exception):
    """The client went before there was a result."""


Reason: TypeAlias = type[DeadlinePassed | ClientGone]
"""Why work is stopped."""

MayStop: TypeAlias = Callable[[Reason], bool]


async def finished(future: Future[T]) -> T:
    """The result of a future that another thread or loop finishes; the future goes on if this is cancelled."""
    if not future.done():
        event = anyio.Event()
        soon = _soon()

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                soon(event.set)

        future.add_done_callback(wake)
        await event.wait()
    try:
        return future.result()
    finally:
        del future  # what it raises knows this frame: together they would live until the next garbage collection


async def done(future: Future[None]) -> bool:
    """True, as soon as another thread has finished the future."""
    await finished(future)
    return True


def _soon() -> Callable[[Callable[[], None]], Any]:
    """What runs a function on this event loop soon, called from any thread."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon


async def all_of(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Finish several coroutines at the same time. All are cancelled with this, and awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        async with anyio.create_task_group() as group:
            for work in works:
                group.start_soon(_finish, work)
        return
    # not a group of anyio's: until version 4 it swallowed asyncio's own cancellation
    await asyncio.gather(*works)


def begin(work: Coroutine[Any, Any, None], apart: Apart) -> None:
    """Finish a coroutine, which finishes the step, on this event loop and whatever becomes of the caller."""
    ended = apart.ended
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        trio.lowlevel.spawn_system_task(_ending, work, ended)
        return
    apart.is_lost = loop.is_closed
    task = loop.create_task(work)
    task.add_done_callback(lambda _: ended.set_result(None))
    ended.add_done_callback(lambda _: task)  # an event loop does not keep its tasks, but somebody keeps what he waits for


async def _ending(work: Awaitable[None], ended: Future[None]) -> None:
    try:
        await work
    finally:
        ended.set_result(None)


async def _finish(work: Awaitable[None]) -> None:
    await work


async def attended(
    work: Coroutine[Any, Any, T], deadline: float = math.inf, gone: Gone | None = None, may_stop: MayStop = lambda _: True
) -> T:
    """The result of `work`, unless that takes too long: then it is cancelled, and awaited to its end.

    Args:
        work: What to await. What ends without waiting for anything costs nothing here.
        deadline: When to stop it, in seconds of `time.monotonic`.
        gone: Tells when the client has gone; None where nobody can tell, or it does not matter.
        may_stop: Asked right before it is stopped, with the reason; if it says no, the work goes on to its end.

    Raises:
        DeadlinePassed: The deadline passed first. Its cause is what the work raised instead of ending as it was told.
        ClientGone: The client went first.
        CancelledWithin: It ended cancelled, and nobody had cancelled this.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return await _attended_by_tasks(work, deadline, gone, may_stop)
    assert task is not None  # a coroutine of ours is always some task's
    try:
        try:
            rest = _rest(work, work.send(None))
        except StopIteration as end:
            result: T = end.value
            return result
        if deadline == math.inf and gone is None:
            return await rest
        return await _Attendance(gone, may_stop, task).attend(rest, deadline)
    except asyncio.CancelledError as error:
        if task.cancelling():
            raise
        raise CancelledWithin from error
    finally:
        del task  # which keeps what is raised: a cycle else, as in `finished`


@coroutine
def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """What is left of a coroutine that has been begun, and waits for what it yielded to the event loop."""
    while True:
        thrown: BaseException | None = None
        try:
            sent = yield waits_for
        except BaseException as error:
            thrown = error
        waits_for = None  # it may keep what it raises, and that knows this frame: a cycle else, as in `finished`
        # not in the handler: what the work raises from here on has nothing to do with what it was thrown, if it took that
        try:
            waits_for = work.send(sent) if thrown is None else work.throw(thrown)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            del thrown


class _Attendance:
    """`attended` under asyncio, by timers alone as long as nothing takes long."""

    def __init__(self, gone: Gone | None, may_stop: MayStop, task: asyncio.Task[Any]) -> None:
        self._gone = gone
        self._may_stop = may_stop
        self._watcher: asyncio.Task[None] | None = None
        self._reason: Reason | None = None
        self._task = task

    async def attend(self, work: Awaitable[T], deadline: float) -> T:
        cancelled_before = self._task.cancelling()
        raised: Exception | None = None
        try:
            result = await self._timed(work, deadline)
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
            del raised, self._task  # cycles else, as in `finished`

    async def _timed(self, work: Awaitable[T], deadline: float) -> T:
        loop = asyncio.get_running_loop()
        timers = []
        if deadline != math.inf:
            timers.append(loop.call_later(max(0.0, deadline - time.monotonic()), self._stop, DeadlinePassed))
        if self._gone is not None:
            timers.append(loop.call_later(_UNWATCHED_SECONDS, self._start_watching, loop))
        try:
            return await work
        finally:
            for timer in timers:
                timer.cancel()
            if self._watcher is not None:
                watcher, self._watcher = self._watcher, None  # its end knows this: a cycle else, as in `finished`
                watcher.cancel()
                await asyncio.wait([watcher])

    def _was_stopped(self, cancelled_before: int) -> bool:
        """Whether it was this that cancelled the task, and nobody else beside it."""
        return self._reason is not None and self._task.uncancel() <= cancelled_before

    def _stop(self, reason: Reason) -> None:
        if self._reason is None and self._may_stop(reason):
            self._reason = reason
            self._task.cancel()

    def _start_watching(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watcher = loop.create_task(self._watch())

    async def _watch(self) -> None:
        assert self._gone is not None  # only then is there something to watch
        with suppress(Exception):  # a server that breaks on the question cannot answer it
            if await self._gone():
                self._stop(ClientGone)


async def _attended_by_tasks(work: Awaitable[T], deadline: float, gone: Gone | None, may_stop: MayStop) -> T:
    """`attended` under trio."""
    reason: Reason | None = None
    outcome: list[T] = []
    failure: Exception | None = None

    def stop(because: Reason) -> None:
        nonlocal reason
        if reason is None and may_stop(because):
            reason = because
            group.cancel_scope.cancel()

    async def watch_clock() -> None:
        await anyio.sleep(max(0.0, deadline - time.monotonic()))
        stop(DeadlinePassed)

    async def watch_client(gone: Gone) -> None:
        await anyio.sleep(_UNWATCHED_SECONDS)
        with suppress(Exception):
            if await gone():
                stop(ClientGone)

    async with anyio.create_task_group() as group:
        if deadline != math.inf:
            group.start_soon(watch_clock)
        if gone is not None:
            group.start_soon(watch_client, gone)
        try:
            outcome.append(await work)
        except Exception as error:
            failure = error
        group.cancel_scope.cancel()
    try:
        if reason is not None:
            raise reason from failure
        if failure is not None:
            raise failure
    finally:
        del failure  # a cycle else, as in `finished`
    return outcome[0]
