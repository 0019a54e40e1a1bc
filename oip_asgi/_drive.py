"""Finish a generator of steps: blocking, or awaiting. The only sync/async twins in the package; they know nothing but steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import anyio

from ._core.bodies import Body
from ._core.steps import Call, Read, Step, Wait
from ._running import Running

T = TypeVar("T")

_POLL_SECONDS = 0.01
"""How often a request looks whether another has finished loading; that happens once in a server's life."""


class Finished(Generic[T]):
    """What a generator returned."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


Steps: TypeAlias = Generator[Step, Any, T]


class Threads(Protocol):
    """Worker threads that an event loop may wait for."""

    async def in_thread(self, function: Callable[[], T], *, aside: bool) -> T:
        """Run a blocking function: among the models, or aside from them."""


def drive(steps: Steps[T], running: Running, read: Callable[[Body], Any] | None = None) -> T:
    """Finish `steps` in this thread."""
    step = _advance(steps.send, None)
    while not isinstance(step, Finished):
        if isinstance(step, Call) and step.run != "async":
            step = _call(steps, step)
            continue
        try:
            if isinstance(step, Read):
                assert read is not None  # only requests have bodies
                value = read(step.body)
            elif isinstance(step, Wait):
                value = step.future.result()
            else:
                value = running.background.run(step.function(*step.args, **step.kwargs))
        except Exception as error:
            step = _advance(steps.throw, error)
        else:
            step = _advance(steps.send, value)
    return cast(T, step.value)


async def drive_async(steps: Steps[T], threads: Threads, read: Callable[[Body], Awaitable[Any]] | None = None) -> T:
    """Finish `steps` on this event loop, with what blocks in worker threads."""
    step = _advance(steps.send, None)
    while not isinstance(step, Finished):
        if isinstance(step, Call) and step.run != "async":
            if step.run == "inline":
                step = _call(steps, step)
            else:
                # what follows the call, such as encoding its result, happens in the same trip
                step = await threads.in_thread(partial(_call, steps, step), aside=step.run == "aside")
            continue
        try:
            if isinstance(step, Read):
                assert read is not None  # only requests have bodies
                value = await read(step.body)
            elif isinstance(step, Wait):
                while not step.future.done():  # noqa: ASYNC110  (another thread or loop finishes it, and trio has no bridge to it)
                    await anyio.sleep(_POLL_SECONDS)
                value = None
            else:
                value = await step.function(*step.args, **step.kwargs)
        except Exception as error:
            step = _advance(steps.throw, error)
        else:
            step = _advance(steps.send, value)
    return cast(T, step.value)


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
