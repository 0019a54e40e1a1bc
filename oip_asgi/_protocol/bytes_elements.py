"""BYTES elements <-> the bytes in which each stands after its length. Knows no shapes and no tensors.

Specification: Binary Tensor Data Extension, BYTES.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from .datatypes import Buffer
from .errors import InvalidRequest

_LENGTH: Final = struct.Struct("<I")

_SIZE: Final = _LENGTH.size


def cut(data: Buffer, elements: int) -> list[bytes]:
    """The elements of some data."""
    whole = bytes(data)  # whose slices are the elements: those of a view would be copied once more
    found: list[bytes] = []
    position, end = 0, len(whole)
    while position < end and len(found) < elements:
        start = position + _SIZE
        if start > end:
            raise InvalidRequest(f"BYTES element {len(found)}: its 4-byte length is cut off by the end of the binary data")
        (length,) = _LENGTH.unpack_from(whole, position)
        position = start + length
        if position > end:
            raise InvalidRequest(f"BYTES element {len(found)} claims {length} bytes, but {end - start} are left in the binary data")
        found.append(whole[start:position])
    if len(found) != elements:
        raise InvalidRequest(f"{len(found)} BYTES elements in the binary data, but the shape needs {elements}")
    if position != end:
        raise InvalidRequest(f"{end - position} bytes are left over behind the last of {elements} BYTES elements")
    return found


def join(elements: Iterable[bytes]) -> bytearray:
    """The elements, each after its 4-byte little-endian length; the inverse of `cut`."""
    data = bytearray()
    for element in elements:
        data += len(element).to_bytes(_SIZE, "little")
        data += element
    return data
