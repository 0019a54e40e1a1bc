"""Collects a request's body, and checks its limits, compressed and decompressed, and its announced length. Reads nothing itself."""

from __future__ import annotations

from typing import Final

import msgspec

from .codings import Coding, Decoder
from .datatypes import Buffer
from .errors import InvalidRequest, TooLarge

_ALIGNMENT: Final = 16
"""Where memory for a bytearray begins."""


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
    _whole: bytearray | None = None
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
        if self._size == 0:
            self._first = chunk
        else:
            if self._whole is None:
                self._whole = bytearray(self._padding) + self._first
                self._first = b""
            self._whole += chunk
        self._size += len(chunk)

    @property
    def _padding(self) -> int:
        """How many bytes in front of the body align what is after its head."""
        return -(self.head or 0) % _ALIGNMENT

    def finish(self, *, cut_off: bool = False) -> Buffer:
        """The whole body, without a copy if it came in one chunk."""
        if cut_off or self.length not in (None, self._received):
            expected = "more" if self.length is None else self.length
            raise InvalidRequest(f"the body ended after {self._received} bytes: expected {expected}")
        if self._decoder is not None:
            self._decoder.finish()
            self._decoder = None  # its window would stay as long as the request
        return self._first if self._whole is None else memoryview(self._whole)[self._padding :].toreadonly()
