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
        self._found: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None]]] = {}

    def get(self, loop: asyncio.AbstractEventLoop) -> T | None:
        found = self._found.get(loop)
        return None if found is None else found[0]

    async def make(self, loop: asyncio.AbstractEventLoop) -> T:
        for each in list(self._found):
            if each.is_closed():
                self._found.pop(each, None)
        made = self._make()
        # asyncio.run, and every server, close the asynchronous generators of a loop before the loop itself
        held = self._hold(loop, made)
        self._found[loop] = made, held
        await anext(held)
        return made

    async def _hold(self, loop: asyncio.AbstractEventLoop, made: T) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._found.pop(loop, None)
            await self._close(made)

    async def close(self) -> None:
        """Close what belongs to this loop, and to others that still run."""
        here = asyncio.get_running_loop()
        for loop, (_, held) in list(self._found.items()):
            if loop is here:
                await held.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(_close(held), loop)
        self._found.clear()


async def _close(held: AsyncGenerator[None]) -> None:
    await held.aclose()
