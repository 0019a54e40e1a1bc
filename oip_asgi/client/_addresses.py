"""The addresses of another server, as each event loop uses them: which one a call takes, and when one is passed over."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ._http import HTTPLink

if TYPE_CHECKING:
    import httpx2

    from ._grpc import GRPCLink

_CONNECT_SECONDS: Final = 5.0
"""How long a connection may take to be opened. What follows has the time of the request."""

_ASIDE_SECONDS: Final = 1.0


class Address:
    """One address, on one event loop."""

    def __init__(self, url: str, http: httpx2.AsyncClient | None) -> None:
        self.url = url
        self.is_grpc = url.startswith(("grpc://", "grpcs://"))
        self.running = 0
        self.aside_until = 0.0
        self.link: GRPCLink | HTTPLink
        if self.is_grpc:
            from ._grpc import GRPCLink  # needs another extra

            self.link = GRPCLink(url, None, math.inf, writable=False)
        else:
            # max_concurrency bounds the calls
            self.link = HTTPLink(url, None, math.inf, http, writable=False, connections=0, connect_seconds=_CONNECT_SECONDS)

    def pass_over(self) -> None:
        """Let calls take another one for a second, if there is one."""
        self.aside_until = time.monotonic() + _ASIDE_SECONDS


class Addresses:
    """Raises ValueError if a URL cannot be the address of a server."""

    def __init__(self, urls: Sequence[str], http: httpx2.AsyncClient | None) -> None:
        self.urls, self._http = urls, http
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Address]] = WeakKeyDictionary()
        self._make()

    def _make(self) -> list[Address]:
        return [Address(url, self._http) for url in self.urls]

    def __len__(self) -> int:
        return len(self.urls)

    def __str__(self) -> str:
        return " or ".join(self.urls)

    def choose(self) -> Iterator[Address]:
        """Each address, in the order in which a call on this event loop tries them: the one with the fewest calls first."""
        loop = asyncio.get_running_loop()
        found = self._by_loop.get(loop)
        if found is None:
            for closed in [each for each in self._by_loop if each.is_closed()]:
                del self._by_loop[closed]
            found = self._by_loop[loop] = self._make()
        left = list(found)
        while left:
            now = time.monotonic()
            best = min(left, key=lambda address: (address.aside_until > now, address.running))
            left.remove(best)
            yield best

    async def close(self) -> None:
        """Close the connections of all event loops that still run."""
        by_loop, self._by_loop = self._by_loop, WeakKeyDictionary()
        here = asyncio.get_running_loop()
        for loop, addresses in list(by_loop.items()):
            for address in addresses:
                if loop is here:
                    await address.link.close()
                elif loop.is_running():
                    asyncio.run_coroutine_threadsafe(address.link.close(), loop)
