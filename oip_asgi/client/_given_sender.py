"""Sends requests with a client of httpx2 that the caller gives, blocking or on an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from .._protocol.errors import show
from .._rest.client import combine_headers
from ._loops import iterate, wait_for
from ._questions import LONG, HTTPRequest, cut_pieces, to_limit
from ._senders import Head, make_failure

try:
    import httpx2
except ImportError:
    httpx2 = None  # type: ignore[assignment]


class GivenSender:
    """Raises TypeError if it is no such client. It stays open."""

    def __init__(self, url: str, http: Any, *, blocks: bool) -> None:
        kind = "Client" if blocks else "AsyncClient"
        if httpx2 is None or not isinstance(http, getattr(httpx2, kind)):
            raise TypeError(
                f"http= is {show(http)}: expected a httpx2.{kind}; httpx itself is not taken, as its errors "
                "are others"
            )
        self._url, self._http, self._blocks = url, http, blocks

    async def send(self, request: HTTPRequest, seconds: float | None) -> AsyncGenerator[Any]:
        pieces = map(bytes, cut_pieces(request.body))
        content = (
            b"".join(request.body) if request.size <= LONG else pieces if self._blocks else iterate(pieces)
        )
        timeout: Any = httpx2.USE_CLIENT_DEFAULT if seconds is None else to_limit(seconds)
        # httpx2 takes text for ASCII
        headers = [(name.encode(), value.encode("latin-1")) for name, value in request.headers]
        response: Any = None
        try:
            written = self._http.build_request(
                request.method, self._url + request.path, headers=headers, content=content, timeout=timeout
            )
            response = await wait_for(self._http.send(written, stream=True, follow_redirects=False))
            yield Head(response.status_code, combine_headers(response.headers.multi_items()))
            async for piece in iterate(response.iter_bytes() if self._blocks else response.aiter_bytes()):
                yield piece
        except httpx2.RequestError as error:
            is_unsent = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
            is_timeout = isinstance(error, httpx2.TimeoutException)
            raise make_failure(self._url or "/", error, is_unsent=is_unsent, is_timeout=is_timeout) from error
        finally:
            if response is not None:
                await wait_for(response.close() if self._blocks else response.aclose())

    async def close(self) -> None: ...
