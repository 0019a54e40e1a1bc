"""Questions over HTTP: the requests that a sender sends for them, how the pieces of their answers are put
together, and what these mean. And the sender for a client of httpx2 that the caller gives."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from .._protocol.datatypes import Buffer
from .._protocol.errors import HEADER_NAME, ErrorResponse, InvalidResponse, show
from .._protocol.limits import LOOP_BYTES
from .._protocol.tensors import InferenceResponse
from .._rest.body import FEW
from .._rest.client import LENGTH, LENGTH_NAME, combine_headers, read_document, read_response
from . import _questions as questions
from ._questions import (
    MAX_BODY_BYTES,
    SECONDS,
    Headers,
    HTTPAnswer,
    HTTPRequest,
    Inference,
    Question,
    check_timeout,
    is_sendable,
)
from ._senders import (
    LONG,
    Head,
    Sender,
    check_size,
    cut_pieces,
    iterate,
    make_failure,
    read_url,
    to_limit,
    wait_for,
)

if TYPE_CHECKING:
    from ._grpc import GRPCLink

T = TypeVar("T")
R = TypeVar("R")

_ALIGNED: Final = 16
"""A multiple of every element's size. The binary data of a body begin at such a place, so that its arrays
need no copy."""


def make_link(
    url: str,
    headers: Mapping[str, str] | None,
    timeout: float | None,
    *,
    http: Any = None,
    ssl: SSLContext | None = None,
    max_body_bytes: int | None = MAX_BODY_BYTES,
    blocks: bool = False,
    **options: Any,
) -> HTTPLink | GRPCLink:
    """What asks the server of a URL. HTTP alone has `options`: those of its sender."""
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(
            f"headers= is {show(headers)}: expected a mapping, such as {{'Authorization': 'Bearer ...'}}"
        )
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"the header {name!r} is {show(value)}: expected a string")
        if not HEADER_NAME.fullmatch(name) or not is_sendable(value):
            raise ValueError(
                f"the header {show(name)} is {show(value)}: expected a name of HTTP, and printable ASCII"
            )
    if ssl is not None and (http is not None or not url.startswith("https://")):
        raise ValueError(f"ssl= is for an https:// url and without http=: the url is {show(url)}")
    if not url.startswith(("grpc://", "grpcs://")):
        return HTTPLink(
            url,
            headers,
            timeout,
            http,
            blocks=blocks,
            context=ssl,
            max_body_bytes=max_body_bytes,
            **options,
        )
    if http is not None:
        raise ValueError(f"http= is for a url of HTTP: the url is {show(url)}")
    from ._grpc import GRPCLink  # needs another extra

    return GRPCLink(url, headers, timeout, blocks=blocks)


class HTTPLink:
    """A server that is asked over HTTP, on an event loop, or blocking: then its coroutines never wait, and
    `finish` runs them.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None,
        timeout: float | None,
        http: Any,
        *,
        blocks: bool = False,
        context: SSLContext | None = None,
        max_body_bytes: int | None = MAX_BODY_BYTES,
        **options: Any,
    ) -> None:
        self.blocks = blocks
        self.max_body_bytes = max_body_bytes  # of what is no answer to inference, which says it
        self.headers: Headers = list((headers or {}).items())
        self.timeout = SECONDS if timeout is None and http is None else check_timeout(timeout)
        self.url = url.rstrip("/")
        self.sender = self._make_sender(url, http, blocks=blocks, context=context, **options)

    def _make_sender(
        self, url: str, http: Any, *, blocks: bool, context: SSLContext | None, **options: Any
    ) -> Sender:
        if http is not None:
            return _GivenSender(self.url, http, blocks=blocks)
        address = read_url(url)
        if all(name.lower() != "host" for name, _ in self.headers):
            self.headers.insert(0, ("Host", address.netloc))
        if blocks:
            from ._blocking_sender import BlockingSender

            return BlockingSender(address, context)
        from ._awaiting_sender import AwaitingSender

        return AwaitingSender(address, context, **options)

    async def close(self) -> None:
        await self.sender.close()

    def send(self, request: HTTPRequest, timeout: float | None) -> aclosing[AsyncGenerator[Any]]:
        """The head of an answer, and then the pieces of its body."""
        headers = self.headers
        if request.method == "POST":
            headers = [*headers, ("Content-Length", str(request.size)), *request.headers]
        seconds = self.timeout if timeout is None else check_timeout(timeout)
        sent = HTTPRequest(request.method, request.path, headers, request.body)
        return aclosing(self.sender.send(sent, seconds))

    async def exchange(self, request: HTTPRequest, timeout: float | None, limit: int | None) -> HTTPAnswer:
        async with self.send(request, timeout) as pieces:
            status, headers = cast(Head, await anext(pieces))
            collector = _Collector(headers, limit)
            async for piece in pieces:
                collector.add(piece)
        return HTTPAnswer(status, headers, collector.finish())

    async def compute(self, is_quick: bool, function: Callable[..., R], *arguments: Any) -> R:
        """What a function returns, in a worker thread if it would stop an event loop."""
        return (
            function(*arguments) if is_quick or self.blocks else await asyncio.to_thread(function, *arguments)
        )

    async def ask(self, question: Question[T], timeout: float | None) -> T:
        request = questions.write_question(question)
        answer = await self.exchange(request, timeout, self.max_body_bytes)
        if question.is_probe and answer.status in questions.NOT_READY:
            return question.read({"ready": False})
        document = await self._read(
            request, answer, read_document, answer.headers, answer.body, answer.status
        )
        return question.read(document)

    async def infer(self, inference: Inference, timeout: float | None) -> InferenceResponse:
        is_quick = self.blocks or questions.is_written_quickly(inference)
        request = await self.compute(is_quick, questions.write_inference, inference)
        answer = await self.exchange(request, timeout, inference.max_body_bytes)
        return await self._read(request, answer, questions.read_inference, inference, answer)

    async def _read(
        self, request: HTTPRequest, answer: HTTPAnswer, read: Callable[..., R], *arguments: Any
    ) -> R:
        """What a function reads from an answer. If this is 404, the error says which URL was asked: in its
        text if that is the likely fault, else in the traceback."""
        try:
            return await self.compute(self.blocks or questions.is_read_quickly(answer), read, *arguments)
        except ErrorResponse as error:
            if error.response_status == 404:
                line = (
                    f"{request.method} {self.url}{request.path}: the client's url must end where the "
                    "server's paths begin"
                )
                if urlsplit(self.url).path.strip("/"):
                    error.add_note(line)
                else:
                    error.hint = f"{line}, such as {self.url}/v2"
            raise

    async def stream(self, inference: Inference, timeout: float | None) -> AsyncGenerator[InferenceResponse]:
        is_quick = questions.is_written_quickly(inference)
        request = await self.compute(is_quick, questions.write_inference, inference, "infer_stream")
        limit = inference.max_body_bytes
        async with self.send(request, timeout) as pieces:
            status, headers = cast(Head, await anext(pieces))
            has_events = status == 200 and headers.get("content-type", "").lower().startswith(
                "text/event-stream"
            )
            events = _Events(limit) if has_events else _Collector(headers, limit)
            async for piece in pieces:
                for event in events.add(piece) or ():
                    yield await self.compute(len(event) <= LOOP_BYTES, read_response, {}, event, None)
        if isinstance(events, _Events):
            events.finish()
        else:
            answer = HTTPAnswer(status, headers, events.finish())
            yield await self._read(request, answer, questions.read_inference, inference, answer)


# The bodies of answers, as they arrive


class _Collector:
    """Puts the pieces of a body together, as they arrive: what a server says of its length takes no memory.

    Raises InvalidResponse if it has, or says that it has, more bytes than `limit`.
    """

    def __init__(self, headers: Mapping[str, str], limit: int | None) -> None:
        length, head = headers.get("content-length", ""), headers.get(LENGTH_NAME, "")
        check_size(int(length) if LENGTH.fullmatch(length) else 0, limit, "response")
        self._limit = limit
        self._size = 0
        self._padding = -int(head) % _ALIGNED if LENGTH.fullmatch(head) else 0
        self._body = bytearray(self._padding)

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        check_size(self._size, self._limit, "response")
        self._body += piece

    def finish(self) -> Buffer:
        """The body: a short one as `bytes`; a long one so that arrays are views of it, which can be written
        to."""
        view = memoryview(self._body)[self._padding :]
        return bytes(view) if self._size <= FEW else view


class _Events:
    """Server-sent events, as they arrive in pieces: what each holds. Their lines end with LF or CRLF. Raises
    InvalidResponse if one has more bytes than `limit`."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._rest: list[bytes] = []  # the line that has not ended, in pieces
        self._data: list[bytes] = []
        self._rest_size = self._data_size = 0

    def add(self, piece: bytes) -> Iterator[bytes]:
        self._rest.append(piece)
        self._rest_size += len(piece)
        if b"\n" in piece:
            *lines, rest = b"".join(self._rest).split(b"\n")
            self._rest, self._rest_size = [rest], len(rest)
            for line in lines:
                if line.startswith(b"data:"):
                    self._data.append(line[5:].removeprefix(b" ").removesuffix(b"\r"))
                    self._data_size += len(line)
                elif line in (b"", b"\r") and self._data:
                    yield b"\n".join(self._data)
                    self._data, self._data_size = [], 0
        check_size(self._rest_size + self._data_size, self._limit, "event of the stream")

    def finish(self) -> None:
        """Raise InvalidResponse if the stream has ended within an event."""
        rest = b"".join(self._rest)
        if self._data or (rest and b"data:".startswith(rest[:5])):
            raise InvalidResponse("the stream ends within an event")


# Requests by a client that the caller gives


class _GivenSender:
    """Sends requests with a client of httpx2 that the caller gives, blocking or on an event loop. It stays
    open. Raises TypeError if it is no such client.
    """

    def __init__(self, url: str, http: Any, *, blocks: bool) -> None:
        kind = "Client" if blocks else "AsyncClient"
        self._url, self._http, self._blocks = url, http, blocks
        self._library: Any = sys.modules.get("httpx2")  # who gives such a client has imported it
        if not isinstance(http, getattr(self._library, kind, ())):
            raise TypeError(
                f"http= is {show(http)}: expected a httpx2.{kind}; httpx itself is not taken, as its errors "
                "are others"
            )

    async def send(self, request: HTTPRequest, seconds: float | None) -> AsyncGenerator[Any]:
        pieces = map(bytes, cut_pieces(request.body))
        content = (
            b"".join(request.body) if request.size <= LONG else pieces if self._blocks else iterate(pieces)
        )
        timeout: Any = self._library.USE_CLIENT_DEFAULT if seconds is None else to_limit(seconds)
        response: Any = None
        try:
            written = self._http.build_request(
                request.method,
                self._url + request.path,
                headers=request.headers,
                content=content,
                timeout=timeout,
            )
            response = await wait_for(self._http.send(written, stream=True, follow_redirects=False))
            yield Head(response.status_code, combine_headers(response.headers.multi_items()))
            async for piece in iterate(response.iter_bytes() if self._blocks else response.aiter_bytes()):
                yield piece
        except self._library.RequestError as error:
            is_unsent = isinstance(error, (self._library.ConnectError, self._library.ConnectTimeout))
            is_timeout = isinstance(error, self._library.TimeoutException)
            raise make_failure(self._url or "/", error, is_unsent=is_unsent, is_timeout=is_timeout) from error
        finally:
            if response is not None:
                await wait_for(response.close() if self._blocks else response.aclose())

    async def close(self) -> None: ...
