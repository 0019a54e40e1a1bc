"""Long JSON `data`, one chunk at a time. Knows no datatypes and no errors.

A call of a decoder holds the interpreter for as long as it takes, and makes a Python object for each element. In chunks, no call takes
more than some milliseconds, and the objects of 64 KiB of text are there at once, not those of 20 MB (measured: 2 times the text, not 46).

However deep the data nests, its brackets are checked against the shape in each chunk, and then blanked. So every chunk is a flat list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from ..datatypes import Array, Buffer

CHUNK: Final = 2**16
"""Bytes of text in a chunk: some thousand numbers, and mostly a fraction of a millisecond."""

_LONGEST: Final = 2**20
"""Bytes that a number may take, with the whitespace around it. Only strings are longer."""

_APART: Final = 2**11
"""Bytes between brackets above which it is quicker to count the commas between them one bracket after the other."""

_OPENING, _CLOSING, _COMMA, _QUOTE, _SPACE, _LETTER = b'[]," a'

Decode: TypeAlias = Callable[[bytes, int], Array | list[bytes]]
"""Decodes a chunk, which is one flat JSON array. The second argument is the index of its first element in the whole."""


class Mismatch(Exception):
    """The text does not nest as it should, or has another number of elements.

    Args:
        index: The first element of the chunk in which this was found.
        is_long: Whether there are more elements than there should be.
    """

    def __init__(self, index: int, *, is_long: bool = False) -> None:
        super().__init__(index)
        self.index = index
        self.is_long = is_long


def read(text: Buffer, shape: tuple[int, ...], array: Array, decode: Decode, *, strings: bool) -> None:
    """Fill an array from JSON arrays that nest exactly as a shape says.

    Args:
        text: One JSON value.
        shape: How it nests: one dimension at least and none of them 0; one dimension where it is flat.
        array: What to fill, flat, of as many elements.
        decode: Makes an array of a chunk.
        strings: Whether the elements are strings, which may hold brackets and commas.

    Raises:
        Mismatch: It nests in another way, or has another number of elements.
    """
    blocks = _blocks(shape)
    view, position, filled = memoryview(text), 0, 0
    while position < len(view):
        chunk, is_last = _next(view, position, filled, strings=strings)
        if is_last or not filled or len(blocks) > 1 or chunk.find(b"[") >= 0 or chunk.find(b"]") >= 0:
            flat, elements = _flat(chunk, filled, blocks, strings=strings)
        else:
            flat, elements = b"[%b]" % chunk, None
        values = decode(flat, filled)
        size = len(values)
        # there is never nothing between two commas
        if not size or elements not in (size, None) or filled + size > len(array):
            raise Mismatch(filled, is_long=filled + size > len(array))
        array[filled : filled + size] = values
        filled += size
        position += len(chunk) + 1
        if is_last is (filled != len(array)):
            raise Mismatch(filled, is_long=not is_last)


def _blocks(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """How many elements the arrays in the data have, smallest first, and how many levels have arrays of that size."""
    blocks: list[tuple[int, int]] = []
    size = 1
    for dimension in reversed(shape):
        size *= dimension
        if blocks and blocks[-1][0] == size:
            blocks[-1] = (size, blocks[-1][1] + 1)
        else:
            blocks.append((size, 1))
    return blocks


def parts(chunk: bytes, size: int) -> Iterator[bytes]:
    """One flat JSON array as several, of about `size` bytes each. An array of nothing is among them only where an element is missing.

    Raises:
        Mismatch: It is malformed, so that strings cannot be told from what is between them.
    """
    view, position = memoryview(chunk)[1:-1], 0
    while position < len(view):
        part, _ = _next(view, position, 0, strings=True, size=size)
        yield b"[%b]" % part
        position += len(part) + 1


def _next(view: memoryview, position: int, filled: int, *, strings: bool, size: int = CHUNK) -> tuple[bytes, bool]:
    """The next chunk, up to the last comma between elements in it, and whether it is the last. An element is never cut."""
    while True:
        window = bytes(view[position : position + size])
        if position + size >= len(view):
            return window, True
        cut = _last_comma(window, filled) if strings else window.rfind(b",")
        if cut >= 0:
            return window[:cut], False
        size *= 2
        if size > _LONGEST and not strings:
            raise Mismatch(filled)


def without_escapes(text: bytes) -> bytes:
    """Text of the same length in which each quote begins or ends a string. It must not begin within an escape."""
    return text.replace(b"\\\\", b"__").replace(b'\\"', b"__") if text.find(b"\\") >= 0 else text


def _last_comma(window: bytes, filled: int) -> int:
    """The last comma outside strings, -1 where there is none."""
    plain = without_escapes(window)
    comma = plain.rfind(b",")
    if comma < 0 or plain.count(b'"', 0, comma) % 2 == 0:
        return comma
    # it is in a string: the one before that string is not
    comma = plain.rfind(b",", 0, plain.rfind(b'"', 0, comma))
    if comma >= 0 and plain.count(b'"', 0, comma) % 2:
        raise Mismatch(filled)
    return comma


def _flat(chunk: bytes, first: int, blocks: list[tuple[int, int]], *, strings: bool) -> tuple[bytes, int]:
    """A chunk as one flat JSON array, and how many elements it has.

    Raises:
        Mismatch: Its brackets are not those of the elements from `first` on.
    """
    # two commas stand for what is before and behind the chunk, so that no bracket is at an end
    chars = np.frombuffer(b",,%b,," % chunk, np.uint8)
    outside = _masked(chars, chunk) if strings and chunk.find(b'"') >= 0 else chars
    is_bracket = (outside == _OPENING) | (outside == _CLOSING)
    brackets = np.flatnonzero(is_bracket)
    elements = _check(outside, brackets, first, blocks)
    flat = chars[1:-1].copy()
    flat[brackets - 1] = _SPACE
    flat[0], flat[-1] = _OPENING, _CLOSING
    return flat.tobytes(), elements


def _masked(chars: Array, chunk: bytes) -> Array:
    """The characters with letters in the place of what is inside of strings."""
    masked = chars.copy()
    quotes = np.frombuffer(without_escapes(chunk), np.uint8) == _QUOTE
    inside = np.cumsum(quotes, dtype=np.uint8) % 2 == 1
    masked[2:-2][inside] = _LETTER
    return masked


def _check(chars: Array, brackets: Array, first: int, blocks: list[tuple[int, int]]) -> int:
    """Look whether the brackets of a chunk are right, and say how many elements it has.

    What is between two commas is not looked at: it is left to the decoder, which takes one element there.
    """
    is_comma = chars == _COMMA
    is_comma[:2] = is_comma[-2:] = False
    elements = 1 + int(np.count_nonzero(is_comma))
    is_opening = chars[brackets] == _OPENING
    before = _commas_before(is_comma, brackets)
    starts = _expected(elements, -first, blocks)
    ends = _expected(elements, -1 - first, blocks)
    if (
        not _is_same(before[is_opening], starts)
        or not _is_same(before[~is_opening], ends)
        or not _is_around_elements(chars, brackets, is_opening)
    ):
        raise Mismatch(first, is_long=first + elements > blocks[-1][0])
    return elements


def _is_same(found: Array, expected: Array) -> bool:
    return len(found) == len(expected) and bool((found == expected).all())


def _commas_before(is_comma: Array, brackets: Array) -> Array:
    if len(brackets) * _APART > len(is_comma):
        return np.cumsum(is_comma, dtype=np.int32)[brackets]
    found, position, commas = [], 0, 0
    for bracket in brackets.tolist():
        commas += int(np.count_nonzero(is_comma[position:bracket]))
        position = bracket
        found.append(commas)
    return np.array(found, np.int64)


def _expected(elements: int, offset: int, blocks: list[tuple[int, int]]) -> Array:
    """Of which elements arrays begin, or end, in order; as often as there are arrays that do.

    Args:
        elements: How many there are in the chunk.
        offset: Minus the index of the first of them for where arrays begin, and one less for where they end.
        blocks: The sizes of arrays. Each is a multiple of the one before.
    """
    smallest, levels = blocks[0]
    start = offset % smallest
    places = np.arange(start, elements, smallest)
    if len(blocks) == 1:
        return places if levels == 1 else np.repeat(places, levels)
    times = np.full(len(places), levels)
    for size, more in blocks[1:]:
        times[(offset % size - start) // smallest :: size // smallest] += more
    return np.repeat(places, times)


def _is_around_elements(chars: Array, brackets: Array, is_opening: Array) -> bool:
    """Whether there is a comma or another of its kind before each opening bracket, and behind each closing one."""
    openings, closings = brackets[is_opening], brackets[~is_opening]
    before = _skipping_space(chars, openings - 1, openings - 2)
    behind = _skipping_space(chars, closings + 1, closings + 2)
    if (before <= _SPACE).any() or (behind <= _SPACE).any():
        visible = chars[chars > _SPACE]
        openings, closings = np.flatnonzero(visible == _OPENING), np.flatnonzero(visible == _CLOSING)
        before, behind = visible[openings - 1], visible[closings + 1]
    is_before = (before == _COMMA) | (before == _OPENING)
    is_behind = (behind == _COMMA) | (behind == _CLOSING)
    return bool(is_before.all() and is_behind.all())


def _skipping_space(chars: Array, places: Array, beyond: Array) -> Array:
    """The characters at some places, or beyond where these are whitespace."""
    found: Array = chars[places]
    is_space = found <= _SPACE
    return np.where(is_space, chars[beyond], found) if is_space.any() else found


def write(array: Array, encode: Callable[[Array, int], bytes]) -> bytes:
    """A long flat array as a JSON array.

    Args:
        array: What to write.
        encode: Makes a JSON array of a chunk. Its second argument is the index of the first element in the whole.
    """
    step = CHUNK // 8
    if len(array) <= step:
        return encode(array, 0)
    return b"[%b]" % b",".join([encode(array[start : start + step], start)[1:-1] for start in range(0, len(array), step)])
