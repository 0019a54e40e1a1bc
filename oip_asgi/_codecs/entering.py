"""A list that generate, Python, `Client` or score gives for an input -> a tensor, by its kind. The JSON of
infer is read by `_json.tensor_data`, an instance by `rows`. What is wrong is said with its place.

One table has the kinds: what a tensor may hold, how a declaration names it, and what a column may miss of it.
Which number, zone or category is no kind; that is looked at where elements are read.

The values are JSON's or Python's own. They differ in this alone: JSON writes dates, bytes and NaN as texts,
and has no infinity; Python has objects for these. Knows no requests and no pandas.

Specification: Tensor Data Types, Content Types.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Set
from datetime import date, datetime
from types import MappingProxyType, NoneType
from typing import Any, Final, NamedTuple

from .._json.checked_data import Form, check_elements, flatten
from .._json.tensor_data import from_elements
from .._json.text import NO_SCALARS, ONLY_FLOATS, Literal, Unusual, find_problem
from .._protocol.datatypes import (
    DTYPES,
    FIRST_ROUNDED,
    FLOATING,
    MAX_RANK,
    Array,
    DType,
    Writers,
    check_exact,
    choose_writer,
    object_array,
    to_whole,
    to_wire_array,
)
from .._protocol.errors import InvalidRequest, show
from .._protocol.specs import TensorSpec, fill_shape
from .._protocol.tensors import Tensor, make_tensor
from .plain import NO_DATE, DatetimeCodec, PandasJSONCodec, write_base64

_OF_JSON: Final = frozenset({bool, int, float, str, NoneType})
"""The classes of elements that have a name in errors of JSON."""

_NUMBERS: Final[Mapping[bool, Set[type]]] = {
    True: frozenset({int, float, NoneType, str, Literal}),
    False: frozenset({int, float, NoneType}),
}
"""The classes of what is read as numbers, from JSON or not: JSON writes NaN as a text. true and false would
become numbers, and so would what Python can make a float of."""


class Kind(NamedTuple):
    """What the elements of a list are."""

    element: str
    content_type: str | None = None
    stand_in: Any = None
    """What is read in the place of a value that a column misses, so that errors count all elements. If it
    is None, None is read as any element is: it becomes NaN or null, or is refused."""
    writers: Writers = MappingProxyType({})
    """What makes elements of BYTES of objects of Python. A text that is no date is refused where it is read,
    as one of JSON is."""


_OF_TEXTS: Final[Writers] = {str: str.encode, bytes: bytes}
_OF_DATES: Final[Writers] = {str: str.encode, date: lambda each: each.isoformat().encode()}

NUMBER: Final = Kind("number")
INTEGER: Final = Kind("integer")
BOOLEAN: Final = Kind("boolean")
NULLABLE_INTEGER: Final = Kind("integer", None, 0)
NULLABLE_BOOLEAN: Final = Kind("boolean", None, False)
RAW_TEXT: Final = Kind("text", None, "", _OF_TEXTS)
TEXT: Final = Kind("text", "str", "", _OF_TEXTS)
BYTES: Final = Kind("bytes", "base64", None, {bytes: write_base64})
DATE: Final = Kind("date", "datetime", "2000-01-01", _OF_DATES)
JSON: Final = Kind("JSON", "pd_json")

_OF_BYTES: Final[Mapping[str | None, Kind]] = {
    None: RAW_TEXT,
    **{kind.content_type: kind for kind in (TEXT, BYTES, DATE, JSON)},
}

_OTHER_CODEC: Final = Kind("text", None, None, _OF_TEXTS)
"""With the content type of a user's codec, or `np`, elements are as they are."""

_GUESSES: Final[tuple[tuple[frozenset[type], Kind, DType], ...]] = (
    (frozenset(), NUMBER, DTYPES["FP64"]),
    (frozenset({NoneType}), RAW_TEXT, DTYPES["BYTES"]),
    (frozenset({int}), INTEGER, DTYPES["INT64"]),
    (frozenset({int, float, NoneType}), NUMBER, DTYPES["FP64"]),
    (frozenset({bool, NoneType}), NULLABLE_BOOLEAN, DTYPES["BOOL"]),
    (frozenset({str, bytes, NoneType}), RAW_TEXT, DTYPES["BYTES"]),
    (frozenset({datetime, date, NoneType}), DATE, DTYPES["BYTES"]),
)
"""What lists are that nobody declared, by the classes of their elements: the first row that has all of
them."""


def _find_kind(spec: TensorSpec) -> Kind:
    """The kind of what is declared."""
    if spec.datatype == "BYTES":
        return _OF_BYTES.get(spec.content_type, _OTHER_CODEC)
    if spec.datatype in FLOATING:
        return NUMBER
    if spec.datatype == "BOOL":
        return BOOLEAN if spec.pd_dtype is None else NULLABLE_BOOLEAN
    return INTEGER if spec.pd_dtype is None else NULLABLE_INTEGER


def enter(
    name: str, value: Any, spec: TensorSpec | None, *, is_json: bool, is_column: bool = False
) -> Tensor:
    """A scalar or a list as a tensor of what is declared, else of what its elements show. Values of a column
    may be missing.

    A flat list has the declared shape if it fits, and nested ones have their own. Raises InvalidRequest.
    """
    spec = None if spec is not None and spec.other_datatypes == "all" else spec  # its elements decide
    kind = None if spec is None else _find_kind(spec)
    try:
        if kind is not JSON and (type(value) is dict or (value is None and not is_column)):
            raise _make_no_list_error(value, spec, kind, is_json=is_json)
        leaves, shape = _take_apart(value, are_items=kind is JSON)
        classes = set(map(type, leaves))
        if kind is None or spec is None:
            if classes == {NoneType} and not is_column:
                raise InvalidRequest(
                    "each value is missing, which does not show what they are: declare the input"
                )
            kind, dtype = _guess(leaves, classes, is_json=is_json)
        else:
            kind, dtype = _choose(kind, spec, leaves, classes)
        if NoneType in classes and is_column and kind.stand_in is not None:
            array, content_type = _read_beside_missing(name, leaves, kind, dtype, shape, is_json)
        else:
            array, content_type = _read(name, leaves, classes, kind, dtype, shape, is_json), kind.content_type
    except (InvalidRequest, TypeError, ValueError) as error:
        raise InvalidRequest(f"input {show(name)}: {error}") from None
    if len(shape) < 2:  # stays flat if it does not fit, which is refused later, as that of any tensor
        flat = (len(leaves),)
        filled = None if spec is None or spec.fits(flat) else fill_shape(spec.shape, len(leaves))
        array = array.reshape(flat if filled is None else filled)
    return make_tensor(name, array, {} if content_type is None else {"content_type": content_type})


def _make_no_list_error(
    value: Any, spec: TensorSpec | None, kind: Kind | None, *, is_json: bool
) -> InvalidRequest:
    got = NO_SCALARS[type(value)] if is_json else show(value)
    of = "" if spec is None else f" of {spec.datatype}"
    number = f"; for a missing number, write [{got}]" if kind is NUMBER else ""
    hint = f"{number}; if it has a default, leave it out" if value is None else ""
    return InvalidRequest(f"data is {got}: expected a scalar or a list{of}{hint}")


def _take_apart(value: Any, *, are_items: bool) -> tuple[list[Any], tuple[int, ...]]:
    """The elements, and the shape as it is written: () for a scalar. If `are_items`, as for JSON, a list
    within the list is an element."""
    if type(value) is not list:
        return [value], ()
    if are_items or list not in map(type, value):
        return value, (len(value),)
    shape = _find_shape(value)
    try:
        return flatten(value, shape), shape
    except Unusual:
        raise InvalidRequest("its lists have different lengths: expected as many elements in each") from None


def _find_shape(value: Any) -> tuple[int, ...]:
    """The shape of lists, if the first of each level shows it."""
    shape: list[int] = []
    while type(value) is list:
        shape.append(len(value))
        value = value[0] if value else None
        if len(shape) > MAX_RANK:  # a list of Python may hold itself
            raise InvalidRequest(f"data is nested more than {MAX_RANK} deep")
    return tuple(shape)


def _choose(kind: Kind, spec: TensorSpec, leaves: list[Any], classes: set[type]) -> tuple[Kind, DType]:
    """The declared kind; or the one of booleans or integers, for a model that takes these too, if all
    elements are that."""
    if spec.other_datatypes is not None and classes == {bool}:
        return BOOLEAN, DTYPES["BOOL"]
    if spec.other_datatypes is not None and int in classes:
        if classes != {int}:
            check_exact(leaves)
        elif max(map(abs, leaves)) >= FIRST_ROUNDED and (dtype := _find_integers(leaves)) is not None:
            return INTEGER, dtype
    return kind, spec.dtype


def _guess(leaves: list[Any], classes: set[type], *, is_json: bool) -> tuple[Kind, DType]:
    """What the elements of a list are that nobody declared."""
    alike = {
        float if each is Literal else datetime if issubclass(each, datetime) else each for each in classes
    }
    guess = next(((kind, dtype) for known, kind, dtype in _GUESSES if alike <= known), None)
    if guess is None:
        if not is_json and (others := classes - _OF_JSON - {bytes, datetime, date}):
            # its error says what to write instead
            to_wire_array([next(each for each in leaves if type(each) in others)])
        raise InvalidRequest(
            "data has elements of several types, or objects: expected strings, numbers, or true and false"
            + ('; rows are the list itself, [{"age": 42}], or a list by each name' if dict in classes else "")
        )
    kind, dtype = guess
    if kind is INTEGER:
        found = _find_integers(leaves)
        if found is None:
            raise InvalidRequest(
                "no datatype holds all of its whole numbers, not even UINT64: make floats of them, if they "
                "may be rounded"
            )
        return kind, found
    if kind is NUMBER and int in classes:
        check_exact(leaves)
    return kind, dtype


def _find_integers(elements: Collection[int]) -> DType | None:
    least, most = min(elements), max(elements)
    if least >= -(2**63) and most < 2**63:
        return DTYPES["INT64"]
    return DTYPES["UINT64"] if least >= 0 and most < 2**64 else None


def _read(
    name: str,
    leaves: list[Any],
    classes: set[type],
    kind: Kind,
    dtype: DType,
    shape: tuple[int, ...],
    is_json: bool,
) -> Array:
    if is_json and kind is JSON and (problem := find_problem(leaves)) is not None:
        raise InvalidRequest(problem)
    if kind is JSON:
        return PandasJSONCodec.encode_input(name, leaves).array
    if dtype.hasobject and not is_json and (kind is BYTES or classes != {str}):
        return _write(leaves, classes, kind, shape)
    if Literal in classes:
        if kind is not NUMBER:
            raise InvalidRequest(ONLY_FLOATS)
        leaves = [str(each) if type(each) is Literal else each for each in leaves]
    if float in classes and dtype.kind in "iu":
        leaves = [to_whole(each) if type(each) is float else each for each in leaves]
    has_wrong_element = (dtype.kind in "fViu" and not classes <= _NUMBERS[is_json]) or (
        is_json and float in classes and (math.inf in leaves or -math.inf in leaves)
    )
    return from_elements(leaves, dtype, shape, is_json=is_json, has_wrong_element=has_wrong_element)


def _write(leaves: list[Any], classes: set[type], kind: Kind, shape: tuple[int, ...]) -> Array:
    """Objects of Python as BYTES."""
    known = tuple(kind.writers)
    if not all(issubclass(cls, known) for cls in classes):
        check_elements(
            leaves,
            Form(DTYPES["BYTES"], shape, len(leaves), is_json=False, classes=known),
            0,
            is_nested=len(shape) != 1,
        )
    return object_array(list(map(choose_writer(classes, kind.writers, bytes), leaves)), shape)


def _read_beside_missing(
    name: str, leaves: list[Any], kind: Kind, dtype: DType, shape: tuple[int, ...], is_json: bool
) -> tuple[Array, str | None]:
    """A column in which some values are missing, and its content type: dates have NaT, and others are among
    JSON texts, as null."""
    filled = [kind.stand_in if each is None else each for each in leaves]
    array = _read(name, filled, set(map(type, filled)), kind, dtype, shape, is_json).ravel()
    if kind is DATE:
        array[[each is None for each in leaves]] = NO_DATE
        return array.reshape(shape), DatetimeCodec.content_type
    values = [
        None if leaf is None else each.decode() if isinstance(each, bytes) else each
        for leaf, each in zip(leaves, array.tolist(), strict=True)
    ]
    return PandasJSONCodec.encode_input(name, values).array.reshape(shape), PandasJSONCodec.content_type
