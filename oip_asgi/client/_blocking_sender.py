"""Sends requests with `http.client` of the standard library, and keeps one connection for each thread. Its
coroutines never wait."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Mapping
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
from weakref import WeakSet

from .._protocol.errors import show
from .._rest.client import combine_headers
from ._questions import LONG, Headers, HTTPRequest, cut_pieces, to_limit
from ._senders import IDLE_SECONDS, Address, ConnectionFailed, is_kept, is_readable, make_failure

_PIECE: Final = 4 * LONG

_LINE: Final = 2**16
_FIELDS: Final = 100
"""How long a line of a head may be, and how many there may be, as in `http.client`."""

_CONTINUE, _NO_CONTENT, _NOT_MODIFIED = map(
    int, (HTTPStatus.CONTINUE, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
)

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: .*)?\r?\n", re.DOTALL)
_LENGTH: Final = re.compile("[0-9]{1,18}")


class _Response(HTTPResponse):
    """Reads its head without the standard library's parser of e-mail, which takes a third of the time of a
    small request."""

    fields: Mapping[str, str]

    def begin(self) -> None:
        version, self.status = self._read_status_line()
        while self.status == _CONTINUE:
            self._read_fields()
            version, self.status = self._read_status_line()
        self.version = 10 + version
        self.fields = fields = self._read_fields()
        self.chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length, *others = fields.get("content-length", "").split(", ")
        if ("content-length" in fields and not _LENGTH.fullmatch(length)) or any(
            other != length for other in others
        ):
            raise HTTPException(f"Content-Length is {show(fields['content-length'])}")
        has_body = self.status not in (_NO_CONTENT, _NOT_MODIFIED)
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

    def __init__(self, address: Address, context: SSLContext | None) -> None:
        super().__init__(address.host, address.port)
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

    def send(self, data: Any) -> None:
        body, self.body = self.body, b""
        super().send(data + body if body else data)

    def set_timeout(self, seconds: float | None) -> None:
        if self.timeout != seconds:
            self.timeout = seconds
            if self.sock is not None:
                self.sock.settimeout(seconds)


class _Place:
    """A thread's connection while nobody uses it."""

    def __init__(self) -> None:
        self.connection: _Connection | None = None
        self.since = 0.0

    def take(self) -> _Connection | None:
        connection, self.connection = self.connection, None
        if connection is None or (
            time.monotonic() - self.since < IDLE_SECONDS and not is_readable(connection.sock)
        ):
            return connection  # nor has the server closed it, or sent what nobody asked for
        connection.close()
        return None

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    __del__ = close  # the thread has ended


class _Places:
    """The places of the threads of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._own = threading.local()
        self._all: WeakSet[_Place] = WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False

    def find(self) -> _Place:
        """That of this thread."""
        place: _Place | None = getattr(self._own, "place", None)
        if place is None:
            place = self._own.place = _Place()
            with self._lock:
                self._all.add(place)
        return place

    def keep(self, connection: _Connection) -> None:
        place = self.find()
        if place.connection is not None or self._is_closed:
            connection.close()
        else:
            place.connection, place.since = connection, time.monotonic()

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            for place in self._all:
                place.close()


class BlockingSender:
    def __init__(self, address: Address, context: SSLContext | None) -> None:
        self._address = address
        self._context = (context or create_default_context()) if address.scheme == "https" else None
        self._places = _Places()

    async def send(self, request: HTTPRequest, seconds: float | None) -> _Answer:
        if self._places.pid != os.getpid():
            self._places = _Places()  # a process that was forked: the connections are its parent's too
        seconds = to_limit(seconds)
        kept = self._places.find().take()
        if kept is not None:
            try:
                return self._ask(kept, request, seconds, is_used=True)
            except _Unread:
                kept.close()
        connection = _Connection(self._address, self._context)
        connection.set_timeout(seconds)
        try:
            connection.connect()
        except OSError as error:
            raise self.fail(error, is_unsent=True) from error
        return self._ask(connection, request, seconds, is_used=False)

    def _ask(
        self, connection: _Connection, request: HTTPRequest, seconds: float | None, *, is_used: bool
    ) -> _Answer:
        was_reset = False
        try:
            connection.set_timeout(seconds)
            connection.putrequest(
                request.method,
                self._address.prefix + request.path or "/",
                skip_host=True,
                skip_accept_encoding=True,
            )
            for name, value in request.headers:
                connection.putheader(name, value)
            size = request.size
            if size <= LONG:
                connection.body = b"".join(request.body)
            try:
                connection.endheaders()
                if size > LONG:
                    for piece in cut_pieces(request.body):
                        connection.send(piece)
            except (BrokenPipeError, ConnectionResetError):
                was_reset = True  # the server may have answered before
            return _Answer(self, self._places, connection, request, cast(_Response, connection.getresponse()))
        except (BrokenPipeError, ConnectionResetError) as error:
            connection.close()
            if is_used and was_reset:
                raise _Unread from None  # not all of it was written, so the server has not read it to its end
            raise self.fail(error) from error
        except (OSError, HTTPException) as error:
            connection.close()
            raise self.fail(error) from error
        except BaseException:
            connection.close()
            raise

    def fail(self, error: Exception, *, is_unsent: bool = False) -> ConnectionFailed:
        return make_failure(
            self._address.url, error, is_unsent=is_unsent, is_timeout=isinstance(error, TimeoutError)
        )

    async def close(self) -> None:
        self._places.close()


class _Unread(Exception):
    """The server closed a connection that was kept before it read the request, which may go out once more."""


class _Answer:
    def __init__(
        self,
        sender: BlockingSender,
        places: _Places,
        connection: _Connection,
        request: HTTPRequest,
        response: _Response,
    ) -> None:
        self.status = response.status
        self.headers = response.fields
        self._sender, self._places, self._connection, self._response = sender, places, connection, response
        self._is_kept, self._has_ended = is_kept(self.status, request), False

    async def read(self) -> bytes:
        response = self._response
        if response.length == 0:
            self._has_ended = True
            return b""
        try:
            piece = response.read1(_PIECE)
            if not piece and response.length:
                raise IncompleteRead(b"", response.length)
        except (OSError, HTTPException) as error:
            raise self._sender.fail(error) from error
        self._has_ended = not piece
        return piece

    async def close(self) -> None:
        self._response.close()
        if self._has_ended and self._is_kept and self._connection.sock is not None:
            self._places.keep(self._connection)
        else:
            self._connection.close()
