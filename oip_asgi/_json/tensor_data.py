"""How the JSON list `data` becomes a tensor, and how NaN is written: JSON <-> array, typed by datatype. Knows
no documents and no names.

A short text is read by `_read_quickly`: one decoder takes numbers and strings for any datatype, and `struct`
packs the numbers, and refuses what is none, or out of range. What it refuses is read by `checked_data`, one
by one, which takes it or says what is wrong. To `struct`, true and false are 1 and 0: `schemas.Data` keeps
them away from it, and `_codecs.entering` those of Python.

A long text is cut into flat pieces, each of which is read like that: the brackets are taken out, and compared
with those of the shape at the end. NaN leaves as null, infinities as the strings "Infinity" and "-Infinity".

Specification: Tensor Data: flat, or nested as the shape, in row-major order.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .._protocol import schemas
from .._protocol.datatypes import (
    DTYPES,
    INFINITE,
    Array,
    Buffer,
    DType,
    cast,
    datatype_of,
    find_overflow,
    make_integer_array,
    object_array,
    to_shape,
)
from .._protocol.errors import InvalidRequest, show
from .._protocol.limits import LOOP_BYTES, PIECE, SHORT_TEXT
from .._protocol.tensor_bytes import count
from .._turns import take_turns
from . import checked_data
from .text import REFUSALS, Unusual, mask_escapes

_CODES: Final = {
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
}
"""The letter of `struct` for each dtype of numbers."""

_LIST: Final = re.compile(rb"[ \t\r\n]*\[")
_NESTED: Final = re.compile(rb"[ \t\r\n]*\[[ \t\r\n]*\[")

_NO_SKELETON: Final = bytes(set(range(256)) - set(b"[],"))
_BLANK: Final = bytes.maketrans(b"[]", b"  ")

_SLOW: Final = {letter: re.compile(letter + rb"[-+]?[0-9]{3}") for letter in (b"e", b"E")}
"""A number that takes msgspec 12 microseconds, and Python's json a fraction of one."""

ALWAYS_SHORT: Final = 2**12
"""Bytes of JSON that one decoder reads whole, whatever they are: 700 slow numbers take 8 milliseconds."""

_FEW: Final = 500
"""How many slow numbers may be read on an event loop, which takes 6 milliseconds; and how many lists and
strings a text may have, of which each is an object, that is read whole."""

_STEP: Final = 2**13
"""Elements that are written in one call."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(schemas.Data).decode


def from_json(text: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The JSON text of `data` as an array."""
    if len(text) > PIECE and _LIST.match(text):
        return _read_long(memoryview(text), checked_data.Form(dtype, shape, count(shape)))
    whole = bytes(text)
    with suppress(*REFUSALS):
        return _read_quickly(whole, dtype, shape)
    return _pack_elements(
        checked_data.read(whole, checked_data.Form(dtype, shape, count(shape))), dtype, shape
    )


def from_elements(
    flat: list[Any], dtype: DType, shape: tuple[int, ...], *, is_json: bool, has_wrong_element: bool
) -> Array:
    """Make an array of elements. `has_wrong_element` says that one is wrong: the error says which."""
    if not has_wrong_element:
        with suppress(Unusual):
            return from_value(flat, dtype, shape)
    checked_data.check_elements(
        flat, checked_data.Form(dtype, shape, len(flat), is_json), 0, is_nested=len(shape) != 1
    )
    return _pack_elements(flat, dtype, shape)


def is_short(text: Buffer) -> bool:
    """Whether one decoder may read a text of some KiB whole: it takes little time, and its objects take
    little memory."""
    whole = bytes(text)
    if len(text) > LOOP_BYTES and (
        len(text) > SHORT_TEXT or not (_has_few(whole, b"[") and _has_few(whole, b'"'))
    ):
        return False
    return all(
        _has_few(whole, letter) or len(pattern.findall(whole)) <= _FEW for letter, pattern in _SLOW.items()
    )


def _has_few(text: bytes, letter: bytes) -> bool:
    place = -1
    for _ in range(_FEW):  # which is quicker than to count, where there are few
        place = text.find(letter, place + 1)
        if place < 0:
            return True
    return False


def _read_quickly(text: bytes, dtype: DType, shape: tuple[int, ...] | None = None) -> Array:
    """A text that holds nothing unusual as an array; without a shape, as many elements as there are. Raises
    one of `REFUSALS`."""
    kind = dtype.kind
    if kind in "fV" and any(letter in text and pattern.search(text) for letter, pattern in _SLOW.items()):
        raise Unusual
    values: Any = msgspec.json.decode(text) if kind == "b" else _decode(text)
    return from_value(values, dtype, (len(values),) if shape is None else shape)


def from_value(value: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Decoded `data` as an array. Raises Unusual if it has anything but elements of the dtype, flat or nested
    as the shape."""
    if type(value) is not list or (value and type(value[0]) is list):
        # a scalar may be the bare value
        value = checked_data.flatten(value, shape) if shape or type(value) is list else [value]
    size, pack = _make_packer(shape, dtype)
    if len(value) != size:
        raise Unusual
    kind = dtype.kind
    try:
        if pack is not None:  # quicker than numpy, which takes "1" too, and warns of what does not fit
            return ndarray(shape, dtype, pack(*value))
        if kind == "O":
            return object_array(list(map(str.encode, value)), shape)
    except (struct.error, OverflowError, TypeError, UnicodeEncodeError):
        pass
    if kind == "b" and set(map(type, value)) <= {bool, int} and set(value) <= {0, 1}:
        return to_shape(np.array(value, dtype), shape)
    if kind in "fV":
        return _from_floats(value, dtype, shape)
    raise Unusual


@lru_cache(256)  # shapes repeat from request to request
def _make_packer(shape: tuple[int, ...], dtype: DType) -> tuple[int, Callable[..., bytes] | None]:
    """How many elements a tensor has, and what makes bytes of them if they are numbers."""
    size, code = count(shape), _CODES.get(dtype.str[1:])
    return size, None if code is None else struct.Struct(f"<{size}{code}").pack


def _from_floats(flat: list[Any], dtype: DType, shape: tuple[int, ...]) -> Array:
    """Floats, of which some may be None or the name of a non-finite value."""
    if (
        not set(map(type, flat)) <= {float, int, str, type(None)}
        or not {each for each in flat if type(each) is str} <= checked_data.NAMES
    ):
        raise Unusual
    try:
        wide = np.array(flat, np.float64)  # reads None and names as they are meant
    except OverflowError:
        raise Unusual from None
    array = cast(wide, dtype)
    if find_overflow(wide, array).any():
        raise Unusual
    return to_shape(array, shape)


def _pack_elements(flat: list[Any], dtype: DType, shape: tuple[int, ...], first: int = 0) -> Array:
    """Make an array of the elements that `checked_data` has read. Errors need `first`, the index of the first
    of them in the whole."""
    with suppress(Unusual):
        return from_value(flat, dtype, shape)
    # all are of the right type, so one of them is out of range
    if dtype.kind in "iu":
        make_integer_array(flat, dtype, "data", first)
    for index, each in enumerate(flat, first):
        if type(each) is int and abs(each) >= INFINITE:
            raise InvalidRequest(f"data: element {index} is out of range for {datatype_of(dtype)}")
    wide = np.array(flat, np.float64)
    index = int(np.argmax(find_overflow(wide, cast(wide, dtype))))
    raise InvalidRequest(
        f"data: element {first + index} is {wide[index]}, which is out of range for {datatype_of(dtype)}"
    )


def _read_long(text: memoryview, form: checked_data.Form) -> Array:
    """Read long data in pieces. The text is known to be JSON, so it is right if its brackets and commas are
    those of the shape."""
    size, is_nested = form.size, _NESTED.match(text) is not None
    # an element and its comma take two bytes at least: no memory is taken for more elements than there can be
    if 2 * size > len(text):
        raise form.make_mismatch_error(0)
    array, filled, skeleton = np.empty(size, form.dtype), 0, list[bytes]()
    for chunk in take_turns(_cut(text)) if size else ():
        brackets = None
        if b"[" in chunk or b"]" in chunk:
            chunk, brackets = _take_brackets(chunk)
        values = _read_piece(b"[%b]" % chunk, form, filled, is_nested=is_nested)
        end = filled + len(values)
        if end > size:
            raise form.make_mismatch_error(filled, is_long=True)
        array[filled:end] = values
        filled = end
        skeleton.append(b"," * (len(values) - 1) if brackets is None else brackets)
    whole = b",".join(skeleton) if size else bytes(text).translate(None, b" \t\r\n")
    if filled != size or not (_has_skeleton(whole, (size,)) or _has_skeleton(whole, form.shape)):
        raise form.make_mismatch_error(filled)
    return array.reshape(form.shape)


def _cut(text: memoryview) -> Iterator[bytes]:
    """Cut a text into pieces at commas between elements."""
    start, size = 0, PIECE
    while start < len(text):
        chunk = bytes(text[start : start + size])
        if start + size < len(text):
            comma = _find_last_comma(chunk)
            if comma < 0:
                size *= 2
                continue
            chunk = chunk[:comma]
        yield chunk
        start, size = start + len(chunk) + 1, PIECE


def _find_last_comma(chunk: bytes) -> int:
    """The last comma outside strings, -1 if there is none."""
    plain = mask_escapes(chunk)
    comma = plain.rfind(b",")
    # if it is in a string, the comma before that string is not
    if b'"' in plain and plain.count(b'"', 0, max(comma, 0)) % 2:
        comma = plain.rfind(b",", 0, plain.rfind(b'"', 0, comma))
    return comma


def _take_brackets(chunk: bytes) -> tuple[bytes, bytes]:
    """Split a piece: its elements without brackets, and its brackets and commas."""
    if b'"' not in chunk:  # as nearly all numbers, of which this saves a fifth of the time
        return chunk.translate(_BLANK), chunk.translate(None, _NO_SKELETON)
    if b"\\" in chunk:  # the same strings, with quotes at their ends only
        chunk = chunk.replace(b"\\\\", b"\\u005c").replace(b'\\"', b"\\u0022")
    parts = chunk.split(b'"')
    skeleton = b"".join(parts[::2]).translate(None, _NO_SKELETON)
    parts[::2] = [part.translate(_BLANK) for part in parts[::2]]
    return b'"'.join(parts), skeleton


def _has_skeleton(skeleton: bytes, shape: tuple[int, ...]) -> bool:
    """True if brackets and commas are those of nested arrays of this shape."""
    expected = b""
    for size in reversed(shape[: shape.index(0) + 1] if 0 in shape else shape):
        if size * len(expected) > len(skeleton):  # before it is made: a shape may be of any size
            return False
        expected = b"[%b]" % ((expected + b",") * size)[:-1]
    return expected == skeleton


def _read_piece(text: bytes, form: checked_data.Form, first: int, *, is_nested: bool) -> Array:
    """One flat JSON array of elements, the first of which has this index."""
    with suppress(*REFUSALS):
        return _read_quickly(text, form.dtype)
    values = checked_data.read_flat(text, form, first, is_nested=is_nested)
    return _pack_elements(values, form.dtype, (len(values),), first)


def to_json(array: Array) -> bytes:
    """An array of a protocol dtype as the JSON text of `data`: flat, always valid JSON, no value lost."""
    flat = array.reshape(-1)
    if len(flat) <= _STEP:
        return _encode(_list_elements(flat, 0))
    texts = [
        _encode(_list_elements(flat[start : start + _STEP], start))[1:-1]
        for start in range(0, len(flat), _STEP)
    ]
    texts[0], texts[-1] = b"[" + texts[0], texts[-1] + b"]"  # the whole, which may be long, is copied once
    return b",".join(texts)


def to_value(array: Array) -> list[Any] | msgspec.Raw:
    """An array of a protocol dtype as an encoder takes it: a list of its elements, or JSON text if there are
    many."""
    return msgspec.Raw(to_json(array)) if array.size > _STEP else _list_elements(array, 0)


def _list_elements(array: Array, first: int) -> list[Any]:
    """The elements of an array as an encoder takes them: NaN becomes null. Errors need `first`, the index of
    the first of them in the whole."""
    kind = array.dtype.kind
    if kind == "V":
        array = cast(array, DTYPES["FP64"])
    flat: list[Any] = (array if array.ndim == 1 else array.ravel()).tolist()
    if kind == "O":
        return _decode_strings(flat, first)
    if kind in "fV" and not math.isfinite(sum(flat)):
        return [("Infinity" if value > 0 else "-Infinity") if math.isinf(value) else value for value in flat]
    return flat


def _decode_strings(encoded: list[bytes], first: int) -> list[str]:
    try:
        return list(map(bytes.decode, encoded))
    except UnicodeDecodeError as error:
        index = first + encoded.index(error.object)
        raise InvalidRequest(
            f"BYTES element {index} is {show(error.object)}, which is not UTF-8 and cannot be a JSON string"
        ) from None
