"""One table: the protocol's datatypes and numpy's. Knows nothing of JSON, bytes or requests.

Specification: Tensor Data Types. Wire order is little-endian, so the table's dtypes are too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

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

FIRST_ROUNDED: Final = 2.0**53
"""From here on, a float of FP64 may be another whole number than the one it was made of."""

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
    raise InvalidRequest(
        f"unknown datatype {show(datatype)}: expected one of {', '.join(DTYPES)}, or BF16 with ml_dtypes "
        f"(names are case-sensitive){suggest_datatype(datatype)}"
    )


def suggest_datatype(name: str) -> str:
    """Say which datatype was probably meant by an unknown name. In Triton's configurations, they begin with
    `TYPE_`."""
    meant = _ALSO_CALLED.get(name.casefold().removeprefix("type_"))
    return "" if meant is None else f"; did you mean {show(meant)}?"


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
