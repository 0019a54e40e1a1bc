"""JSON `data` <-> array, typed by datatype. Knows no documents, no byte framing and no tensor names.

Specification: Tensor Data: flat, or nested as the shape, in row-major order.
"""

from __future__ import annotations

import math
import re
import struct
import types
from collections.abc import Callable
from decimal import Decimal, DecimalException
from functools import cache, lru_cache
from itertools import chain, takewhile
from typing import Any, Final, Literal

import msgspec
import numpy as np

from ..datatypes import DTYPES, Array, Buffer, DType, cast, datatype_of
from ..errors import InvalidRequest, shown
from ..raw import count
from ..tensors import integer_array, object_array
from . import accelerators as fast
from . import chunks as pieces

_ELEMENT: Final[dict[str, tuple[Any, str]]] = {
    "b": (bool | Literal[0, 1], "true, false, 0 or 1"),
    "u": (int, "an integer"),
    "i": (int, "an integer"),
    "f": (float | None | Literal["NaN", "Infinity", "-Infinity"], 'a number, null, "NaN", "Infinity" or "-Infinity"'),
    "O": (str, "a string"),
    "whole": (Any, "an integer"),
}
"""For each kind of dtype: what msgspec decodes an element as, and how that is called to a person.

"whole" is the second try for integers of which some are written as 2.0 or 1e3: read from their text, as a float has lost digits.
"""

_GOT: Final = {
    "array": "an array",
    "object": "an object",
    "str": "a string",
    "bool": "true or false",
    "null": "null",
    "int": "an integer",
    "float": "a number with a fraction or an exponent",
}

_LIST: Final = re.compile(rb"[ \t\r\n]*\[")
_NESTED: Final = re.compile(rb"[ \t\r\n]*\[[ \t\r\n]*\[")
_PLACE: Final = re.compile(r" - at `\$([0-9\[\]]*)`$")
_TYPES: Final = re.compile(r"Expected `(.*)`, got `(.*)`")

_LONG: Final = 2**12
"""Bytes of text above which it is read in pieces. Lists of elements are small up to there, however many there are."""

_MANY: Final = 2**9
"""Elements above which they are written in pieces, by a library that is quick with many."""

_TOO_MANY_DIGITS: Final = 20
"""No integer datatype reaches 1e20: greater exponents need not be evaluated."""

_SMALL_BLOCK: Final = 64
"""Elements of the two innermost dimensions below which each block costs more as a piece of its own than all of them as lists."""

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
    elements, kind = count(shape), dtype.kind
    if kind == "V":  # as which numpy knows the BF16 of ml_dtypes
        kind = "f"
    if len(text) > _LONG and kind != "O":
        array = _read_long(memoryview(text), dtype, shape, elements, kind)
        if array is not None:
            return array
        if bytes(text).count(b",") >= math.prod(takewhile(bool, shape)):
            # before lists of too many are made; strings may hold commas, so of them only the decoder can tell
            raise InvalidRequest(f"data has too many elements: expected {_expected(shape)}")
    if _NESTED.match(text):
        flat = _flatten(_decode(text, dtype, shape, max(len(shape), 1), kind), shape)
    elif shape or _LIST.match(text):
        flat = _decode(text, dtype, shape, 1, kind)
    else:
        flat = [_decode(text, dtype, shape, 0, kind)]  # the natural representation of a scalar is the bare value
    if len(flat) != elements:
        raise InvalidRequest(f"data has {len(flat)} elements: expected {_expected(shape)}")
    return _to_array(flat, dtype, kind, shape)


def _read_long(text: Buffer, dtype: DType, shape: tuple[int, ...], elements: int, kind: str) -> Array | None:
    """Long text as an array; None where something is wrong with it, which is for the text as a whole to tell."""
    is_nested = _NESTED.match(text) is not None
    if not shape or not elements or elements > len(text) or (is_nested and len(shape) > 2 and math.prod(shape[-2:]) < _SMALL_BLOCK):
        return None

    def decode(piece: bytes, row: int | None) -> Array | None:
        array = fast.read(piece, dtype, row)
        if array is not None:
            return array
        try:
            if row is None:
                flat = _decoder(kind, 1).decode(piece)
            else:
                rows = _decoder(kind, 2).decode(piece)
                if any(len(items) != row for items in rows):
                    return None
                flat = list(chain.from_iterable(rows))
            return _to_array(flat, dtype, kind, (len(flat),))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidRequest):
            return None

    if len(text) <= pieces.PIECE and (len(shape) == 2 if is_nested else _LIST.match(text)):
        whole = decode(bytes(text), shape[1] if is_nested else None)
        return None if whole is None or len(whole) != elements else whole.reshape(shape)
    array = np.empty(elements, dtype)
    is_right = pieces.read(text, shape if is_nested else (elements,), array, decode)
    return array.reshape(shape) if is_right else None


def _expected(shape: tuple[int, ...]) -> str:
    flat = f"{count(shape)} in a flat array for shape {list(shape)}"
    return flat if len(shape) < 2 else f"{flat}, or arrays nested exactly so"


@cache  # bounded: 6 kinds, 65 depths
def _decoder(kind: str, depth: int) -> msgspec.json.Decoder[Any]:
    element: Any = _ELEMENT[kind][0]
    for _ in range(depth):
        element = types.GenericAlias(list, (element,))
    return msgspec.json.Decoder(element, float_hook=_whole)


def _whole(text: str) -> int | None:
    """The integer that a number with a fraction or an exponent stands for, None where it is not whole."""
    try:
        number = Decimal(text)
        if number and number.adjusted() >= _TOO_MANY_DIGITS:
            return 10**_TOO_MANY_DIGITS
        whole = number.to_integral_value()
    except DecimalException:
        return None
    return int(whole) if whole == number else None


def _decode(text: Buffer, dtype: DType, shape: tuple[int, ...], depth: int, kind: str) -> Any:
    try:
        return _decoder(kind, depth).decode(text)
    except RecursionError:
        raise InvalidRequest(f"data is nested too deep: expected {_expected(shape)}") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"data is not valid UTF-8: {error.reason}") from None
    except msgspec.ValidationError as error:
        message = str(error)
        found = _PLACE.search(message)
        place, message = (found[1], message[: found.start()]) if found else ("", message)
        mismatch = _TYPES.fullmatch(message)
        wanted, got = mismatch.groups() if mismatch else ("", "")
        if kind in ("u", "i") and (got == "float" or "out of range" in message):
            value = _decode(text, dtype, shape, depth, "whole")
            _check_whole(value, dtype, depth, "data")
            return value
        if "array" in (wanted, got):
            raise InvalidRequest(f"data{place} is {_GOT[got]}: expected {_expected(shape)}") from None
        if message.startswith("Invalid enum value"):  # a string or an integer that the element's type does not list
            got = "str" if message.endswith("'") else "int"
        problem = f" is {_GOT[got]}" if got else f": {message}"
        raise InvalidRequest(f"data{place}{problem}: expected {_ELEMENT[kind][1]} for {datatype_of(dtype)}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"data: {error}") from None


def _check_whole(value: Any, dtype: DType, depth: int, place: str) -> None:
    if depth == 0:
        if type(value) is not int:
            raise InvalidRequest(f"{place} is not a whole number: expected an integer for {datatype_of(dtype)}")
        return
    for index, item in enumerate(value):
        if type(item) is not int:
            _check_whole(item, dtype, depth - 1, f"{place}[{index}]")


def _flatten(nested: list[Any], shape: tuple[int, ...]) -> list[Any]:
    level: list[Any] = [nested]
    for axis, size in enumerate(shape):
        for place, item in enumerate(level):
            if len(item) != size:
                raise InvalidRequest(
                    f"data: array {place} of dimension {axis} has {len(item)} items, not {size}: expected {_expected(shape)}"
                )
        level = list(chain.from_iterable(level))
    return level


def _to_array(flat: list[Any], dtype: DType, kind: str, shape: tuple[int, ...]) -> Array:
    if kind == "f":
        if dtype.kind == "f":
            try:
                # numbers that fit, as nearly always: quicker than numpy, which has to be kept from warning of others
                return np.ndarray(shape, dtype, _packer(len(flat), dtype.char)(*flat))
            except (struct.error, OverflowError):
                pass
        return _to_floats(flat, dtype).reshape(shape)
    if kind == "O":
        return object_array([element.encode() for element in flat], shape)
    if kind == "b":
        return np.array(flat, dtype).reshape(shape)
    return integer_array(flat, dtype, "data").reshape(shape)


@lru_cache(256)  # lengths repeat from request to request
def _packer(elements: int, code: str) -> Callable[..., bytes]:
    return struct.Struct(f"<{elements}{code}").pack


def _to_floats(flat: list[Any], dtype: DType) -> Array:
    wide = np.array(flat, np.float64)  # reads None and the names of non-finite values as they are meant
    if dtype == wide.dtype:
        return wide
    array = cast(wide, dtype)
    lost = np.isinf(array) & np.isfinite(wide)
    if lost.any():
        place = int(np.argmax(lost))
        raise InvalidRequest(f"data: element {place} is {wide[place]}, which is out of range for {datatype_of(dtype)}")
    return array


def to_json(array: Array) -> bytes:
    """An array of a protocol dtype as the JSON text of `data`: flat, always valid JSON, no value lost.

    Args:
        array: Any shape. NaN leaves as null, infinities as the strings "Infinity" and "-Infinity".

    Raises:
        InvalidRequest: A BYTES element is not UTF-8, so only binary data can carry it.
    """
    kind = array.dtype.kind
    if kind == "O":
        return _encode(_strings(array.ravel().tolist()))
    if kind == "V":  # as which numpy knows the BF16 of ml_dtypes
        array, kind = cast(array, DTYPES["FP64"]), "f"
    flat = array.ravel()
    text = pieces.write(flat, _numbers) if flat.size > _MANY else _encode(flat.tolist())
    # without a null nothing is infinite. `find`, as `in` tries to make a number of the n first, and drops the error that this raises
    if kind != "f" or text.find(b"n") < 0 or not np.isinf(flat).any():
        return text
    values: list[Any] = flat.tolist()
    for place in np.flatnonzero(np.isinf(flat)).tolist():  # which msgspec writes as null, as it does NaN
        values[place] = "Infinity" if values[place] > 0 else "-Infinity"
    return _encode(values)


def _numbers(array: Array) -> bytes:
    return fast.write(array) or _encode(array.tolist())


def _strings(elements: list[bytes]) -> list[str]:
    strings: list[str] = []
    for place, element in enumerate(elements):
        try:
            strings.append(element.decode())
        except UnicodeDecodeError:
            raise InvalidRequest(f"BYTES element {place} is {shown(element)}, which is not UTF-8 and cannot be a JSON string") from None
    return strings
