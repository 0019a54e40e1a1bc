"""Requests over HTTP: by a client of httpx that the caller gives, else by the connections below httpx, of httpcore.

httpx's own client takes a third of the time of a small request for what the protocol does not need: redirects, cookies, authentication.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from .._hosts import make_import_error
from .._protocol.errors import ErrorResponse, show
from .._protocol.tensors import InferenceResponse
from .._rest.client import from_http, read_document
from . import _questions as questions
from ._blocking import iterate, wait_for
from ._questions import LONG, SECONDS, Headers, HTTPAnswer, HTTPRequest, Inference, Question, cut_pieces

try:
    import httpcore
    import httpx
except ImportError as error:
    raise make_import_error(error, "httpx", "client", beside="httpcore") from error

T = TypeVar("T")

_ERRORS: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.ProxyError)

_FAILED: Final = 500
"""After this answer MLServer and KServe close the connection, and do not say so: the next request on it would fail."""

_SOCKET: Final = re.compile(r"http\+unix://(/?[^/].*?\.sock)(/.*)?", re.DOTALL)


class HTTPLink:
    """A server that is asked over HTTP, on an event loop, or blocking: then its coroutines never wait, and `finish` runs them."""

    pool_options: Mapping[str, Any] = {"max_connections": 100, "max_keepalive_connections": 20, "keepalive_expiry": 5.0}
    """As httpx has them: more requests at once wait for a connection."""

    def __init__(self, url: str, headers: Mapping[str, str] | None, timeout: float | None, http: Any, *, blocks: bool = False) -> None:
        self.headers: Headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self.timeout = SECONDS if timeout is None and http is None else timeout
        self.http = http
        self.blocks = blocks
        self.url = url.rstrip("/")
        if http is None:
            self._connect(url)

    def _connect(self, url: str) -> None:
        """Take a URL apart, for the connections of httpcore."""
        socket = _SOCKET.fullmatch(url)
        try:
            parsed = httpx.URL(url if socket is None else f"http://localhost{socket[2] or ''}")
        except httpx.InvalidURL as error:
            raise ValueError(f"the url is {show(url)}: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query or parsed.fragment:
            expected = "expected one such as http://host:8000/v2 or grpc://host:8001, without a password, query or fragment"
            raise ValueError(f"the url is {show(url)}: {expected}")
        self.parts = (parsed.raw_scheme, parsed.raw_host, parsed.port)
        self.prefix = parsed.raw_path.rstrip(b"/")
        if all(name.lower() != b"host" for name, _ in self.headers):
            self.headers.insert(0, (b"Host", parsed.netloc))
        self.pool: Any = (httpcore.ConnectionPool if self.blocks else httpcore.AsyncConnectionPool)(
            **self.pool_options,
            uds=None if socket is None else unquote(socket[1]),
            ssl_context=httpx.create_ssl_context() if parsed.scheme == "https" else None,
        )

    def write(self, request: HTTPRequest, timeout: float | None) -> Any:
        """A request of httpcore, or of the caller's client of httpx."""
        method, path, body = request.method, request.path, request.body
        size = sum(map(len, body))
        lines = [*self.headers, (b"Content-Length", b"%d" % size), *request.headers] if method == "POST" else self.headers
        content = b"".join(body) if size <= LONG else cut_pieces(body) if self.blocks else iterate(cut_pieces(body))
        seconds = self.timeout if timeout is None else timeout
        limit = None if seconds == math.inf else seconds
        if self.http is not None:
            kept = httpx.USE_CLIENT_DEFAULT if seconds is None else limit
            return self.http.build_request(method, self.url + path, headers=lines, content=content, timeout=kept)
        url = httpcore.URL(scheme=self.parts[0], host=self.parts[1], port=self.parts[2], target=(self.prefix + path.encode()) or b"/")
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), limit)
        return httpcore.Request(method, url, headers=lines, content=content, extensions={"timeout": timeouts})

    async def _close(self, opened: Any) -> None:
        await wait_for(opened.close() if self.blocks else opened.aclose())

    async def close(self) -> None:
        if self.http is None:
            await self._close(self.pool)

    @asynccontextmanager
    async def open(self, request: HTTPRequest, timeout: float | None) -> AsyncIterator[tuple[int, Headers, AsyncIterator[bytes]]]:
        """Send a request; gives status and headers, and iterates over the body."""
        answer: Any = None
        written = self.write(request, timeout)
        try:
            if self.http is None:
                answer = await wait_for(self.pool.handle_request(written) if self.blocks else self.pool.handle_async_request(written))
                yield answer.status, answer.headers, iterate(answer.stream)
            else:
                answer = await wait_for(self.http.send(written, stream=True, follow_redirects=False))
                yield answer.status_code, answer.headers.raw, iterate(answer.iter_bytes() if self.blocks else answer.aiter_bytes())
        except _ERRORS as error:
            kind: type[Exception] = getattr(httpx, type(error).__name__, httpx.TransportError)
            raise kind(str(error)) from error
        finally:
            if answer is not None:
                if self.http is None and answer.status == _FAILED:
                    await self._close(answer.extensions["network_stream"])
                await self._close(answer)

    async def exchange(self, request: HTTPRequest, timeout: float | None) -> HTTPAnswer:
        async with self.open(request, timeout) as (status, headers, pieces):
            collector = questions.Collector(headers)
            async for piece in pieces:
                collector.add(piece)
        body = collector.finish()
        if self.http is None and status == 200 and len(body):
            questions.check_coding(headers)
        return HTTPAnswer(status, headers, body)

    async def ask(self, question: Question[T], timeout: float | None) -> T:
        request = questions.write_question(question)
        with self._noting(request):
            status, headers, body = await self.exchange(request, timeout)
            is_not_ready = question.is_probe and status in questions.NOT_READY
            return question.read({"ready": False} if is_not_ready else read_document(headers, body, status))

    async def infer(self, inference: Inference, timeout: float | None) -> InferenceResponse:
        request = questions.write_inference(inference)
        with self._noting(request):
            return questions.read_inference(inference, await self.exchange(request, timeout))

    @contextmanager
    def _noting(self, request: HTTPRequest) -> Iterator[None]:
        """Add the URL to a 404, for its traceback. Its text may go to clients of a model that asks another server."""
        try:
            yield
        except ErrorResponse as error:
            if error.response_status == 404:
                such = "" if httpx.URL(self.url).path.strip("/") else f", such as {self.url}/v2"
                error.add_note(f"{request.method} {self.url}{request.path}: the client's url must end where the server's paths begin{such}")
            raise

    async def stream(self, inference: Inference, timeout: float | None) -> AsyncGenerator[InferenceResponse]:
        request = questions.write_inference(inference, "infer_stream")
        async with self.open(request, timeout) as (status, headers, pieces):
            if self.http is None and status == 200:
                questions.check_coding(headers)
            has_events = status == 200 and questions.find_header(headers, b"content-type").lower().startswith(b"text/event-stream")
            events = questions.Events() if has_events else questions.Collector(headers)
            async for piece in pieces:
                for event in events.add(piece) or ():
                    yield from_http([], event)
        if isinstance(events, questions.Events):
            events.finish()
        else:
            with self._noting(request):
                response = questions.read_inference(inference, HTTPAnswer(status, headers, events.finish()))
            yield response
