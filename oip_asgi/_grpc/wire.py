"""The bytes of protobuf's messages, before a library parses them and after it has serialized them. Knows no
library.

protobuf copies each bytes field of a message twice in each direction, which for tensors is most of the work:
so this module cuts them out of a request as views, and appends them to a response. protobuf also parses a
message in one call, which blocks all other threads, and makes an object for each tensor and parameter: so
this module limits what it parses.

Format: Protocol Buffers, Encoding. A message is its fields one after the other, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from .._protocol.datatypes import MAX_RANK, Buffer
from .._protocol.errors import InvalidRequest
from .._protocol.limits import MAX_TENSORS

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = 0, 1, 2, 3, 4, 5
_SIZES: Final = {FIXED64: 8, FIXED32: 4, GROUP: 0, GROUP_END: 0}

_MAX_FIELDS: Final = 10_000
"""A message of more fields is not split. Looking at so many takes 10 milliseconds."""

_MAX_SHIFT: Final = 63
"""The place of the last of a number's ten bytes, in bits."""

_MAX_SHORT_SHIFT: Final = 28
"""The same for tags and lengths, which have 32 bits."""


_UNREADABLE: Final = "the request cannot be parsed: expected the bytes of inference.ModelInferRequest"

_OTHERS: Final = "fields of other kinds"
_KINDS: Final = {
    4 << 3 | BYTES: "parameters",
    5 << 3 | BYTES: "inputs",
    6 << 3 | BYTES: "outputs",
    7 << 3 | BYTES: "raw contents",
}
_KINDS_IN: Final[Mapping[int, Mapping[int, str]]] = {
    5 << 3 | BYTES: {
        1 << 3 | BYTES: "names",
        2 << 3 | BYTES: "datatypes",
        3 << 3 | VARINT: "dimensions",
        3 << 3 | BYTES: "dimensions",
        4 << 3 | BYTES: "parameters",
        5 << 3 | BYTES: "contents",
    },
    6 << 3 | BYTES: {1 << 3 | BYTES: "names of outputs", 2 << 3 | BYTES: "parameters"},
}
"""The fields of a request, of its inputs and of its requested outputs, by their tags. It may have
`MAX_TENSORS` of each."""

_MAX_SHAPE: Final = 10 * MAX_RANK
"""The most bytes of dimensions: each has ten at most."""


def split_field(message: Buffer, field: int) -> tuple[Buffer, list[memoryview]]:
    """Cut a bytes field out of a serialized message."""
    view = memoryview(message)
    kept: list[memoryview] = []
    taken: list[memoryview] = []
    start = 0
    try:
        for tag, value, end in iterate_fields(view):
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
    """Find the values of text fields of a long message, before it is parsed."""
    fields_by_number = dict.fromkeys(fields, b"")
    view = memoryview(message)
    with suppress(IndexError, KeyError):
        for tag, value, end in islice(iterate_fields(view), _MAX_FIELDS):
            if tag & 7 == BYTES and tag >> 3 in fields_by_number:
                fields_by_number[tag >> 3] = bytes(view[value:end])
    try:
        return tuple(value.decode() for value in fields_by_number.values())
    except UnicodeDecodeError:
        raise InvalidRequest(_UNREADABLE) from None


def has_more_fields(message: Buffer, most: int) -> bool:
    """True if a message has more fields, up to the first malformed one."""
    with suppress(IndexError, KeyError):
        return sum(1 for _ in islice(iterate_fields(memoryview(message)), most + 1)) > most
    return False


def check_fields(message: Buffer) -> None:
    """Check how many objects protobuf would make from a long request, which has no raw contents any more."""
    numbers = Counter[str]()
    try:
        for what, size in _name_fields(memoryview(message)):
            numbers[what] += 1
            if what == "dimensions" and size > _MAX_SHAPE:
                raise InvalidRequest(f"the shape of an input has more than {MAX_RANK} dimensions")
            if numbers[what] > MAX_TENSORS:
                raise InvalidRequest(f"the request has more than {MAX_TENSORS} {what}")
    except (IndexError, KeyError):
        raise InvalidRequest(_UNREADABLE) from None


def _name_fields(message: memoryview) -> Iterator[tuple[str, int]]:
    """Name each field of a request and of its tensors, with its size in bytes."""
    for tag, value, end in iterate_fields(message):
        yield _KINDS.get(tag, _OTHERS), end - value
        if tag in _KINDS_IN:
            kinds = _KINDS_IN[tag]
            for inner, start, stop in iterate_fields(message[value:end]):
                yield kinds.get(inner, _OTHERS), stop - start


def iterate_fields(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """Find each field's tag, and the start and end of its value. Fields in a group come like others, between
    the group's two tags."""
    position, end = 0, len(view)
    while position < end:
        tag, value = _read_varint(view, position, _MAX_SHORT_SHIFT)
        if tag & 7 == BYTES:
            length, value = _read_varint(view, value, _MAX_SHORT_SHIFT)
            position = value + length
        elif tag & 7 == VARINT:
            _, position = _read_varint(view, value, _MAX_SHIFT)
        else:
            position = value + _SIZES[tag & 7]
        if position > end:
            raise IndexError
        yield tag, value, position


def _read_varint(view: Buffer, position: int, max_shift: int) -> tuple[int, int]:
    """Read the number at `position`, and return it and where it ends. Each byte has seven bits; those of the
    last byte are shifted by `max_shift` at most."""
    number = shift = 0
    while view[position] & 0x80:
        if shift == max_shift:
            raise IndexError
        number |= (view[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    return number | view[position] << shift, position + 1


def encode_bytes_head(field: int, size: int) -> bytes:
    """Encode the head of a bytes field: append it to a serialized message, then `size` bytes, and the field
    has one more value."""
    tag = field << 3 | BYTES
    return bytes((tag, size)) if max(tag, size) < 0x80 else _encode_varint(tag) + _encode_varint(size)


def _encode_varint(number: int) -> bytes:
    """The inverse of `_read_varint`."""
    if number < 0x80:
        return bytes((number,))
    return bytes((number & 0x7F | 0x80,)) + _encode_varint(number >> 7)
