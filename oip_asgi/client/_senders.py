"""What the senders share: addresses, limits of time and size, what goes wrong. And how one code asks on event
loops and without one: a coroutine calls libraries that await, or that block. With these it never waits, so it
needs no event loop.
"""

from __future__ import annotations

import asyncio
import re
import select
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from inspect import isawaitable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, unquote

from .._io import finish
from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidResponse, show
from ._questions import HTTPRequest

T = TypeVar("T")

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

LONG: Final = 2**16
"""From so many bytes on, a body is sent in pieces of four times as many."""

_MOST_SECONDS: Final = 2**31 / 1000
"""Sockets count milliseconds in 32 bits: a longer limit, of 24 days, is none."""

_FAILED: Final = 500
"""After this answer MLServer and KServe close the connection, and do not say so: the next request on it would
fail."""


def is_kept(status: int, size: int) -> bool:
    """Whether a server keeps the connection after an answer with this status to a body of this size. Many
    close it if they refuse what they have not read."""
    return status != _FAILED and (status < 300 or size <= LONG)


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


def make_head(status: int, headers: Mapping[str, str]) -> Head:
    """The head of an answer whose body is handed on as it comes. A compressed one, which nobody has asked
    for, is refused."""
    coding = headers.get("content-encoding") or "identity"
    if status == 200 and coding.lower() != "identity" and headers.get("content-length") != "0":
        raise InvalidResponse(
            f"the response has the Content-Encoding {show(coding)}, which only a client of httpx2 reads: "
            "give one as http="
        )
    return Head(status, headers)


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


def to_limit(seconds: float | None) -> float | None:
    """A limit of time as sockets take it: None is none."""
    return None if seconds is None or seconds >= _MOST_SECONDS else seconds


def cut_pieces(body: Iterable[Buffer]) -> Iterator[memoryview]:
    """A body in pieces: sockets take a part of a long one, and each piece has a limit of time."""
    for part in body:
        view = memoryview(part)
        for start in range(0, len(view), 4 * LONG):
            yield view[start : start + 4 * LONG]


def check_size(size: int, limit: int | None, what: str) -> None:
    if limit is not None and size > limit:
        raise InvalidResponse(
            f"the {what} is larger than {limit} bytes, the most that is read of it (max_body_bytes)"
        )


# Event loops


class ByLoop(Generic[T]):
    """What belongs to an event loop, such as its connections: made on each loop that uses it, and closed when
    the loop ends. Nothing of a loop that was closed is kept for longer than until another loop comes."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[object]]) -> None:
        self._make, self._close = make, close
        self._entries: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None]]] = {}

    async def get(self) -> T:
        loop = asyncio.get_running_loop()
        if loop in self._entries:  # as at nearly every call
            return self._entries[loop][0]
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
