"""A list of values -> a tensor, by its kind: the only place where one becomes the other. What is wrong is
said with its place.

The values are JSON's or Python's own. They differ in this alone: JSON writes dates, bytes and NaN as texts,
and has no infinity; Python has objects for these. Knows no requests and no pandas.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from types import NoneType
from typing import Any, Final

from .._json.checked_data import flatten
from .._json.flat_objects import Literal, find_problem
from .._json.tensor_data import from_elements
from .._json.text import NO_SCALARS, ONLY_FLOATS, Unusual
from .._protocol.datatypes import DTYPES, FIRST_ROUNDED, MAX_RANK, Array, DType
from .._protocol.errors import InvalidRequest, show
from .._protocol.kinds import BOOLEAN, DATE, GUESSES, INTEGER, JSON, NUMBER, Kind, find_kind
from .._protocol.specs import TensorSpec
from .._protocol.tensors import Tensor, make_tensor
from .._protocol.to_array import check_exact, to_wire_array
from .base import InputCodec
from .dates import NO_DATE, DatetimeCodec
from .plain import Base64Codec, PandasJSONCodec, StringCodec

_OF_JSON: Final = frozenset({bool, int, float, str, NoneType})
"""The classes of elements that have a name in errors of JSON."""

_NUMBERS: Final = _OF_JSON - {str}

_CODECS: Final[Mapping[str | None, type[InputCodec[Any]]]] = {
    codec.content_type: codec for codec in (StringCodec, Base64Codec, DatetimeCodec)
}
"""What makes texts of objects of Python."""


def enter(
    name: str, value: Any, spec: TensorSpec | None, *, is_json: bool, is_column: bool = False
) -> Tensor:
    """A scalar or a list as a tensor of what is declared, else of what its elements show. Values of a column
    may be missing.

    A flat list has the declared shape if it fits, and nested ones have their own. Raises InvalidRequest.
    """
    spec = None if spec is not None and spec.other_datatypes == "all" else spec  # its elements decide
    kind = None if spec is None else find_kind(spec)
    try:
        if kind is not JSON and (type(value) is dict or (value is None and not is_column)):
            of = "" if spec is None else f" of {spec.datatype}"
            raise InvalidRequest(
                f" is {NO_SCALARS[type(value)] if is_json else show(value)}: expected a scalar or a list{of}"
            )
        leaves, shape = _take_apart(value, spec, are_items=kind is JSON)
        classes = set(map(type, leaves))
        if kind is None or spec is None:
            kind, dtype = _guess(leaves, classes, is_json=is_json)
        else:
            kind, dtype = _choose(kind, spec, leaves, classes)
        gaps = (
            [index for index, each in enumerate(leaves) if each is None]
            if NoneType in classes and is_column
            else ()
        )
        if not gaps or kind.stand_in is None:
            array = _read(name, leaves, classes, kind, dtype, shape, is_json=is_json)
            content_type = kind.content_type
        else:
            there = [kind.stand_in if each is None else each for each in leaves]
            array = _read(name, there, set(map(type, there)), kind, dtype, (len(there),), is_json=is_json)
            array, content_type = _write_missing(array, gaps, kind)
            array = array.reshape(shape)
    except InvalidRequest as error:
        problem = str(error) if type(value) is list else str(error).removeprefix(": data[0]")
        raise InvalidRequest(f"input {show(name)}{problem}") from None
    except (TypeError, ValueError) as error:  # of what no codec takes, or floats would round
        raise InvalidRequest(
            f"input {show(name)}: {str(error).removeprefix(f'tensor {name!r}: ')}"
        ) from error
    return make_tensor(name, array, {} if content_type is None else {"content_type": content_type})


def _take_apart(value: Any, spec: TensorSpec | None, *, are_items: bool) -> tuple[list[Any], tuple[int, ...]]:
    """The elements, and the shape. If `are_items`, as for JSON, a list within the list is an element."""
    leaves = value if type(value) is list else [value]
    if list in map(type, leaves) and not are_items:
        shape = _find_shape(value)
        try:
            return flatten(value, shape), shape
        except Unusual:
            raise InvalidRequest(
                ": its lists have different lengths: expected as many elements in each"
            ) from None
    flat = (len(leaves),)
    return leaves, flat if spec is None or spec.fits(flat) else _find_declared_shape(len(leaves), spec.shape)


def _find_shape(value: Any) -> tuple[int, ...]:
    """The shape of lists, if the first of each level shows it."""
    shape: list[int] = []
    while type(value) is list:
        shape.append(len(value))
        value = value[0] if value else None
        if len(shape) > MAX_RANK:  # a list of Python may hold itself
            raise InvalidRequest(f" is nested more than {MAX_RANK} deep")
    return tuple(shape)


def _find_declared_shape(elements: int, declared: Sequence[int]) -> tuple[int, ...]:
    """The declared shape for so many elements: the innermost -1 takes what the fixed dimensions leave, and
    any other -1 is 1, or 0 for none. A flat one if they do not fit, which is refused later, as that of any
    tensor."""
    fixed = abs(math.prod(declared))  # each -1 changes the sign only
    is_open = -1 in declared
    if (elements % fixed if is_open and fixed else elements != fixed) or (is_open and not fixed and elements):
        return (elements,)
    left, shape = elements // fixed if fixed else 0, list(declared)
    for axis in reversed(range(len(shape))):
        if shape[axis] == -1:
            shape[axis], left = left, min(left, 1)
    return tuple(shape)


def _choose(kind: Kind, spec: TensorSpec, leaves: list[Any], classes: set[type]) -> tuple[Kind, DType]:
    """What is declared; or what a model of numbers takes beside it, if the elements are that."""
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
    guess = next(((kind, dtype) for known, kind, dtype in GUESSES if alike <= known), None)
    if guess is None:
        if not is_json and (others := classes - _OF_JSON - {bytes, datetime, date}):
            # which says what to write instead
            to_wire_array([next(each for each in leaves if type(each) in others)])
        raise InvalidRequest(
            " has elements of several types, or objects: expected strings, numbers, or true and false"
        )
    kind, dtype = guess
    if kind is INTEGER:
        found = _find_integers(leaves)
        if found is None:
            raise InvalidRequest(
                ": no datatype holds all of its whole numbers, not even UINT64: make floats of them, if "
                "they may be rounded"
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
    *,
    is_json: bool,
) -> Array:
    problem = find_problem(leaves) if is_json and kind is JSON else None
    if problem is not None:
        raise InvalidRequest(f": {problem}")
    if Literal in classes and kind is not NUMBER:
        raise InvalidRequest(f": {ONLY_FLOATS}")
    if float in classes and is_json and (math.inf in leaves or -math.inf in leaves):
        raise InvalidRequest(": number out of range")
    if kind is JSON:
        return PandasJSONCodec.encode_input(name, leaves).array.reshape(shape)
    if not is_json and dtype.hasobject and (kind.has_class or not classes <= _OF_JSON):
        array = (
            to_wire_array(leaves)
            if kind.content_type is None
            else _CODECS[kind.content_type].encode_input(name, leaves).array
        )
        return array.reshape(shape)
    if Literal in classes:
        leaves = [float(each) if type(each) is Literal else each for each in leaves]
    if float in classes and dtype.kind in "iu":
        leaves = [_to_whole(each) if type(each) is float else each for each in leaves]
    # true and false would become numbers, and so would what Python can make a float of
    is_wrong = (bool in classes and dtype.kind != "b") or (
        not is_json and not classes <= (_OF_JSON if dtype.hasobject else _NUMBERS)
    )
    try:
        return from_elements(leaves, dtype, shape, is_json=is_json, is_wrong=is_wrong)
    except InvalidRequest as error:
        raise InvalidRequest(f": {error}") from None


def _to_whole(number: float) -> float:
    if math.isfinite(number) and abs(number) >= FIRST_ROUNDED:
        raise InvalidRequest(
            ": a whole number with a fraction or an exponent may have been rounded: expected its digits alone"
        )
    return int(number) if number.is_integer() else number


def _write_missing(array: Array, gaps: Collection[int], kind: Kind) -> tuple[Array, str]:
    """A column in which some values are missing, and its content type: dates have NaT, and others are among
    JSON texts, as null."""
    if kind is DATE:
        array[list(gaps)] = NO_DATE
        return array, DatetimeCodec.content_type
    values = [each.decode() if isinstance(each, bytes) else each for each in array.tolist()]
    for index in gaps:
        values[index] = None
    return PandasJSONCodec.encode_input("", values).array, PandasJSONCodec.content_type
