"""The addresses of another server: which one a call of `remote` takes, when one is passed over, and whether
it can be reached, which the log has. All event loops that ask share these. Knows no requests.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .._protocol.log import escape, logger
from ._http import HTTPLink

if TYPE_CHECKING:
    import httpx2

    from ._grpc import GRPCLink

_CONNECT_SECONDS: Final = 5.0
"""How long a connection may take to be opened. What follows has the time of the request."""

_ASIDE_SECONDS: Final = 1.0

_QUIET_SECONDS: Final = 1.0
"""How long the log says nothing of an address that has just come back."""


class Address:
    """One address. Calls of all event loops are counted together. The log has one line when it goes away, and
    one when it is back.

    Args:
        model: The name of the model there, for the log.
    """

    def __init__(self, url: str, model: str, http: httpx2.AsyncClient | None) -> None:
        self.url, self._model = url, model
        self.is_grpc = url.startswith(("grpc://", "grpcs://"))
        self._lock = threading.Lock()
        self._running = self._unsent = 0
        self._aside_until = self._quiet_until = 0.0
        self._is_away = False
        self.link: GRPCLink | HTTPLink
        if self.is_grpc:
            from ._grpc import GRPCLink  # needs another extra

            self.link = GRPCLink(url, None, math.inf, writable=False)
        else:
            # max_concurrency bounds the calls
            self.link = HTTPLink(
                url, None, math.inf, http, writable=False, connections=0, connect_seconds=_CONNECT_SECONDS
            )

    def count_call(self, change: int) -> None:
        """One has begun, 1, or ended, -1."""
        with self._lock:
            self._running += change

    def pass_over(self) -> None:
        """Let calls take another one for a second, if there is one."""
        self._aside_until = time.monotonic() + _ASIDE_SECONDS

    def rank(self) -> tuple[bool, int]:
        """The least is taken first."""
        return self._aside_until > time.monotonic(), self._running

    def note_away(self, why: str, calls: int) -> bool:
        """No connection could be opened, for so many calls. True if that is new."""
        with self._lock:
            self._unsent += calls
            if self._is_away or time.monotonic() < self._quiet_until:
                return False
            self._is_away = True
        logger.warning(
            "%s, which has the model %r, cannot be reached: %s", self.url, self._model, escape(why)
        )
        return True

    def note_back(self) -> bool:
        """A connection could be opened. True if that is new."""
        if not self._is_away:  # as at nearly every call
            return False
        with self._lock:
            was_away, self._is_away = self._is_away, False
            calls, self._unsent = self._unsent, 0
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
        if was_away:  # two calls may come here at once
            back = "%s, which has the model %r, can be reached again: %d calls could not be sent to it"
            logger.warning(back, self.url, self._model, calls)
        return was_away


def rank(addresses: Sequence[Address]) -> Sequence[Address]:
    """The addresses in the order in which a call tries them: the one with the fewest calls first."""
    return sorted(addresses, key=Address.rank) if len(addresses) > 1 else addresses
