"""Sends requests with `http.client` of the standard library, each over a connection that no other thread uses
meanwhile. Its coroutines never wait."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    IncompleteRead,
    RemoteDisconnected,
)
from ssl import SSLContext, create_default_context
from typing import Any, Final, cast

from .._protocol.errors import show
from .._rest.client import LENGTH, combine_headers
from ._questions import Headers, HTTPRequest
from ._senders import (
    IDLE_SECONDS,
    LONG,
    Address,
    cut_pieces,
    is_kept,
    is_readable,
    make_failure,
    make_head,
    to_limit,
)

_PIECE: Final = 4 * LONG

_LINE: Final = 2**16
_FIELDS: Final = 100
"""How long a line of a head may be, and how many there may be, as in `http.client`."""

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: .*)?\r?\n", re.DOTALL)


class _Response(HTTPResponse):
    """Reads its head without the standard library's parser of e-mail, which takes a third of the time of a
    small request."""

    fields: Mapping[str, str]

    def begin(self) -> None:
        version, self.status = self._read_status_line()
        while self.status < HTTPStatus.OK:  # such as 103, with hints for a browser: the answer follows
            self._read_fields()
            version, self.status = self._read_status_line()
        self.version = 10 + version
        self.fields = fields = self._read_fields()
        self.chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length, *others = fields.get("content-length", "").split(", ")
        if ("content-length" in fields and not LENGTH.fullmatch(length)) or any(
            other != length for other in others
        ):
            raise HTTPException(f"Content-Length is {show(fields['content-length'])}")
        has_body = self.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
        self.length = 0 if not has_body else int(length) if length and not self.chunked else None
        connection = fields.get("connection", "").lower()
        is_kept = "close" not in connection if version else "keep-alive" in connection
        self.will_close = not is_kept or (self.length is None and not self.chunked)

    def _read_status_line(self) -> tuple[int, int]:
        line = self.fp.readline(_LINE)
        if not line:
            raise RemoteDisconnected("the server closed the connection without an answer")
        found = _STATUS.fullmatch(line)
        if found is None:
            raise BadStatusLine(show(line))
        return int(found[1]), int(found[2])

    def _read_fields(self) -> Mapping[str, str]:
        fields: Headers = []
        while (line := self.fp.readline(_LINE)) not in (b"\r\n", b"\n"):
            name, colon, value = line.decode("latin-1").partition(":")
            if (
                not line.endswith(b"\n")
                or not colon
                or not name
                or name != name.strip()
                or len(fields) == _FIELDS
            ):
                raise HTTPException(f"the head has the line {show(line)}, or more than {_FIELDS} lines")
            fields.append((name, value.strip()))
        return combine_headers(fields)


class _Connection(HTTPConnection):
    """Over TCP, TLS or a Unix socket. A short body goes out together with its head."""

    response_class = _Response
    body = b""
    is_open = False

    def __init__(self, address: Address, context: SSLContext | None, seconds: float | None) -> None:
        super().__init__(address.host, address.port, seconds)
        self._address, self._context = address, context

    def connect(self) -> None:
        if self._address.socket is None:
            super().connect()
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._address.socket)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)
        self.is_open = True

    def send(self, data: Any) -> None:
        body, self.body = self.body, b""
        super().send(data + body if body else data)


class BlockingSender:
    def __init__(self, address: Address, context: SSLContext | None) -> None:
        self._address = address
        self._context = (context or create_default_context()) if address.scheme == "https" else None
        self._pid = os.getpid()
        self._idle = deque[tuple[float, _Connection]]()  # the last one is the one that was used last
        self._lock, self._kept_seconds = threading.Lock(), IDLE_SECONDS

    async def send(self, request: HTTPRequest, seconds: float | None) -> AsyncGenerator[Any]:
        seconds, response, is_read = to_limit(seconds), None, False
        if self._pid != os.getpid():  # a process that was forked: the connections are its parent's too
            self._pid, self._idle, self._lock = os.getpid(), deque(), threading.Lock()
        connection = self._take() or _Connection(self._address, self._context, seconds)
        try:
            response = self._ask(connection, request, seconds)
            if response is None:
                connection.close()
                connection = _Connection(self._address, self._context, seconds)
                response = self._ask(connection, request, seconds)
            assert response is not None
            yield make_head(response.status, response.fields)
            while response.length != 0 and (piece := response.read1(_PIECE)):
                yield piece
            if response.length:
                raise IncompleteRead(b"", response.length)
            is_read = is_kept(response.status, request.size)
        except (OSError, HTTPException) as error:
            is_timeout = isinstance(error, TimeoutError)
            raise make_failure(
                self._address.url, error, is_unsent=not connection.is_open, is_timeout=is_timeout
            ) from error
        finally:
            if response is not None:
                response.close()
            if is_read and connection.sock is not None:
                self._idle.append((time.monotonic(), connection))
                self._close_idle()
            else:
                connection.close()

    def _ask(self, connection: _Connection, request: HTTPRequest, seconds: float | None) -> _Response | None:
        """The head of the answer. None if the server closed a connection that was kept before it read the
        request, which may go out once more."""
        was_kept, was_reset, is_long = connection.is_open, False, request.size > LONG
        if was_kept:
            connection.sock.settimeout(seconds)
        else:
            connection.connect()
        path = self._address.prefix + request.path or "/"
        connection.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers:
            connection.putheader(name, value)
        connection.body = b"" if is_long else b"".join(request.body)
        try:
            connection.endheaders(cut_pieces(request.body) if is_long else None)
        except (BrokenPipeError, ConnectionResetError):
            was_reset = True  # the server may have answered before
        try:
            return cast(_Response, connection.getresponse())
        except (BrokenPipeError, ConnectionResetError):
            if not (was_kept and was_reset):
                raise
            return None  # not all of it was written, so the server has not read it to its end

    def _take(self) -> _Connection | None:
        """One that is kept, nor has the server closed it, or sent what nobody asked for."""
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < IDLE_SECONDS and not is_readable(connection.sock):
                    return connection
                connection.close()
        return None

    async def close(self) -> None:
        self._kept_seconds = -1.0  # what comes back later is closed at once
        self._close_idle()

    def _close_idle(self) -> None:
        """Close what was idle for too long: connections of threads that have ended."""
        with self._lock:
            while self._idle and time.monotonic() - self._idle[0][0] > self._kept_seconds:
                self._idle.popleft()[1].close()
