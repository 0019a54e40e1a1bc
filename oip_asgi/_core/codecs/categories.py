"""The categories of a column as the text of its parameter `pd_categories`, and back. Knows no pandas.

The text is a JSON object: `ordered`, and the categories as a tensor would have them: `datatype`, `data` and, where it has them,
`content_type` and `dtype`, which is its `pd_dtype`. The column itself is sent as its values, which is all that others need.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from ..datatypes import Array, dtype_of
from ..errors import InvalidRequest, shown
from ..tensors import Tensor, integer_array, object_array
from .pandas_dtypes import CATEGORIES, DTYPE

_MOST_BYTES: Final = 2**16
"""Of the text. More categories than that stay behind: a column of a few rows would carry all that its whole table ever had."""

MOST_CATEGORIES: Final = _MOST_BYTES // 2
"""No text holds more: each has a comma behind it."""


class _Categories(msgspec.Struct, omit_defaults=True):
    datatype: str
    data: msgspec.Raw
    content_type: str | None = None
    dtype: str | None = None
    ordered: bool = False


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Categories).decode
_decode_data: Final = {
    "O": msgspec.json.Decoder(list[str]).decode,
    "b": msgspec.json.Decoder(list[bool]).decode,
    "f": msgspec.json.Decoder(list[float]).decode,
    "i": msgspec.json.Decoder(list[int]).decode,
    "u": msgspec.json.Decoder(list[int]).decode,
}


def to_text(categories: Tensor, *, ordered: bool) -> str | None:
    """The parameter's text.

    Args:
        categories: Each once, in order, as the column they would be.
        ordered: Whether their order means something.

    Returns:
        None where they cannot be told in it: they are too many, or infinity is among them.
    """
    array, parameters = categories.array, categories.parameters
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return None
    data = [element.decode() for element in array] if array.dtype.hasobject else array.tolist()
    hints: dict[str, Any] = {"content_type": parameters.get("content_type"), "dtype": parameters.get(DTYPE)}
    told = _Categories(categories.datatype, msgspec.Raw(_encode(data)), **hints, ordered=ordered)
    text = _encode(told)
    return text.decode() if len(text) <= _MOST_BYTES else None


def of_text(text: object, name: str) -> tuple[Tensor, bool]:
    """The categories that a text tells, and whether they are ordered; what they are is not looked at.

    Args:
        text: The parameter, which may be anything that a parameter may.
        name: The column's name, which the tensor gets.

    Raises:
        InvalidRequest: It is no such text.
    """
    try:
        if not isinstance(text, str):
            raise ValueError("expected the text of a JSON object")
        told = _decode(text)
        if told.dtype == "category":
            raise ValueError("category is no dtype of categories")
        array = _array(told, name)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"column {shown(name)} has the {CATEGORIES} {shown(text)}, which cannot be: {error}") from None
    parameters = {"content_type": told.content_type, DTYPE: told.dtype}
    return Tensor(name, array, {key: value for key, value in parameters.items() if value is not None}), told.ordered


def _array(told: _Categories, name: str) -> Array:
    dtype = dtype_of(told.datatype)
    if dtype.kind not in _decode_data:
        raise ValueError(f"no categories have the datatype {told.datatype}")
    elements: Any = _decode_data[dtype.kind](told.data)
    if dtype.kind == "O":
        return object_array([element.encode() for element in elements], (len(elements),))
    if dtype.kind in "iu":
        return integer_array(elements, dtype, f"the {CATEGORIES} of column {shown(name)}")
    with np.errstate(over="ignore"):
        array = np.array(elements, dtype)
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"one of them is out of range for {told.datatype}")
    return array
