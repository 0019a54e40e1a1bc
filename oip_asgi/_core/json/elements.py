"""JSON `data` read element by element, where a decoder that knows its type has given up: says what is wrong, and where.

Takes what such a decoder does not: integers written as 2.0 or 1e3, the literals NaN and Infinity, numbers that are slow to read.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from decimal import Decimal, DecimalException
from itertools import chain
from typing import Any, Final, NoReturn

import msgspec
import numpy as np

from ..datatypes import DType, datatype_of
from ..errors import InvalidRequest
from .numbers import ONLY_FLOATS, count_spelled, has_literals, spell_literals

_EXPECTED: Final = {
    "b": "true, false, 0 or 1",
    "u": "an integer",
    "i": "an integer",
    "f": 'a number, null, "NaN", "Infinity" or "-Infinity"',
    "O": "a string",
}
"""For each kind of dtype, what an element is called to a person."""

_TAKEN: Final[dict[str, set[type]]] = {"b": {bool, int}, "u": {int}, "i": {int}, "f": {float, int, type(None), str}, "O": {str}}
"""For each kind of dtype, the Python types of its elements. Not all values of each are taken."""

_GOT: Final[dict[type, str]] = {
    list: "an array",
    dict: "an object",
    str: "a string",
    bool: "true or false",
    type(None): "null",
    int: "an integer",
    float: "a number with a fraction or an exponent",
}

_NAMES: Final = frozenset({"NaN", "Infinity", "-Infinity"})

_MAX_FLOAT: Final = int(sys.float_info.max)

_PLACE: Final = re.compile(r" - at `\$([0-9\[\]]*)`$")

_TOO_MANY_DIGITS: Final = 20
"""No integer datatype reaches 1e20: greater exponents need not be evaluated."""

_EXACT_DIGITS: Final = 15
"""Two different numbers with so many digits at most are two different floats. So a float that is whole was written as a whole number."""

_EXACT_BELOW: Final = 10**_EXACT_DIGITS

_NOT_WHOLE: Final = math.nan


class Wanted(msgspec.Struct, frozen=True):
    """What the elements should be.

    Args:
        dtype: A dtype of the protocol.
        kind: The kind of its values: BF16 counts as a float.
        shape: The tensor's dimensions.
        size: How many elements it has.
    """

    dtype: DType
    kind: str
    shape: tuple[int, ...]
    size: int

    def __str__(self) -> str:
        flat = f"{self.size} in a flat array for shape {list(self.shape)}"
        return flat if len(self.shape) < 2 else f"{flat}, or arrays nested exactly so"


def _whole(text: str) -> int | float:
    """The integer that a number with a fraction or an exponent stands for, NaN where it is not whole."""
    if len(text) <= _EXACT_DIGITS:
        value = float(text)
        if abs(value) < _EXACT_BELOW:
            return int(value) if value.is_integer() and (value or _is_zero(text)) else _NOT_WHOLE
    try:
        number = Decimal(text)
        if number and number.adjusted() >= _TOO_MANY_DIGITS:
            return int(10**_TOO_MANY_DIGITS)
        whole = number.to_integral_value()
    except DecimalException:
        return _NOT_WHOLE
    return int(whole) if whole == number else _NOT_WHOLE


def _is_zero(text: str) -> bool:
    """Whether a number that is 0 as a float is 0 as it is written, and not 1e-400."""
    return text.lower().partition("e")[0].strip("-0.") == ""


_any: Final = msgspec.json.Decoder(float_hook=float).decode
_any_whole: Final = msgspec.json.Decoder(float_hook=_whole).decode


def read(text: bytes, wanted: Wanted) -> list[Any]:
    """The elements of a JSON value, flat or nested.

    Raises:
        InvalidRequest: It does not have the shape, or an element is not one of the datatype.
    """
    value = _decode(text, wanted, 0)
    if type(value) is not list:
        depth, flat = 0 if not wanted.shape else 1, [value]
    else:
        depth = len(wanted.shape) or 1 if value and type(value[0]) is list else 1
        flat = value
    wrong = _first_wrong([value], depth, wanted.kind)
    if wrong is not None:
        _refuse("".join(f"[{index}]" for index in wrong[0][1:]), wrong[1], len(wrong[0]) <= depth, wanted)
    if depth > 1:
        flat = _flattened(value, wanted)
    if len(flat) != wanted.size:
        raise InvalidRequest(f"data has {len(flat)} elements: expected {wanted}")
    return flat


def read_flat(text: bytes, wanted: Wanted, first: int, *, is_nested: bool) -> list[Any]:
    """The elements of a chunk of the whole, which is one flat JSON array.

    Args:
        text: The chunk.
        wanted: What the whole should be.
        first: The index of the chunk's first element.
        is_nested: Whether the whole is nested, for the places in errors.

    Raises:
        InvalidRequest: An element is not one of the datatype.
    """
    flat: list[Any] = _decode(text, wanted, first)
    wrong = _first_wrong(flat, 0, wanted.kind)
    if wrong is not None:
        [[index], value] = wrong
        _refuse(_place(first + index, wanted.shape, is_nested=is_nested), value, False, wanted)
    return flat


def _place(index: int, shape: tuple[int, ...], *, is_nested: bool) -> str:
    """Where an element stands."""
    indices: Sequence[Any] = np.unravel_index(index, shape) if is_nested and shape else [index]
    return "".join(f"[{int(number)}]" for number in indices)


def _decode(text: bytes, wanted: Wanted, first: int) -> Any:
    if has_literals(text):
        spelled = spell_literals(text.replace(b"\\\\", b"\\u005c").replace(b'\\"', b"\\u0022"))
        if wanted.kind != "f" and count_spelled(spelled):
            raise InvalidRequest(ONLY_FLOATS)
        text = spelled
    try:
        return (_any_whole if wanted.kind in "ui" else _any)(text)
    except RecursionError:
        raise InvalidRequest(f"data is nested too deep: expected {wanted}") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"data is not valid UTF-8: {error.reason}") from None
    except msgspec.ValidationError as error:  # an integer of thousands of digits
        message = str(error)
        found = _PLACE.search(message)
        place, message = (found[1], message[: found.start()]) if found else ("", message)
        raise InvalidRequest(f"data{place}: {message}: {_expected(wanted)}") from None
    except msgspec.DecodeError as error:
        behind = f" behind element {first - 1}" if first else ""
        raise InvalidRequest(f"data{behind}: {error}") from None


def _expected(wanted: Wanted) -> str:
    return f"expected {_EXPECTED[wanted.kind]} for {datatype_of(wanted.dtype)}"


def _first_wrong(values: list[Any], depth: int, kind: str) -> tuple[list[int], Any] | None:
    """Where the first value is that should be another, and that; None where all are right.

    Args:
        values: Elements, or arrays of them.
        depth: How deep these arrays nest.
        kind: The kind of the elements.
    """
    if _are_right(values, depth, kind):
        return None
    places: list[int] = []
    while True:
        first, end = 0, len(values)
        while end - first > 1:  # all before `first` are right, and one before `end` is not
            middle = (first + end) // 2
            if _are_right(values[first:middle], depth, kind):
                first = middle
            else:
                end = middle
        places.append(first)
        wrong = values[first]
        if depth == 0 or type(wrong) is not list:
            return places, wrong
        values, depth = wrong, depth - 1


def _are_right(values: list[Any], depth: int, kind: str) -> bool:
    """Whether all are arrays that nest so deep, and have elements of the kind."""
    for _ in range(depth):
        if not set(map(type, values)) <= {list}:
            return False
        values = list(chain.from_iterable(values))
    return _are_fine(values, kind)


def _are_fine(values: list[Any], kind: str) -> bool:
    """Whether all are elements of the datatype, as nearly always: looked at together, in a few nanoseconds each."""
    found = set(map(type, values))
    if not found <= _TAKEN[kind]:
        return False
    if kind == "b":
        return set(values) <= {0, 1}
    if kind != "f":
        return True
    names = {value for value in values if type(value) is str} if str in found else set()
    integers = [value for value in values if type(value) is int] if int in found else [0]
    is_finite = math.inf not in values and -math.inf not in values
    return is_finite and names <= _NAMES and min(integers) >= -_MAX_FLOAT and max(integers) <= _MAX_FLOAT


def _refuse(place: str, value: Any, is_array_wanted: bool, wanted: Wanted) -> NoReturn:
    kind = wanted.kind
    if is_array_wanted or type(value) is list:
        raise InvalidRequest(f"data{place} is {_GOT[type(value)]}: expected {wanted}")
    if kind == "f" and type(value) in (int, float):
        raise InvalidRequest(f"data{place}: Number out of range: {_expected(wanted)}")
    if kind in "ui" and type(value) is float:
        raise InvalidRequest(f"data{place} is not a whole number: {_expected(wanted)}")
    raise InvalidRequest(f"data{place} is {_GOT[type(value)]}: {_expected(wanted)}")


def _flattened(nested: list[Any], wanted: Wanted) -> list[Any]:
    level: list[Any] = [nested]
    for axis, size in enumerate(wanted.shape):
        for place, item in enumerate(level):
            if len(item) != size:
                raise InvalidRequest(f"data: array {place} of dimension {axis} has {len(item)} items, not {size}: expected {wanted}")
        level = list(chain.from_iterable(level))
    return level
