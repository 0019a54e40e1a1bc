"""Collects a request's body, and checks its limits, compressed and decompressed, and its announced length.
Reads nothing itself.

gzip and deflate are decoded in pieces of 256 KiB at most. `Body` checks the limit, `max_body_bytes`, before
it keeps a piece, so a gzip bomb takes at most 256 KiB more than the limit.

Specification: RFC 9110, section 8.4; RFC 1950 to 1952.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np

from .datatypes import Buffer
from .errors import BodyTaken, InferenceError, InvalidRequest, TakenBy, TooLarge, log, show

Coding: TypeAlias = Literal["gzip", "deflate"]

_CODINGS: Final[Mapping[str, Coding]] = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
_WINDOW: Final[Mapping[Coding, int]] = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_RAW: Final = -zlib.MAX_WBITS

_SLICE: Final = 2**14
"""Bytes that are decoded at a time. zlib copies what follows a gzip member, so the time for a slice grows
with its square."""

_PIECE: Final = 2**18
"""The most bytes that come out at a time, however well they were compressed."""

_MAX_MEMBERS: Final = 10_000
"""How many members a gzip body may have. Each costs microseconds, even an empty one. Formats with a member
for each 64 KiB of a body reach this at 640 MB."""


def read_coding(value: str) -> Coding | None:
    """The coding that a `Content-Encoding` names, None if there is none."""
    names = [name for part in value.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in _CODINGS:
        raise InferenceError(
            f"Content-Encoding {show(value)} is not supported: expected one of gzip and deflate, or the "
            "body as it is",
            status=415,
            headers={"Accept-Encoding": ", ".join(_WINDOW)},
        )
    return _CODINGS[names[0]]


class Decoder:
    """Decodes a compressed body piece by piece, so that its caller decides how many pieces are too many."""

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._start = b""
        self._inflate = None if coding == "deflate" else zlib.decompressobj(_WINDOW[coding])
        self._members = 1

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        """Decode the next chunk into pieces of 256 KiB at most."""
        if self._inflate is None:
            chunk = self._start + chunk
            if len(chunk) < 2:
                self._start = chunk
                return
            has_zlib_header = chunk[0] & 0x0F == zlib.DEFLATED and int.from_bytes(chunk[:2], "big") % 31 == 0
            self._inflate = zlib.decompressobj(_WINDOW["deflate"] if has_zlib_header else _RAW)
        view = memoryview(chunk)
        for start in range(0, len(view), _SLICE):
            for piece in self._decode(view[start : start + _SLICE]):
                yield piece

    def _decode(self, data: memoryview | bytes) -> Iterator[bytes]:
        piece = b""
        # zlib may have read all data, and still hold more than a full piece
        while data or len(piece) == _PIECE:
            assert self._inflate is not None  # feed has made it
            if self._inflate.eof:
                self._inflate = self._next_member()
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error as error:
                raise InvalidRequest(f"the {self._coding} body is corrupt: {error}") from None
            if piece:
                yield piece
            if self._inflate.eof:
                data, piece = self._inflate.unused_data, b""
            else:
                data = self._inflate.unconsumed_tail

    def _next_member(self) -> zlib._Decompress:
        if self._coding != "gzip":
            raise InvalidRequest("the deflate body goes on behind its end")
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise InvalidRequest(f"the gzip body has more than {_MAX_MEMBERS} members")
        return zlib.decompressobj(_WINDOW["gzip"])

    def finish(self) -> None:
        if self._inflate is None or not self._inflate.eof:
            raise InvalidRequest(
                f"the {self._coding} body ends too early: expected its end mark and checksum"
            )


_UPGRADE: Final = (
    "no body came, and the request has the header Upgrade with {}: uvicorn with httptools drops the body of "
    "such a request. Send no "
    "Upgrade, in Java by HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1), or start uvicorn "
    "with --http h11"
)
_TAKEN: Final = "something of the application has read the body of the request first: see the server's log"
_TAKEN_BY: Final = (
    "%s has read the body of a request before oip_asgi could, so the answer is 500: write %s there first, "
    "which keeps the body"
)


def make_taken_error(taken_by: TakenBy, *, is_logged: bool = True) -> BodyTaken:
    """Make the error for a request whose body something of the application has read, and log what that
    was."""
    if is_logged:
        log(_TAKEN_BY, *taken_by())
    return BodyTaken(_TAKEN)


_ALIGNMENT: Final = 16
"""Where memory of numpy begins."""


class Body(msgspec.Struct, eq=False):
    """Collects the chunks of a body."""

    length: int | None  # the announced length in bytes, None if none was announced
    limit: int | None  # the most bytes that are taken, before decoding and after; None for no limit
    coding: Coding | None = None
    """How the body is compressed, None if it is not. To decompress takes `feed` up to a second for each
    chunk."""
    json_length: int | None = 0
    """How many bytes of it are JSON in front of binary data; None if all are. If the body comes in more than
    one chunk, it is laid out so that the bytes after the JSON are aligned and can be an array without a
    copy."""
    keep: bool = True  # whether the bytes are wanted. Otherwise they are only counted.
    json_limit: int | None = None  # the most bytes of JSON that are taken; None for no limit
    is_chunked: bool = False  # whether the request says that a body follows, and not how long it is
    upgrade: bytes | None = None  # the request's header Upgrade
    _received: int = 0
    _first: Buffer = b""
    _size: int = 0
    _room: memoryview | None = None
    _decoder: Decoder | None = None

    def check(self, size: int) -> None:
        """Refuse a size above the limits. Before anything is read, it is the announced one."""
        json_size = size if self.json_length is None or size < self.json_length else self.json_length
        limit = math.inf if self.limit is None else self.limit
        if self.json_limit is not None and self.json_limit < limit and json_size > self.json_limit:
            raise TooLarge(
                f"the JSON is larger than {self.json_limit} bytes, the most that this server takes: "
                "send binary tensor data, or raise max_json_bytes"
            )
        if size > limit:
            raise TooLarge(
                f"the body is larger than {self.limit} bytes, the most that this server takes "
                "(max_body_bytes)"
            )

    def count_next(self, most: int) -> int:
        """How many bytes to read next, at most `most`; 0 if all that was announced is there."""
        return most if self.length is None else min(most, self.length - self._received)

    def feed(self, chunk: Buffer) -> None:
        if not chunk:
            return
        self._received += len(chunk)
        self.check(self._received)
        if self.coding is None:
            self._keep(chunk)
            return
        self._decoder = self._decoder or Decoder(self.coding)
        for piece in self._decoder.feed(chunk):
            self.check(self._size + len(piece))
            self._keep(piece)

    def _keep(self, chunk: Buffer) -> None:
        if not self.keep:
            return
        if self._size == 0:
            self._first = chunk
        else:
            start = self._padding + self._size
            end = start + len(chunk)
            room = self._room
            if room is None or end > len(room):
                room = self._room = self._make_room(end)
            room[start:end] = chunk
        self._size += len(chunk)

    def _make_room(self, size: int) -> memoryview:
        """Make room for so many bytes, or for more of them to come. In a `bytearray` that grows, 64 MiB take
        five times as long."""
        is_known = self.length is not None and self.limit is not None and self.coding is None
        expected = self._padding + (self.length or 0) if is_known else 2 * size
        room = np.empty(max(expected, size), np.uint8).data
        there = slice(self._padding, self._padding + self._size)
        room[there] = self._first if self._room is None else self._room[there]
        self._first = b""
        return room

    @property
    def _padding(self) -> int:
        """How many bytes must be in front of the body so that what follows its JSON is aligned."""
        return -(self.json_length or 0) % _ALIGNMENT

    def finish(self, *, cut_off: bool = False, taken_by: TakenBy | None = None) -> Buffer:
        """The whole body, without a copy if it came in one chunk.

        Args:
            cut_off: Whether it ended too early.
            taken_by: Finds what of the application has read the bytes that are missing, if any are. None if
                the client may not have sent them. With `cut_off`, something is known to have read some.
        """
        received, length = self._received, self.length
        if self.upgrade is not None and not received and (length or self.is_chunked):
            raise InvalidRequest(_UPGRADE.format(show(self.upgrade.decode("latin-1"))))
        is_cut_off = cut_off and taken_by is None
        if length is None:
            is_taken = cut_off and self.is_chunked and not received
        else:
            is_taken = received < length
            is_cut_off = is_cut_off or received != length
        if is_taken and taken_by is not None:
            raise make_taken_error(taken_by, is_logged=self.keep)
        if is_cut_off:
            expected = "more" if length is None else length
            raise InvalidRequest(f"the body ended after {received} bytes: expected {expected}")
        if self._decoder is not None:
            self._decoder.finish()
            self._decoder = None  # its window would stay as long as the request
        return (
            self._first
            if self._room is None
            else self._room[self._padding : self._padding + self._size].toreadonly()
        )
