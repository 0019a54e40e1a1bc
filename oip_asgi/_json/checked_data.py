"""Reads JSON `data` that the quick way has refused: with Python's json, element by element.

It accepts what the quick way refuses: integers written as 2.0 or 1e3, and the literals NaN and Infinity.
Errors say what is wrong, and where. A number out of range is refused by `_pack_elements` of `tensor_data`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, NoReturn

import msgspec
import numpy as np

from .._protocol.datatypes import DType, datatype_of, to_whole
from .._protocol.errors import InvalidRequest, show
from .text import ONLY_FLOATS, Unusual

_OF_JSON: Final = {
    "b": "true, false, 0 or 1",
    "u": "an integer",
    "i": "an integer",
    "f": 'a number, null, "NaN", "Infinity" or "-Infinity"',
    "O": "a string",
}
_EXPECTED: Final = {True: _OF_JSON, False: {**_OF_JSON, "b": "True, False, 0 or 1", "f": "a number or None"}}
"""What errors call an element: whether it is JSON's, and the kind of dtype."""

_MISSING: Final = {
    True: {
        **{
            kind: f'; a model that declares a column with pd_dtype="THIS_DTYPE" gets missing {elements} as '
            'null in generate, and in infer as JSON texts: datatype "BYTES", '
            f'parameters {{"content_type": "pd_json", "pd_dtype": "THIS_DTYPE"}}, data ["null", "{example}"]'
            for kind, elements, example in (
                ("b", "booleans", "true"),
                ("i", "integers", "7"),
                ("u", "integers", "7"),
            )
        },
        "O": (
            "; a model that takes a column gets missing strings as null in generate, and in infer as JSON "
            'texts: parameters {"content_type": "pd_json"}, data ["null", "\\"Bonn\\""]; and a missing date '
            'is "NaT"'
        ),
    },
    False: {
        **dict.fromkeys(
            "biu",
            "; for a missing value, the model has to declare a column, such as x: pd.Series, with "
            'pd_dtype="THIS_DTYPE"',
        ),
        "O": "; for a missing value, the model has to take columns of a data frame",
    },
}
"""What to write if a missing value is what is wrong, in the same way."""

_GOT: Final[dict[type, str]] = {
    list: "an array",
    dict: "an object",
    str: "a string",
    bool: "true or false",
    type(None): "null",
    int: "an integer",
    float: "a number with a fraction or an exponent",
}

_ROUNDED: Final = (
    ": a whole number of 2**53 or more with a fraction or an exponent may have been rounded, write its digits"
)

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""A lone one, which is no text."""

NAMES: Final = frozenset({"NaN", "Infinity", "-Infinity"})

_MAX_DIGITS: Final = 20
"""No integer datatype reaches 1e20: longer numbers need not be evaluated."""

_MAX_INTEGER: Final = 300
"""An integer of so many digits is in the range of a float."""


class Form(msgspec.Struct, frozen=True):
    """What the elements should be."""

    dtype: DType
    shape: tuple[int, ...]
    size: int  # how many elements it has
    is_json: bool = True  # Python has objects for NaN and infinities
    classes: tuple[type, ...] = ()  # what may be BYTES, from Python

    @property
    def kind(self) -> str:
        """The kind of its values: BF16 counts as a float."""
        return "f" if self.dtype.kind == "V" else self.dtype.kind

    def is_right(self, element: Any) -> bool:
        """Whether an element is one of the datatype."""
        cls, kind = type(element), self.kind
        if self.classes and (cls is not str or str not in self.classes):
            return isinstance(element, self.classes)
        if kind == "O":
            return cls is str and not _SURROGATE.search(element)
        if kind == "f":
            is_finite = cls is float and not (self.is_json and math.isinf(element))
            is_name = cls is str and self.is_json and element in NAMES
            return cls is int or element is None or is_finite or is_name
        if kind == "b":
            return cls is bool or (cls is int and element in (0, 1))
        return cls is int

    def make_mismatch_error(self, index: int, *, is_long: bool = False) -> InvalidRequest:
        """The error of data that do not have the shape, as far as is known from the element `index` on."""
        problem = (
            "has too many elements"
            if is_long
            else f"has another form, or too few elements, from element {index} on"
        )
        return InvalidRequest(f"data {problem}: expected {self}")

    def __str__(self) -> str:
        flat = f"{self.size} in a flat array for shape {list(self.shape)}"
        return flat if len(self.shape) < 2 else f"{flat}, or arrays nested exactly so"


def _read_integer(text: str) -> int | float:
    return int(text) if len(text) <= _MAX_INTEGER else float(text)


def _refuse_literal(_: str) -> NoReturn:
    raise InvalidRequest(ONLY_FLOATS)


_FLOATS: Final = json.JSONDecoder(parse_int=_read_integer, parse_constant=str)
_INTEGERS: Final = json.JSONDecoder(
    parse_float=lambda text: to_whole(float(text)),
    parse_int=lambda text: int(text[: _MAX_DIGITS + 2]),  # what is cut off does not bring it into range
    parse_constant=_refuse_literal,
)
_OTHERS: Final = json.JSONDecoder(parse_int=_read_integer, parse_constant=_refuse_literal)


def _decode(text: bytes, form: Form) -> Any:
    """A JSON value. Its elements have the types that the datatype asks for if they can."""
    kind = form.kind
    decoder = _FLOATS if kind == "f" else _INTEGERS if kind in "ui" else _OTHERS
    try:
        return decoder.decode(text.decode())
    except RecursionError:
        raise InvalidRequest(f"data is nested too deep: expected {form}") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"data is not valid UTF-8: {error.reason}") from None


def read(text: bytes, form: Form) -> list[Any]:
    """The elements of a short JSON value, flat or nested."""
    if text.lstrip().startswith(b"{"):  # which may be long
        raise InvalidRequest(f"data is an object: expected {form}")
    try:
        value = _decode(text, form)
    except ValueError as error:
        raise InvalidRequest(f"data: {error}") from None
    if type(value) is not list or (value and type(value[0]) is list):
        return _unnest(value, form)
    check_elements(value, form, 0, is_nested=False)
    if len(value) != form.size:
        raise InvalidRequest(f"data has {len(value)} elements: expected {form}")
    return value


def _unnest(value: Any, form: Form) -> list[Any]:
    """The elements of arrays that nest as the shape."""
    level, uneven = [("", value)], ""
    for axis, size in enumerate(form.shape):
        for number, (path, each) in enumerate(level):
            if type(each) is not list:
                raise InvalidRequest(f"data{path} is {_GOT[type(each)]}: expected {form}")
            if len(each) != size:
                uneven = uneven or f"array {number} of dimension {axis} has {len(each)} items, not {size}"
        level = [(f"{path}[{index}]", item) for path, each in level for index, item in enumerate(each)]
    for path, element in level:
        if not form.is_right(element):
            raise _make_error(element, path, form)
    if uneven:  # the last to be said: arrays that nest too little are uneven too
        raise InvalidRequest(f"data: {uneven}: expected {form}")
    return [element for _, element in level]


def flatten(nested: Any, shape: tuple[int, ...]) -> list[Any]:
    """The elements of lists that nest as the shape. Raises Unusual for others."""
    level: list[Any] = [nested]
    for size in shape:
        if not set(map(type, level)) <= {list} or not set(map(len, level)) <= {size}:
            raise Unusual
        level = list(chain.from_iterable(level))
    return level


def read_flat(text: bytes, form: Form, first: int, *, is_nested: bool) -> list[Any]:
    """The elements of a piece of long data, which is one flat JSON array."""
    try:
        flat: list[Any] = _decode(text, form)
    except ValueError:
        raise form.make_mismatch_error(first) from None
    check_elements(flat, form, first, is_nested=is_nested)
    return flat


def check_elements(flat: Sequence[Any], form: Form, first: int, *, is_nested: bool) -> None:
    """Refuse the first element that is not one of the datatype."""
    for index, element in enumerate(flat, first):
        if not form.is_right(element):
            if index >= form.size:
                raise form.make_mismatch_error(first, is_long=True)
            indices: Sequence[Any] = np.unravel_index(index, form.shape) if is_nested else [index]
            raise _make_error(element, "".join(f"[{number}]" for number in indices), form)


def _make_error(element: Any, path: str, form: Form) -> InvalidRequest:
    """The error of an element that is not one of the datatype."""
    if type(element) is list:
        return InvalidRequest(f"data{path} is an array: expected {form}")
    kind, is_float = form.kind, type(element) is float
    got = f" is {_GOT[type(element)] if form.is_json else show(element)}"
    if form.is_json and is_float and math.isinf(element):
        got = ": number out of range"
    elif form.is_json and is_float and kind in "ui":
        got = _ROUNDED if element.is_integer() else " is not a whole number"
    classes = " or ".join(cls.__name__ for cls in form.classes)
    datatype = str(datatype_of(form.dtype))
    dtype = "boolean" if kind == "b" else datatype.replace("NT", "nt")
    hint = _MISSING[form.is_json].get(kind, "").replace("THIS_DTYPE", dtype)
    is_missing = element is None or (is_float and math.isnan(element))
    return InvalidRequest(
        f"data{path}{got}: expected {classes or _EXPECTED[form.is_json][kind]} for {datatype}"
        f"{hint if is_missing else ''}"
    )
