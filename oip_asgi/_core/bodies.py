"""A request's body as it arrives: its limit and its announced length are kept here. Reads nothing itself."""

from __future__ import annotations

from .errors import InvalidRequest, TooLarge


class Body:
    """Collects the chunks of a body.

    Args:
        length: The announced length in bytes, None where none was announced.
        limit: The most bytes that are taken, None for no limit.
        keep: Whether the bytes are wanted; they are only counted else.

    Raises:
        TooLarge: The announced length is above the limit.
    """

    def __init__(self, length: int | None, limit: int | None, *, keep: bool = True) -> None:
        self._length = length
        self._limit = limit
        self._keep = keep
        self._dropped = 0
        self._first = b""
        self._all: bytearray | None = None
        if length is not None:
            self._check(length)

    def _check(self, size: int) -> None:
        if self._limit is not None and size > self._limit:
            raise TooLarge(f"the body is larger than {self._limit} bytes, the most that this server takes (max_body_bytes)")

    def wanted(self, most: int) -> int:
        """How many bytes to read next, at most `most`; 0 where all that was announced is there."""
        return most if self._length is None else min(most, self._length - self._size())

    def _size(self) -> int:
        return self._dropped + len(self._first if self._all is None else self._all)

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk.

        Raises:
            TooLarge: The body has grown above the limit.
        """
        if not chunk:
            return
        self._check(self._size() + len(chunk))
        if not self._keep:
            self._dropped += len(chunk)
        elif self._all is not None:
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
            InvalidRequest: It is shorter or longer than announced, or cut off.
        """
        size = self._size()
        if cut_off or self._length not in (None, size):
            raise InvalidRequest(f"the body ended after {size} bytes: expected {'more' if self._length is None else self._length}")
        return self._first if self._all is None else self._all
