"""An array of every datatype, and of shapes that clients may trip over."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

NOT_FINITE: Array = np.array([np.nan, np.inf, -np.inf, 1], "f4")
IN_JSON: list[Array] = [
    np.array([[True, False], [False, True]]),
    *[np.array([[0, 1], [100, 127]], dtype) for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")],
    *[np.array([[0.5, -1], [2, 65504]], dtype) for dtype in ("f2", "f4", "f8")],
    NOT_FINITE,
    np.array([[b"a", "é".encode()], [b"", b"long " * 50]], object),
    np.zeros((0, 2), "f4"),
    np.zeros((2, 1, 0, 3), "i8"),
]
ARRAYS: list[Array] = [
    *IN_JSON,
    np.array([1.5, -2, np.nan], ml_dtypes.bfloat16),
    np.array([[b"a"], [b"\0\xff"]], object),
    np.arange(200_000, dtype="f4").reshape(2, -1),
]


def named(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def assert_same(received: Any, array: Array) -> None:
    """What a client has read is what was sent. Some have texts of JSON where bytes were sent."""
    assert received.shape == array.shape
    if array.dtype.hasobject:
        assert [each.encode() if isinstance(each, str) else each for each in received.ravel()] == array.ravel().tolist()
    else:
        assert received.dtype == array.dtype
        np.testing.assert_array_equal(received.astype("f8"), array.astype("f8"))
