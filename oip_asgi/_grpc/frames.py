"""Frames: five bytes, and a message of the length that they say. Knows no HTTP, no protobuf and no methods.

`Body` of `_protocol.request_body` refuses a message that is too long, and `_protocol.grpc_codes` has the code for that.

A body may hold any number of messages, and they may be split over its chunks in any way.

Specification: gRPC over HTTP2, Length-Prefixed-Message; gRPC-Web, for the body as text and the frame of trailers.
"""

from __future__ import annotations

import math
import re
from binascii import Error, a2b_base64
from functools import partial
from struct import Struct
from typing import Final

import msgspec

from .._protocol.datatypes import Buffer
from .._protocol.errors import InferenceError, InvalidRequest, TakenBy
from .._protocol.request_body import Body, Coding, make_taken_error

_HEAD: Final = 5
_HEAD_FIELDS: Final = Struct(">BI")
"""Its flag, and how many bytes the message has."""
_PLAIN, _COMPRESSED = 0, 1
_TRAILERS: Final = 0x80

encode_frame_head: Final = partial(_HEAD_FIELDS.pack, _PLAIN)
"""Encode the five bytes in front of a message of so many bytes."""

_SHORT: Final = 2**16
"""Bytes up to which a copy of a message is cheaper than a view."""

_SEGMENT: Final = re.compile(rb"[^=]+={0,2}")
"""Base64 up to its padding: a client that encodes piece by piece pads each piece."""


def encode_trailers(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Encode the frame that gRPC-Web has instead of HTTP's trailers."""
    text = b"".join(b"%b:%b\r\n" % field for field in fields)
    return _HEAD_FIELDS.pack(_TRAILERS, len(text)) + text


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
            raise InvalidRequest(f"a frame begins with the byte {flag}: expected 0, or 1 for a compressed message")
        if flag == _COMPRESSED and self.coding is None:
            raise InvalidRequest("a frame says that its message is compressed, but grpc-encoding does not say how")
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
        """Check that the body has ended after a message, and return the messages that are left. The arguments are those of `Body`."""
        if cut_off and taken_by is not None:
            raise make_taken_error(taken_by)
        if cut_off or self._head or self._text or self._body is not None:
            raise InvalidRequest("the body ended within a message, or before its end: expected more")
        return self._messages
