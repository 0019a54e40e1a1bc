"""The addresses of another server: which one a call takes, and when one is passed over."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ._http import HTTPLink

if TYPE_CHECKING:
    import httpx2

    from ._grpc import GRPCLink

_CONNECT_SECONDS: Final = 5.0
"""How long a connection may take to be opened. What follows has the time of the request."""

_ASIDE_SECONDS: Final = 1.0


class Address:
    """One address. Calls of all event loops are counted together."""

    def __init__(self, url: str, http: httpx2.AsyncClient | None) -> None:
        self.url = url
        self.is_grpc = url.startswith(("grpc://", "grpcs://"))
        self._lock = threading.Lock()
        self._running = 0
        self._aside_until = 0.0
        self.link: GRPCLink | HTTPLink
        if self.is_grpc:
            from ._grpc import GRPCLink  # needs another extra

            self.link = GRPCLink(url, None, math.inf, writable=False)
        else:
            # max_concurrency bounds the calls
            self.link = HTTPLink(url, None, math.inf, http, writable=False, connections=0, connect_seconds=_CONNECT_SECONDS)

    def begin_call(self) -> None:
        with self._lock:
            self._running += 1

    def end_call(self) -> None:
        with self._lock:
            self._running -= 1

    def pass_over(self) -> None:
        """Let calls take another one for a second, if there is one."""
        self._aside_until = time.monotonic() + _ASIDE_SECONDS

    def rank(self) -> tuple[bool, int]:
        """The least is taken first."""
        return self._aside_until > time.monotonic(), self._running


class Addresses:
    """Raises ValueError if a URL cannot be the address of a server."""

    def __init__(self, urls: Sequence[str], http: httpx2.AsyncClient | None) -> None:
        self.urls = urls
        self._all = [Address(url, http) for url in urls]

    def __str__(self) -> str:
        return " or ".join(self.urls)

    def choose(self) -> Iterator[Address]:
        """Each address, in the order in which a call tries them: the one with the fewest calls first."""
        left = list(self._all)
        while left:
            best = min(left, key=Address.rank) if len(left) > 1 else left[0]
            left.remove(best)
            yield best

    async def close(self) -> None:
        """Close the connections of all event loops that still run."""
        for address in self._all:
            await address.link.close()
