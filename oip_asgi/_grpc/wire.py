"""The top level of a serialized protobuf message: bytes fields are taken off it as views, and put behind it. Knows no messages.

A library that parses or serializes a message copies its bytes fields twice each way, which for tensors is most of the work.

Format: Protocol Buffers, Encoding. A message is its fields one after the other, whichever their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from .._protocol.datatypes import Buffer

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = 0, 1, 2, 3, 4, 5
_SIZES: Final = {FIXED64: 8, FIXED32: 4, GROUP: 0, GROUP_END: 0}

_MAX_FIELDS: Final = 10_000
"""A message of more fields than this is left whole. To look at so many takes 10 milliseconds."""

_MAX_SHIFT: Final = 63
"""Where the last of a number's ten bytes begins, in bits."""

_MAX_SHORT_SHIFT: Final = 28
"""The same for tags and lengths, which have 32 bits."""


def split(message: Buffer, field: int) -> tuple[Buffer, list[memoryview]]:
    """Take a bytes field off a serialized message."""
    view = memoryview(message)
    kept: list[memoryview] = []
    taken: list[memoryview] = []
    start = 0
    try:
        for tag, value, end in fields_of(view):
            if len(kept) + len(taken) == _MAX_FIELDS or tag & 7 == GROUP:
                return message, []
            if tag == field << 3 | BYTES:
                taken.append(view[value:end])
            else:
                kept.append(view[start:end])
            start = end
    except (IndexError, KeyError):
        return message, []
    return (b"".join(kept), taken) if taken else (message, [])


def find_texts(message: Buffer, fields: tuple[int, ...]) -> tuple[str, ...]:
    """The values of text fields of a long message, before it is parsed."""
    found = dict.fromkeys(fields, b"")
    view = memoryview(message)
    with suppress(IndexError, KeyError):
        for tag, value, end in islice(fields_of(view), _MAX_FIELDS):
            if tag & 7 == BYTES and tag >> 3 in found:
                found[tag >> 3] = bytes(view[value:end])
    return tuple(value.decode(errors="replace") for value in found.values())


def has_more_fields(message: Buffer, most: int) -> bool:
    """Whether a message has more fields than that, as far as it is not malformed."""
    with suppress(IndexError, KeyError):
        return sum(1 for _ in islice(fields_of(memoryview(message)), most + 1)) > most
    return False


def fields_of(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """The tag of each field, and where its value begins and ends. Fields in a group come like others, between its two ends."""
    position, end = 0, len(view)
    while position < end:
        tag, value = _varint(view, position, _MAX_SHORT_SHIFT)
        if tag & 7 == BYTES:
            length, value = _varint(view, value, _MAX_SHORT_SHIFT)
            position = value + length
        elif tag & 7 == VARINT:
            _, position = _varint(view, value, _MAX_SHIFT)
        else:
            position = value + _SIZES[tag & 7]
        if position > end:
            raise IndexError
        yield tag, value, position


def _varint(view: Buffer, position: int, max_shift: int) -> tuple[int, int]:
    """The number at `position`, whose last byte may begin so many bits behind its start, and where it ends."""
    number = shift = 0
    while view[position] & 0x80:
        if shift == max_shift:
            raise IndexError
        number |= (view[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return number | view[position] << shift, position + 1


def bytes_head(field: int, size: int) -> bytes:
    """What to put behind a serialized message, and `size` bytes behind that, so that a bytes field has them as one more value."""
    tag = field << 3 | BYTES
    return bytes((tag, size)) if tag < 0x80 and size < 0x80 else _number(tag) + _number(size)


def _number(number: int) -> bytes:
    """The inverse of `_varint`."""
    if number < 0x80:
        return bytes((number,))
    return bytes((number & 0x7F | 0x80,)) + _number(number >> 7)
