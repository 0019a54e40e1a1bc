"""Array <-> raw bytes: row-major, little-endian, without padding. Knows no transport, no tensor names and no JSON.

Specification: Binary Tensor Data Extension; gRPC's raw contents are the same bytes.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np

from .datatypes import MAX_ELEMENTS, MAX_RANK, Array, Buffer, DType
from .errors import InvalidRequest
from .tensors import object_array

_LENGTH: Final = struct.Struct("<I")

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
    elements, empty = 1, False
    for dimension in shape:
        if dimension == 0:
            empty = True
        else:
            elements *= dimension
            if elements > MAX_ELEMENTS:
                raise InvalidRequest("shape is too large: the product of its dimensions is beyond what an array can address")
    return 0 if empty else elements


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
    elements = count(shape)
    if dtype.hasobject:
        return object_array(_split(data, elements), shape)
    if len(data) != elements * dtype.itemsize:
        raise InvalidRequest(
            f"{len(data)} bytes of binary data, but shape {list(shape)} needs {elements * dtype.itemsize} "
            f"({elements} elements of {dtype.itemsize} bytes)"
        )
    if dtype.kind == "b":
        codes = np.frombuffer(data, np.uint8)
        if codes.size and codes.max() > 1:
            place = int(np.argmax(codes > 1))
            raise InvalidRequest(f"BOOL element {place} is the byte {codes[place]}: expected 0 or 1")
    if type(data) is bytes:  # which nobody moves, and which begin where any dtype may
        return np.ndarray(shape, dtype, data)
    array = np.frombuffer(data, dtype)  # which keeps whoever owns the bytes from moving them, as np.ndarray does not
    if not array.flags.aligned:
        array = array.copy()
    return array.reshape(shape)


def _split(data: Buffer, elements: int) -> list[bytes]:
    view, unpack, size = memoryview(data), _LENGTH.unpack_from, _LENGTH.size
    found: list[bytes] = []
    position, end = 0, len(view)
    try:
        for _ in range(elements):
            if position >= end:
                break
            start = position + size
            (length,) = unpack(view, position)
            position = start + length
            if position > end:
                raise InvalidRequest(f"BYTES element {len(found)} claims {length} bytes, but {end - start} are left in the binary data")
            found.append(view[start:position].tobytes())
    except struct.error:
        raise InvalidRequest(f"BYTES element {len(found)}: its 4-byte length is cut off by the end of the binary data") from None
    if len(found) != elements:
        raise InvalidRequest(f"{len(found)} BYTES elements in the binary data, but the shape needs {elements}")
    if position != end:
        raise InvalidRequest(f"{end - position} bytes are left over behind the last of {elements} BYTES elements")
    return found


def view_raw(array: Array) -> Buffer:
    """The same as `to_raw`, as a view of the array where that is possible and takes less time than a copy."""
    if array.dtype.hasobject or array.nbytes <= _SMALL:
        return to_raw(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def to_raw(array: Array) -> bytes:
    """An array of a protocol dtype as raw bytes, the inverse of `from_raw`."""
    if not array.dtype.hasobject:
        return array.tobytes()
    elements: list[bytes] = array.ravel().tolist()
    lengths = map(_LENGTH.pack, map(len, elements))
    return b"".join(chain.from_iterable(zip(lengths, elements, strict=True)))
