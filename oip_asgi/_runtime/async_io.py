"""How a request waits on an event loop: `IO` by asyncio itself. Knows threads and clients by what they do,
and no transport.

When a deadline passes or the client goes, a future that the request awaits gets that error. A coroutine runs
in the request's own task: that task is cancelled once, so that the coroutine can clean up, and the coroutine
is awaited to its end. If somebody else cancels the task, it stays cancelled.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from .._io import ClientGone, DeadlinePassed, Fed, Late, Part, QuitWithin, Signal, Work
from .threads import watch_fork
from .waiting import begin_waiting, is_for_the_host, is_on_loop, wait_until_gone, wait_until_set

T = TypeVar("T")

_Reason: TypeAlias = type[ClientGone | DeadlinePassed]
"""Why a wait is ended."""

Gone: TypeAlias = Callable[[], Awaitable[bool]]
"""Waits for the next message of the client, and says whether it was that the client has gone."""

_UNWATCHED_SECONDS: Final = 0.03
"""A client is watched once its request has taken so long, or up to twice as long. Most requests are shorter,
and pay nothing."""


class ForLoop(Protocol):
    """Worker threads, as the event loop that runs in this thread uses them."""

    patrol: Patrol

    def begin(
        self,
        function: Callable[[], T],
        work: Work,
        after: Signal | None = None,
        deadline: float = math.inf,
        late: Late | None = None,
        /,
    ) -> asyncio.Future[T]:
        """Run a function in a worker thread. If the future is done before the function begins, it never runs;
        if the future is done while it runs, it runs to its end.

        `AsyncIO` watches the deadline. Here it says only whether the thread may be left behind.
        """


class Trips(Protocol):
    """A function that worker threads call again and again: `runtime.Trips` describes it."""

    def take(self) -> asyncio.Future[Any]: ...
    def leave(self) -> None: ...


class Threads(Protocol):
    """Worker threads."""

    def here(self) -> ForLoop:
        """Return them as the event loop that runs in this thread uses them."""


class AsyncIO(msgspec.Struct, eq=False):
    """The waiting of one request, in one task, until `end`. It is an `IO`, whose methods are described there.

    `_read` feeds the request's body into something, and returns what that finishes with. `_gone` tells that
    the client has gone: then what the request waits for, or waits for next, raises ClientGone, once.
    """

    _threads: Threads
    _read: Callable[[Fed], Awaitable[Any]] | None = None
    _gone: Gone | None = None
    until: float = math.inf
    # set by what pushes the pieces of a stream
    begin_trips: Callable[[Callable[[], Any], Work, Late | None], Trips] | None = None
    here: ForLoop | None = None  # set while it limits and watches
    # sends a sign of life, where pieces are pushed
    push: Callable[[Any], Coroutine[Any, Any, None]] | None = None
    beat: Any = None  # a task
    sent_at: float = math.inf  # when a piece of the stream was last sent
    _task: asyncio.Task[Any] | None = None  # the request's own, once it attends a coroutine
    _waits: asyncio.Future[Any] | None = None
    _reason: _Reason | None = None  # why that was ended, if it is a task
    _has_gone: bool = False  # whether the client has gone, and the request does not know it yet
    _deadline: float = math.inf
    _timer: asyncio.TimerHandle | None = None
    _watcher: asyncio.Task[None] | None = None
    _trips: Trips | None = None
    _pulse: asyncio.TimerHandle | None = None

    async def read(self, body: Fed) -> Any:
        assert self._read is not None  # only requests have bodies
        await self.end()  # only one may receive
        return await self._read(body)

    def wait(self, signal: Signal, deadline: float = math.inf) -> asyncio.Future[None]:
        if self.here is None:
            self._begin()
        return self._limit_future(begin_waiting(signal), deadline)

    def run(
        self,
        function: Callable[[], T],
        work: Work,
        after: Signal | None = None,
        deadline: float = math.inf,
        late: Late | None = None,
    ) -> asyncio.Future[T]:
        return self._limit_future(
            (self.here or self._begin()).begin(function, work, after, deadline, late), deadline
        )

    def run_ahead(
        self,
        function: Callable[[], T | None],
        work: Work,
        after: Signal | None = None,
        deadline: float = math.inf,
        late: Late | None = None,
    ) -> asyncio.Future[T | None]:
        if self.begin_trips is None:
            return self.run(function, work, after, deadline, late)
        if self._trips is None:
            self._trips = self.begin_trips(function, work, late)
        return self._limit_future(self._trips.take(), deadline)

    def run_always(self, function: Callable[[], T], work: Work) -> Awaitable[T]:
        return asyncio.shield((self.here or self._begin()).begin(function, work))

    async def call(
        self,
        function: Callable[[], Coroutine[Any, Any, T]],
        deadline: float = math.inf,
        in_one_task: bool = False,
    ) -> T:
        del in_one_task  # here, all coroutines of a request are
        if self._has_gone:
            self._has_gone = False
            raise ClientGone
        if self.here is None:
            self._begin()
        task = self._task
        if task is None:
            task = self._task = asyncio.current_task()
            assert task is not None  # a coroutine of ours is always some task's
        cancelled_before = task.cancelling()
        self._waits = task
        if deadline != self._deadline:
            self._set_timer(deadline)
        try:
            result = await function()
        except BaseException as error:
            reason, self._reason = self._reason, None
            chosen = _choose_error(error, reason, task, cancelled_before)
            try:
                if chosen is error:
                    raise
                raise chosen from chosen.__cause__
            finally:
                # their tracebacks refer to this frame: cycles, which only the garbage collector would free
                del chosen, task
        finally:
            self._waits = None
        if self._reason is None:
            return result
        reason, self._reason = self._reason, None
        is_cancelled = task.uncancel() > cancelled_before  # by somebody else, too
        del task
        if is_cancelled:
            return result
        raise reason from None  # it returned although it was ended

    async def call_always(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._task, self._gone, self._has_gone = None, None, False
        if self._watcher is not None:
            # `end` awaits it: a second cancellation, while this did so, would keep it from calling the
            # function
            self._watcher.cancel()
        return await self.call(function)

    def keep_alive(self, seconds: float, make: Callable[[], Any]) -> None:
        now = time.monotonic()
        self.here, self.sent_at = self.here or self._begin(), min(self.sent_at, now)
        left = self.sent_at + seconds - now
        # else the client does not read
        if left <= 0 and self.push is not None and (self.beat is None or self.beat.done()):
            self.beat = asyncio.create_task(self.push(make()))
        # one timer for the whole stream, which no item moves: so they cost nothing more
        self._pulse = asyncio.get_running_loop().call_later(
            left if left > 0 else seconds, self.keep_alive, seconds, make
        )

    def can_wait(self) -> bool:
        return is_on_loop()

    def spawn(self, part: Part) -> None:
        loop = asyncio.get_running_loop()
        is_forked = watch_fork()
        part.is_lost = lambda: loop.is_closed() or is_forked()
        io = AsyncIO(
            self._threads, None, None if part.unwanted is None else partial(wait_until_set, part.unwanted)
        )
        work = _complete_part(part, io)
        task = loop.create_task(work, context=Context()) if part.is_apart else loop.create_task(work)
        part.cancel = task.cancel

        def end(_: object) -> None:
            part.forget()
            part.ended.set()

        task.add_done_callback(end)
        # an event loop does not keep its tasks, but the signal keeps what it calls
        part.ended.then(lambda: task)

    def make_spawner(self) -> Callable[[Part], bool]:
        return partial(_begin_on, asyncio.get_running_loop(), watch_fork(), self._threads)

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that waits with this only, and `end`."""
        try:
            return await work
        finally:
            await self.end()

    # Its end

    def _begin(self) -> ForLoop:
        """Watch the client from soon on."""
        here = self.here = self._threads.here()
        if self._gone is not None:
            here.patrol.add(self)
        return here

    def _limit_future(self, future: asyncio.Future[T], deadline: float) -> asyncio.Future[T]:
        """Return a future, which is ended if it takes too long, or if the client goes."""
        self._waits = future
        if deadline != self._deadline:
            self._set_timer(deadline)
        if self._has_gone:
            self._stop(ClientGone)
        return future

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._deadline, self._timer = deadline, None
        if deadline != math.inf:
            self._timer = asyncio.get_running_loop().call_later(
                max(0.0, deadline - time.monotonic()), self._expire
            )

    def _expire(self) -> None:
        self._deadline, self._timer = math.inf, None
        self._stop(DeadlinePassed)

    def _stop(self, reason: _Reason) -> None:
        if self._waits is None or self._reason is not None or self._waits.done():
            return
        if reason is ClientGone:
            self._has_gone = False
        if isinstance(self._waits, asyncio.Task):
            self._reason = reason
            self._waits.cancel()
        else:
            self._waits.set_exception(reason())

    def watch(self) -> None:
        """Watch the client from now on."""
        if self._watcher is None and self._gone is not None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch(self._gone))

    async def _watch(self, gone: Gone) -> None:
        await wait_until_gone(gone)
        if self._gone is not None:  # else nothing is to be ended any more
            self._gone, self._has_gone = None, True
            self._stop(ClientGone)

    async def end(self) -> None:
        """Watch neither the deadline nor the client, until the request waits again."""
        if self._trips is not None:
            self._trips.leave()
            self._trips = None
        for each in (self._pulse, self.beat):
            if each is not None:
                each.cancel()
        # its exception refers to the frame that awaits it, which refers to this
        self._waits = self._task = None
        if self._timer is not None:
            self._timer.cancel()
            self._deadline, self._timer = math.inf, None
        if self.here is not None:
            self.here.patrol.new.discard(self)
            self.here.patrol.old.discard(self)
            self.here = None
        if self._watcher is not None:
            watcher, self._watcher = self._watcher, None  # it refers to this: otherwise a cycle
            watcher.cancel()
            await asyncio.wait([watcher])


async def _complete_part(part: Part, io: AsyncIO) -> None:
    with suppress(ClientGone):
        await io.complete(part.make(io))


def _begin_on(
    loop: asyncio.AbstractEventLoop, is_forked: Callable[[], bool], threads: Threads, part: Part
) -> bool:
    if not loop.is_running() or is_forked():
        return False
    part.is_lost = loop.is_closed  # until it is spawned
    try:
        loop.call_soon_threadsafe(AsyncIO(threads).spawn, part)
    except RuntimeError:  # the loop has just been closed
        return False
    return True


def _choose_error(
    error: BaseException, reason: _Reason | None, task: asyncio.Task[Any], cancelled_before: int
) -> BaseException:
    """What a call raises if the coroutine that it awaits in a task raises `error`. The first row that fits:

    | raised                                     | a reason | by others | raised then             |
    |--------------------------------------------|----------|-----------|-------------------------|
    | GeneratorExit, as it is closed             |          |           | the same                |
    | something for the host, such as SystemExit |          |           | the same                |
    | CancelledError or GeneratorExit            |          | yes       | the same                |
    | something else                             |          | yes       | CancelledError, from it |
    | CancelledError or GeneratorExit            | yes      | no        | the reason              |
    | something else                             | yes      | no        | the reason, from it     |
    | an Exception, or ClientGone                | no       | no        | the same                |
    | CancelledError of a task cancelled before  | no       | no        | the same                |
    | something else                             | no       | no        | QuitWithin, from it     |

    The two in the middle: it was ended for a reason of ours, or cancelled by others.
    Takes back the cancellation that ended the coroutine for a `reason`, and no other.
    """
    is_cancelled = (task.cancelling() if reason is None else task.uncancel()) > cancelled_before
    is_end = isinstance(error, (asyncio.CancelledError, GeneratorExit))
    is_plain = isinstance(error, (Exception, ClientGone))
    if _is_closed(error, task):
        return error
    if not is_end and not is_plain and is_for_the_host(error):
        return error
    if is_cancelled:
        return error if is_end else _set_cause(asyncio.CancelledError(), error)
    if reason is not None:
        return reason() if is_end else _set_cause(reason(), error)
    if is_plain:
        return error
    if isinstance(error, asyncio.CancelledError) and task.cancelling():
        return error
    return _set_cause(QuitWithin(), error)


def _set_cause(raised: BaseException, cause: BaseException) -> BaseException:
    raised.__cause__ = cause
    return raised


def _is_closed(error: BaseException, task: asyncio.Task[Any]) -> bool:
    """Whether an error says that a task's own coroutine was closed, as it is after its event loop has
    ended."""
    if not isinstance(error, GeneratorExit):
        return False
    try:
        # in the task itself, something that the coroutine awaits has raised it
        return asyncio.current_task() is not task
    except RuntimeError:  # no event loop runs
        return True


class Patrol:
    """Watches the clients whose requests on an event loop take long. There is one timer for all requests, so
    each costs next to nothing."""

    def __init__(self) -> None:
        self.new: set[AsyncIO] = set()
        self.old: set[AsyncIO] = set()
        self._is_under_way = False

    def add(self, io: AsyncIO) -> None:
        """Watch a client if its request takes long."""
        self.new.add(io)
        if not self._is_under_way:
            self._is_under_way = True
            asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._go_round)

    def _go_round(self) -> None:
        for io in self.old:
            io.watch()
        self.old, self.new = self.new, set()
        self._is_under_way = bool(self.old)
        if self._is_under_way:
            asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._go_round)


async def attend_watched(work: Coroutine[Any, Any, T], deadline: float, gone: Gone, threads: Threads) -> T:
    """Await a coroutine until a deadline at most, and while the client is there. The client is watched from
    the beginning."""
    io = AsyncIO(threads, None, gone)
    io.watch()
    return await io.complete(io.call(lambda: work, deadline))
