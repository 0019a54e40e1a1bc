"""What `remote` knows of other servers. Their addresses: which one a call takes, when one is passed over, and
whether it can be reached, which the log has; all event loops that ask share these. And what the client of
this server gets if one refuses or fails. Knows no requests.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from .._protocol.errors import SOON, ErrorResponse, InferenceError, InvalidResponse, NotReady, escape, logger
from ._http import make_link
from ._questions import is_sendable
from ._senders import ConnectionFailed

if TYPE_CHECKING:
    import httpx2

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
        self.link = make_link(
            url,
            None,
            math.inf,
            http=None if self.is_grpc else http,
            connections=0,  # max_concurrency bounds the calls
            connect_seconds=_CONNECT_SECONDS,
        )

    def count_call(self, change: int) -> None:
        """One has begun, 1, or ended, -1."""
        with self._lock:
            self._running += change

    def pass_over(self) -> None:
        """Let calls take another one for a second, if there is one."""
        self._aside_until = time.monotonic() + _ASIDE_SECONDS

    def rank(self) -> tuple[bool, int]:
        """The address with the least is tried first: of those that are not passed over, the one with the
        fewest calls."""
        return self._aside_until > time.monotonic(), self._running

    def note_away(self, why: str, calls: int) -> None:
        """No connection could be opened, for so many calls."""
        with self._lock:
            self._unsent += calls
            if self._is_away or time.monotonic() < self._quiet_until:
                return
            self._is_away = True
        logger.warning(
            "%s, which has the model %r, cannot be reached: %s", self.url, self._model, escape(why)
        )

    def note_back(self) -> None:
        """A connection could be opened."""
        if not self._is_away:  # as at nearly every call
            return
        with self._lock:
            was_away, self._is_away = self._is_away, False
            calls, self._unsent = self._unsent, 0
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
        if was_away:  # two calls may come here at once
            back = "%s, which has the model %r, can be reached again: %d calls could not be sent to it"
            logger.warning(back, self.url, self._model, calls)


# What they refuse

_NOT_THE_CLIENTS_FAULT: Final = (404, 405, 406, 407, 408, 411, 426, 429)
"""What another server answers if its address, model or proxy is wrong, or it has no time. The client can do
nothing about that."""

_NO_MODEL: Final = "Request for unknown model"
"""How Triton's text begins if it does not have the model, with the status 400 in older versions."""

ERRORS: Final = (ConnectionFailed, InvalidResponse, TimeoutError)
"""What asking another server raises."""


class Refusal(NamedTuple):
    """What the client gets."""

    status: int
    text: str = ""  # the text; empty if `what` is all that the client may know
    what: str = ""  # what the other server did
    headers: Mapping[str, str] = {}  # those that belong to the status
    # whether the other server did not answer as it should, so that another one may be better
    is_away: bool = False

    @property
    def is_passing(self) -> bool:
        """Whether the other server may only not be up yet."""
        return self.is_away or self.status == 503

    def make(self, model: str, url: str, error: Exception) -> InferenceError:
        """The error. Its cause is for the log."""
        # the log has one line of the address, and none of each request
        kind = NotReady if is_unsent(error) else InferenceError
        refused = kind(
            self.text or f"model {model!r} failed: its server {self.what}",
            status=self.status,
            headers=self.headers,
        )
        if self.what:
            # its text has no status, which `what` has
            refused.__cause__ = ConnectionError(
                f"{url} {self.what}: {getattr(error, 'text', '') or describe(error)}"
            )
        return refused


def refuse(error: Exception) -> Refusal:
    """What the client gets for one of `ERRORS`."""
    if is_unsent(error):
        return Refusal(503, what="cannot be reached", headers=SOON, is_away=True)
    if isinstance(error, ErrorResponse):
        return _refuse_as_there(error, error.response_status)
    if isinstance(error, TimeoutError) or (isinstance(error, ConnectionFailed) and error.is_timeout):
        return Refusal(504, what="took too long", is_away=True)
    if isinstance(error, ConnectionFailed):
        return Refusal(502, what="gave no whole answer", is_away=True)
    return Refusal(502, what="gave a broken answer")


def _refuse_as_there(error: ErrorResponse, status: int | None) -> Refusal:
    if status is None:  # within a stream, whose errors have no status
        return Refusal(502, error.text, "broke off its stream")
    what, is_away = f"answered with the status {status}", status in (502, 503, 504)
    if 400 <= status <= 499 and status not in _NOT_THE_CLIENTS_FAULT and not error.text.startswith(_NO_MODEL):
        return Refusal(
            status, error.text, "" if error.text else what, _keep_header(error, "WWW-Authenticate")
        )
    if status in (429, 503):
        return Refusal(503, "", what, _keep_header(error, "Retry-After") or SOON, is_away)
    return Refusal(504 if status in (408, 504) else 502, "", what, {}, is_away)


def _keep_header(error: ErrorResponse, name: str) -> dict[str, str]:
    """A header for the client, if the other server sent it, and it can be sent."""
    value = error.response_headers.get(name.lower(), "")
    return {name: value} if value and is_sendable(value) else {}


def is_unsent(error: Exception) -> bool:
    """Whether no connection could be opened, so that nothing was sent."""
    return isinstance(error, ConnectionFailed) and error.is_unsent


def describe(error: Exception) -> str:
    return (error.reason if isinstance(error, ConnectionFailed) else str(error)) or type(error).__name__
