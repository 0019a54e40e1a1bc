"""Where user code runs: a server's worker threads, its background event loop, and the thread that calls
methods after a time; and how an event loop lets the pieces of a stream leave in turns with its other tasks.

Decides nothing about what they do, and knows no models and no transport.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from .._io import ClientGone, DeadlinePassed, Late, Signal, Work, begin
from .._turns import yield_interpreter
from .async_io import AsyncIO, Patrol
from .threads import PATIENCE, Alarms, WorkerThreads, count_cpus
from .waiting import BackgroundLoop, as_failure, wait_for

_THREADS: Final = 40
"""How many calls of `def` models run at once, as Starlette has it, and how many of their hooks."""

T = TypeVar("T")

TURN_SECONDS: Final = 0.003
"""How long a stream may make items before it lets others run. Another request on the event loop takes several
steps, and may wait for such a turn before each. A turn is not shorter, as to let others run costs a thirtieth
of it."""


class Runtime:
    """What runs user code and large conversions for callers that block and callers that await.

    For a caller on an event loop, a model's `def` runs in a worker thread, as it would stop everything else
    on the loop. A caller that blocks runs it in its own thread, unless it has a deadline: nobody can end a
    function, only leave it behind in its thread.
    """

    def __init__(self) -> None:
        # more threads for conversions would only take the interpreter from the event loop
        self._pools: dict[Work, WorkerThreads] = {
            "model": WorkerThreads(_THREADS),
            "hook": WorkerThreads(_THREADS),
            "conversion": WorkerThreads(count_cpus()),
        }
        self._of_thread = threading.local()
        self.background = BackgroundLoop()
        self.alarms = Alarms()

    def make_room(self, calls: int) -> None:
        """Let so many calls of one model run at once."""
        pool = self._pools["model"]
        pool.most = max(pool.most, calls)

    def here(self) -> LoopThreads:
        """The worker threads of this thread's event loop. Raises RuntimeError on a loop that is not
        asyncio's, such as trio's."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "oip_asgi needs an event loop of asyncio or uvloop: run the server with one, not with trio"
            ) from None
        threads: LoopThreads | None = getattr(self._of_thread, "threads", None)
        if threads is None or threads.loop() is not loop:
            threads = self._of_thread.threads = LoopThreads(loop, self._pools)
        return threads

    def call(
        self, function: Callable[[], T], work: Work, deadline: float, late: Late | None, gone: Signal | None
    ) -> T:
        """Run a function in a worker thread, and wait for its result in this one."""
        ended = Signal()
        future = self.begin(function, work, ended, late)
        try:
            wait_for(ended, deadline, gone)
        except (DeadlinePassed, ClientGone):
            future.cancel()
            raise
        try:
            return future.result()
        finally:
            # what it raises refers to this frame: a cycle, which only the garbage collector would free
            del future

    def begin(
        self, function: Callable[[], T], work: Work, ended: Signal, late: Late | None = None
    ) -> Future[T]:
        """Run a function in a worker thread, and set a signal when its future is done."""
        future: Future[T] = Future()
        future.add_done_callback(lambda _: ended.set())
        self._pools[work].submit(_Job(function, late, future, _Job.finish))
        return future

    def call_after_jobs(self, function: Callable[[], object]) -> None:
        """Call a function, which must not raise, in a worker thread after each of its jobs."""
        for pool in self._pools.values():
            pool.after_job = function

    def stop(self) -> None:
        """End the threads and the loop; those that user code does not return from are left behind. Later
        calls start them anew."""
        self.alarms.stop()
        self.background.stop()
        for pool in self._pools.values():
            pool.stop()


class LoopThreads:
    """The worker threads as one event loop uses them. Results on their way to it share one queue and at most
    one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pools: dict[Work, WorkerThreads]) -> None:
        self.loop = weakref.ref(loop)  # a thread keeps this longer than its loop
        self._pools = pools
        # threads append to it, and the loop pops, neither of which needs a lock
        self._ended: deque[_Job | Trips[Any]] = deque()
        self._wake_up = threading.Lock()  # held while a wake-up is under way
        self._waiting: set[WorkerThreads] = set()
        self.patrol = Patrol()
        self.gave_way_at = 0.0
        """When one of the streams of this event loop has last let others run."""

    def begin(
        self,
        function: Callable[[], T],
        work: Work,
        after: Signal | None = None,
        _: float = math.inf,
        late: Late | None = None,
    ) -> asyncio.Future[T]:
        """Run a function, and return the future of its result. If the future is done before, the function
        does not begin."""
        pool, future = self._pools[work], asyncio.get_running_loop().create_future()
        job = _Job(function, late, future, self.put)
        if after is not None and not after.is_set():
            after.then(partial(pool.submit, job))
        else:
            self._submit(pool, job)
        return future

    def begin_trips(self, function: Callable[[], T | None], work: Work, late: Late | None) -> Trips[T]:
        """Return what runs a function again and again."""
        return Trips(function, late, partial(self._submit, self._pools[work]), self.put)

    def _submit(self, pool: WorkerThreads, job: _Job | Trips[Any]) -> None:
        if pool.submit(job, is_patient=True) and pool not in self._waiting:
            self._waiting.add(pool)
            asyncio.get_running_loop().call_later(PATIENCE, self._hurry, pool)

    def _hurry(self, pool: WorkerThreads) -> None:
        """See to it that jobs start soon if the threads that are awake turn out to be busy for long."""
        if pool.hurry():
            asyncio.get_running_loop().call_later(PATIENCE, self._hurry, pool)
        else:
            self._waiting.discard(pool)

    def put(self, job: _Job | Trips[Any]) -> None:
        """Bring a job that has a result to the loop; called by worker threads."""
        self._ended.append(job)
        if not self._wake_up.acquire(blocking=False):
            return
        loop = self.loop()
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # before the queue is emptied: what comes from here on may need a wake-up of its own
        self._wake_up.release()
        while self._ended:
            self._ended.popleft().finish()


class _Job(msgspec.Struct, eq=False):
    """A function that runs in a worker thread, for the future of an event loop or of a thread that waits."""

    function: Callable[[], Any]
    late: Late | None
    future: asyncio.Future[Any] | Future[Any]
    put: Callable[[_Job], None]
    context: Context = msgspec.field(default_factory=copy_context)
    result: Any = None
    error: Exception | None = None

    def run(self) -> None:
        if self.future.done():
            return
        try:
            self.result = self.context.run(self.function)
        except BaseException as error:
            self.error = as_failure(error)
        if self.future.done():  # nobody waits any more, and maybe the event loop has ended too
            self.finish()
        else:
            self.put(self)

    def finish(self) -> None:
        """Give the outcome to the future; on its event loop if it has one, and somebody waits for it."""
        future, result, error = self.future, self.result, self.error
        self.result = self.error = None  # what was raised refers to this, by the frame of `run`
        try:
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
                del self.future
        except (asyncio.InvalidStateError, InvalidStateError):  # nobody waits any more
            if error is not None and self.late is not None:
                self.late(error)


class Trips(msgspec.Struct, Generic[T], eq=False):
    """A function that is called again and again, for an event loop that takes each result. After None or an
    error, there are none.

    A trip to a worker thread goes on from call to call, and each result is there as soon as it is made. A
    trip ends when two results are not taken, so that a slow client holds no thread; and after a turn, so that
    other requests get threads.
    """

    _function: Callable[[], T | None]
    _late: Late | None
    _submit: Callable[[Trips[T]], None]
    _put: Callable[[Trips[T]], None]
    _context: Context = msgspec.field(default_factory=copy_context)
    # those that are not taken
    _results: deque[tuple[T | None, Exception | None]] = msgspec.field(default_factory=deque)
    _waits: asyncio.Future[T | None] | None = None  # for the next one
    _is_under_way: bool = False
    _is_left: bool = False

    def take(self) -> asyncio.Future[T | None]:
        """Return the future of the next result."""
        future = self._waits = asyncio.get_running_loop().create_future()
        self.finish()
        return future

    def run(self) -> None:
        """Go on one trip, in a worker thread."""
        until, goes_on = time.monotonic() + TURN_SECONDS, True
        while goes_on:
            try:
                result, error = self._context.run(self._function), None
            except BaseException as raised:
                result, error = None, as_failure(raised)
            self._results.append((result, error))
            behind = len(self._results) - (self._waits is not None)  # one of them goes to who waits
            goes_on = result is not None and behind < 2 and time.monotonic() < until
            if not goes_on:  # from here on, another thread may begin the next trip
                self._is_under_way = False
            del result, error  # what was raised refers to this frame
            self._put(self)
        if self._is_left:
            self.leave()

    def finish(self) -> None:
        """On the event loop, give the next result to the future of `take`. If there is none, and no trip is
        under way, begin one."""
        future = self._waits
        if future is None or future.done():
            return
        is_under_way = self._is_under_way  # looked at first, as a trip ends after its last result is there
        if not self._results:
            if not is_under_way:
                self._is_under_way = True
                self._submit(self)
            return
        self._waits = None
        result, error = self._results.popleft()
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        del error

    def leave(self) -> None:
        """Take no more results."""
        self._is_left = True
        while True:
            try:
                _, error = self._results.popleft()
            # no test before it: the loop and the thread may both be here, and either may take the last result
            except IndexError:
                return
            if error is not None and self._late is not None:
                self._late(error)
            del error


# Streams on an event loop


async def send_pieces(
    io: AsyncIO,
    here: LoopThreads,
    piece: T,
    items: AsyncGenerator[T, None],
    write: Callable[[T], Coroutine[Any, Any, None]],
) -> None:
    """Send a piece of a stream, and the `items` that follow it, each when the client has room for it."""
    io.begin_trips, turn_ends = here.begin_trips, time.monotonic() + TURN_SECONDS
    try:
        while True:
            try:
                if io.beat is not None and not io.beat.done():
                    await io.call(lambda: asyncio.wait([io.beat]), io.until)
                await io.call(partial(write, piece), io.until)
            except DeadlinePassed as late:
                await write(await items.athrow(late))
            now = io.sent_at = time.monotonic()
            if now > turn_ends:
                turn_began = here.gave_way_at
                if now > turn_began + TURN_SECONDS:
                    # let others run: other tasks, and worker threads, which could wait for the interpreter
                    # for seconds, as an event loop takes it back at once
                    yield_interpreter()
                    here.gave_way_at = time.monotonic()
                    await asyncio.sleep(0)
                    turn_began = time.monotonic()  # it begins now, after the other tasks have run
                turn_ends = turn_began + TURN_SECONDS
            piece = await anext(items)
    except StopAsyncIteration:
        if io.beat is not None:
            await asyncio.wait([io.beat])
    finally:
        await items.aclose()


async def iterate_stream_async(
    make: Callable[[], AsyncGenerator[T, None]], io: AsyncIO, first: T | None = None
) -> AsyncGenerator[Any, None]:
    """The items of a stream, for a caller that asks for each. The stream is made when the first one is asked
    for.

    If the `first` item is there already, this gives None before it. None stands for the head of the response:
    the caller has to take it in time too.

    After a piece, the stream waits until the caller asks for the next one, but not longer than `io.until`.
    Then it goes on without the caller, which gets the outcome when it asks again. If the caller closes the
    generator, the stream is ended.
    """
    items = make()
    # one at most, which no name of this frame holds: what it raises would make a cycle
    expired: list[asyncio.Task[T]] = []

    async def throw() -> T:
        try:
            return await items.athrow(DeadlinePassed())
        finally:
            await io.end()

    def expire() -> None:
        expired.append(asyncio.create_task(throw()))

    try:
        piece = await begin(items) if first is None else None
        while piece is not None or first is not None:
            await io.end()  # another task may ask for the next one
            timer = None
            if io.until != math.inf:
                timer = asyncio.get_running_loop().call_later(max(0.0, io.until - time.monotonic()), expire)
            try:
                yield piece
            finally:
                if timer is not None:
                    timer.cancel()
            if expired:
                piece, first = await expired.pop(), None
            elif first is not None:
                piece, first = first, None
            else:
                piece = await anext(items)
    except StopAsyncIteration:
        return
    finally:
        if expired:
            # which takes what it raised: asyncio would log it
            await asyncio.gather(expired.pop(), return_exceptions=True)
        await items.aclose()
        await io.end()
