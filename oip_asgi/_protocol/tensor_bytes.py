"""Array <-> raw bytes, also of BYTES elements: row-major, little-endian, without padding; and which arrays of
a response are copied, as somebody may change them. Knows no transport, tensor names or JSON.

Specification: Binary Tensor Data Extension; gRPC's raw contents are the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Sequence, Set
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
from numpy import ndarray

from .._turns import take_turns
from .datatypes import MAX_ELEMENTS, MAX_EMPTY, MAX_RANK, Array, Buffer, DType, object_array
from .errors import InvalidRequest
from .tensors import InferenceRequest, Tensor, make_read_only

_LENGTH: Final = struct.Struct("<I")
"""The length in front of each element of BYTES."""

_TOGETHER: Final = 2**14
"""How many elements of BYTES are joined at a time. That takes 2 milliseconds; then other threads may run."""

SMALL: Final = 4096
"""`view_bytes` copies arrays of up to so many bytes: that takes less time than a view."""


@lru_cache(256)  # shapes are short, and repeat from request to request
def count(shape: tuple[int, ...]) -> int:
    """How many elements a tensor of this shape has, in exact arithmetic and before anything is allocated."""
    if len(shape) > MAX_RANK:
        raise InvalidRequest(f"shape has {len(shape)} dimensions: at most {MAX_RANK} are possible")
    elements = prod(shape)
    if elements > MAX_ELEMENTS:
        raise InvalidRequest(
            "shape is too large: the product of its dimensions is beyond what an array can address"
        )
    if elements == 0 and prod(filter(None, shape)) > MAX_EMPTY:
        raise InvalidRequest(
            f"shape is too large: it has a 0, and its other dimensions multiply to more than {MAX_EMPTY}"
        )
    return elements


def from_bytes(data: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Raw bytes as an array, which is a view of `data` if its alignment allows."""
    elements, kind = count(shape), dtype.kind
    if kind == "O":
        return object_array(_cut_elements(data, elements), shape)
    size = elements * dtype.itemsize
    if len(data) != size:
        raise InvalidRequest(
            f"{len(data)} bytes of binary data, but shape {list(shape)} needs {size} ({elements} elements "
            f"of {dtype.itemsize} bytes)"
        )
    if kind == "b":
        codes = np.frombuffer(data, np.uint8)
        if codes.size and codes.max() > 1:
            index = int(np.argmax(codes > 1))
            raise InvalidRequest(f"BOOL element {index} is the byte {codes[index]}: expected 0 or 1")
    if type(data) is bytes:  # they never move, and their address suits any dtype
        return ndarray(shape, dtype, data)
    array = np.frombuffer(data, dtype)  # unlike np.ndarray, it keeps the owner of the bytes from moving them
    if not array.flags.aligned:
        array = array.copy()
    return array.reshape(shape)


def view_bytes(array: Array) -> Buffer:
    """An array of a protocol dtype as raw bytes, the inverse of `from_bytes`: a view of the array if that is
    possible and faster."""
    if array.dtype.hasobject:
        flat = array.ravel()
        parts = range(0, flat.size, _TOGETHER)
        return (
            _join_elements(flat.tolist())
            if len(parts) < 2
            else b"".join(_join_elements(flat[at : at + _TOGETHER].tolist()) for at in take_turns(parts))
        )
    return (
        array.tobytes()
        if array.nbytes <= SMALL
        else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    )


def own_bytes(array: Array, memories: Container[int]) -> Buffer:
    """An array of a response as bytes that stay as they are, while they are sent and the model runs again: a
    copy, if it is large and somebody may change it. `memories` are those of `find_memories`."""
    is_view = array.nbytes > SMALL and not array.dtype.hasobject
    return array.tobytes() if is_view and _may_change(array, memories) else view_bytes(array)


def own_one(array: Array, inputs: Iterable[Array]) -> Buffer:
    """`own_bytes` of an array of numbers, of a response to a request of few inputs."""
    return array.tobytes() if array.nbytes <= SMALL else own_bytes(array, _list_memories(inputs))


def own_arrays(tensors: Sequence[Tensor], request: InferenceRequest) -> None:
    """Copy the arrays of a response that somebody may change before it is encoded."""
    memories = find_memories(tensors, request)
    for tensor in tensors:
        if _may_change(tensor.array, memories):
            tensor.array = copy_array(tensor.array)


def find_memories(outputs: Sequence[Tensor], request: InferenceRequest) -> Set[int]:
    """Which memory nobody changes, as it is that of the request's read-only inputs. None is looked for if all
    outputs are small."""
    for output in outputs:  # a generator costs more than all of it
        if output.array.nbytes > SMALL:
            return _list_memories(each.array for each in request.inputs)
    return frozenset()


def _list_memories(inputs: Iterable[Array]) -> Set[int]:
    return {id(_find_memory(each)) for each in inputs if not each.flags.writeable}


def copy_array(array: Array) -> Array:
    """A read-only copy, in memory of `bytes` if it is one of numbers: so it leaves without another copy."""
    if not array.dtype.hasobject:
        return ndarray(array.shape, array.dtype, array.tobytes())
    array = array.copy()
    make_read_only(array)
    return array


def _may_change(array: Array, memories: Container[int]) -> bool:
    memory = _find_memory(array)
    return not isinstance(memory, bytes) and id(memory) not in memories


def _find_memory(array: Array) -> object:
    """The owner of an array's memory: an array, or the object behind a buffer."""
    part: Any = array
    while isinstance(part, ndarray) and part.base is not None:
        part = part.base
    return part.obj if isinstance(part, memoryview) else part


def _cut_elements(data: Buffer, elements: int) -> list[bytes]:
    """The elements of BYTES."""
    whole = bytes(data)  # its slices are the elements; slices of a view would be copied once more
    strings: list[bytes] = []
    position, end = 0, len(whole)
    while position < end and len(strings) < elements:
        start = position + _LENGTH.size
        if start > end:
            raise InvalidRequest(
                f"BYTES element {len(strings)}: its 4-byte length is cut off by the end of the binary data"
            )
        (length,) = _LENGTH.unpack_from(whole, position)
        position = start + length
        if position > end:
            raise InvalidRequest(
                f"BYTES element {len(strings)} claims {length} bytes, but {end - start} are left in the "
                "binary data"
            )
        strings.append(whole[start:position])
    if len(strings) != elements:
        raise InvalidRequest(
            f"{len(strings)} BYTES elements in the binary data, but the shape needs {elements}"
        )
    if position != end:
        raise InvalidRequest(
            f"{end - position} bytes are left over after the last of {elements} BYTES elements"
        )
    return strings


def _join_elements(elements: list[bytes]) -> bytes:
    """The elements, each after its 4-byte little-endian length; the inverse of `_cut_elements`."""
    return b"".join(chain.from_iterable(zip(map(_LENGTH.pack, map(len, elements)), elements, strict=True)))
