"""How one code asks on event loops and without one. `ByLoop` has what belongs to an event loop, such as its
connections: made on each loop that uses it, and closed when the loop ends. With the others, one coroutine
calls libraries that await and libraries that block: there it never waits, so no event loop is needed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
)
from inspect import isawaitable
from typing import Generic, TypeVar

from .._io import finish

T = TypeVar("T")


class ByLoop(Generic[T]):
    """Nothing of a loop that was closed is kept for longer than until another loop comes."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[object]]) -> None:
        self._make, self._close = make, close
        self._entries: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None]]] = {}

    def get(self, loop: asyncio.AbstractEventLoop) -> T | None:
        entry = self._entries.get(loop)
        return None if entry is None else entry[0]

    async def make(self, loop: asyncio.AbstractEventLoop) -> T:
        for each in list(self._entries):
            if each.is_closed():
                self._entries.pop(each, None)
        value = self._make()
        # asyncio.run, and every server, close the asynchronous generators of a loop before the loop itself
        held = self._hold_value(loop, value)
        self._entries[loop] = value, held
        await anext(held)
        return value

    async def _hold_value(self, loop: asyncio.AbstractEventLoop, value: T) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._entries.pop(loop, None)
            await self._close(value)

    async def close(self) -> None:
        """Close what belongs to this loop, and to others that still run."""
        here = asyncio.get_running_loop()
        for loop, (_, held) in list(self._entries.items()):
            if loop is here:
                await held.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(_close(held), loop)
        self._entries.clear()


async def _close(held: AsyncGenerator[None]) -> None:
    await held.aclose()


async def wait_for(result: T | Awaitable[T]) -> T:
    """What a library returned: its result, or what must be awaited for that."""
    return await result if isawaitable(result) else result


async def iterate(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def iterate_at_once(items: AsyncGenerator[T]) -> Generator[T]:
    """The items of an asynchronous generator that never waits."""
    try:
        while (item := _step(items)) is not None:
            yield item
    finally:
        finish(items.aclose())


def _step(items: AsyncGenerator[T]) -> T | None:
    """The next item. The generators that it begins end with it, and not with an event loop that runs here."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return finish(anext(items, None))
    finally:
        sys.set_asyncgen_hooks(*hooks)
