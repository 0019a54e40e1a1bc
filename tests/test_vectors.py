"""The wire vectors in both directions: bytes -> array -> bytes, and JSON -> array -> JSON."""

from __future__ import annotations

import numpy as np
import pytest

from oip_asgi._core.datatypes import DTYPES, Array, datatype_of, dtype_of
from oip_asgi._core.json_data import from_json, to_json
from oip_asgi._core.raw import from_raw, to_raw

from .vectors import VECTORS, Vector

vectors = pytest.mark.parametrize("vector", VECTORS, ids=str)


def expected(vector: Vector) -> Array:
    array = np.empty(len(vector.elements), dtype_of(vector.datatype))
    array[:] = vector.elements
    return array.reshape(vector.shape)


def assert_same(array: Array, vector: Vector) -> None:
    assert array.shape == vector.shape
    assert datatype_of(array.dtype) == vector.datatype
    if array.dtype.hasobject:
        assert [type(element) for element in array.ravel().tolist()] == [bytes] * array.size
        assert array.ravel().tolist() == vector.elements
    else:
        wide, wanted = array.astype("f8"), expected(vector).astype("f8")
        np.testing.assert_array_equal(wide, wanted)
        assert np.array_equal(np.signbit(wide), np.signbit(wanted))


def test_every_datatype_has_a_vector() -> None:
    assert {vector.datatype for vector in VECTORS} == {*DTYPES, "BF16"}


@vectors
def test_raw_bytes_become_the_array(vector: Vector) -> None:
    assert_same(from_raw(vector.raw_bytes, dtype_of(vector.datatype), vector.shape), vector)


@vectors
def test_the_array_becomes_raw_bytes(vector: Vector) -> None:
    assert to_raw(expected(vector)) == vector.raw_bytes


@pytest.mark.parametrize(("vector", "text"), [(vector, text) for vector in VECTORS for text in (vector.written, *vector.sent)])
def test_json_becomes_the_array(vector: Vector, text: str) -> None:
    assert_same(from_json(text.encode(), dtype_of(vector.datatype), vector.shape), vector)


@vectors
def test_the_array_becomes_json(vector: Vector) -> None:
    assert to_json(expected(vector)).decode() == vector.written


@vectors
def test_a_strided_array_leaves_as_its_elements_in_row_major_order(vector: Vector) -> None:
    array = np.repeat(expected(vector).reshape(1, -1), 2, axis=0).T[:, 0].reshape(vector.shape)
    assert to_raw(array) == vector.raw_bytes
    assert to_json(array).decode() == vector.written
