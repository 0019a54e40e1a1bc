"""How a value, such as a list that a model returned, becomes an array of a dtype of the protocol. Knows no tensors and no wire formats."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .datatypes import Array, datatype_of
from .errors import show

_FEW: Final = 2**6
"""Up to so many elements, one more array object takes as much memory as the elements."""


def to_wire_array(value: Any) -> Array:
    """A value as an array whose dtype the protocol knows, in wire order."""
    if type(value) is list and value and type(value[0]) in (str, bytes) and set(map(type, value)) <= {str, bytes}:
        return object_array(_encode(value), (len(value),))
    array = as_array(value)
    if array.dtype.kind in "OUST":  # T is numpy's StringDType
        elements = array.ravel().tolist()
        encoded = _encode(elements)
        return array if encoded is elements and array.dtype.hasobject else object_array(encoded, array.shape)
    if datatype_of(array.dtype) is not None:
        return array
    wire = array.dtype.newbyteorder("<")
    if datatype_of(wire) is None:
        raise TypeError(f"the protocol has no datatype for numpy dtype {array.dtype}")
    return array.astype(wire)


def as_array(value: Any) -> Array:
    """`numpy.asarray`, but with text and bytes as Python objects."""
    if isinstance(value, ndarray):
        if type(value) is not ndarray and np.ma.is_masked(value):
            raise TypeError("a masked array with masked elements is no tensor: fill them, as in array.filled(0)")
        return np.asarray(value)
    return np.asarray(value, dtype=object if _holds_text(value) else None)


def _holds_text(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        classes = set(map(type, value))
        nested = [element for element in value if isinstance(element, (list, tuple))] if classes & {list, tuple} else []
        return any(issubclass(cls, (str, bytes)) for cls in classes) or any(map(_holds_text, nested))
    return isinstance(value, (str, bytes))


def _encode(elements: list[Any]) -> list[bytes]:
    """Elements as `bytes`: the same list if they all are."""
    classes = set(map(type, elements))
    if classes <= {bytes}:
        return elements
    return list(map(str.encode if classes == {str} else _to_bytes, elements))


def _to_bytes(element: object) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, (bytes, bytearray, memoryview)):
        return bytes(element)
    raise TypeError(f"an array of Python objects can be a BYTES tensor only, of str or bytes, but holds {show(element)}")


def object_array(elements: list[bytes], shape: tuple[int, ...]) -> Array:
    """A BYTES array: numpy's own `S` dtype would strip trailing NULs."""
    return to_shape(np.fromiter(elements, object, len(elements)), shape)  # takes two thirds of the time of filling an empty array


def to_shape(array: Array, shape: tuple[int, ...]) -> Array:
    """Give a flat array a shape. A small one is copied: a view would keep another array, which takes more memory than its elements."""
    if len(shape) == 1:
        return array
    return array.reshape(shape) if array.size > _FEW or array.dtype.hasobject else ndarray(shape, array.dtype, array.tobytes())
