"""Content codings: gzip and deflate, in pieces of 256 KiB at most, which is the bound of a gzip bomb: `Body` counts each and stops.

Knows no HTTP beyond the value of one header.

Specification: RFC 9110, section 8.4; RFC 1950 to 1952.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from .datatypes import Buffer
from .errors import InferenceError, InvalidRequest, show

Coding: TypeAlias = Literal["gzip", "deflate"]

_CODINGS: Final[Mapping[str, Coding]] = MappingProxyType({"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"})
_WINDOW: Final[Mapping[Coding, int]] = MappingProxyType({"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS})
_RAW: Final = -zlib.MAX_WBITS

_SLICE: Final = 2**14
"""Bytes that are decoded at a time. zlib copies what follows a gzip member, so the time for a slice grows with its square."""

_PIECE: Final = 2**18
"""The most bytes that come out at a time, however well they were compressed."""

_MAX_MEMBERS: Final = 10_000
"""Members of a gzip body. Each costs microseconds, also an empty one; block formats of 64 KiB a member reach this at 640 MB."""


def read_coding(value: str) -> Coding | None:
    """The coding that a `Content-Encoding` names, None if there is none."""
    names = [name for part in value.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in _CODINGS:
        raise InferenceError(
            f"Content-Encoding {show(value)} is not supported: expected one of gzip and deflate, or the body as it is",
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
            # the first two bytes show whether it has a zlib header
            chunk = self._start + chunk
            if len(chunk) < 2:
                self._start = chunk
                return
            self._inflate = zlib.decompressobj(_WINDOW["deflate"] if _has_zlib_header(chunk) else _RAW)
        view = memoryview(chunk)
        for start in range(0, len(view), _SLICE):
            yield from self._decode(view[start : start + _SLICE])

    def _decode(self, data: memoryview | bytes) -> Iterator[bytes]:
        piece = b""
        while data or len(piece) == _PIECE:  # zlib may have read all data, and still hold more than a full piece
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
        """Check that the body is complete."""
        if self._inflate is None or not self._inflate.eof:
            raise InvalidRequest(f"the {self._coding} body ends too early: expected its end mark and checksum")


def _has_zlib_header(start: bytes) -> bool:
    return start[0] & 0x0F == zlib.DEFLATED and int.from_bytes(start[:2], "big") % 31 == 0
