"""Long JSON `data`, a piece at a time: so no step of it takes long, nor much memory. Knows no datatypes and no errors.

Python runs one thread at a time, and a call of a library's, however long, is one step: what is decoded as a whole stops everybody else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from ..datatypes import Array, Buffer

PIECE: Final = 2**16
"""Bytes of text in a piece: some thousand numbers, and a fraction of a millisecond."""

_LONGEST: Final = 64
"""Bytes that an element may take, spaces and all. Where one takes more, the text is decoded as a whole."""

_SHORT: Final = 2**10
"""Up to so many elements, several of the innermost arrays are a piece: one at a time would cost more than what is in it."""

_OPENING: Final = re.compile(rb"[ \t\r\n]*\[")
_COMMA: Final = re.compile(rb"[ \t\r\n]*,")
_CLOSING: Final = re.compile(rb"[ \t\r\n]*\]")
_TWO_CLOSING: Final = re.compile(rb"\][ \t\r\n]*\]")
_END: Final = re.compile(rb"[ \t\r\n]*\Z")
_SPACES: Final = b" \t\r\n"

Decode: TypeAlias = Callable[[bytes, int | None], Array | None]
"""Makes a flat array of a piece, which is one JSON array: of elements, or of arrays that are so long each.

None where it is something else than it should be.
"""


class _Wrong(Exception):
    """The text does not nest as it should."""


def read(text: Buffer, shape: tuple[int, ...], array: Array, decode: Decode) -> bool:
    """Fill an array from JSON arrays that nest exactly as a shape says.

    Args:
        text: One JSON value, without strings that hold brackets or commas.
        shape: How it nests, one dimension at least and none of them 0; all elements in one dimension where it is flat.
        array: What to fill, flat, of as many elements.
        decode: Makes an array of a piece.

    Returns:
        Whether all was as it should be. If not, some of the array may be filled.
    """
    reader = _Reader(memoryview(text), array, decode)
    try:
        reader.read(shape)
    except _Wrong:
        return False
    return reader.is_at_end()


class _Reader:
    """Where reading stands: in the text, and in the array."""

    def __init__(self, text: memoryview, array: Array, decode: Decode) -> None:
        self._text = text
        self._array = array
        self._decode = decode
        self._position = 0
        self._filled = 0

    def is_at_end(self) -> bool:
        return self._filled == len(self._array) and _END.match(self._text, self._position) is not None

    def read(self, shape: tuple[int, ...]) -> None:
        """Read one JSON array."""
        self._skip(_OPENING)
        if len(shape) == 1:
            self._read_row(shape[0])
        elif len(shape) == 2 and shape[1] <= _SHORT:
            self._read_rows(*shape)
        else:
            for place in range(shape[0]):
                if place:
                    self._skip(_COMMA)
                self.read(shape[1:])
            self._skip(_CLOSING)

    def _skip(self, expected: re.Pattern[bytes]) -> None:
        found = expected.match(self._text, self._position)
        if found is None:
            raise _Wrong
        self._position = found.end()

    def _read_row(self, size: int) -> None:
        """Read an array of elements, behind its opening bracket."""
        end = self._filled + size
        while True:
            window = self._window(end - self._filled)
            closing = window.find(b"]")
            cut = window.rfind(b",") if closing < 0 else closing
            # what is between two commas, or behind the last, is never nothing
            if self._fill(window[: max(cut, 0)], None) == 0:
                raise _Wrong
            self._position += cut + 1
            if closing >= 0:
                break
        if self._filled != end:
            raise _Wrong

    def _read_rows(self, count: int, size: int) -> None:
        """Read an array of short arrays of elements, behind its opening bracket."""
        end = self._filled + count * size
        while True:
            left = end - self._filled
            window = self._window(2 * left)  # brackets and commas between rows too
            # an element takes two bytes at least: where more are left than fit in, the end need not be looked for
            closing = _TWO_CLOSING.search(window) if 2 * left <= len(window) else None
            if closing is not None:
                self._fill(window[: closing.start() + 1], size)
                self._position += closing.end()
                break
            # the last of them may be cut off
            cut = window.rfind(b"[")
            rows = window[: max(cut, 0)].rstrip(_SPACES)
            # what is before a comma is never nothing
            if not rows.endswith(b",") or self._fill(rows[:-1], size) == 0:
                raise _Wrong
            self._position += cut
        if self._filled != end:
            raise _Wrong

    def _window(self, elements: int) -> bytes:
        """What comes next in the text, and no more of it than so many elements may take: a million short rows are not 64 KiB each."""
        return bytes(self._text[self._position : self._position + min(PIECE, _LONGEST * (elements + 1))])

    def _fill(self, piece: bytes, row: int | None) -> int:
        """Fill the array with the elements of a piece, and say how many there were."""
        values = self._decode(b"[%b]" % piece, row)
        if values is None or self._filled + len(values) > len(self._array):
            raise _Wrong
        self._array[self._filled : self._filled + len(values)] = values
        self._filled += len(values)
        return len(values)


def write(array: Array, encode: Callable[[Array], bytes]) -> bytes:
    """A long flat array as a JSON array.

    Args:
        array: What to write, not empty.
        encode: Makes a JSON array of a piece.
    """
    step = PIECE // 8
    if len(array) <= step:
        return encode(array)
    return b"[%b]" % b",".join([encode(array[start : start + step])[1:-1] for start in range(0, len(array), step)])
