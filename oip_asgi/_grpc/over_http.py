"""A gRPC call as an HTTP request, for gRPC and gRPC-Web: its head -> `RPC`, its body -> messages, and how it
ends -> `Answer`.

First the headers and trailers: `content-type`, `grpc-timeout`, `grpc-encoding`, `grpc-status`, and metadata.
Then the frames of the body, which are five bytes, and a message of the length that they say; a body may hold
any number of messages, split over its chunks in any way.

`Body` of `_protocol.request_body` refuses a message that is too long, and `_protocol.errors` says which
code an error has, such as INVALID_ARGUMENT for the HTTP status 422. Knows no ASGI and no protobuf.

Specification: gRPC over HTTP2, and there Length-Prefixed-Message; gRPC-Web, for the body as text and the
frame of trailers.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import Final
from urllib.parse import quote

import msgspec

from .._http.messages import Head, Response, refuse_foreign
from .._models.model_options import NO_TIMEOUT
from .._protocol.datatypes import Buffer
from .._protocol.errors import InferenceError, InvalidRequest, TakenBy, show
from .._protocol.request_body import Body, Coding, make_taken_error
from .._serving.engine import ServerOptions
from .messages import Reply
from .methods import ACTIONS

_HEAD: Final = 5
_HEAD_FIELDS: Final = Struct(">BI")
"""Its flag, and how many bytes the message has."""
_PLAIN, _COMPRESSED = 0, 1
_TRAILERS: Final = 0x80

_SHORT: Final = 2**16
"""Bytes up to which a copy of a message is cheaper than a view."""

_SEGMENT: Final = re.compile(rb"[^=]+={0,2}")
"""Base64 up to its padding: a client that encodes piece by piece pads each piece."""


class FrameReader(msgspec.Struct, eq=False):
    """Reads the messages from a request's body as it arrives. It is fed like a `Body`."""

    limit: int | None  # the most bytes of a message, before it is decompressed and after; None for no limit
    coding: Coding | None = None  # how messages are compressed; None if they are not
    is_text: bool = False  # whether the body is base64
    most: float = math.inf  # how many messages there may be
    _messages: list[Buffer] = []
    _head: bytes = b""
    _text: bytes = b""
    _body: Body | None = None

    def count_next(self, most: int) -> int:
        """How many bytes to read next, `most` at most: the body goes on until the client ends it."""
        return most

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk."""
        if self.is_text:
            chunk = self._decode(chunk)
        size = len(chunk) - _HEAD
        if 0 <= size <= _SHORT and self._body is None and not self._head:
            is_whole = _HEAD_FIELDS.unpack_from(chunk) == (_PLAIN, size)
            if is_whole and self.most and (self.limit is None or size <= self.limit):
                # a short message in one chunk, as nearly always
                self.most -= 1
                self._messages.append(chunk[_HEAD:])
                return
        rest = memoryview(chunk)
        while rest:
            if self._body is None:
                missing = _HEAD - len(self._head)
                self._head += rest[:missing]
                rest = rest[missing:]
                if len(self._head) < _HEAD:
                    return
                self._body = self._begin()
            part = rest[: self._body.count_next(len(rest))]
            rest = rest[len(part) :]
            self._body.feed(part)
            if not self._body.count_next(1):
                self._messages.append(self._body.finish())
                self._body = None

    def _begin(self) -> Body:
        flag, size = _HEAD_FIELDS.unpack(self._head)
        self._head = b""
        if not self.most:
            raise InferenceError("the request has more than one message: expected one", status=501)
        self.most -= 1
        if flag not in (_PLAIN, _COMPRESSED):
            raise InvalidRequest(
                f"a frame begins with the byte {flag}: expected 0, or 1 for a compressed message"
            )
        if flag == _COMPRESSED and self.coding is None:
            raise InvalidRequest(
                "a frame says that its message is compressed, but grpc-encoding does not say how"
            )
        body = Body(size, self.limit, self.coding if flag == _COMPRESSED else None)
        body.check(size)
        return body

    def _decode(self, chunk: bytes) -> bytes:
        text = self._text + chunk
        whole = len(text) - len(text) % 4
        text, self._text = text[:whole], text[whole:]
        segments = _SEGMENT.findall(text)
        try:
            decoded = b"".join([a2b_base64(segment, strict_mode=True) for segment in segments])
        except Error:
            decoded = b""
        if sum(map(len, segments)) != whole or (not decoded and whole):
            raise InvalidRequest("the body is not base64, as application/grpc-web-text has it")
        return decoded

    def take(self) -> list[Buffer]:
        """Return the complete messages, each once."""
        messages, self._messages = self._messages, []
        return messages

    def finish(self, *, cut_off: bool = False, taken_by: TakenBy | None = None) -> list[Buffer]:
        """Check that the body has ended after a message, and return the messages that are left. The arguments
        are those of `Body`."""
        if cut_off and taken_by is not None:
            raise make_taken_error(taken_by)
        if cut_off or self._head or self._text or self._body is not None:
            raise InvalidRequest("the body ended within a message, or before its end: expected more")
        return self._messages


Fields = list[tuple[bytes, bytes]]
"""Headers or trailers."""


class Protocol(msgspec.Struct, frozen=True):
    """One of the protocols that carry the same messages."""

    has_trailers: bool
    """Whether the status travels in HTTP's trailers. Otherwise it is in the last frame of the body, which
    needs no HTTP/2."""
    is_text: bool = False  # whether bodies are base64, both ways


_GRPC, _WEB, _WEB_TEXT = Protocol(True), Protocol(False), Protocol(False, is_text=True)

_PROTOCOLS: Final[Mapping[bytes, Protocol]] = {
    b"application/grpc": _GRPC,
    b"application/grpc+proto": _GRPC,
    b"application/grpc-web": _WEB,
    b"application/grpc-web+proto": _WEB,
    b"application/grpc-web-text": _WEB_TEXT,
    b"application/grpc-web-text+proto": _WEB_TEXT,
}
"""By content type. A response has the content type of its request."""

_CODES: Final[Mapping[str, bytes]] = {
    name: b"%d" % number
    for number, name in enumerate(
        (
            *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
            *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
            *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
            "UNAUTHENTICATED",
        )
    )
}

_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""The characters that need no percent-encoding in a header."""

_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS: Final[Mapping[bytes, float]] = {b"H": 3600, b"M": 60, b"S": 1, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

_CODINGS: Final[Mapping[bytes, Coding | None]] = {
    b"": None,
    b"identity": None,
    b"gzip": "gzip",
    b"deflate": "deflate",
}
"""By `grpc-encoding`: how messages are compressed; None if they are not."""

_OWN: Final = (b"content-type", b"te")
"""Headers of the protocol, which are not metadata. Names that begin with "grpc-" are not either."""


def find_protocol(content_type: bytes) -> Protocol | None:
    """Find the protocol for a request's `Content-Type`. None for any other type."""
    return _PROTOCOLS.get(content_type.partition(b";")[0].strip().lower())


def read_timeout(value: bytes) -> float:
    """Read the seconds of a `grpc-timeout`; infinity if it is longer than any timeout."""
    matched = _TIMEOUT.fullmatch(value)
    if matched is None:
        raise InvalidRequest(
            f"header grpc-timeout is {show(value.decode('latin-1'))}: expected up to 8 digits and one of H, "
            "M, S, m, u, n"
        )
    seconds = int(matched[1]) * _SECONDS[matched[2]]
    return seconds if seconds < NO_TIMEOUT else math.inf


def read_metadata(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, str]]:
    """Read the metadata from a request's headers. Values of names that end in "-bin" get the base64 padding
    that clients may leave out."""
    for name, value in headers:
        if name not in _OWN and not name.startswith(b"grpc-"):
            text = value.decode("latin-1")
            yield name.decode("latin-1"), text + "=" * (-len(text) % 4) if name.endswith(b"-bin") else text


_NO_TRAILERS: Final = (
    "the server of this application cannot send the HTTP/2 trailers that gRPC needs (ASGI's "
    "http.response.trailers): "
    "run it with one that can, such as pyvoy or gunicorn's asgi worker with HTTP/2, or use gRPC-Web"
)


_EXPECTED: Final = (
    "application/grpc or application/grpc-web, with protobuf, which clients of the Connect protocol can "
    "send too"
)


class Answer(msgspec.Struct, frozen=True):
    """A response, and the trailers after it; None if it has none."""

    response: Response
    trailers: Fields | None = None


CANCELLED: Final = Answer(Response(499, [(b"grpc-status", b"1")], [], 0))
"""Sent if the client has gone: hosts take an application that answers nothing for a broken one, and log
that."""


class RPC(msgspec.Struct, eq=False):
    """A remote call of gRPC that came as an HTTP request."""

    protocol: Protocol  # gRPC or gRPC-Web
    head: Head
    lacks_trailers: bool  # whether it needs trailers that the server in front cannot send
    headers: Fields  # those of the answer
    # its `grpc-timeout` in seconds, once its reader is made; infinity if it has none
    timeout: float = math.inf

    def make_reader(self, options: ServerOptions, most: float = math.inf) -> FrameReader:
        """Check the head, and make the reader of a body with so many messages at most."""
        if self.lacks_trailers:
            raise InferenceError(_NO_TRAILERS, status=501)
        headers = self.head.fields
        if b"origin" in headers or b"sec-fetch-site" in headers:
            refuse_foreign(headers, ACTIONS.get(self.head.path.rpartition("/")[2]), options.trusted_origins)
        coding = headers.get(b"grpc-encoding", b"")
        if coding not in _CODINGS:
            named = show(coding.decode("latin-1"))
            raise InferenceError(
                f"grpc-encoding {named} is not supported: expected identity, gzip or deflate", status=501
            )
        if b"grpc-timeout" in headers:
            self.timeout = read_timeout(headers[b"grpc-timeout"])
        return FrameReader(options.max_body_bytes, _CODINGS[coding], self.protocol.is_text, most)

    def encode_message(self, message: bytes) -> bytes:
        """Encode one message of several."""
        return b"".join(self._encode([_HEAD_FIELDS.pack(_PLAIN, len(message)), message]))

    def end(self, reply: Reply) -> Answer:
        """Make the answer, or after several messages its end. The status is in the trailers, or over gRPC-Web
        in the last frame."""
        status = [(b"grpc-status", _CODES[reply.code])]
        if reply.details:
            status.append((b"grpc-message", quote(reply.details, safe=_SAFE).encode()))
        fields, parts, size = [*self.headers], reply.parts, 0
        if reply.metadata:
            fields += [(name.encode(), value.encode()) for name, value in reply.metadata]
        if reply.code != "OK" and b"grpc-encoding" in self.head.fields:
            fields.append((b"grpc-accept-encoding", b"gzip, deflate"))
        if self.lacks_trailers:
            return Answer(Response(200, fields + status, [], 0))
        if parts:
            size = sum(map(len, parts))
            parts, size = [_HEAD_FIELDS.pack(_PLAIN, size), *parts], size + _HEAD
        if self.protocol.has_trailers:
            return Answer(Response(200, fields, parts, size), status)
        # the frame that gRPC-Web has instead of HTTP's trailers
        end = b"".join(b"%b:%b\r\n" % field for field in status)
        parts = self._encode([*parts, _HEAD_FIELDS.pack(_TRAILERS, len(end)) + end])
        size = sum(map(len, parts))
        return Answer(Response(200, [*fields, (b"content-length", b"%d" % size)], parts, size))

    def _encode(self, parts: list[Buffer]) -> list[Buffer]:
        """Encode parts of the body: as base64 if the protocol needs it."""
        return [b64encode(b"".join(parts))] if self.protocol.is_text else parts


def begin_rpc(head: Head, *, can_send_trailers: bool) -> RPC:
    """Begin a remote call from the head of a request. If the request is not gRPC, it gets an HTTP error,
    which this raises."""
    content_type = head.fields.get(b"content-type", b"")
    protocol = _PROTOCOLS.get(content_type) or find_protocol(content_type)
    if head.method != "POST":
        raise InferenceError(
            f"gRPC is asked by POST, not by {head.method}", status=405, headers={"Allow": "POST"}
        )
    if protocol is None:
        text = f"Content-Type is {show(content_type.decode('latin-1'))}: expected {_EXPECTED}"
        raise InferenceError(text, status=415)
    return RPC(
        protocol, head, protocol.has_trailers and not can_send_trailers, [(b"content-type", content_type)]
    )
