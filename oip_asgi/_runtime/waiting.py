"""Waiting, no longer than a deadline and a client allow: on an event loop, or in a thread. Knows no effects but the signal.

On an event loop, a coroutine that takes too long is cancelled once, so that it can clean up, and awaited to its end.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from .._protocol.effects import DeadlinePassed, QuitWithin, Signal
from .._protocol.loop_limits import yield_interpreter

T = TypeVar("T")

Gone: TypeAlias = Callable[[], Awaitable[bool]]
"""Waits for the next message of the client, and says whether it was that the client has gone."""

TURN_SECONDS: Final = 0.003
"""How long items of a stream may be made one after the other while nothing waits. Another request on the event loop waits for some turns,
as it takes several steps. To let others run costs a thirtieth of a turn."""

_UNWATCHED_SECONDS: Final = 0.03
"""A client is watched after its request has taken so long, or twice as long at most. Most requests are shorter, and pay nothing."""

_ASKED_AGAIN_SECONDS: Final = 0.1
"""How long until a server is asked again that does not wait with its answer."""


class ClientGone(Exception):
    """The client went before there was a result."""


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
    """Wait on this event loop until a signal is set. Returns True: as a `Gone`, that means that the client has gone."""
    await begin_waiting(signal)
    return True


async def give_way() -> float:
    """Let others run after this task has run for long: other tasks, and worker threads, which could wait for the interpreter for seconds,
    as an event loop takes it back at once. Returns since when this task runs again."""
    yield_interpreter()
    await asyncio.sleep(0)
    return time.monotonic()


class Watch(msgspec.Struct, eq=False):
    """Ends what a request waits for on an event loop, at a deadline or when its client has gone. Watches the client until `end`.

    A future raises then `DeadlinePassed` or `ClientGone`. A coroutine, which runs in the request's own task, is cancelled.
    """

    _gone: Gone | None = None
    _patrol: Patrol | None = None  # which has it begun later
    _has_gone: bool = False
    _waits: asyncio.Future[Any] | None = None
    _for_client: bool = False
    _reason: Any = None  # ClientGone or DeadlinePassed
    _deadline: float = math.inf
    _timer: asyncio.TimerHandle | None = None
    _watcher: asyncio.Task[None] | None = None
    _task: asyncio.Task[Any] | None = None  # the request's own, once it attends a coroutine

    def limit(self, future: asyncio.Future[T], deadline: float, *, for_client: bool) -> asyncio.Future[T]:
        """Return a future, which is ended if it takes too long, or if nobody needs it once the client has gone."""
        self._waits, self._for_client, self._reason = future, for_client, None
        if deadline != self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._deadline, self._timer = deadline, None
            if deadline != math.inf:
                self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - time.monotonic()), self._expire)
        if for_client and self._has_gone:
            self._stop(ClientGone)
        return future

    async def attend(self, work: Coroutine[Any, Any, T], deadline: float = math.inf, *, for_client: bool = False) -> T:
        """`limit`, for a coroutine, which is awaited to its end."""
        if for_client and self._has_gone:
            work.close()
            raise ClientGone
        task = self._task = self._task or asyncio.current_task()
        assert task is not None  # a coroutine of ours is always some task's
        cancelled_before = task.cancelling()
        raised: BaseException | None = None
        try:
            self.limit(task, deadline, for_client=for_client)
            try:
                result = await work
                if self._reason is None or task.uncancel() > cancelled_before:
                    return result
            except (Exception, asyncio.CancelledError, GeneratorExit) as error:
                if _is_closed(error, task) or self._reason is None or task.uncancel() > cancelled_before:
                    raise
                raised = error
            # after it was stopped, that is its end in order, or another error on its way out
            raise self._reason from raised if isinstance(raised, Exception) else None
        except (asyncio.CancelledError, GeneratorExit) as error:
            if _is_closed(error, task) or (isinstance(error, asyncio.CancelledError) and task.cancelling()):
                raise
            raise QuitWithin from error
        finally:
            self._waits = None
            # its exception refers to this frame, and both names to it: a cycle, which only the garbage collector would free
            del task, raised

    def _expire(self) -> None:
        self._deadline, self._timer = math.inf, None
        self._stop(DeadlinePassed)

    def _stop(self, reason: type[ClientGone | DeadlinePassed]) -> None:
        if self._waits is None or self._reason is not None or self._waits.done():
            return
        self._reason = reason
        if isinstance(self._waits, asyncio.Task):
            self._waits.cancel()
        else:
            self._waits.set_exception(reason())

    def begin(self) -> None:
        """Watch the client from now on."""
        if self._watcher is None and self._gone is not None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch(self._gone))

    async def _watch(self, gone: Gone) -> None:
        await until_gone(gone)
        self._has_gone = True
        if self._for_client:
            self._stop(ClientGone)

    async def end(self) -> None:
        """Watch no longer."""
        self._waits = self._task = None  # its exception refers to the frame that awaits it, which refers to this
        if self._timer is not None:
            self._timer.cancel()
        if self._patrol is not None:
            self._patrol.new.discard(self)
            self._patrol.old.discard(self)
        if self._watcher is not None:
            watcher, self._watcher = self._watcher, None  # it refers to this: otherwise a cycle
            watcher.cancel()
            await asyncio.wait([watcher])


def _is_closed(error: BaseException, task: asyncio.Task[Any]) -> bool:
    """Whether what came out of a task's own coroutine says that this is closed, as after its event loop has ended."""
    if not isinstance(error, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is not task  # else the work that it awaits has raised it by itself
    except RuntimeError:  # no event loop runs
        return True


class Patrol:
    """Has the clients of an event loop's requests watched when these have taken long. One timer for all costs each next to nothing."""

    def __init__(self) -> None:
        self.new: set[Watch] = set()
        self.old: set[Watch] = set()
        self._is_under_way = False

    def watch(self, gone: Gone | None) -> Watch:
        """The watch of a request, which begins to watch the client after that has taken long."""
        if gone is None:
            return Watch()
        watch = Watch(gone, self)
        self.new.add(watch)
        if not self._is_under_way:
            self._is_under_way = True
            asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._go_round)
        return watch

    def _go_round(self) -> None:
        for watch in self.old:
            watch.begin()
        self.old, self.new = self.new, set()
        self._is_under_way = bool(self.old)
        if self._is_under_way:
            asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._go_round)


async def attend(work: Coroutine[Any, Any, T], deadline: float, gone: Gone) -> T:
    """`Watch.attend`, for work that is all that its client waits for."""
    watch = Watch(gone)
    watch.begin()
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
