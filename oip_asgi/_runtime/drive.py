"""Finish a generator of steps: blocking, or awaiting. Does what each step says, and knows nothing of what it is for.

Steps are told apart by `type`: nobody derives from them, and `isinstance` asks the metaclass of Structs, which takes three times as long.
"""

from __future__ import annotations

import math
import threading
import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, cast

from .._core.body import Body
from .._core.effects import Apart, Call, DeadlinePassed, Pool, QuitWithin, Read, Step, Steps, Together, Wait
from .threads import Running
from .waiting import ClientGone, Gone, all_of, attended, begin, finished

T = TypeVar("T")

_ENDS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError)
"""What is no `Exception` and ends a thread, a task or the process."""

_HOSTS: Final = frozenset({"gevent", "greenlet", "eventlet", "trio"})
"""Packages with others of the kind, such as the timeouts of gevent: they mean something to the host. Any other is a mistake of a model's,
such as a panic in a library that is written in Rust."""


class Finished(Generic[T]):
    """What a generator returned."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


class Threads(Protocol):
    """Worker threads that an event loop may wait for."""

    def in_thread(self, function: Callable[[], T], pool: Pool) -> Coroutine[Any, Any, T]:
        """Run a blocking function in one of them. The function goes on if this is cancelled."""


def drive(steps: Steps[T], running: Running, read: Callable[[Body], Any] | None = None, gone: Future[None] | None = None) -> T:
    """Finish `steps` in this thread; a call with a deadline in a worker thread, as that can be left to itself.

    Args:
        steps: What to finish.
        running: Where coroutines, and calls with a deadline, run.
        read: Reads a request's body.
        gone: Done once the client has gone; None where nobody can tell. A call that has begun in this thread comes to its end.

    Raises:
        ClientGone: `gone` has said so, and `steps` are closed.
    """
    step = _advance(steps.send, None)
    while not isinstance(step, Finished):
        leaving = gone if (type(step) is Call or type(step) is Wait) and step.for_client else None
        if leaving is not None and leaving.done():
            steps.close()
            raise ClientGone
        if type(step) is Call and step.run != "async" and step.deadline != math.inf:
            step = _call_in_thread(steps, step, running, leaving)
            continue
        value: Any = None
        try:
            if type(step) is Call and step.run != "async":
                value = _called(step)
            elif type(step) is Read:
                assert read is not None  # only requests have bodies
                value = read(step.body)
            elif type(step) is Wait:
                _wait(step.future, step.deadline, leaving)
                step.future.result()
            elif type(step) is Together:
                _together(step, running)
            elif type(step) is Apart:
                try:
                    drive(step.part, running)
                finally:
                    step.ended.set_result(None)
            else:
                value = running.background.run(step.function(*step.args), step.deadline, leaving)
        except ClientGone:
            steps.close()
            raise
        except Exception as error:
            step = _advance(steps.throw, error)
        else:
            step = _advance(steps.send, value)
    return cast(T, step.value)


def _wait(future: Future[Any], deadline: float, gone: Future[None] | None) -> None:
    seconds = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
    done = wait([future] if gone is None else [future, gone], seconds, FIRST_COMPLETED).done
    if future not in done:
        raise ClientGone if done else DeadlinePassed


def _call_in_thread(steps: Steps[T], call: Call, running: Running, gone: Future[None] | None) -> Step | Finished[T]:
    trip = _Trip(steps, call)
    future = running.submit(trip.make, "thread")
    try:
        _wait(future, call.deadline, gone)
    except DeadlinePassed as error:
        if trip.abandon(DeadlinePassed):
            return _advance(steps.throw, error)
    except ClientGone:
        if trip.abandon(ClientGone):
            steps.close()
            raise
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
    value: Any = None
    while True:
        try:
            step: Step | Finished[T] = steps.send(value)
        except StopIteration as end:
            return cast(T, end.value)
        while True:  # until there is a value to send
            if type(step) is Call and step.run != "inline" and step.run != "async":
                step = await _call_in_thread_async(steps, step, step.run, threads, gone)
                continue
            try:
                if type(step) is Read:
                    assert read is not None  # only requests have bodies
                    value = await read(step.body)
                elif type(step) is Call:
                    if step.run == "inline":
                        value = _called(step)
                    else:
                        value = await attended(step.function(*step.args), step.deadline, gone if step.for_client else None)
                elif type(step) is Wait:
                    value = await attended(finished(step.future), step.deadline, gone if step.for_client else None)
                elif type(step) is Together:
                    await all_of([drive_async(part, threads) for part in step.parts])
                    value = None
                elif type(step) is Apart:
                    begin(drive_async(step.part, threads), step)
                    value = None
                else:
                    return step.value
                break
            except BaseException as error:
                if isinstance(error, (ClientGone, CancelledError, GeneratorExit)) or _is_for_the_host(error):
                    steps.close()  # nobody waits any more: the client has gone, or the host cancels
                    raise
                step = _advance(steps.throw, _as_failure(error))


async def _call_in_thread_async(steps: Steps[T], call: Call, pool: Pool, threads: Threads, gone: Gone | None) -> Step | Finished[T]:
    trip = _Trip(steps, call)
    in_thread = threads.in_thread(trip.make, pool)
    try:
        return await attended(in_thread, call.deadline, gone if call.for_client else None, trip.abandon)
    except DeadlinePassed as error:
        return _advance(steps.throw, error)
    except BaseException as error:
        # nobody waits any more; what is done for others too, such as loading, is finished by the thread
        if call.for_client and trip.abandon(type(error)):
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
        self._abandoned_for: type[BaseException] | None = None

    def abandon(self, reason: type[BaseException]) -> bool:
        """Whether the caller may go on with the generator; False where the thread does already."""
        self._abandoned_for = self._abandoned_for or reason
        return self._claim("caller")

    def make(self) -> Any:
        """What the generator yields or returns next; nothing of meaning where it has been abandoned."""
        if self._owner == "caller":
            return None  # before the call has begun
        try:
            value = self._call.function(*self._call.args)
        except BaseException as raised:
            if self._claim("thread"):
                return _advance(self._steps.throw, _as_failure(raised))
            if self._abandoned_for is DeadlinePassed and self._call.late is not None:
                self._call.late(_as_failure(raised))
            return None
        if not self._claim("thread"):
            return None
        if time.monotonic() >= self._call.deadline:
            # whoever waits has not been woken in time on a busy machine, which must not decide what is answered
            return _advance(self._steps.throw, DeadlinePassed())
        return _advance(self._steps.send, value)

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
    finally:
        del value  # what is thrown knows the generator's frame, and from Python 3.12 on that knows this one: a cycle else


def _called(call: Call) -> Any:
    """What came of a call in this thread."""
    try:
        return call.function(*call.args)
    except BaseException as error:
        if isinstance(error, Exception) or _is_for_the_host(error):
            raise
        raise QuitWithin from error


def _is_for_the_host(error: BaseException) -> bool:
    """Whether what a call raised is the host's, or means more than that the call has failed."""
    if isinstance(error, _ENDS):
        # it may come from a signal, but signals reach the main thread only: in any other it would take a thread of the host's along
        return threading.current_thread() is threading.main_thread()
    if isinstance(error, BaseExceptionGroup):  # as trio has them
        return any(map(_is_for_the_host, error.exceptions))
    return not isinstance(error, Exception) and any(kind.__module__.partition(".")[0] in _HOSTS for kind in type(error).__mro__)


def _as_failure(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    failure = QuitWithin()
    failure.__cause__ = error
    return failure
