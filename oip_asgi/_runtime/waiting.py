"""Waiting for a signal, in a thread or on an event loop, and for a client to go.

If a model raises a BaseException that is no Exception, such as SystemExit, it is decided here who gets it:
the host, or the client as a 500. Knows no requests.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from .._io import ClientGone, DeadlinePassed, QuitWithin, Signal

T = TypeVar("T")

_ASKED_AGAIN_SECONDS: Final = 0.1
"""Some servers do not wait until the client has gone, but say at once that it has not. They are asked again
after so long."""

_ENDS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""These end a thread, a task or the process."""

_HOSTS: Final = frozenset({"gevent", "greenlet", "eventlet"})
"""The host waits for exceptions of these packages, such as gevent's timeouts. Any other error that is not an
`Exception` is a mistake of the model, such as a panic in a library that is written in Rust."""


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
    """Wait on this event loop until a signal is set. Returns True: as a `Gone`, that means that the client
    has gone."""
    await begin_waiting(signal)
    return True


async def wait_until_gone(gone: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the client has gone."""
    while True:
        with suppress(Exception):
            if await gone():
                return
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # and `gone` took that for something else
            raise asyncio.CancelledError
        await asyncio.sleep(_ASKED_AGAIN_SECONDS)


def is_for_the_host(error: BaseException) -> bool:
    """Whether what a call raised is the host's, or means more than that the call has failed."""
    if isinstance(error, _ENDS):
        # a signal may have raised it, but only in the main thread; in any other thread, it would end a thread
        # of the host
        return threading.current_thread() is threading.main_thread()
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_for_the_host, error.exceptions))
    return not isinstance(error, Exception) and any(
        kind.__module__.partition(".")[0] in _HOSTS for kind in type(error).__mro__
    )


def as_failure(error: BaseException) -> Exception:
    """The `Exception` for whatever a call has raised: futures take no other."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    failure = RuntimeError("it raised StopIteration") if isinstance(error, StopIteration) else QuitWithin()
    failure.__cause__ = error
    return failure


def call_here(function: Callable[[], T]) -> T:
    """The result of a call in this thread."""
    try:
        return function()
    except BaseException as error:
        if isinstance(error, Exception) or (
            is_for_the_host(error) and not isinstance(error, (asyncio.CancelledError, GeneratorExit))
        ):
            raise  # those two cannot reach a function from outside
        raise as_failure(error) from error
