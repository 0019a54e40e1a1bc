"""Warns once of a model that holds its event loop for long, where it would not have to. Knows no event
loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any, Final

from .._models.callables import find_place
from .._models.handler import Handler
from .._models.model import Model
from .._protocol.errors import logger

HELD_SECONDS: Final = 0.1

_MENDS: Final = {
    "async": (
        "write a def, which runs in a worker thread, or await asyncio.to_thread(...) for the part that blocks"
    ),
    "async stream": (
        "write a def with yield, which runs in a worker thread, or await asyncio.to_thread(...) for the part "
        "that blocks"
    ),
    "inline": 'leave run="inline" out, so that it runs in a worker thread',
}


def watch_steps(
    awaitable: Awaitable[Any],
    model: Model,
    handler: Handler,
    clock: Callable[[], float],
    *,
    goes_on: bool = False,
) -> Awaitable[Any]:
    """What is awaited for a call of an `async def`: after one that has taken long, it warns if that held the
    event loop. This is too costly for every call, or item of a stream."""
    if not handler.watch.is_measured:
        return awaitable
    handler.watch.is_measured = goes_on
    return _measure_steps(awaitable, model, handler, clock)


@coroutine
def _measure_steps(
    awaitable: Awaitable[Any], model: Model, handler: Handler, clock: Callable[[], float]
) -> Generator[Any, None, Any]:
    """Await what an `async def` returned, and warn if it held the event loop."""
    steps: Any = awaitable.__await__()
    longest, error = 0.0, None
    try:
        while True:
            since = clock()
            try:
                waits_for = steps.send(None) if error is None else steps.throw(error)
            finally:
                longest, error = max(longest, clock() - since), None
            try:
                yield waits_for
            except BaseException as raised:
                error = raised
    except StopIteration as end:
        return end.value
    finally:
        if longest > HELD_SECONDS:
            _warn_of_hold(model, handler, longest)


def note_long(model: Model, handler: Handler, seconds: float, *, is_on_loop: Callable[[], bool]) -> None:
    """Look at a model that has just taken long. An `async def` may have held the event loop, or only waited:
    its next call is measured."""
    handler.watch.is_measured = handler.kind == "async" and not handler.watch.is_warned
    if handler.kind == "inline" and is_on_loop():
        _warn_of_hold(model, handler, seconds)


def _warn_of_hold(model: Model, handler: Handler, seconds: float) -> None:
    watch = handler.watch
    with model.limiter.lock:  # its calls may run on several event loops
        was_warned, watch.is_warned, watch.is_measured = watch.is_warned, True, False
    if not was_warned:
        where, mend = find_place(handler.function), _MENDS[handler.kind]
        text = (
            "%s held the event loop for %d ms, in which nothing else ran on it, health probes neither (%s): "
            "%s"
        )
        logger.warning(text, model, round(seconds * 1000), where, mend)
