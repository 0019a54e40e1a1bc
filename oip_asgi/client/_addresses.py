"""The addresses of another server: which one a call of `remote` takes, and when one is passed over; whether
it can be reached, which the log has; and whether the model there is ready. All event loops that ask share
these. Knows no requests.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from .._protocol.log import escape, logger
from ._http import HTTPLink

_SECONDS: Final = 1.0
"""How long an answer about readiness is good, as everybody who reaches a port may ask for health as often as
he likes; and how long the log says nothing of an address that has just come back."""


class Reach:
    """Whether an address can be reached: the log has one line when it goes away, and one when it is back.

    Args:
        name: The address and the model, for the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._is_away = False
        self._calls = 0
        self._quiet_until = 0.0

    def note_away(self, why: str, calls: int) -> bool:
        """No connection could be opened, for so many calls. True if that is new."""
        with self._lock:
            self._calls += calls
            if self._is_away or time.monotonic() < self._quiet_until:
                return False
            self._is_away = True
        logger.warning("%s cannot be reached: %s", self._name, escape(why))
        return True

    def note_back(self) -> bool:
        """A connection could be opened. True if that is new."""
        if not self._is_away:  # as at nearly every call
            return False
        with self._lock:
            was_away, self._is_away = self._is_away, False
            calls, self._calls = self._calls, 0
            self._quiet_until = time.monotonic() + _SECONDS
        if was_away:  # two calls may come here at once
            logger.warning("%s can be reached again: %d calls could not be sent to it", self._name, calls)
        return was_away


class Readiness:
    """Why the model is not ready; None if it is. One question at a time on each event loop, whose answer is
    good for a second.

    Args:
        ask: Asks the other server.
    """

    def __init__(self, ask: Callable[[], Awaitable[str | None]]) -> None:
        self._ask = ask
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._reason: str | None = None
        self._good_until = 0.0

    async def find_reason(self) -> str | None:
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if time.monotonic() >= self._good_until:
                self._reason = await self._ask()
                self._good_until = time.monotonic() + _SECONDS
            return self._reason

    def forget(self) -> None:
        """Let the next one ask: a call has seen that the server went away or is back."""
        self._good_until = 0.0


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
            self.link = HTTPLink(
                url, None, math.inf, http, writable=False, connections=0, connect_seconds=_CONNECT_SECONDS
            )

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
