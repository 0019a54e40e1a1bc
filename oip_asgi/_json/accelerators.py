"""The libraries of the extra `[fast]`, if they are installed: pysimdjson and orjson. Knows no shapes and no errors.

Anything unusual is left to msgspec, so that all ways give the same arrays and the same errors.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from .._protocol.datatypes import Array, DType, cast

_READ_AS: Final = {"f": ("d", np.dtype("<f8")), "i": ("i", np.dtype("<i8")), "u": ("u", np.dtype("<u8"))}
"""For each kind of dtype, its widest dtype in pysimdjson and in numpy."""


_MISREAD: Final = np.frombuffer(b"\xfd\x43\xae\x15", "<f4")[0]
"""The FP32 that orjson writes as 7.038531e-26, the fewest digits that name it among FP32. Most clients read numbers as FP64 first. The FP64
nearest to these digits lies halfway to the next FP32, so such clients get that one. No other FP32 has this problem
(`tests/core/json/test_fp32.py`)."""


def read(text: bytes, dtype: DType) -> Array | None:
    """The numbers of a flat JSON array as an array; None if it has anything but numbers that fit, or there is no library for them."""
    if dtype.kind not in _READ_AS or (simdjson := _library("simdjson")) is None:
        return None
    code, wide_dtype = _READ_AS[dtype.kind]
    # pysimdjson makes one flat array of nested ones, however deep and long
    if text.find(b"[", 1) >= 0 or not text.startswith(b"["):
        return None
    try:
        wide = np.frombuffer(simdjson.Parser().parse(text).as_buffer(of_type=code), wide_dtype)
    except (ValueError, TypeError, RuntimeError):
        return None
    if wide_dtype == dtype:
        return wide
    array = cast(wide, dtype)
    is_lost = np.isinf(array) if dtype.kind == "f" else array != wide
    return None if np.count_nonzero(is_lost) else array


def write(array: Array) -> bytes | None:
    """A flat array of numbers as a JSON array, infinities as null; None if there is no library for it."""
    if array.dtype.kind not in "fiub" or array.dtype == np.float16 or (orjson := _library("orjson")) is None:
        return None
    text: bytes = orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    if array.dtype == np.float32 and text.find(b"e") >= 0 and np.count_nonzero(np.abs(array) == _MISREAD):
        return None
    return text


@cache  # bounded: two names
def _library(name: str) -> Any:
    return import_module(name) if find_spec(name) is not None else None
