"""Content codings: gzip and deflate, of requests as they arrive and of whole responses. Knows no HTTP beyond two headers' values.

Specification: RFC 9110, sections 8.4 and 12.5.3; RFC 1950 to 1952.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from .datatypes import Buffer
from .errors import InvalidRequest, UnsupportedEncoding, shown

Coding: TypeAlias = Literal["gzip", "deflate"]

_CODINGS: Final[Mapping[str, Coding]] = MappingProxyType({"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"})
_WINDOW: Final[Mapping[Coding, int]] = MappingProxyType({"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS})
_RAW: Final = -zlib.MAX_WBITS

_SLICE: Final = 2**14
"""How many bytes are decoded at a time: what follows a gzip member is copied, so that large slices would cost their square."""

_PIECE: Final = 2**18
"""The most bytes that come out at a time, whatever the compression."""

_MAX_MEMBERS: Final = 10_000
"""Each gzip member costs microseconds, however empty; block formats of 64 KiB a member reach this at 640 MB."""

_LEVEL: Final = 1
"""Arrays of floats hardly compress: a higher level takes many times as long for a few percent."""

_QUALITY: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def coding_of(value: str) -> Coding | None:
    """The coding that a `Content-Encoding` names, None where there is none.

    Raises:
        UnsupportedEncoding: It names another one, or several.
    """
    names = [name for part in value.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in _CODINGS:
        raise UnsupportedEncoding(
            f"Content-Encoding {shown(value)} is not supported: expected one of gzip and deflate, or the body as it is",
            headers={"Accept-Encoding": ", ".join(_WINDOW)},
        )
    return _CODINGS[names[0]]


class Decoder:
    """Decodes a compressed body piece by piece, so that its caller decides how many pieces are too many.

    "deflate" is taken in both its forms: with zlib's frame, as the standard has it, and bare, as some clients send it.
    """

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._start = b""
        self._inflate = None if coding == "deflate" else zlib.decompressobj(_WINDOW[coding])
        self._members = 1

    def feed(self, chunk: Buffer) -> Iterator[bytes]:
        """Decode the next chunk into pieces of 256 KiB at most.

        Raises:
            InvalidRequest: The data is corrupt, or goes on behind its end.
        """
        if self._inflate is None:
            # the form shows in the first two bytes
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
        while data or len(piece) == _PIECE:  # a full piece may have left more behind, with all of the data read
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
        """The body has ended.

        Raises:
            InvalidRequest: The compressed data has not.
        """
        if self._inflate is None or not self._inflate.eof:
            raise InvalidRequest(f"the {self._coding} body ends too early: expected its end mark and checksum")


def _has_zlib_header(start: bytes) -> bool:
    return start[0] & 0x0F == zlib.DEFLATED and int.from_bytes(start[:2], "big") % 31 == 0


def preferred(value: str) -> Coding | None:
    """The coding for a response, from the request's `Accept-Encoding`; None for the response as it is.

    What is not written as the standard has it, such as `gzip;q=1e999`, counts as not accepted.
    """
    qualities: dict[str, float] = {}
    for part in value.lower().split(","):
        name, _, parameter = part.partition(";")
        qualities[name.strip()] = _quality(parameter)
    other = qualities.get("*", 0.0)
    offered: dict[Coding, float] = {
        "gzip": qualities.get("gzip", qualities.get("x-gzip", other)),
        "deflate": qualities.get("deflate", other),
    }
    best = max(offered, key=lambda coding: offered[coding])
    return best if offered[best] > 0 and offered[best] >= qualities.get("identity", 0.0) else None


def _quality(parameter: str) -> float:
    if not parameter.strip():
        return 1.0
    name, _, number = parameter.partition("=")
    if name.strip() != "q" or not _QUALITY.fullmatch(number.strip()):
        return 0.0
    return float(number)


def encode(parts: Sequence[Buffer], coding: Coding) -> bytes:
    """The parts of a response, compressed as one."""
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[coding])
    return b"".join([*(deflate.compress(part) for part in parts), deflate.flush()])
