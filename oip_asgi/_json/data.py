"""JSON `data` <-> array, typed by datatype. Knows no documents, no binary data and no tensor names.

A short text is decoded with its brackets. A long one is decoded in flat pieces: its brackets are taken out, and compared with those of the
shape at the end. `elements` reads what these decoders refuse, and says what is wrong.

Specification: Tensor Data: flat, or nested as the shape, in row-major order.
"""

from __future__ import annotations

import re
import struct
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .._protocol.datatypes import DTYPES, Array, Buffer, DType, cast, datatype_of, integer_array
from .._protocol.errors import InvalidRequest, show
from .._protocol.interpreter import take_turns
from .._protocol.limits import LOOP_BYTES, PIECE
from .._protocol.tensor_bytes import count
from .._protocol.tensors import object_array, to_shape
from . import accelerators, elements
from .text import ERRORS, mask_escapes

_FLOAT: Final[Any] = float | None | Literal["NaN", "Infinity", "-Infinity"]

_TYPES: Final[dict[str, Any]] = {
    "b": bool | Literal[0, 1],
    "u": int,
    "i": int,
    "f": _FLOAT,
    "V": _FLOAT,  # the BF16 of ml_dtypes
    "O": str,
}
"""For each kind of dtype, the type of an element for msgspec."""

_LIST: Final = re.compile(rb"[ \t\r\n]*\[")
_NESTED: Final = re.compile(rb"[ \t\r\n]*\[[ \t\r\n]*\[")

_NO_SKELETON: Final = bytes(set(range(256)) - set(b"[],"))
_BLANK: Final = bytes.maketrans(b"[]", b"  ")

_SLOW: Final = re.compile(rb"[eE][-+]?[0-9]{3}")
"""A number that takes msgspec and pysimdjson 12 microseconds, and Python's json a fraction of one."""

_FEW: Final = 2**6
"""Up to so many bytes of text, slow numbers do not matter."""

_STEP: Final = 2**13
"""Elements that are written in one call."""

_MANY: Final = 2**9
"""Above so many elements, an optional library writes them: it is quick with many."""

_NULL: Final = b"n"
"""The first letter of null. Infinities are written as null at first, so a text without this letter has none."""

_encode: Final = msgspec.json.Encoder().encode


def from_json(text: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
    """The JSON text of `data` as an array."""
    size, kind, flat = count(shape), dtype.kind, None
    if len(text) > LOOP_BYTES and _LIST.match(text):
        return _read_long(memoryview(text), elements.Wanted(dtype, shape, size))
    try:
        if len(text) > _FEW and _is_slow(bytes(text), kind):
            pass
        elif _NESTED.match(text):
            flat = elements.flatten(_decoder(kind, len(shape) or 1).decode(text), shape)
        elif shape or _LIST.match(text):
            flat = _FLAT[kind].decode(text)
        else:
            flat = [_decoder(kind, 0).decode(text)]  # the natural representation of a scalar is the bare value
    except ERRORS:
        flat = None
    if flat is None or len(flat) != size:
        flat = elements.read(bytes(text), elements.Wanted(dtype, shape, size))
    return _to_array(flat, dtype, shape)


@cache  # bounded: 6 kinds, 65 depths
def _decoder(kind: str, depth: int) -> msgspec.json.Decoder[Any]:
    element: Any = _TYPES[kind]
    for _ in range(depth):
        element = types.GenericAlias(list, (element,))
    return msgspec.json.Decoder(element)


_FLAT: Final = {kind: _decoder(kind, 1) for kind in _TYPES}
"""The decoders of flat arrays, which nearly all `data` is."""


def _is_slow(text: bytes, kind: str) -> bool:
    """Whether a text has a number that is slow to read."""
    return kind in "fV" and (text.find(b"e") >= 0 or text.find(b"E") >= 0) and _SLOW.search(text) is not None


def _read_long(text: memoryview, wanted: elements.Wanted) -> Array:
    """Read long data in pieces. The text is known to be JSON, so it is right if its brackets and commas are those of the shape."""
    size, strings, is_nested = wanted.size, wanted.dtype.hasobject, _NESTED.match(text) is not None
    if 2 * size > len(text):  # an element and its comma take two bytes at least: no memory is taken for more elements than there can be
        raise wanted.mismatch(0)
    array, filled, skeleton = np.empty(size, wanted.dtype), 0, list[bytes]()
    for chunk in take_turns(_cut(text, strings=strings)) if size else ():
        brackets = None
        if b"[" in chunk or b"]" in chunk:
            chunk, brackets = _take_brackets(chunk, strings=strings)
        values = _decode(b"[%b]" % chunk, wanted, filled, is_nested=is_nested)
        end = filled + len(values)
        if end > size:
            raise wanted.mismatch(filled, is_long=True)
        array[filled:end] = values
        filled = end
        skeleton.append(b"," * (len(values) - 1) if brackets is None else brackets)
    found = b",".join(skeleton) if size else bytes(text).translate(None, b" \t\r\n")
    if filled != size or not (_has_skeleton(found, (size,)) or _has_skeleton(found, wanted.shape)):
        raise wanted.mismatch(filled)
    return array.reshape(wanted.shape)


def _cut(text: memoryview, *, strings: bool) -> Iterator[bytes]:
    """Cut a text into pieces at commas between elements."""
    start, size = 0, PIECE
    while start < len(text):
        chunk = bytes(text[start : start + size])
        if start + size < len(text):
            comma = _find_last_comma(chunk) if strings else chunk.rfind(b",")
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
    if plain.count(b'"', 0, max(comma, 0)) % 2:  # it is in a string; the comma before that string is not
        comma = plain.rfind(b",", 0, plain.rfind(b'"', 0, comma))
    return comma


def _take_brackets(chunk: bytes, *, strings: bool) -> tuple[bytes, bytes]:
    """Split a piece: its elements without brackets, and its brackets and commas."""
    if not strings:
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


def _decode(flat: bytes, wanted: elements.Wanted, first: int, *, is_nested: bool) -> Array:
    """One flat JSON array of elements, the first of which has this index."""
    values, dtype = None, wanted.dtype
    if not _is_slow(flat, dtype.kind):
        array = accelerators.read(flat, dtype)
        if array is not None:
            return array
        with suppress(*ERRORS):
            values = _FLAT[dtype.kind].decode(flat)
    if values is None:
        values = elements.read_flat(flat, wanted, first, is_nested=is_nested)
    return _to_array(values, dtype, (len(values),), first)


def _to_array(flat: list[Any], dtype: DType, shape: tuple[int, ...], first: int = 0) -> Array:
    """Elements of the right types as an array. `first` is the index of the first of them in the whole, for errors."""
    kind = dtype.kind
    if kind == "f":
        try:
            # numbers that fit, as nearly always: quicker than numpy, which has to be kept from warning of others
            return ndarray(shape, dtype, _packer(len(flat), dtype)(*flat))
        except (struct.error, OverflowError):
            array = _to_floats(flat, dtype, first)
    elif kind == "V":
        array = _to_floats(flat, dtype, first)
    elif kind == "O":
        return object_array([element.encode() for element in flat], shape)
    else:
        array = np.array(flat, dtype) if kind == "b" else integer_array(flat, dtype, "data", first)
    return to_shape(array, shape)


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
    """An array of a protocol dtype as the JSON text of `data`: flat, always valid JSON, no value lost."""
    if array.dtype.kind == "V":
        array = cast(array, DTYPES["FP64"])
    flat = array.ravel()
    if len(flat) <= _STEP:
        return _write(flat, 0)
    return b"[%b]" % b",".join([_write(flat[start : start + _STEP], start)[1:-1] for start in range(0, len(flat), _STEP)])


def _write(flat: Array, first: int) -> bytes:
    """A piece of a flat array, whose first element has this index, as a JSON array."""
    kind = flat.dtype.kind
    if kind == "O":
        return _encode(_decode_strings(flat.tolist(), first))
    text = (accelerators.write(flat) if len(flat) > _MANY else None) or _encode(flat.tolist())
    if kind != "f" or text.find(_NULL) < 0 or not np.isinf(flat).any():
        return text
    values: list[Any] = flat.tolist()
    for place in np.flatnonzero(np.isinf(flat)).tolist():
        values[place] = "Infinity" if values[place] > 0 else "-Infinity"
    return _encode(values)


def _decode_strings(elements: list[bytes], first: int) -> list[str]:
    strings: list[str] = []
    try:
        strings.extend(map(bytes.decode, elements))
    except UnicodeDecodeError:
        place = len(strings)  # of the first that is none
        text = f"BYTES element {first + place} is {show(elements[place])}, which is not UTF-8 and cannot be a JSON string"
        raise InvalidRequest(text) from None
    return strings
