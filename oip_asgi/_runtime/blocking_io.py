"""How a request waits in a thread: `IO` that blocks inside each method, so that a coroutine never suspends.
And how a stream is handed to a caller in a thread. Knows no transport.

Coroutines of models are awaited on the background event loop. Those of one asynchronous generator are awaited
in one task, because what the generator opens around a `yield`, such as `asyncio.timeout`, belongs to the task
that opened it.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import msgspec

from .._io import ClientGone, DeadlinePassed, Fed, Late, Part, Signal, Work, finish
from .async_io import AsyncIO, attend_watched
from .runtime import Runtime
from .threads import waiting, watch_fork
from .waiting import Loan, LoopTask, call_here, result_of, wait_for, wait_until_set

T = TypeVar("T")
M = TypeVar("M")


class BlockingIO(msgspec.Struct, eq=False):
    """The waiting of one request, in the thread that asks for it, until `end`. It is an `IO`, whose methods
    are described there.

    `_read` feeds the request's body into something, and returns what that finishes with. `_gone` is set when
    the client has gone.
    """

    _runtime: Runtime
    _read: Callable[[Fed], Any] | None = None
    _gone: Signal | None = None
    until: float = math.inf
    beat: Any = None
    _task: LoopTask | None = None

    async def read(self, body: Fed) -> Any:
        assert self._read is not None  # only requests have bodies
        return self._read(body)

    async def wait(self, signal: Signal, deadline: float = math.inf) -> None:
        self._wait(signal, deadline)

    async def run(
        self,
        function: Callable[[], T],
        work: Work,
        after: Signal | None = None,
        deadline: float = math.inf,
        late: Late | None = None,
    ) -> T:
        self._wait(after, deadline)
        if deadline == math.inf:
            return call_here(function)
        with waiting():
            return self._runtime.call(function, work, deadline, late, self._gone)

    run_ahead = run

    async def run_always(self, function: Callable[[], T], _: Work) -> T:
        return call_here(function)

    async def call(
        self,
        function: Callable[[], Coroutine[Any, Any, T]],
        deadline: float = math.inf,
        in_one_task: bool = False,
    ) -> T:
        self._wait(None, deadline)
        work, background = partial(self._attend, function, deadline), self._runtime.background
        with waiting():
            if not in_one_task:
                return background.run(work())
            self._task = self._task or LoopTask(background)
            return self._task.run(work)

    async def call_always(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._gone = None
        if self._task is not None and self._task.has_ended:  # what interrupts this thread has ended it
            self._task = None
        return await self.call(function, in_one_task=True)

    def keep_alive(self, seconds: float, make: Callable[[], Any]) -> None:
        """Send nothing: this thread may be the one that makes the item."""

    def can_wait(self) -> bool:
        return True

    def spawn(self, part: Part) -> None:
        part.is_lost = watch_fork()
        work = partial(_complete_part, part, BlockingIO(self._runtime, None, part.unwanted))
        self._runtime.begin(partial(Context().run, work) if part.is_apart else work, "hook", part.ended)

    def make_spawner(self) -> Callable[[Part], bool]:
        runtime = self._runtime

        def begin(part: Part) -> bool:
            BlockingIO(runtime).spawn(part)
            return True

        return begin

    def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Finish a coroutine that waits with this only, and `end`."""
        try:
            return finish(work)
        finally:
            self.end()

    def end(self) -> None:
        """End the task of an asynchronous generator."""
        task, self._task = self._task, None
        if task is not None:
            with waiting():
                task.end()

    def _wait(self, signal: Signal | None, deadline: float) -> None:
        if self._gone is not None and self._gone.is_set():
            raise ClientGone
        if signal is not None and not signal.is_set():
            with waiting():
                wait_for(signal, deadline, self._gone)

    async def _attend(self, function: Callable[[], Coroutine[Any, Any, T]], deadline: float) -> T:
        io = AsyncIO(self._runtime, None, None if self._gone is None else partial(wait_until_set, self._gone))
        return await io.complete(io.call(function, deadline))


def _complete_part(part: Part, io: BlockingIO) -> None:
    with suppress(ClientGone):
        io.complete(part.make(io))


class Written(Generic[M, T]):
    """What a coroutine on the background event loop writes, for this thread, until `ended` is set."""

    def __init__(
        self,
        begin: Callable[[Callable[[M], Coroutine[Any, Any, None]]], Coroutine[Any, Any, T]],
        runtime: Runtime,
        ended: Signal,
    ) -> None:
        self._background = runtime.background
        self._messages: SimpleQueue[M | None] = SimpleQueue()
        self._taken = asyncio.Event()
        self._taken.set()
        work = attend_watched(begin(self._write), math.inf, partial(wait_until_set, ended), runtime)
        self._made = runtime.background.begin(work, Loan())
        self._made.add_done_callback(lambda _: self._messages.put(None))

    async def _write(self, message: M) -> None:
        await self._taken.wait()  # if the message before had a deadline
        self._taken.clear()
        self._messages.put(message)
        await self._taken.wait()

    def __iter__(self) -> Iterator[M]:
        while (message := self._messages.get()) is not None:
            yield message
            self._background.call_soon(self._taken.set)

    def result(self) -> T | None:
        """What the coroutine has returned after its last message; None if `ended` was set before. Raises
        Stopped if the loop ends."""
        made = self._made
        try:
            return result_of(made)
        except ClientGone:
            return None
        finally:
            # what it raises refers to this frame: a cycle, which only the garbage collector would free
            del made, self._made


def iterate_stream_blocking(
    make: Callable[[], AsyncGenerator[T, None]], io: BlockingIO, first: T | None = None
) -> Generator[Any, None, None]:
    """`iterate_stream_async` of `runtime`, for a caller in a thread. The stream goes on in a thread of its
    own if the caller is late."""
    items = make()
    turn = threading.Lock()  # who has it may advance the stream
    # one at most, which no name of this frame holds: what it raises would make a cycle
    expired: list[Future[T]] = []
    timer: threading.Timer | None = None

    def expire() -> None:
        if turn.acquire(blocking=False):
            try:
                # else it has ended with an error, which waits for the caller
                if io.until <= time.monotonic():
                    expired.append(_throw_late(items))
            finally:
                turn.release()

    turn.acquire()
    try:
        piece = finish(anext(items)) if first is None else None
        while True:
            if io.until != math.inf and (timer is None or io.until <= time.monotonic()):
                timer = threading.Timer(io.until - time.monotonic(), copy_context().run, (expire,))
                timer.daemon = True
                timer.start()
            turn.release()
            try:
                yield piece
            finally:
                turn.acquire()
            if expired:
                piece, first = result_of(expired.pop()), None
            elif first is not None:
                piece, first = first, None
            else:
                piece = finish(anext(items))
    except StopAsyncIteration:
        return
    finally:
        if timer is not None:
            timer.cancel()
        io.complete(items.aclose())


def _throw_late(items: AsyncGenerator[T, None]) -> Future[T]:
    """The outcome of a stream whose caller is late: a last item, or what it raises."""
    outcome: Future[T] = Future()
    try:
        outcome.set_result(finish(items.athrow(DeadlinePassed())))
    except BaseException as error:
        outcome.set_exception(error)
    return outcome
