"""The libraries of the extra `[fast]`, where they are installed: pysimdjson and orjson. Knows no shapes and no errors.

Whatever is not plainly right is left to msgspec: so all ways give the same arrays, and refuse the same.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from ..datatypes import Array, DType, cast

_READ_AS: Final = {"f": ("d", np.dtype("<f8")), "i": ("i", np.dtype("<i8")), "u": ("u", np.dtype("<u8"))}
"""For each kind of dtype: what pysimdjson calls the widest of it, and what numpy does."""


def read(text: bytes, dtype: DType, row: int | None) -> Array | None:
    """The numbers of a JSON array, or of the arrays in it.

    Args:
        text: One JSON array.
        dtype: The dtype that is wanted, of any kind.
        row: How many numbers each of the arrays in it must hold; None where there must be none.

    Returns:
        A flat array of that dtype; None where there is no library for it, or something else than numbers that fit.
    """
    if dtype.kind not in _READ_AS or (simdjson := _library("simdjson")) is None:
        return None
    code, wide_dtype = _READ_AS[dtype.kind]
    # pysimdjson makes one flat array of nested ones, however deep and long
    if row is None and text.find(b"[", 1) >= 0:
        return None
    try:
        data = simdjson.Parser().parse(text)
        if row is not None and (_brackets(text) != 1 + len(data) or any(len(items) != row for items in data)):
            return None
        wide = np.frombuffer(data.as_buffer(of_type=code), wide_dtype)
    except (ValueError, TypeError, RuntimeError):
        return None
    if wide_dtype == dtype:
        return wide
    array = cast(wide, dtype)
    is_lost = np.isinf(array) if dtype.kind == "f" else array != wide
    return None if is_lost.any() else array


def _brackets(text: bytes) -> int:
    """How many opening brackets a text has, counted in a fifth of the time that `bytes.count` takes. Those in strings count too, but no
    text with strings is taken."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("[")))


def write(array: Array) -> bytes | None:
    """A flat array of numbers as a JSON array, infinities as null; None where there is no library for it."""
    if array.dtype.kind not in "fiub" or array.dtype == np.float16 or (orjson := _library("orjson")) is None:
        return None
    text: bytes = orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    return text


@cache  # of two names
def _library(name: str) -> Any:
    return import_module(name) if find_spec(name) is not None else None
