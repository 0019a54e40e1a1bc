"""What the client of this server gets if another server, which was asked for it, refuses or fails.

`_remote` decides whether it is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from .._protocol.errors import SOON, ErrorResponse, InferenceError, InvalidResponse, NotReady
from ._senders import ConnectionFailed

_NOT_THE_CLIENTS_FAULT: Final = (404, 405, 406, 407, 408, 411, 426, 429)
"""What another server answers if its address, model or proxy is wrong, or it has no time. The client can do
nothing about that."""

_NO_MODEL: Final = "Request for unknown model"
"""How Triton's text begins if it does not have the model, with the status 400 in older versions."""

_NOT_YET: Final = (429, 502, 503, 504)

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


def refuse(error: Exception) -> Refusal | None:
    """What the client gets; None if the error is not the other server's."""
    if is_unsent(error):
        return Refusal(503, what="cannot be reached", headers=SOON, is_away=True)
    if isinstance(error, ErrorResponse):
        return _refuse_as_there(error, error.response_status)
    if isinstance(error, TimeoutError) or (isinstance(error, ConnectionFailed) and error.is_timeout):
        return Refusal(504, what="took too long", is_away=True)
    if isinstance(error, ConnectionFailed):
        return Refusal(502, what="gave no whole answer", is_away=True)
    return Refusal(502, what="gave a broken answer") if isinstance(error, InvalidResponse) else None


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
    return {name: value} if value and value.isascii() and value.isprintable() else {}


def is_unsent(error: Exception) -> bool:
    """Whether no connection could be opened, so that nothing was sent."""
    return isinstance(error, ConnectionFailed) and error.is_unsent


def is_passing(error: Exception) -> bool:
    """Whether the other server may only not be up yet."""
    if isinstance(error, ErrorResponse):
        return error.response_status in _NOT_YET
    return not isinstance(error, InvalidResponse)


def describe(error: Exception) -> str:
    return (error.reason if isinstance(error, ConnectionFailed) else str(error)) or type(error).__name__
