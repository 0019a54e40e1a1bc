"""The largest elements of an output as text, with their indices and labels: what classification asks for. Knows no requests.

Specification: Triton's Classification Extension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..datatypes import Array, DType, datatype_of
from ..errors import InvalidRequest, shown
from ..tensors import Tensor, object_array

_MAX_ELEMENTS: Final = 1_000_000
"""How many elements an output may have: each that is asked for becomes text."""

_FEW: Final = 8
"""How many times more elements there must be than are asked for, so that looking for the least of these first takes less time."""


def classified(tensor: Tensor, most: int, labels: Sequence[str]) -> Tensor:
    """The largest elements of an output, each as `value:index` or `value:index:label`.

    Args:
        tensor: The output. The first of several dimensions is the batch; what is behind it counts as one.
        most: How many elements of each row, at most; 1 or more.
        labels: The labels by index, as many as there are known.

    Returns:
        A BYTES tensor of shape `[n]`, or `[rows, n]`. The largest come first, of equal ones that with the lower index, and NaN last.

    Raises:
        InvalidRequest: Its elements are no numbers, or too many.
    """
    array = tensor.array
    check_classified(tensor.name, array.dtype)
    if array.size > _MAX_ELEMENTS:
        raise InvalidRequest(f"output {shown(tensor.name)} has {array.size} elements: classification takes {_MAX_ELEMENTS} at most")
    rows = array.reshape(1, -1) if array.ndim < 2 else array.reshape(len(array), int(np.prod(array.shape[1:])))
    number = min(most, rows.shape[1])
    elements = [text for row in rows for text in _texts(row, _largest(row, number), labels)]
    return Tensor(tensor.name, object_array(elements, (number,) if array.ndim < 2 else (len(rows), number)))


def check_classified(name: str, dtype: DType) -> None:
    """Look whether an output can be classified.

    Raises:
        InvalidRequest: Its elements are no numbers.
    """
    if dtype.kind not in "iuf":
        raise InvalidRequest(f"output {shown(name)} has datatype {datatype_of(dtype)}: classification needs integers, FP16, FP32 or FP64")


def _largest(row: Array, number: int) -> Array:
    """The indices of the largest elements, in order."""
    numbers = np.flatnonzero(row == row)
    if number * _FEW < len(numbers):
        values = row[numbers]
        least = np.partition(values, len(values) - number)[len(values) - number]
        numbers = numbers[values >= least]
    # sorting keeps the order of equal elements, so backwards before and after gives the lower index first
    backwards = numbers[::-1]
    order = backwards[np.argsort(row[backwards], kind="stable")][::-1]
    if len(order) < number:
        order = np.concatenate([order, np.flatnonzero(row != row)])
    return order[:number]


def _texts(row: Array, indices: Array, labels: Sequence[str]) -> list[bytes]:
    written = "%d:%d" if row.dtype.kind in "iu" else "%f:%d"
    texts = [written % pair for pair in zip(row[indices].tolist(), indices.tolist(), strict=True)]
    if labels:
        known = len(labels)
        texts = [f"{text}:{labels[index]}" if index < known else text for text, index in zip(texts, indices.tolist(), strict=True)]
    return [text.encode() for text in texts]
