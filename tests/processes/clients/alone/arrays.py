"""An array of every datatype, and of shapes that clients may trip over."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.support.inside.values import Array

ARRAYS: list[Array] = [
    np.array([[True, False], [False, True]]),
    *[np.array([[0, 1], [100, 127]], dtype) for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")],
    *[np.array([[0.5, -1], [2, 65504]], dtype) for dtype in ("f2", "f4", "f8")],
    np.array([1.5, -2, np.nan], ml_dtypes.bfloat16),
    np.array([np.nan, np.inf, -np.inf, 1], "f4"),
    np.array([[b"a", b"\0\xff"], [b"", b"long " * 50]], object),
    np.array([[b"a"], ["é".encode()]], object),
    np.zeros((0, 2), "f4"),
    np.zeros((2, 1, 0, 3), "i8"),
    np.arange(200_000, dtype="f4").reshape(2, -1),
]


def named(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def assert_same(received: Any, array: Array) -> None:
    assert received.shape == array.shape
    if array.dtype.hasobject:
        assert received.ravel().tolist() == array.ravel().tolist()
    else:
        assert received.dtype == array.dtype
        np.testing.assert_array_equal(received.astype("f8"), array.astype("f8"))
