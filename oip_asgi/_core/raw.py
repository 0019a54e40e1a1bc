"""Array <-> raw bytes: row-major, little-endian, without padding. Knows no transport, no tensor names and no JSON.

Specification: Binary Tensor Data Extension; gRPC's raw contents are the same bytes.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import lru_cache
from typing import Final

import numpy as np

from .datatypes import MAX_ELEMENTS, MAX_RANK, Array, Buffer, DType
from .errors import InvalidRequest
from .tensors import object_array

_LENGTH: Final = struct.Struct("<I")

_WINDOW: Final = 2**18
"""Bytes of BYTES data that are cut into elements together, as `bytes`, whose slices are made in less time than those of views."""

_MARK: Final = bytes(4)
"""What stands for the length of an element while data are split."""

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
        return _bytes_array(data, shape, elements)
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
    array = np.frombuffer(data, dtype)  # while this array exists, the owner of the bytes cannot move them; np.ndarray does not see to that
    if not array.flags.aligned:
        array = array.copy()
    return array.reshape(shape)


def _bytes_array(data: Buffer, shape: tuple[int, ...], elements: int) -> Array:
    """The elements of BYTES data, each behind its length."""
    size = len(data) // elements if elements else 0
    if size > _LENGTH.size and size * elements == len(data):
        rows = np.frombuffer(data, np.uint8).reshape(elements, size)
        length = np.frombuffer(_LENGTH.pack(size - _LENGTH.size), np.uint8)
        if (rows[:, : _LENGTH.size] == length).all():
            return _equally_long(rows[:, _LENGTH.size :]).reshape(shape)
    return object_array(_split(data, elements), shape)


def _equally_long(rows: Array) -> Array:
    """The bytes of each row as one element: numpy makes them in a fifth of the time of a loop."""
    array = np.empty(len(rows), object)
    for start in range(0, len(rows), _STEP):
        part = np.ascontiguousarray(rows[start : start + _STEP])
        array[start : start + _STEP] = part.view(np.dtype((np.void, part.shape[1]))).reshape(-1).tolist()
    return array


def _split(data: Buffer, elements: int) -> list[bytes]:
    view, size = memoryview(data), _LENGTH.size
    found: list[bytes] = []
    position, end = 0, len(view)
    while len(found) < elements and position < end:
        taken = _take(bytes(view[position : position + _WINDOW]), elements - len(found), found)
        position += taken
        if taken:
            continue
        # one is larger than the window, or not all there
        if end - position < size:
            raise InvalidRequest(f"BYTES element {len(found)}: its 4-byte length is cut off by the end of the binary data")
        start = position + size
        (length,) = _LENGTH.unpack_from(view, position)
        position = start + length
        if position > end:
            raise InvalidRequest(f"BYTES element {len(found)} claims {length} bytes, but {end - start} are left in the binary data")
        found.append(bytes(view[start:position]))
    if len(found) != elements:
        raise InvalidRequest(f"{len(found)} BYTES elements in the binary data, but the shape needs {elements}")
    if position != end:
        raise InvalidRequest(f"{end - position} bytes are left over behind the last of {elements} BYTES elements")
    return found


def _take(window: bytes, most: int, found: list[bytes]) -> int:
    """Append the elements that a window begins with, at most so many, and say how many bytes they have. The last may not be all there."""
    split = _split_at_lengths(window)
    if split is not None and len(split[0]) <= most:
        found += split[0]
        return split[1]
    unpack, size, append = _LENGTH.unpack_from, _LENGTH.size, found.append
    position = 0
    with suppress(struct.error):  # where the window ends in or before a length
        for _ in range(most):
            start = position + size
            position = start + unpack(window, position)[0]
            append(window[start:position])
    return position if position <= len(window) else len(window) - len(found.pop()) - size


def _split_at_lengths(window: bytes) -> tuple[list[bytes], int] | None:
    """The elements that are all there, and how many bytes they have, if every one has 1 to 255 bytes, of which none is zero.

    numpy finds the lengths by their three upper bytes, which are zeros, and `bytes.split` makes the elements: for 1,000 elements of 25
    bytes that takes half the time of a loop.
    """
    codes = np.frombuffer(window, np.uint8)
    if len(codes) <= _LENGTH.size:
        return None
    is_length = (codes[1:-2] | codes[2:-1] | codes[3:]) == 0
    if np.count_nonzero(is_length) * _LENGTH.size > len(codes):  # zeros without an end
        return None
    places = np.flatnonzero(is_length)
    lengths = codes[places]
    ends = places + lengths + _LENGTH.size
    if not len(places) or places[0] or (ends[:-1] != places[1:]).any() or ends[-1] + _LENGTH.size <= len(codes):
        return None
    if ends[-1] > len(codes):
        ends, lengths = ends[:-1], lengths[:-1]
    whole = int(ends[-1]) if len(ends) else 0
    marked = codes[:whole].copy()
    if np.count_nonzero(marked) != whole - 3 * len(lengths):
        return None
    marked[places[: len(lengths)]] = 0
    return marked.tobytes().split(_MARK)[1:], whole


def view_raw(array: Array) -> Buffer:
    """The same as `to_raw`, as a view of the array where that is possible and takes less time than a copy."""
    if array.dtype.hasobject or array.nbytes <= _SMALL:
        return to_raw(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def to_raw(array: Array) -> bytes:
    """An array of a protocol dtype as raw bytes, the inverse of `from_raw`."""
    if not array.dtype.hasobject:
        return array.tobytes()
    flat = array.ravel()
    if len(flat) <= _STEP:
        return _framed(flat.tolist())
    return b"".join([_framed(flat[start : start + _STEP].tolist()) for start in range(0, len(flat), _STEP)])


def element_to_raw(element: bytes) -> bytes:
    """One element of BYTES as raw bytes."""
    return _LENGTH.pack(len(element)) + element


def _framed(elements: list[bytes]) -> bytes:
    lengths = np.fromiter(map(len, elements), "<u4", len(elements))
    parts = [b""] * (2 * len(elements))
    parts[::2] = lengths.view("V4").tolist()
    parts[1::2] = elements
    return b"".join(parts)
