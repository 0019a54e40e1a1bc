"""Large JSON `data` by the libraries of the extra `[fast]`, where they are installed. Knows when not to answer, and no errors.

Whatever is not plainly right is left to `json_data`, which says what is wrong with it: so both give the same arrays, and refuse the same.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from .datatypes import Array, Buffer, DType, cast

_WORTH_BYTES: Final = 2**14
"""Text from which pysimdjson is ahead, by measurement."""

_WORTH_ELEMENTS: Final = 2**8
"""Elements from which orjson is."""

_WORTH_ROW: Final = 2**4
"""Elements of the innermost arrays, each of which is a call of Python's."""

_CHUNK: Final = 2**18

_READ_AS: Final = {"f": ("d", np.dtype("<f8")), "i": ("i", np.dtype("<i8")), "u": ("u", np.dtype("<u8"))}
"""For each kind of dtype: what pysimdjson calls the widest of it, and what numpy does."""


def read(text: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array | None:
    """The elements of JSON `data` that is flat, or nested exactly as the shape.

    Args:
        text: One JSON value.
        dtype: The dtype that is wanted.
        shape: The shape, of one dimension at least.

    Returns:
        A flat array of that dtype; None where this is not for this module.
    """
    if len(text) < _WORTH_BYTES or not shape or dtype.kind not in _READ_AS or (simdjson := _library("simdjson")) is None:
        return None
    code, wide = _READ_AS[dtype.kind]
    try:
        data = simdjson.Parser().parse(text)
        # it makes one flat array of nested ones, whatever their lengths
        is_right = _is_nested(data, text, shape if isinstance(data[0], simdjson.Array) else (math.prod(shape),))
        return _narrowed(np.frombuffer(data.as_buffer(of_type=code), wide), dtype) if is_right else None
    except (ValueError, TypeError, LookupError, RuntimeError, AttributeError):
        return None


def _is_nested(data: Any, text: Buffer, shape: tuple[int, ...]) -> bool:
    """Whether arrays nest exactly as the shape says: as many as it needs, and each as long."""
    needed = sum(math.prod(shape[:axis]) for axis in range(len(shape)))
    if (len(shape) > 1 and shape[-1] < _WORTH_ROW) or _count_opened(text) != needed:
        return False
    level = [data]
    for size in shape[:-1]:
        if any(len(array) != size for array in level):
            return False
        level = [item for array in level for item in array]
    return all(len(row) == shape[-1] for row in level)


def _count_opened(text: Buffer) -> int:
    codes = np.frombuffer(text, np.uint8)
    return sum(int(np.count_nonzero(codes[start : start + _CHUNK] == ord("["))) for start in range(0, len(codes), _CHUNK))


def _narrowed(wide: Array, dtype: DType) -> Array | None:
    array = cast(wide, dtype)
    is_lost = np.isinf(array) if dtype.kind == "f" else array != wide
    return None if is_lost.any() else array


def write(array: Array) -> bytes | None:
    """A flat array of numbers as the JSON text of `data`, infinities as null; None where this is not for this module."""
    if array.size < _WORTH_ELEMENTS or array.dtype.kind not in "fiub" or array.dtype == np.float16:
        return None
    orjson = _library("orjson")
    if orjson is None:
        return None
    text: bytes = orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)
    return text


@cache  # of two names
def _library(name: str) -> Any:
    return import_module(name) if find_spec(name) is not None else None
