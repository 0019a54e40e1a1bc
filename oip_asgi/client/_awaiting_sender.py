"""Sends requests with aiohttp, with connections of its own for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from ssl import SSLContext
from typing import Any, Final

from .._hosts.frameworks import make_import_error
from .._protocol.datatypes import Buffer
from .._rest.client import combine_headers
from ._questions import HTTPRequest
from ._senders import (
    IDLE_SECONDS,
    LONG,
    Address,
    ByLoop,
    cut_pieces,
    is_kept,
    is_readable,
    make_failure,
    make_head,
    to_limit,
)

try:
    import aiohttp
    from yarl import URL  # which comes with aiohttp
except ImportError as error:
    raise make_import_error(error, "aiohttp", "aiohttp", beside="yarl") from error


_TURNS: Final = 3
"""Turns of the event loop in which an answer that came before all was sent is seen: it looks at the socket,
reads, and wakes who waits. Were the next piece sent first to a server that has closed, the answer would be
lost with the connection."""


class AwaitingSender:
    """
    Args:
        connections: How many there may be at once; more requests wait for one. 0 is no limit.
        connect_seconds: The time for a connection, if it is not that of the request.
    """

    def __init__(
        self,
        address: Address,
        context: SSLContext | None,
        *,
        connections: int = 100,
        connect_seconds: float | None = None,
    ) -> None:
        self._address, self._context = address, context
        self._connections, self._connect_seconds = connections, connect_seconds
        self._base = f"{address.scheme}://{address.netloc}{address.prefix}"
        self._sessions = ByLoop(self._make_session, aiohttp.ClientSession.close)

    def _make_session(self) -> aiohttp.ClientSession:
        options: dict[str, Any] = {"limit": self._connections, "keepalive_timeout": IDLE_SECONDS}
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context or True, **options)
            if self._address.socket is None
            else aiohttp.UnixConnector(self._address.socket, **options),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            auto_decompress=False,
            response_class=_Response,
            read_bufsize=LONG * 4,
        )

    async def send(self, request: HTTPRequest, seconds: float | None) -> AsyncGenerator[Any]:
        session = await self._sessions.get()
        seconds, body, response = to_limit(seconds), None, None
        ask = partial(
            session.request,
            request.method,
            URL(self._base + request.path or "/", encoded=True),
            headers=request.headers,
            timeout=aiohttp.ClientTimeout(
                total=None, connect=self._connect_seconds or seconds, sock_read=seconds
            ),
            allow_redirects=False,
        )
        try:
            if request.size <= LONG:
                response = await ask(data=b"".join(request.body) or None)
            else:
                async with asyncio.timeout(seconds) as limit:
                    body = _Body(request.body, limit, seconds)
                    response = await ask(data=body)
                body.is_answered = True
            yield make_head(response.status, combine_headers(response.headers.items()))
            while not response.content.at_eof():
                # `readany` would join, and so copy, what has come meanwhile
                piece, _ = await response.content.readchunk()
                if piece:
                    yield piece
        except (OSError, aiohttp.ClientError) as error:
            is_unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
            cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
            raise make_failure(
                self._address.url, cause, is_unsent=is_unsent, is_timeout=isinstance(error, TimeoutError)
            ) from error
        finally:
            if response is not None and not response.content.at_eof():
                response.close()

    async def close(self) -> None:
        await self._sessions.close()


class _Response(aiohttp.ClientResponse):
    """Has its connection closed, if the server does not keep it. As soon as the body has come, aiohttp gives
    it to the next request: later is too late."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        assert protocol is not None  # it is not given back yet
        await super().start(connection)
        if not is_kept(self.status, int(self.request_info.headers.get("Content-Length", 0))):
            if connection.protocol is None:  # the body came with the head
                protocol.close()
            else:
                protocol.force_close()
        return self


class _Body(aiohttp.Payload):
    """The long body of a request, as it goes out: not to its end, if an answer comes before."""

    def __init__(self, parts: list[Buffer], limit: asyncio.Timeout, seconds: float | None) -> None:
        super().__init__(parts)
        self._limit, self._seconds = limit, seconds
        self.is_answered = False

    async def write(self, writer: Any) -> None:
        for piece in cut_pieces(self._value):
            if writer.transport is not None and is_readable(writer.transport.get_extra_info("socket")):
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            if self.is_answered:
                if writer.transport is not None:  # the server waits for the rest
                    writer.transport.get_protocol().force_close()
                return
            await writer.write(piece)
            if self._seconds is not None:
                self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)
