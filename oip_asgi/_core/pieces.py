"""Long JSON `data`, a piece at a time: so no step of it takes long, nor much memory. Knows no datatypes and no errors.

Python runs one thread at a time, and a call of a library's, however long, is one step: what is decoded as a whole stops everybody else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from .datatypes import Array, Buffer

_PIECE: Final = 2**16
"""Bytes of text in a piece: some thousand numbers, and a fraction of a millisecond."""

_LONGEST: Final = 64
"""Bytes of text that an element may take, spaces and all; where one takes more, the text is for its whole decoder."""

_OPENING: Final = re.compile(rb"[ \t\r\n]*\[")
_COMMA: Final = re.compile(rb"[ \t\r\n]*,")
_CLOSING: Final = re.compile(rb"[ \t\r\n]*\]")
_END: Final = re.compile(rb"[ \t\r\n]*\Z")

_WRONG: Final = -1


def read(text: Buffer, shape: tuple[int, ...], array: Array, decode: Callable[[bytes], Array | None]) -> bool:
    """Fill an array from JSON arrays that nest exactly as a shape says.

    Args:
        text: One JSON value, without strings that hold brackets or commas.
        shape: How it nests, one dimension at least; all elements in one dimension where it is flat.
        array: What to fill, flat, of as many elements.
        decode: Makes an array of a piece, which is one JSON array; None where it is something else than it should be.

    Returns:
        Whether all was as it should be. If not, some of the array may be filled.
    """
    end, filled = _read(memoryview(text), 0, shape, array, 0, decode)
    return end != _WRONG and filled == len(array) and _END.match(text, end) is not None


def _read(
    text: memoryview, start: int, shape: tuple[int, ...], array: Array, filled: int, decode: Callable[[bytes], Array | None]
) -> tuple[int, int]:
    """Read one JSON array, and say where it ends and how much is filled then."""
    opening = _OPENING.match(text, start)
    if opening is None:
        return _WRONG, filled
    position = opening.end()
    if len(shape) == 1:
        return _read_row(text, position, shape[0], array, filled, decode)
    for place in range(shape[0]):
        if place:
            comma = _COMMA.match(text, position)
            if comma is None:
                return _WRONG, filled
            position = comma.end()
        position, filled = _read(text, position, shape[1:], array, filled, decode)
        if position == _WRONG:
            return _WRONG, filled
    closing = _CLOSING.match(text, position)
    return (_WRONG if closing is None else closing.end()), filled


def _read_row(
    text: memoryview, start: int, size: int, array: Array, filled: int, decode: Callable[[bytes], Array | None]
) -> tuple[int, int]:
    """Read the innermost array, behind its opening bracket."""
    position, end = start, filled + size
    while True:
        # no more than what is left of the row may take, as a copy of 64 KiB for each of a million short rows is 64 GB
        window = bytes(text[position : position + min(_PIECE, _LONGEST * (end - filled + 1))])
        closing = window.find(b"]")
        cut = window.rfind(b",") if closing < 0 else closing
        values = None if cut < 0 else decode(b"[%b]" % window[:cut])
        # what is between two commas, or behind the last, is never nothing
        if values is None or (len(values) == 0 and size > 0) or filled + len(values) > end:
            return _WRONG, filled
        array[filled : filled + len(values)] = values
        filled += len(values)
        position += cut + 1
        if closing >= 0:
            return (position if filled == end else _WRONG), filled


def write(array: Array, encode: Callable[[Array], bytes]) -> bytes:
    """A long flat array as a JSON array.

    Args:
        array: What to write, not empty.
        encode: Makes a JSON array of a piece.
    """
    step = _PIECE // 8
    return b"[%b]" % b",".join([encode(array[start : start + step])[1:-1] for start in range(0, len(array), step)])
