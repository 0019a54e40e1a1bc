"""Sends requests with a client of httpx2 that the caller gives, blocking or on an event loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._protocol.errors import show
from .._rest.client import combine_headers
from ._loops import iterate, wait_for
from ._questions import LONG, HTTPRequest, cut_pieces, to_limit
from ._senders import ConnectionFailed, make_failure

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

    async def send(self, request: HTTPRequest, seconds: float | None) -> _Answer:
        pieces = map(bytes, cut_pieces(request.body))
        content = (
            b"".join(request.body) if request.size <= LONG else pieces if self._blocks else iterate(pieces)
        )
        timeout: Any = httpx2.USE_CLIENT_DEFAULT if seconds is None else to_limit(seconds)
        # httpx2 takes text for ASCII
        headers = [(name.encode(), value.encode("latin-1")) for name, value in request.headers]
        try:
            written = self._http.build_request(
                request.method, self._url + request.path, headers=headers, content=content, timeout=timeout
            )
            response = await wait_for(self._http.send(written, stream=True, follow_redirects=False))
        except httpx2.RequestError as error:
            raise self.fail(error) from error
        return _Answer(self, response, blocks=self._blocks)

    def fail(self, error: Exception) -> ConnectionFailed:
        is_unsent = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
        return make_failure(
            self._url or "/",
            error,
            is_unsent=is_unsent,
            is_timeout=isinstance(error, httpx2.TimeoutException),
        )

    async def close(self) -> None: ...


class _Answer:
    def __init__(self, sender: GivenSender, response: Any, *, blocks: bool) -> None:
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = combine_headers(response.headers.multi_items())
        self._sender, self._response = sender, response
        self._pieces = response.iter_bytes() if blocks else response.aiter_bytes()
        self._blocks = blocks

    async def read(self) -> bytes:
        try:
            piece: bytes = next(self._pieces, b"") if self._blocks else await anext(self._pieces, b"")
        except httpx2.RequestError as error:
            raise self._sender.fail(error) from error
        return piece

    async def close(self) -> None:
        await wait_for(self._response.close() if self._blocks else self._response.aclose())
