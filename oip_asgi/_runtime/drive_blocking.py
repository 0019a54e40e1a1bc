"""Finish a generator of effects in the thread that waits for its answer. Carries out each effect, and knows nothing of what it is for.

What a model's coroutine begins is finished on the background event loop, in one task: what an asynchronous generator opens around a
`yield`, such as `asyncio.timeout`, belongs to the task.
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
from typing import Any, Generic, TypeVar

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
    Stopped,
    Wait,
)
from .background import BackgroundLoop, Outbox
from .drive import advance_async
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


class Driver(Generic[T]):
    """Carries `steps` on, in the thread that asks for it.

    `read` feeds the request's body into something, and returns what that finishes with. `gone` is set when the client has gone: then
    `steps` are abandoned, and ClientGone is raised.
    """

    __slots__ = ("_gone", "_outbox", "_read", "_runtime", "_steps")

    def __init__(self, steps: Steps[T], runtime: Runtime, read: Callable[[Fed], Any] | None = None, gone: Signal | None = None) -> None:
        self._steps = steps
        self._runtime = runtime
        self._read = read
        self._gone = gone
        self._outbox: Outbox[Piece, T | Piece] | None = None

    def advance(self, error: BaseException | None = None) -> T | Piece:
        """Carry the steps on to the next piece, or to their end."""
        steps = self._steps
        if self._outbox is not None:
            self._outbox.ask(error)
            try:
                return self._take(self._outbox)
            except Stopped as stopped:
                error = stopped
        try:
            effect = next(steps) if error is None else steps.throw(error)
            while True:
                if type(effect) is Start or type(effect) is Send:
                    return effect
                try:
                    if type(effect) is Await and effect.for_client:
                        return self._hand_over(effect)
                    value = self._carry_out(effect)
                except ClientGone:
                    self.abandon()
                    raise
                except Exception as raised:
                    effect = steps.throw(raised)
                else:
                    effect = steps.send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            del error  # it knows this frame, so both would live until the next garbage collection

    def _hand_over(self, effect: Await) -> T | Piece:
        """Have the background loop carry on from here."""
        if self._gone is not None and self._gone.is_set():
            raise ClientGone
        outbox = self._outbox = Outbox(self._runtime.background, partial(self._carry_on, effect))
        return self._take(outbox)

    async def _carry_on(self, effect: Await, outbox: Outbox[Piece, T | Piece]) -> T | Piece:
        background, gone = self._runtime.background, self._gone
        has_gone = None if gone is None else partial(wait_until_set, gone)
        advance = partial(advance_async, self._steps, self._runtime, gone=has_gone, background=background)
        answer: T | Piece = await advance(effect=effect)
        while isinstance(answer, PIECES):
            outbox.put(answer)
            await _wait_until_asked(outbox.asked, background)
            answer = await advance(error=outbox.go_on())
        return answer

    def _take(self, outbox: Outbox[Piece, T | Piece]) -> T | Piece:
        with waiting():
            piece = outbox.take()
        if piece is not None:
            return piece
        try:
            return outbox.result()
        except Stopped:
            self._outbox = None
            raise

    def abandon(self) -> None:
        """End steps that nobody waits for any more, with what they ask for to clean up; nothing if they have ended."""
        if self._outbox is not None:
            self._outbox.leave(Abandoned())
        self._outbox = self._gone = None
        with suppress(Abandoned):
            self.advance(Abandoned())

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
        if type(effect) is Await:
            with waiting():
                return runtime.background.run(effect.function())
        assert type(effect) is Run or type(effect) is Wait
        gone = self._gone if effect.for_client else None
        if gone is not None and gone.is_set():
            raise ClientGone
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


async def _wait_until_asked(asked: asyncio.Event, background: BackgroundLoop) -> None:
    """Wait for an event. What cancels the task meanwhile, as the `asyncio.timeout` of a model does, is meant for the model's next step."""
    task, is_cancelled = asyncio.current_task(), False
    assert task is not None  # this runs in one
    while not asked.is_set():
        try:
            await asked.wait()
        except asyncio.CancelledError:
            if background.is_stopped():
                raise
            task.uncancel()
            is_cancelled = True
    if is_cancelled:
        task.cancel()


def iterate_written(
    begin: Callable[[Callable[[M], Coroutine[Any, Any, None]]], Coroutine[Any, Any, T]], runtime: Runtime, ended: Signal
) -> Generator[M, None, T | None]:
    """What a coroutine on the background event loop writes, for this thread. None if `ended` is set before it returns, or the loop ends."""

    def make(outbox: Outbox[M, T]) -> Coroutine[Any, Any, T]:
        async def write(message: M) -> None:
            await outbox.asked.wait()  # if the message before had a deadline
            outbox.put(message)
            await outbox.asked.wait()
            outbox.go_on()

        return attend(begin(write), math.inf, partial(wait_until_set, ended))

    outbox = Outbox(runtime.background, make)
    while (message := outbox.take()) is not None:
        yield message
        outbox.ask()
    with suppress(ClientGone, Stopped):
        return outbox.result()
    return None
