"""What sends a request over HTTP and reads its answer, as the three senders have it: addresses, limits of
time, what goes wrong."""

from __future__ import annotations

import re
import select
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, unquote

from .._protocol.errors import show
from ._questions import LONG, HTTPRequest

_URL: Final = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(\d{1,5}))?(/[^?#]*)?", re.ASCII)
_SOCKET: Final = re.compile(r"http\+unix://(/?[^/].*?\.sock)(/.*)?", re.DOTALL)
_EXPECTED: Final = (
    "expected one such as http://host:8000/v2, http+unix:///run/model.sock/v2 or grpc://host:8001, without "
    "a password, query or fragment"
)

_PORTS: Final = {"http": 80, "https": 443}

IDLE_SECONDS: Final = 1.5
"""How long a connection is kept for the next request. Servers close idle ones after 2 seconds, which is
gunicorn's default, or later."""

_FAILED: Final = 500
"""After this answer MLServer and KServe close the connection, and do not say so: the next request on it would
fail."""


def is_kept(status: int, request: HTTPRequest) -> bool:
    """Whether a server keeps the connection after an answer with this status. Many close it if they refuse
    what they have not read."""
    return status != _FAILED and (status < 400 or request.size <= LONG)


def is_readable(connection: Any) -> bool:
    """Whether something has come over a socket, or it was closed."""
    if not hasattr(select, "poll"):
        return bool(select.select([connection], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


class ConnectionFailed(OSError):
    """The server gave no whole answer: no connection could be opened, it broke off, or it took too long.

    Args:
        message: What happened, with the URL.
        reason: The cause alone, as the library says it that sends the requests.
        is_unsent: Whether no connection could be opened, so that the server has seen nothing of the request.
        is_timeout: Whether it took longer than `timeout`.

    `__cause__` is the error of that library.
    """

    def __init__(
        self, message: str, reason: str = "", *, is_unsent: bool = False, is_timeout: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_unsent = is_unsent
        self.is_timeout = is_timeout


def make_failure(
    url: str, error: BaseException | str, *, is_unsent: bool, is_timeout: bool
) -> ConnectionFailed:
    what = "took too long" if is_timeout else "cannot be reached" if is_unsent else "gave no whole answer"
    reason = str(error) or type(error).__name__
    return ConnectionFailed(f"{url} {what}: {reason}", reason, is_unsent=is_unsent, is_timeout=is_timeout)


class Head(NamedTuple):
    """How an answer begins."""

    status: int
    headers: Mapping[str, str]  # by names in lower case


class Sender(Protocol):
    """Sends requests to one address. Raises ConnectionFailed."""

    def send(self, request: HTTPRequest, seconds: float | None) -> AsyncGenerator[Any]:
        """Send a request; gives the `Head` of its answer, and then the pieces of its body. If it is closed
        before the end of these, so is the connection.

        Args:
            seconds: A limit of time for the connection and for each part that is sent or arrives; None for
                the sender's own.
        """

    async def close(self) -> None: ...


class Address(NamedTuple):
    """A URL, taken apart."""

    url: str
    scheme: str
    host: str
    port: int
    netloc: str  # host and port as the header Host has them
    prefix: str  # the path, percent-encoded
    socket: str | None  # the path of a Unix socket


def read_url(url: str) -> Address:
    socket = _SOCKET.fullmatch(url)
    parsed = _URL.fullmatch(url if socket is None else f"http://localhost{socket[2] or ''}")
    if parsed is None or int(parsed[3] or 0) > 65_535:
        raise ValueError(f"the url is {show(url)}: {_EXPECTED}")
    scheme, host = parsed[1], parsed[2].lower()
    port = int(parsed[3] or _PORTS[scheme])
    netloc = host if port == _PORTS[scheme] else f"{host}:{port}"
    prefix = quote((parsed[4] or "").rstrip("/"), safe="/%:@!$&'()*+,;=~")
    return Address(
        url.rstrip("/"),
        scheme,
        host.strip("[]"),
        port,
        netloc,
        prefix,
        unquote(socket[1]) if socket else None,
    )
