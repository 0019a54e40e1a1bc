"""What belongs to an event loop, such as its connections: made on each loop that uses it, and closed when the loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

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
