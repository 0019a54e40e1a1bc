"""Collects a request's body, and checks its limits, compressed and decompressed, and its announced length. Reads nothing itself."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from .codings import Coding, Decoder
from .datatypes import Buffer
from .errors import InvalidRequest, TooLarge

_ALIGNMENT: Final = 16

_TRUSTED: Final = 2**20
"""Memory for a long announced body is taken only after so many bytes have come: announcing costs a client nothing. It is also the most
that is copied in one go."""


class Body(msgspec.Struct, eq=False):
    """Collects the chunks of a body.

    Args:
        length: The announced length in bytes, None if none was announced.
        limit: The most bytes that are taken, before decoding and after; None for no limit.
        coding: How it is compressed, None if it is not. To decompress takes `feed` up to a second for each chunk.
        head: How many bytes of it are JSON in front of binary data; None if all are. If the body comes in more than one chunk, it is
            laid out so that the bytes after the JSON are aligned and can be an array without a copy.
        keep: Whether the bytes are wanted. Otherwise they are only counted.
        json_limit: The most bytes of JSON that are taken; None for no limit.
    """

    length: int | None
    limit: int | None
    coding: Coding | None = None
    head: int | None = 0
    keep: bool = True
    json_limit: int | None = None
    _received: int = 0
    _first: Buffer = b""
    _size: int = 0
    _room: memoryview | None = None
    _decoder: Decoder | None = None

    def check(self, size: int) -> None:
        """Refuse a size above the limits. Before anything is read, it is the announced one."""
        json_size = size if self.head is None or size < self.head else self.head
        if self.json_limit is not None and json_size > self.json_limit:
            raise TooLarge(
                f"the JSON is larger than {self.json_limit} bytes, the most that this server takes: "
                "send binary tensor data, or raise max_json_bytes"
            )
        if self.limit is not None and size > self.limit:
            raise TooLarge(f"the body is larger than {self.limit} bytes, the most that this server takes (max_body_bytes)")

    def count_next(self, most: int) -> int:
        """How many bytes to read next, at most `most`; 0 if all that was announced is there."""
        return most if self.length is None else min(most, self.length - self._received)

    def feed(self, chunk: Buffer) -> None:
        """Take the next chunk."""
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
        size = self._size + len(chunk)
        if self._size == 0:
            self._first = chunk
        else:
            if self._room is None or size > len(self._room):
                self._grow(size)
            assert self._room is not None  # _grow has made it
            self._room[self._size : size] = chunk
        self._size = size

    def _grow(self, size: int) -> None:
        room = 2 * size if self.limit is None else max(size, min(2 * size, self.limit))
        if self.length is not None and self.coding is None:
            is_believed = self.length <= _TRUSTED or size > _TRUSTED
            room = max(size, self.length) if is_believed else min(room, self.length)
        grown = allocate_aligned(room, self.head or 0)
        held = self._first if self._room is None else self._room
        for start in range(0, self._size, _TRUSTED):  # as one copy, a large one would stop all other threads
            end = min(start + _TRUSTED, self._size)
            grown[start:end] = held[start:end]
        self._first, self._room = b"", grown

    def finish(self, *, cut_off: bool = False) -> Buffer:
        """The whole body, without a copy if it came in one chunk."""
        if cut_off or self.length not in (None, self._received):
            expected = "more" if self.length is None else self.length
            raise InvalidRequest(f"the body ended after {self._received} bytes: expected {expected}")
        if self._decoder is not None:
            self._decoder.finish()
            self._decoder = None  # its window would stay as long as the request
        return self._first if self._room is None else self._room[: self._size].toreadonly()


def allocate_aligned(size: int, head: int) -> memoryview:
    """Allocate `size` bytes, which are aligned after the first `head` of them."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    address: int = memory.__array_interface__["data"][0]
    start = -(address + head) % _ALIGNMENT
    return memory.data[start : start + size]
