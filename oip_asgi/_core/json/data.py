"""JSON `data` <-> array, typed by datatype. Knows no documents, no byte framing and no tensor names.

Nearly all data is plain, and read by decoders that know its type. What they refuse is read a second time, element by element, by code that
takes everything the protocol allows and says exactly what is wrong. So no text is parsed more than twice.

Specification: Tensor Data: flat, or nested as the shape, in row-major order.
"""

from __future__ import annotations

import math
import re
import struct
import types
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import chain, takewhile
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from ..datatypes import DTYPES, Array, Buffer, DType, cast, datatype_of, integer_array
from ..errors import InvalidRequest
from ..raw import count
from ..tensors import object_array, shaped
from ..turns import let_others_run
from . import accelerators, chunks, elements, strings, structure
from .documents import MAX_DEPTH, NotPlain
from .numbers import are_many_slow

_FLOAT: Final[Any] = float | None | Literal["NaN", "Infinity", "-Infinity"]

_TYPES: Final[dict[str, Any]] = {
    "b": bool | Literal[0, 1],
    "u": int,
    "i": int,
    "f": _FLOAT,
    "V": _FLOAT,  # as which numpy knows the BF16 of ml_dtypes
    "O": str,
}
"""For each kind of dtype: what msgspec decodes an element as."""

_LIST: Final = re.compile(rb"[ \t\r\n]*\[")
_NESTED: Final = re.compile(rb"[ \t\r\n]*\[[ \t\r\n]*\[")
_MARK: Final = b"\1"
"""What stands for an empty array while many of them are read. JSON has it nowhere."""

_LONG: Final = 2**12
"""Bytes of text above which it is read in chunks. Lists of elements are small up to there, however many there are."""

_TAIL: Final = 64
"""Bytes at the end of a text where its last bracket is, unless there is much whitespace."""

_SLOW: Final = 2**12
"""Bytes of numbers that are slow to read that are decoded in one call, which holds the interpreter: a millisecond or two."""

_NULL: Final = b"n"
"""What only null has of all that stands for numbers: where it is not in a text, nothing is infinite."""

_MANY: Final = 2**9
"""Elements above which they are written in chunks, by a library that is quick with many."""

_encode: Final = msgspec.json.Encoder().encode


def from_json(text: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The JSON text of `data` as an array.

    Args:
        text: One JSON value, as it stood in the request.
        dtype: A dtype of the protocol.
        shape: Its dimensions, 0 or more each.

    Returns:
        An array of that dtype and shape, which shares nothing with `text`.

    Raises:
        InvalidRequest: The text does not have the shape, flat or nested, or an element is not one of the datatype.
    """
    try:
        return read_plain(text, dtype, shape)
    except NotPlain:
        return read_closely(text, dtype, shape)


def read_plain(text: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The same as `from_json` for text that is plain.

    Raises:
        InvalidRequest: There is no array of that shape.
        NotPlain: Something is wrong with the text, or it is written in a way that is rare or slow to read.
    """
    size, kind = count(shape), dtype.kind
    try:
        if len(text) > _LONG:
            return _read_long(memoryview(text), dtype, shape, size)
        if _NESTED.match(text):
            flat = _flattened(_decoder(kind, len(shape) or 1).decode(text), shape)
        elif shape or _LIST.match(text):
            flat = _FLAT[kind].decode(text)
        else:
            flat = [_decoder(kind, 0).decode(text)]  # the natural representation of a scalar is the bare value
        if len(flat) == size:
            return _to_array(flat, dtype, shape)
    except (chunks.Mismatch, InvalidRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise NotPlain


@cache  # bounded: 6 kinds, 65 depths
def _decoder(kind: str, depth: int) -> msgspec.json.Decoder[Any]:
    element: Any = _TYPES[kind]
    for _ in range(depth):
        element = types.GenericAlias(list, (element,))
    return msgspec.json.Decoder(element)


_FLAT: Final = {kind: _decoder(kind, 1) for kind in _TYPES}
"""The decoders of flat arrays, which nearly all `data` is."""


def _flattened(nested: list[Any], shape: tuple[int, ...]) -> list[Any]:
    level: list[Any] = [nested]
    for size in shape:
        if any(len(item) != size for item in level):
            raise NotPlain
        level = list(chain.from_iterable(level))
    return level


def _read_long(text: memoryview, dtype: DType, shape: tuple[int, ...], size: int) -> Array:
    if not size:
        return _read_empty(text, dtype, shape)
    text, nesting = _peeled(text, shape)
    if _LIST.match(text) is None:
        raise NotPlain
    if len(text) <= chunks.CHUNK and len(nesting) < 2:
        values = _decode_plain(bytes(text), dtype)
        if len(values) != size:
            raise NotPlain
        return (object_array(values, shape) if isinstance(values, list) else values).reshape(shape)

    def decode(chunk: bytes, _: int) -> Array | list[bytes]:
        return _decode_plain(chunk, dtype)

    return _read_chunks(text, dtype, nesting, size, decode).reshape(shape)


def _peeled(text: memoryview, shape: tuple[int, ...]) -> tuple[memoryview, tuple[int, ...]]:
    """A text without the outer arrays that have only one item, and how it nests."""
    if not shape or _NESTED.match(text) is None:
        return text, (count(shape),)
    while len(shape) > 1 and shape[0] == 1:
        tail = bytes(text[-_TAIL:])
        kept = tail.rstrip(b" \t\r\n")
        opening = _LIST.match(text)
        if opening is None or not kept.endswith(b"]"):
            break
        text, shape = text[opening.end() : len(text) - len(tail) + len(kept) - 1], shape[1:]
    return text, shape


def _read_chunks(text: Buffer, dtype: DType, nesting: tuple[int, ...], size: int, decode: chunks.Decode) -> Array:
    if 2 * size > len(text):  # an element takes two bytes at least, with its comma: nothing is allocated for what cannot be there
        raise chunks.Mismatch(0)
    array = np.empty(size, dtype)
    chunks.read(text, nesting, array, decode, strings=dtype.hasobject)
    return array


def _read_empty(text: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Long text of a tensor without elements: one empty array, or many in arrays that are not empty."""
    marked = _marked(text)
    if marked != _MARK:
        outer = tuple(takewhile(bool, shape))
        if not outer:
            raise chunks.Mismatch(0)
        _read_chunks(marked, np.dtype(bool), outer, math.prod(outer), _decode_marks)
    return np.empty(shape, dtype)


def _marked(text: memoryview) -> bytes:
    """The text without whitespace, and with a mark in the place of each empty array."""
    parts: list[bytes] = []
    left = b""
    for start in range(0, len(text), chunks.CHUNK):
        window = left + bytes(text[start : start + chunks.CHUNK]).translate(None, b" \t\r\n")
        if _MARK in window:
            raise chunks.Mismatch(0)
        left = b"[" if window.endswith(b"[") else b""
        parts.append(window.removesuffix(left).replace(b"[]", _MARK))
    return b"".join([*parts, left])


def _decode_marks(chunk: bytes, first: int) -> Array:
    marks = chunk[1:-1].translate(None, b" ").split(b",")
    if set(marks) != {_MARK}:
        raise chunks.Mismatch(first)
    return np.zeros(len(marks), bool)


def _decode_plain(chunk: bytes, dtype: DType) -> Array | list[bytes]:
    """One flat JSON array as an array, or as a list of BYTES elements."""
    kind = dtype.kind
    if kind == "O":
        return strings.read(chunk)
    if kind in "fV" and are_many_slow(chunk):
        raise NotPlain
    if accelerators.can_read(dtype):
        array = accelerators.read(chunk, dtype)
        if array is None:
            raise NotPlain
        return array
    flat = _FLAT[kind].decode(chunk)
    return _to_array(flat, dtype, (len(flat),))


def read_closely(text: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The same as `from_json`, for any text: each element is looked at.

    Raises:
        InvalidRequest: The text does not have the shape, flat or nested, or an element is not one of the datatype.
    """
    size = count(shape)
    kind = "f" if dtype.kind == "V" else dtype.kind
    wanted = elements.Wanted(dtype, kind, shape, size)
    if len(text) <= chunks.CHUNK or _LIST.match(text) is None:
        whole = bytes(text)
        if len(whole) > _LONG and kind != "O" and whole.count(b",") >= math.prod(takewhile(bool, shape)):
            # before lists of too many are made; strings may hold commas, so of them only the decoder can tell
            raise InvalidRequest(f"data has too many elements: expected {wanted}")
        return _to_array(elements.read(whole, wanted), dtype, shape)
    try:
        if not size:
            return _read_empty(memoryview(text), dtype, shape)
        is_nested = _NESTED.match(text) is not None

        def decode(chunk: bytes, first: int) -> Array:
            read: list[Array] = []
            is_slow = kind == "f" and are_many_slow(chunk)
            for part in chunks.parts(chunk, _SLOW) if is_slow else [chunk]:
                flat = elements.read_flat(part, wanted, first, is_nested=is_nested)
                if not flat:
                    raise chunks.Mismatch(first)
                read.append(_to_array(flat, dtype, (len(flat),), first))
                first += len(flat)
                let_others_run()
            return np.concatenate(read) if is_slow else read[0]

        return _read_chunks(text, dtype, shape if is_nested and shape else (size,), size, decode).reshape(shape)
    except chunks.Mismatch as error:
        problem = f"has another form, or too few elements, from element {error.index} on"
        if error.is_long:
            problem = "has too many elements"
        elif structure.depth(text) > MAX_DEPTH:
            problem = "is nested too deep"
        raise InvalidRequest(f"data {problem}: expected {wanted}") from None


def _to_array(flat: list[Any], dtype: DType, shape: tuple[int, ...], first: int = 0) -> Array:
    """Elements of the right types as an array. `first` is the index of the first of them in the whole, for errors."""
    kind = dtype.kind
    if kind == "f":
        try:
            # numbers that fit, as nearly always: quicker than numpy, which has to be kept from warning of others
            return ndarray(shape, dtype, _packer(len(flat), dtype)(*flat))
        except (struct.error, OverflowError):
            return shaped(_to_floats(flat, dtype, first), shape)
    if kind == "V":
        return shaped(_to_floats(flat, dtype, first), shape)
    if kind == "O":
        return object_array([element.encode() for element in flat], shape)
    if kind == "b":
        return shaped(np.array(flat, dtype), shape)
    return shaped(integer_array(flat, dtype, "data", first), shape)


@lru_cache(256)  # lengths repeat from request to request
def _packer(size: int, dtype: DType) -> Callable[..., bytes]:
    return struct.Struct(f"<{size}{dtype.char}").pack


def _to_floats(flat: list[Any], dtype: DType, first: int) -> Array:
    wide = np.array(flat, np.float64)  # reads None and the names of non-finite values as they are meant
    if dtype == wide.dtype:
        return wide
    array = cast(wide, dtype)
    lost = np.isinf(array) & np.isfinite(wide)
    if lost.any():
        place = int(np.argmax(lost))
        raise InvalidRequest(f"data: element {first + place} is {wide[place]}, which is out of range for {datatype_of(dtype)}")
    return array


def to_json(array: Array) -> bytes:
    """An array of a protocol dtype as the JSON text of `data`: flat, always valid JSON, no value lost.

    Args:
        array: Any shape. NaN leaves as null, infinities as the strings "Infinity" and "-Infinity".

    Raises:
        InvalidRequest: A BYTES element is not UTF-8, so only binary data can carry it.
    """
    kind = array.dtype.kind
    if kind == "V":
        array, kind = cast(array, DTYPES["FP64"]), "f"
    flat = array.ravel()
    if kind == "O":
        return chunks.write(flat, strings.write)
    if len(flat) > _MANY:
        return chunks.write(flat, _many_numbers)
    text = _encode(flat.tolist())
    return _with_infinities(flat, text) if kind == "f" and text.find(_NULL) >= 0 else text


def _many_numbers(array: Array, _: int) -> bytes:
    text = accelerators.write(array) or _encode(array.tolist())
    return _with_infinities(array, text) if array.dtype.kind == "f" and text.find(_NULL) >= 0 else text


def _with_infinities(array: Array, text: bytes) -> bytes:
    """The text of an array as JSON, in which infinities are null, with what they should be."""
    if not np.isinf(array).any():
        return text
    values: list[Any] = array.tolist()
    for place in np.flatnonzero(np.isinf(array)).tolist():
        values[place] = "Infinity" if values[place] > 0 else "-Infinity"
    return _encode(values)
