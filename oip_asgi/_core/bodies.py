"""A request's body as it arrives: its limit, its announced length and its coding are kept here. Reads nothing itself."""

from __future__ import annotations

from .encodings import Coding, Decoder
from .errors import InvalidRequest, TooLarge


class Body:
    """Collects the chunks of a body.

    Args:
        length: The announced length in bytes, None where none was announced.
        limit: The most bytes that are taken, before decoding and after; None for no limit.
        coding: How it is compressed, None where it is not.
        keep: Whether the bytes are wanted; they are only counted else.

    Raises:
        TooLarge: The announced length is above the limit.
    """

    def __init__(self, length: int | None, limit: int | None, coding: Coding | None = None, *, keep: bool = True) -> None:
        self._length = length
        self._limit = limit
        self._decoder = None if coding is None else Decoder(coding)
        self._is_kept = keep
        self._received = 0
        self._first = b""
        self._all: bytearray | None = None
        if length is not None:
            self._check(length)

    @property
    def is_compressed(self) -> bool:
        """Whether `feed` takes its time, up to a second for each chunk."""
        return self._decoder is not None

    def _check(self, size: int) -> None:
        if self._limit is not None and size > self._limit:
            raise TooLarge(f"the body is larger than {self._limit} bytes, the most that this server takes (max_body_bytes)")

    def wanted(self, most: int) -> int:
        """How many bytes to read next, at most `most`; 0 where all that was announced is there."""
        return most if self._length is None else min(most, self._length - self._received)

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk.

        Raises:
            TooLarge: The body has grown above the limit.
            InvalidRequest: Its compressed data is corrupt.
        """
        if not chunk:
            return
        self._received += len(chunk)
        self._check(self._received)
        if self._decoder is None:
            self._keep(chunk)
            return
        for piece in self._decoder.feed(chunk):
            self._check(len(self._first if self._all is None else self._all) + len(piece))
            self._keep(piece)

    def _keep(self, chunk: bytes) -> None:
        if not self._is_kept:
            return
        if self._all is not None:
            self._all += chunk
        elif self._first:
            self._all = bytearray(self._first)
            self._all += chunk
        else:
            self._first = chunk

    def finish(self, *, cut_off: bool = False) -> bytes | bytearray:
        """The whole body, without a copy where it came in one chunk.

        Args:
            cut_off: The client went before the end.

        Raises:
            InvalidRequest: It is shorter or longer than announced, or cut off, or its compressed data is.
        """
        if cut_off or self._length not in (None, self._received):
            expected = "more" if self._length is None else self._length
            raise InvalidRequest(f"the body ended after {self._received} bytes: expected {expected}")
        if self._decoder is not None and self._received:
            self._decoder.finish()
        return self._first if self._all is None else self._all
