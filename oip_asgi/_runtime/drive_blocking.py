"""Finish a generator of effects in the thread that waits for its answer. Carries out each effect, and knows nothing of what it is for.

Coroutines are awaited on the background event loop: those of an asynchronous generator in one task, as what it opens around a `yield`, such
as `asyncio.timeout`, belongs to its task.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import msgspec

from .._protocol.effects import (
    PIECES,
    Abandoned,
    Await,
    DeadlinePassed,
    Effect,
    Fed,
    Piece,
    Read,
    Run,
    Send,
    Signal,
    Spawn,
    Start,
    Steps,
    Wait,
)
from .background import Loan, LoopTask, result_of
from .faults import call_here
from .runtime import Runtime
from .threads import waiting, watch_fork
from .waiting import ClientGone, attend, wait_for, wait_until_set

T = TypeVar("T")
M = TypeVar("M")


def drive(steps: Steps[T], runtime: Runtime, read: Callable[[Fed], Any] | None = None, gone: Signal | None = None) -> T:
    """Finish `steps` that have no pieces, with the arguments of `Driver`."""
    result = Driver(steps, runtime, read, gone).advance()
    assert not isinstance(result, PIECES)
    return result


class Driver(msgspec.Struct, Generic[T], eq=False):
    """Carries `steps` on, in the thread that asks for it.

    `read` feeds the request's body into something, and returns what that finishes with. `gone` is set when the client has gone: then
    `steps` are abandoned, and ClientGone is raised.
    """

    _steps: Steps[T]
    _runtime: Runtime
    _read: Callable[[Fed], Any] | None = None
    _gone: Signal | None = None
    _task: LoopTask | None = None

    def advance(self, error: BaseException | None = None) -> T | Piece:
        """Carry the steps on to the next piece, or to their end."""
        steps = self._steps
        try:
            effect = next(steps) if error is None else steps.throw(error)
            while type(effect) is not Start and type(effect) is not Send:
                try:
                    value = self._carry_out(effect)
                except ClientGone:
                    self.abandon()
                    raise
                except Exception as raised:
                    effect = steps.throw(raised)
                else:
                    effect = steps.send(value)
            return effect
        except StopIteration as end:
            self._end_task()
            result: T = end.value
            return result
        except BaseException:
            self._end_task()
            raise
        finally:
            del error  # it refers to this frame: a cycle, which only the garbage collector would free

    def _end_task(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            with waiting():
                task.end()

    def abandon(self) -> None:
        """End steps that nobody waits for any more, with what they ask for to clean up; nothing if they have ended."""
        self._gone = None
        with suppress(Abandoned):
            self.advance(Abandoned())

    async def _attend(self, effect: Await) -> Any:
        gone = self._gone
        watch = self._runtime.here().patrol.watch(None if gone is None else partial(wait_until_set, gone))
        try:
            return await watch.attend(effect.function(), effect.deadline, for_client=effect.for_client)
        finally:
            await watch.end()

    def _carry_out(self, effect: Effect) -> Any:
        """The result of an effect that is no piece."""
        runtime = self._runtime
        if type(effect) is Read:
            assert self._read is not None  # only requests have bodies
            return self._read(effect.body)
        if type(effect) is Spawn:
            effect.is_lost = watch_fork()
            work = partial(drive, effect.part, runtime, gone=effect.unwanted)
            runtime.begin(Run(partial(Context().run, work) if effect.is_apart else work, "hook"), effect.ended)
            return None
        assert type(effect) is Await or type(effect) is Run or type(effect) is Wait
        gone = self._gone if effect.for_client else None
        if gone is not None and gone.is_set():
            raise ClientGone
        if type(effect) is Await:
            with waiting():
                if not effect.in_one_task:
                    return runtime.background.run(self._attend(effect))
                self._task = self._task or LoopTask(runtime.background)
                return self._task.run(partial(self._attend, effect))
        signal = effect.signal if type(effect) is Wait else effect.after
        if signal is not None and not signal.is_set():
            with waiting():
                wait_for(signal, effect.deadline, gone)
        if type(effect) is Wait:
            return None
        if effect.deadline == math.inf:
            return call_here(effect.function)
        with waiting():
            return runtime.call(effect, gone)


def pieces(driver: Driver[Any], start: Start | None = None) -> Generator[Any, None, None]:
    """The pieces from here on, for a caller that asks for each: a server of WSGI, Django, or Python.

    After a piece, the steps wait until the caller asks for the next one, but not longer than the piece's deadline. Then they go on without
    the caller, which gets the outcome when it asks again. If the caller closes the generator, the steps are ended.
    """
    turn = threading.Lock()  # who has it may advance them
    expired: Future[Any] | None = None
    timer: threading.Timer | None = None

    def expire() -> None:
        nonlocal expired
        if not turn.acquire(blocking=False):
            return
        expired = Future()
        try:
            expired.set_result(driver.advance(DeadlinePassed()))
        except Exception as error:
            expired.set_exception(error)
        finally:
            turn.release()

    turn.acquire()
    try:
        piece: Any = start or driver.advance()
        while isinstance(piece, PIECES):
            if piece.deadline != math.inf and (timer is None or piece.deadline <= time.monotonic()):
                timer = threading.Timer(piece.deadline - time.monotonic(), copy_context().run, (expire,))
                timer.daemon = True
                timer.start()
            turn.release()
            try:
                yield piece.piece if type(piece) is Send else piece
            finally:
                turn.acquire()
            if expired is None:
                piece = driver.advance()
            else:
                piece, expired = expired.result(), None
    finally:
        if timer is not None:
            timer.cancel()
        driver.abandon()


def iterate_written(
    begin: Callable[[Callable[[M], Coroutine[Any, Any, None]]], Coroutine[Any, Any, T]], runtime: Runtime, ended: Signal
) -> Generator[M, None, T | None]:
    """What a coroutine on the background event loop writes, for this thread. None if `ended` is set before it returns.

    Raises Stopped if the loop ends.
    """
    messages: SimpleQueue[M | None] = SimpleQueue()
    taken = asyncio.Event()
    taken.set()

    async def write(message: M) -> None:
        await taken.wait()  # if the message before had a deadline
        taken.clear()
        messages.put(message)
        await taken.wait()

    made = runtime.background.begin(attend(begin(write), math.inf, partial(wait_until_set, ended)), Loan())
    made.add_done_callback(lambda _: messages.put(None))
    while (message := messages.get()) is not None:
        yield message
        runtime.background.call_soon(taken.set)
    try:
        return result_of(made)
    except ClientGone:
        return None
    finally:
        del made  # what it raises refers to this frame: a cycle, which only the garbage collector would free
