"""The top level of a serialized protobuf message: bytes fields are taken off it as views, and put behind it. Knows no messages.

A library that parses or serializes a message copies its bytes fields twice each way, which for tensors is most of the work.

Format: Protocol Buffers, Encoding. A message is its fields one after the other, whichever their order.
"""

from __future__ import annotations

from typing import Final

from ..datatypes import Buffer

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MAX_FIELDS: Final = 1000
"""A message of more fields than this is parsed faster than it is looked through."""

_GUESSES: Final = 16
"""How many bytes that look like a tag are looked at: names, shapes and datatypes hardly have them."""

_MAX_SHIFT: Final = 63
"""Where the last of a number's ten bytes begins, in bits."""

_MAX_SHORT_SHIFT: Final = 28
"""The same for tags and lengths, which have 32 bits."""


def split(message: bytes, field: int) -> tuple[bytes, list[memoryview]]:
    """Take a bytes field off a serialized message.

    Args:
        message: The message.
        field: The number of the field.

    Returns:
        The message without the field, and the field's values in order. A message that is malformed comes back whole, for the
        parser to refuse.
    """
    view = memoryview(message)
    kept: list[memoryview] = []
    taken: list[memoryview] = []
    position, end = 0, len(view)
    try:
        while position < end:
            start = position
            tag, position = _varint(view, position, _MAX_SHORT_SHIFT)
            value = position
            if tag & 7 == _BYTES:
                length, value = _varint(view, position, _MAX_SHORT_SHIFT)
                position = value + length
            elif tag & 7 == _VARINT:
                _, position = _varint(view, position, _MAX_SHIFT)
            else:
                position += {_FIXED64: 8, _FIXED32: 4}[tag & 7]
            if position > end or len(kept) + len(taken) == _MAX_FIELDS:
                return message, []
            if tag == field << 3 | _BYTES:
                taken.append(view[value:position])
            else:
                kept.append(view[start:position])
    except (IndexError, KeyError):
        return message, []
    return b"".join(kept), taken


def ending(message: bytes, field: int) -> tuple[bytes, int] | None:
    """Where a serialized message ends with a bytes field.

    Args:
        message: The message.
        field: The number of the field, at most 15, whose tag is one byte.

    Returns:
        What is before the field, and where its value begins; None where it does not look like that. If what is before it is a message, so
        is all of it, as messages are read from front to back.
    """
    tag, end, place = field << 3 | _BYTES, len(message), -1
    for _ in range(_GUESSES):
        place = message.find(tag, place + 1)
        if place < 0:
            return None
        try:
            length, start = _varint(message, place + 1, _MAX_SHORT_SHIFT)
        except IndexError:
            continue  # it was no tag
        if start + length == end:
            return message[:place], start
    return None


def apart(message: bytes, field: int) -> tuple[bytes, bytes] | None:
    """A serialized message that begins with short bytes fields, without one of them.

    Args:
        message: The message.
        field: The number of the field. Those before it have lower numbers, as they are mostly written.

    Returns:
        The message without the field, and its value; None where it is not found.
    """
    place, end = 0, len(message) - 1
    while place < end:
        tag, size = message[place], message[place + 1]
        if tag & 7 != _BYTES or tag > field << 3 | _BYTES or size > 0x7F:
            return None
        behind = place + 2 + size
        if tag >> 3 == field:
            return (message[:place] + message[behind:], message[place + 2 : behind]) if behind <= end else None
        place = behind
    return None


def _varint(view: Buffer, position: int, max_shift: int) -> tuple[int, int]:
    """The number at `position`, whose last byte may begin so many bits behind its start, and where it ends.

    Raises:
        IndexError: It does not end, or not within the bytes that it may have.
    """
    number = shift = 0
    while view[position] & 0x80:
        if shift == max_shift:
            raise IndexError
        number |= (view[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return number | view[position] << shift, position + 1


def bytes_head(field: int, size: int) -> bytes:
    """What to put behind a serialized message, and `size` bytes behind that, so that a bytes field has them as one more value."""
    return _number(field << 3 | _BYTES) + _number(size)


def _number(number: int) -> bytes:
    """The inverse of `_varint`."""
    if number < 0x80:
        return bytes((number,))
    return bytes((number & 0x7F | 0x80,)) + _number(number >> 7)
