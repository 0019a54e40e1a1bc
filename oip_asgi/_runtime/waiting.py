"""Waiting, no longer than a deadline and a client allow: on an event loop, or in a thread. Knows no effects but the signal.

On an event loop, what takes too long is cancelled once, so that it can clean up, and awaited to its end.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
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


class ClientGone(Exception):
    """The client went before there was a result."""


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


async def wait_until_set(signal: Signal) -> bool:
    """Wait on this event loop until a signal is set, by whatever thread. As a `Gone`, it says that the client has gone."""
    if signal.is_set():
        return True
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is loop and not future.done():
                future.set_result(None)  # to wake the loop would cost two system calls and a round of it
                return
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(finish)

    signal.then(wake)
    await future
    return True


async def give_way(since: float) -> float:
    """Let others run if this task has run for long: other tasks, and worker threads, which could wait for the interpreter for seconds, as
    an event loop takes it back at once. Returns since when this task has run."""
    if time.monotonic() - since < _TURN_SECONDS:
        return since
    yield_interpreter()
    await asyncio.sleep(0)
    return time.monotonic()


@final
class Watch:
    """Ends what a task awaits at a deadline, or when the client has gone. Watches the client from the first wait for it until `end`."""

    __slots__ = ("_gone", "_has_gone", "_reason", "_task", "_timer", "_watcher")

    def __init__(self, gone: Gone | None) -> None:
        self._gone = gone
        self._has_gone = False
        self._reason: Any = None  # ClientGone or DeadlinePassed
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def attend(self, work: Coroutine[Any, Any, T], deadline: float = math.inf, *, for_client: bool = False) -> T:
        """The result of `work`, unless that takes too long, or nobody needs it once the client has gone, and it has."""
        if self._has_gone and for_client:
            work.close()
            raise ClientGone
        task = asyncio.current_task()
        assert task is not None  # a coroutine of ours is always some task's
        raised: BaseException | None = None
        timer: asyncio.TimerHandle | None = None
        try:
            try:
                rest = _rest(work, work.send(None))
            except StopIteration as end:
                result: T = end.value
                return result
            for_client = for_client and self._gone is not None
            if deadline == math.inf and not for_client:
                return await rest
            # not by `asyncio.timeout`, which costs each short call two microseconds
            loop, cancelled_before = asyncio.get_running_loop(), task.cancelling()
            if deadline != math.inf:
                timer = loop.call_later(max(0.0, deadline - time.monotonic()), self._stop, task, DeadlinePassed)
            if for_client and self._timer is None:
                self._timer = loop.call_later(_UNWATCHED_SECONDS, self.begin)
            self._reason, self._task = None, task if for_client else None
            try:
                result = await rest
                if self._reason is None or task.uncancel() > cancelled_before:
                    return result
            except (Exception, asyncio.CancelledError) as error:
                if self._reason is None or task.uncancel() > cancelled_before:
                    raise
                raised = error
            # after it was stopped, that is its end in order, or another error on its way out
            raise self._reason from raised if isinstance(raised, Exception) else None
        except asyncio.CancelledError as error:
            if task.cancelling():
                raise
            raise CancelledWithin from error
        finally:
            self._task = None
            if timer is not None:
                timer.cancel()
            # what it ends with knows this frame, and they know that: together they would live until the next garbage collection
            del task, raised

    def _stop(self, task: asyncio.Task[Any], reason: type[ClientGone | DeadlinePassed]) -> None:
        if self._reason is None:
            self._reason = reason
            task.cancel()

    def begin(self) -> None:
        """Watch the client from now on."""
        if self._watcher is None and self._gone is not None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch(self._gone))

    async def _watch(self, gone: Gone) -> None:
        await until_gone(gone)
        self._has_gone = True
        if self._task is not None:
            self._stop(self._task, ClientGone)

    async def end(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            watcher, self._watcher = self._watcher, None  # its end knows this: otherwise a cycle
            watcher.cancel()
            await asyncio.wait([watcher])


async def attend(work: Coroutine[Any, Any, T], deadline: float, gone: Gone) -> T:
    """`Watch.attend`, for work that is all that its client waits for."""
    watch = Watch(gone)
    try:
        return await watch.attend(work, deadline, for_client=True)
    finally:
        await watch.end()


async def until_gone(gone: Gone) -> None:
    """Wait until the client has gone."""
    while True:
        with suppress(Exception):
            if await gone():
                return
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # and `gone` took that for something else
            raise asyncio.CancelledError
        await asyncio.sleep(_ASKED_AGAIN_SECONDS)


@coroutine
def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """What is left of a coroutine that has been begun, and waits for what it yielded to the event loop."""
    while True:
        thrown: BaseException | None = None
        try:
            sent = yield waits_for
        except BaseException as error:
            thrown = error
        waits_for = None  # it may keep what it raises, and that knows this frame: otherwise a cycle
        # not in the handler: what the work raises from here on has nothing to do with what it was thrown, if it took that
        try:
            waits_for = work.send(sent) if thrown is None else work.throw(thrown)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            del thrown
