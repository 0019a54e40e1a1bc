"""The largest elements of an output as text, with their indices and labels: what classification asks for. Knows no requests.

Specification: Triton's Classification Extension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from .._protocol.datatypes import Array, DType, datatype_of
from .._protocol.errors import InvalidRequest, shown
from .._protocol.tensors import Tensor, object_array

_MAX_ELEMENTS: Final = 1_000_000
"""How many elements an output may have: each that is asked for becomes text."""


def classified(tensor: Tensor, most: int, labels: Sequence[str]) -> Tensor:
    """The largest elements of an output, each as `value:index` or `value:index:label`."""
    array = tensor.array
    check_classified(tensor.name, array.dtype)
    if array.size > _MAX_ELEMENTS:
        raise InvalidRequest(f"output {shown(tensor.name)} has {array.size} elements: classification takes {_MAX_ELEMENTS} at most")
    rows = array.reshape(1, -1) if array.ndim < 2 else array.reshape(len(array), int(np.prod(array.shape[1:])))
    number = min(most, rows.shape[1])
    elements = _texts(rows, _largest(rows, number), labels)
    return Tensor(tensor.name, object_array(elements, (number,) if array.ndim < 2 else (len(rows), number)))


def check_classified(name: str, dtype: DType) -> None:
    """Look whether an output can be classified."""
    if dtype.kind not in "iuf":
        raise InvalidRequest(f"output {shown(name)} has datatype {datatype_of(dtype)}: classification needs integers, FP16, FP32 or FP64")


def _largest(rows: Array, number: int) -> Array:
    """The indices of the largest elements of each row, in order."""
    width = rows.shape[1]
    # sorting keeps the order of equal elements, so backwards before and after gives the lower index first
    order: Array = width - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1]
    if rows.dtype.kind == "f":
        missing = np.count_nonzero(np.isnan(rows), axis=1, keepdims=True)  # NaN is now at the beginning
        if missing.any():
            order = np.take_along_axis(order, (np.arange(width) + missing) % width, axis=1)
    return order[:, :number]


def _texts(rows: Array, indices: Array, labels: Sequence[str]) -> list[bytes]:
    written = "%d:%d" if rows.dtype.kind in "iu" else "%f:%d"
    values, places = np.take_along_axis(rows, indices, axis=1).reshape(-1).tolist(), indices.reshape(-1).tolist()
    texts = [written % pair for pair in zip(values, places, strict=True)]
    if labels:
        known = len(labels)
        texts = [f"{text}:{labels[place]}" if place < known else text for text, place in zip(texts, places, strict=True)]
    return [text.encode() for text in texts]
