"""Finish a generator of steps: blocking, or awaiting. The only sync/async twins in the package; they know nothing but steps."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

from ._core.bodies import Body
from ._core.steps import Call, DeadlinePassed, Pool, Read, Step, Steps, Together, Wait
from ._running import Running
from ._waiting import ClientGone, Gone, all_of, attended, finished

T = TypeVar("T")


class Finished(Generic[T]):
    """What a generator returned."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class Threads(Protocol):
    """Worker threads that an event loop may wait for."""

    def in_thread(self, function: Callable[[], T], pool: Pool) -> Coroutine[Any, Any, T]:
        """Run a blocking function in one of them. The function goes on if this is cancelled."""


def drive(steps: Steps[T], running: Running, read: Callable[[Body], Any] | None = None) -> T:
    """Finish `steps` in this thread; a call with a deadline in a worker thread, as that can be left to itself."""
    step = _advance(steps.send, None)
    while not isinstance(step, Finished):
        if isinstance(step, Call) and step.run != "async":
            step = _call(steps, step) if step.deadline == math.inf else _call_in_thread(steps, step, running)
            continue
        value: Any = None
        try:
            if isinstance(step, Read):
                assert read is not None  # only requests have bodies
                value = read(step.body)
            elif isinstance(step, Wait):
                _wait(step.future, step.deadline)
            elif isinstance(step, Together):
                _together(step, running)
            else:
                value = running.background.run(step.function(*step.args, **step.kwargs), step.deadline)
        except Exception as error:
            step = _advance(steps.throw, error)
        else:
            step = _advance(steps.send, value)
    return cast(T, step.value)


def _wait(future: Future[Any], deadline: float) -> None:
    if not wait([future], None if deadline == math.inf else max(0.0, deadline - time.monotonic())).done:
        raise DeadlinePassed


def _call_in_thread(steps: Steps[T], call: Call, running: Running) -> Step | Finished[T]:
    trip = _Trip(steps, call)
    future = running.submit(trip.make, "thread")
    try:
        _wait(future, call.deadline)
    except DeadlinePassed as error:
        if trip.abandon():
            return _advance(steps.throw, error)
    return cast("Step | Finished[T]", future.result())


def _together(step: Together, running: Running) -> None:
    first, *others = step.parts
    futures = [running.submit(partial(drive, part, running), "aside") for part in others]
    drive(first, running)
    for future in futures:
        future.result()


async def drive_async(
    steps: Steps[T], threads: Threads, read: Callable[[Body], Awaitable[Any]] | None = None, gone: Gone | None = None
) -> T:
    """Finish `steps` on this event loop, with what blocks in worker threads.

    Raises:
        ClientGone: `gone` has said so, and `steps` are closed.
    """
    step = _advance(steps.send, None)
    while not isinstance(step, Finished):
        if isinstance(step, Call) and step.run != "async":
            step = _call(steps, step) if step.run == "inline" else await _call_in_thread_async(steps, step, step.run, threads, gone)
            continue
        value: Any = None
        try:
            if isinstance(step, Read):
                assert read is not None  # only requests have bodies
                value = await read(step.body)
            elif isinstance(step, Together):
                await all_of([drive_async(part, threads) for part in step.parts])
            else:
                work = finished(step.future) if isinstance(step, Wait) else step.function(*step.args, **step.kwargs)
                value = await attended(work, step.deadline, gone if step.for_client else None)
        except BaseException as error:
            if isinstance(error, ClientGone) or not isinstance(error, Exception):
                steps.close()  # nobody waits any more: the client has gone, or the host cancels
                raise
            step = _advance(steps.throw, error)
        else:
            step = _advance(steps.send, value)
    return cast(T, step.value)


async def _call_in_thread_async(steps: Steps[T], call: Call, pool: Pool, threads: Threads, gone: Gone | None) -> Step | Finished[T]:
    trip = _Trip(steps, call)
    in_thread = threads.in_thread(trip.make, pool)
    try:
        return await attended(in_thread, call.deadline, gone if call.for_client else None, trip.abandon)
    except DeadlinePassed as error:
        return _advance(steps.throw, error)
    except BaseException:
        # nobody waits any more; what is done for others too, such as loading, is finished by the thread
        if call.for_client and trip.abandon():
            steps.close()
        raise


class _Trip(Generic[T]):
    """A call in a worker thread, and in the same trip what follows it, such as encoding its result.

    A generator runs in one thread at a time: until its call has ended it may be abandoned, and is its caller's again.
    """

    def __init__(self, steps: Steps[T], call: Call) -> None:
        self._steps = steps
        self._call = call
        self._lock = threading.Lock()
        self._owner: Literal["nobody yet", "thread", "caller"] = "nobody yet"

    def abandon(self) -> bool:
        """Whether the caller may go on with the generator; False where the thread does already."""
        return self._claim("caller")

    def make(self) -> Any:
        """What the generator yields or returns next; nothing of meaning where it has been abandoned."""
        if self._owner == "caller":
            return None  # before the call has begun
        try:
            value = self._call.function(*self._call.args, **self._call.kwargs)
        except Exception as error:
            return _advance(self._steps.throw, error) if self._claim("thread") else None
        return _advance(self._steps.send, value) if self._claim("thread") else None

    def _claim(self, owner: Literal["thread", "caller"]) -> bool:
        with self._lock:
            if self._owner == "nobody yet":
                self._owner = owner
            return self._owner == owner


def _advance(resume: Callable[[Any], Step], value: Any) -> Step | Finished[Any]:
    try:
        return resume(value)
    except StopIteration as end:
        return Finished(end.value)


def _call(steps: Steps[T], call: Call) -> Step | Finished[T]:
    try:
        value = call.function(*call.args, **call.kwargs)
    except Exception as error:
        return _advance(steps.throw, error)
    return _advance(steps.send, value)
