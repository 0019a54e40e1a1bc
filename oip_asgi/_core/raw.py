"""Array <-> raw bytes: row-major, little-endian, without padding. Knows no transport, no tensor names and no JSON.

Specification: Binary Tensor Data Extension; gRPC's raw contents are the same bytes.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Final

import numpy as np
from numpy import ndarray

from .datatypes import MAX_ELEMENTS, MAX_RANK, Array, Buffer, DType
from .errors import InvalidRequest
from .framing import cut, joined
from .tensors import object_array

_LENGTH: Final = 4
"""Bytes of the length before a BYTES element."""

_STEP: Final = 2**13
"""Elements that are made or joined in one call. With many, a call would hold the interpreter for long."""

_SMALL: Final = 4096
"""Bytes up to which an array is copied in less time than a view of it is made."""


@lru_cache(256)  # shapes are short, and repeat from request to request
def count(shape: tuple[int, ...]) -> int:
    """How many elements a tensor of this shape has, in exact arithmetic and before anything is allocated.

    Raises:
        InvalidRequest: More dimensions than numpy has, or more elements than any array can have. Zeros are left out of
            the latter, so that `[0, 2**62]` is refused as well: numpy cannot represent it.
    """
    if len(shape) > MAX_RANK:
        raise InvalidRequest(f"shape has {len(shape)} dimensions: at most {MAX_RANK} are possible")
    elements = prod(shape)
    if elements > MAX_ELEMENTS or (elements == 0 and prod(filter(None, shape)) > MAX_ELEMENTS):
        raise InvalidRequest("shape is too large: the product of its dimensions is beyond what an array can address")
    return elements


def from_raw(data: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Raw bytes as an array, which is a view of `data` where its alignment allows.

    Args:
        data: Exactly the tensor's bytes. BYTES elements are a 4-byte little-endian length and the bytes each.
        dtype: A dtype of the protocol.
        shape: Its dimensions, 0 or more each.

    Raises:
        InvalidRequest: The size of `data` is not that of the shape, a BOOL is neither 0 nor 1, or the lengths of
            BYTES elements do not add up.
    """
    elements, kind = count(shape), dtype.kind
    if kind == "O":
        return _bytes_array(data, shape, elements)
    size = elements * dtype.itemsize
    if len(data) != size:
        raise InvalidRequest(
            f"{len(data)} bytes of binary data, but shape {list(shape)} needs {size} ({elements} elements of {dtype.itemsize} bytes)"
        )
    if kind == "b":
        codes = np.frombuffer(data, np.uint8)
        if codes.size and codes.max() > 1:
            place = int(np.argmax(codes > 1))
            raise InvalidRequest(f"BOOL element {place} is the byte {codes[place]}: expected 0 or 1")
    if type(data) is bytes:  # which nobody moves, and which begin where any dtype may
        return ndarray(shape, dtype, data)
    array = np.frombuffer(data, dtype)  # while this array exists, the owner of the bytes cannot move them; np.ndarray does not see to that
    if not array.flags.aligned:
        array = array.copy()
    return array.reshape(shape)


def _bytes_array(data: Buffer, shape: tuple[int, ...], elements: int) -> Array:
    """The elements of BYTES data, each behind its length."""
    size = len(data) // elements if elements else 0
    if size > _LENGTH and size * elements == len(data):
        rows = np.frombuffer(data, np.uint8).reshape(elements, size)
        length = np.frombuffer((size - _LENGTH).to_bytes(_LENGTH, "little"), np.uint8)
        if (rows[:, :_LENGTH] == length).all():
            return _equally_long(rows[:, _LENGTH:]).reshape(shape)
    return object_array(cut(data, elements), shape)


def _equally_long(rows: Array) -> Array:
    """The bytes of each row as one element: numpy makes them in a fifth of the time of a loop."""
    array = np.empty(len(rows), object)
    for start in range(0, len(rows), _STEP):
        part = np.ascontiguousarray(rows[start : start + _STEP])
        array[start : start + _STEP] = part.view(np.dtype((np.void, part.shape[1]))).reshape(-1).tolist()
    return array


def view_raw(array: Array) -> Buffer:
    """The same as `to_raw`, as a view of the array where that is possible and takes less time than a copy."""
    if array.dtype.hasobject:
        return _bytes_data(array)
    if array.nbytes <= _SMALL:
        return array.tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def to_raw(array: Array) -> bytes:
    """An array of a protocol dtype as raw bytes, the inverse of `from_raw`."""
    return bytes(_bytes_data(array)) if array.dtype.hasobject else array.tobytes()


def _bytes_data(array: Array) -> bytes | bytearray:
    flat = array.ravel()
    if len(flat) <= _STEP:
        return joined(flat.tolist())
    return b"".join([joined(flat[start : start + _STEP].tolist()) for start in range(0, len(flat), _STEP)])


def element_to_raw(element: bytes) -> bytes:
    """One element of BYTES as raw bytes."""
    return len(element).to_bytes(_LENGTH, "little") + element
