"""One table: the protocol's datatypes and numpy's; and how a value, such as a list that a model returned,
becomes an array of one of them. Knows nothing of JSON, wire formats or requests.

Specification: Tensor Data Types. Wire order is little-endian, so the table's dtypes are too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from types import NoneType
from typing import Any, Final, Literal, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .._turns import take_turns
from .errors import InvalidRequest, show

Array: TypeAlias = npt.NDArray[Any]
DType: TypeAlias = np.dtype[Any]
Buffer: TypeAlias = bytes | bytearray | memoryview

Datatype: TypeAlias = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "BF16",
    "FP32",
    "FP64",
    "BYTES",
]
"""The names of datatypes. BF16 needs ml_dtypes."""

DTYPES: Final[Mapping[Datatype, DType]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype("O"),
}

_NAMES: Final[dict[DType, Datatype]] = {dtype: name for name, dtype in DTYPES.items()}


def name_of(dtype: DType) -> Datatype:
    """The inverse of `DTYPES`, for the dtype of a tensor: the only other one that it may have is BF16's."""
    return _NAMES.get(dtype, "BF16")


_ALSO_CALLED: Final[Mapping[str, Datatype]] = {
    **{name.casefold(): name for name in (*DTYPES, "BF16")},
    **{dtype.name: name for name, dtype in DTYPES.items()},
    "bfloat16": "BF16",
    "half": "FP16",
    "double": "FP64",
    "boolean": "BOOL",
    "str": "BYTES",
    "string": "BYTES",
}
"""The names of numpy, torch and ONNX for the datatypes, in small letters. `float` is left out: it is FP64 in
numpy, and FP32 in ONNX."""

NUMBERS: Final = frozenset(dtype for dtype in DTYPES.values() if not dtype.hasobject)
"""The dtypes of the table whose elements are no Python objects."""

FLOATING: Final = frozenset({"FP16", "BF16", "FP32", "FP64"})
"""The datatypes that have NaN and infinities."""

SEQUENCES: Final = (list, tuple, deque)
"""What is read as a list."""

FIRST_ROUNDED: Final = 2.0**53
"""From here on, a float of FP64 may be another whole number than the one it was made of."""

INFINITE: Final = 2**1024 - 2**970
"""The first whole number of which no float can be made: it is nearer to the next power of two."""

MAX_RANK: Final = 64
"""numpy's own limit on dimensions."""

MAX_ELEMENTS: Final = 2**60 - 1
"""Above this no array of 8-byte elements can be addressed, whatever it holds."""

MAX_EMPTY: Final = 1_000_000
"""The most that the other dimensions of a tensor with a dimension of 0 may multiply to. Each such row has no
bytes, and may become a text of JSON."""


@cache  # bounded: an unknown datatype raises
def dtype_of(datatype: str) -> DType:
    dtype: DType | None = DTYPES.get(datatype)  # type: ignore[call-overload]  # any text comes here
    if dtype is not None:
        return dtype
    if datatype == "BF16":
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            raise InvalidRequest(
                "datatype BF16 needs the package ml_dtypes, which this server does not have"
            ) from None
        extension: DType = np.dtype(bfloat16)
        return extension
    # in Triton's configurations, the names begin with TYPE_
    meant = _ALSO_CALLED.get(datatype.casefold().removeprefix("type_"))
    raise InvalidRequest(
        f"unknown datatype {show(datatype)}: expected one of {', '.join(DTYPES)}, or BF16 with ml_dtypes "
        f"(names are case-sensitive){'' if meant is None else f'; did you mean {show(meant)}?'}"
    )


def datatype_of(dtype: DType) -> Datatype | None:
    """The protocol's name of a numpy dtype in wire order, None if the protocol has none."""
    return _NAMES.get(dtype) or ("BF16" if dtype.name == "bfloat16" else None)


def cast(array: Array, dtype: DType) -> Array:
    """`array.astype(dtype)` without numpy's warnings of a signalling NaN, and of an overflow: `find_overflow`
    finds those."""
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def widen(array: Array) -> Array:
    """BF16 as FP32, which holds each of its values, for libraries that know numpy's own dtypes alone. Other
    arrays are returned as they are."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def find_overflow(array: Array, converted: Array) -> Array:
    """Where a finite number became an infinity."""
    overflow: Array = np.isinf(converted) & np.isfinite(array)
    return overflow


def make_integer_array(elements: list[int], dtype: DType, where: str, first: int = 0) -> Array:
    """A flat array of integers. Raises InvalidRequest if one is out of range."""
    try:
        return np.array(elements, dtype)
    except OverflowError:
        limits = np.iinfo(dtype)
        index = next(
            index for index, element in enumerate(elements) if not limits.min <= element <= limits.max
        )
        raise InvalidRequest(
            f"{where}: element {first + index} is out of range for {datatype_of(dtype)}: expected "
            f"{limits.min} to {limits.max}"
        ) from None


# Values as arrays

_TOGETHER: Final = 2**16
"""How many elements of BYTES become an array at a time. That takes a millisecond; then other threads may run.
Without that, 32 MiB of short strings held them up for 100 to 300 milliseconds."""

Writer: TypeAlias = Callable[[Any], bytes]

Writers: TypeAlias = Mapping[type, Writer]
"""What makes an element of BYTES of an object, by its class. The first class of which it is one counts."""

_WRITERS: Final[Writers] = {str: str.encode, **dict.fromkeys((bytes, bytearray, memoryview), bytes)}

_FEW: Final = 2**6
"""Up to so many elements, one more array object takes as much memory as the elements."""


def to_wire_array(value: Any, preferred: DType | None = None) -> Array:
    """A value as an array whose dtype the protocol knows, in wire order. `preferred` is as for `as_array`."""
    if (
        type(value) is list
        and value
        and type(value[0]) in (str, bytes)
        and set(map(type, value)) <= {str, bytes}
    ):
        return object_array(_encode_elements(value), (len(value),))
    array = as_array(value, preferred)
    if array.dtype.kind in "OUST":  # T is numpy's StringDType
        elements = array.ravel().tolist()
        encoded = _encode_elements(elements)
        return array if encoded is elements and array.dtype.hasobject else object_array(encoded, array.shape)
    if datatype_of(array.dtype) is not None:
        return array
    wire = array.dtype.newbyteorder("<")
    if datatype_of(wire) is None:
        raise TypeError(f"the protocol has no datatype for numpy dtype {array.dtype}")
    return array.astype(wire)


def as_array(value: Any, preferred: DType | None = None) -> Array:
    """`numpy.asarray`, but with text and bytes as Python objects, and whole numbers of lists as INT64, else
    as UINT64, never as floats.

    An empty list has the `preferred` dtype. Whole numbers become floats, or unsigned, if such a dtype is
    preferred and they fit. Booleans of a list are numbers beside these, as numpy has it, and None is NaN.
    """
    classes = find_classes(value)
    if isinstance(value, ndarray):
        return np.asarray(value)
    if any(issubclass(cls, (str, bytes)) for cls in classes):
        return np.asarray(value, object)
    are_missed = {NoneType} < classes <= {int, float, NoneType}
    try:
        array = np.asarray(value, np.float64 if are_missed else None)
    except ValueError as error:
        if "inhomogeneous" in str(error):
            raise ValueError("its lists have different lengths: expected as many elements in each") from None
        raise
    kind = array.dtype.kind
    if not array.size:
        return (
            array
            if preferred is None or not isinstance(value, SEQUENCES)
            else np.empty(array.shape, preferred)
        )
    if kind in "fO" and all(issubclass(cls, (int, np.integer)) for cls in classes):
        return _to_whole_numbers(np.asarray(value, object), preferred)
    if kind == "f" and _holds_integers(value) and (np.abs(array) >= FIRST_ROUNDED).any():
        raise TypeError(
            "its whole numbers are floats where one is missing, which rounds those of 2**53 or more: make "
            'it a column, as in pandas.Series(values, dtype="Int64")'
        )
    if (
        kind == "f"
        and len(classes) > 1
        and (preferred is None or preferred.kind not in "fV")
        and (np.abs(array) >= FIRST_ROUNDED).any()
    ):
        check_exact(np.asarray(value, object).ravel().tolist())
    if preferred is not None and preferred.kind == "u" and kind == "i" and classes == {int}:
        unsigned = array.astype(preferred)
        return unsigned if (unsigned == array).all() else array
    return array


def check_exact(elements: Iterable[Any]) -> None:
    """Refuse whole numbers of which floats are made, if one would be another one then."""
    for each in elements:
        # one that is out of range is another error
        if isinstance(each, (int, np.integer)) and abs(int(each)) < INFINITE and float(each) != int(each):
            raise TypeError(
                f"{show(int(each))} would be rounded, as a fraction or a missing value beside it makes FP64 "
                "of it: declare FP64, or write floats"
            )


def to_whole(number: float) -> float:
    """The integer that a number with a fraction or an exponent stands for. Any other stays, and is refused
    where it stands: one that is not whole, not finite, or may have been rounded."""
    return int(number) if number.is_integer() and abs(number) < FIRST_ROUNDED else number


def _holds_integers(value: Any) -> bool:
    """Whether an array of pandas, polars or pyarrow is one of integers, as its dtype says: `Int64`,
    `uint8`."""
    dtype = str(getattr(value, "dtype", None) or getattr(value, "type", ""))
    return dtype.casefold().startswith(("int", "uint"))


def find_classes(value: Any) -> set[type]:
    """The classes of the elements of lists. Those of an array of numbers are its scalars'. Raises TypeError
    for one that is masked, as numpy takes what is below the mask."""
    if isinstance(value, ndarray):
        if type(value) is not ndarray and np.ma.is_masked(value):
            raise TypeError(
                "a masked array with masked elements is no tensor: fill them, as in array.filled(0)"
            )
        return {value.dtype.type if value.dtype.kind in "biuf" else ndarray}
    if not isinstance(value, SEQUENCES):
        return {type(value)}
    classes = set(map(type, value))
    nests = {cls for cls in classes if issubclass(cls, (*SEQUENCES, ndarray))}
    if nests:
        classes = (classes - nests).union(
            *[find_classes(element) for element in value if type(element) in nests]
        )
    return classes


def _to_whole_numbers(objects: Array, preferred: DType | None) -> Array:
    """Whole numbers for which numpy has no dtype, or takes floats, which would round them."""
    elements = list(map(int, objects.ravel().tolist()))
    dtypes = (np.float64,) if preferred is not None and preferred.kind in "fV" else (np.int64, np.uint64)
    for dtype in dtypes:
        with suppress(OverflowError):
            return np.array(elements, dtype).reshape(objects.shape)
    raise TypeError(
        "no datatype holds all of its whole numbers, not even UINT64: make floats of them, if they may be "
        "rounded"
    )


def _encode_elements(elements: list[Any]) -> list[bytes]:
    """Elements as `bytes`: the same list if they all are."""
    classes = set(map(type, elements))
    return elements if classes <= {bytes} else list(map(choose_writer(classes, _WRITERS, _refuse), elements))


def choose_writer(classes: Collection[type], writers: Writers, refuse: Writer) -> Writer:
    """What makes bytes of elements of these classes; `refuse` raises for those of any other."""
    by_class = {
        cls: next((write for of, write in writers.items() if issubclass(cls, of)), refuse) for cls in classes
    }
    if len(by_class) == 1:  # as nearly always: it may be a function of C
        return next(iter(by_class.values()))
    return lambda element: by_class[type(element)](element)


def _refuse(element: object) -> NoReturn:
    raise TypeError(
        "an array of Python objects can be a BYTES tensor only, of str or bytes, but holds "
        f"{show(element)}{_suggest_call(element)}"
    )


_OF_CLASSES_OF_ROWS: Final = (
    "__dataclass_fields__",
    "__struct_fields__",
    "__attrs_attrs__",
    "__pydantic_fields__",
)


def _suggest_call(element: object) -> str:
    """Say what to write for something that is made an array, or a data frame, by one call."""
    if any(hasattr(element, name) for name in _OF_CLASSES_OF_ROWS):
        return f": for rows of this class annotate the result, such as -> list[{type(element).__name__}]"
    if isinstance(element, dict):
        return ": make a pandas.DataFrame of a list of dicts, whose columns are then tensors"
    call = next((name for name in ("toarray", "collect") if callable(getattr(element, name, None))), None)
    return "" if call is None else f": write .{call}()"


def object_array(elements: list[bytes], shape: tuple[int, ...]) -> Array:
    """A BYTES array: numpy's own `S` dtype would strip trailing NULs."""
    size = len(elements)
    if size <= _TOGETHER:
        # takes two thirds of the time of filling an empty array
        return to_shape(np.fromiter(elements, object, size), shape)
    array, left = np.empty(size, object), iter(elements)
    for start in take_turns(range(0, size, _TOGETHER)):
        part = array[start : start + _TOGETHER]
        part[:] = np.fromiter(left, object, len(part))
    return to_shape(array, shape)


def to_shape(array: Array, shape: tuple[int, ...]) -> Array:
    """Give a flat array a shape. A small one is copied: a view would keep another array, which takes more
    memory than its elements."""
    if len(shape) == 1:
        return array
    return (
        array.reshape(shape)
        if array.size > _FEW or array.dtype.hasobject
        else ndarray(shape, array.dtype, array.tobytes())
    )
