"""The categories of a column <-> the text of its parameter `pd_categories`. Knows no pandas.

The text is a JSON object. It describes the categories as a tensor: `datatype`, `data` and, if there are any, its parameters
`content_type` and `pd_dtype`, here called `dtype`. `ordered` says whether their order has a meaning. The column itself is sent as its
values, so that clients who do not know this parameter can read it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from .._protocol.datatypes import Array, dtype_of, integer_array
from .._protocol.errors import InvalidRequest, shown
from .._protocol.tensors import Tensor, object_array
from .pandas_dtypes import CATEGORIES, DTYPE

_MOST_BYTES: Final = 2**16
"""The longest text. A column of a few rows should not carry the thousands of categories of the table that it was taken from."""

MOST_CATEGORIES: Final = _MOST_BYTES // 2
"""No text holds more categories: each takes one byte at least, and a comma."""


class _Categories(msgspec.Struct, omit_defaults=True):
    datatype: str
    data: msgspec.Raw
    content_type: str | None = None
    dtype: str | None = None
    ordered: bool = False


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Categories).decode
_elements: Final = {"O": list[str], "b": list[bool], "f": list[float], "i": list[int], "u": list[int]}
"""What the data of a datatype is in JSON, by the kind of its dtype."""


def to_text(categories: Tensor, *, ordered: bool) -> str | None:
    """The text that describes categories; None if they are too many, or not all of them are finite."""
    array, parameters = categories.array, categories.parameters
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return None
    data = [element.decode() for element in array] if array.dtype.hasobject else array.tolist()
    hints: dict[str, Any] = {"content_type": parameters.get("content_type"), "dtype": parameters.get(DTYPE)}
    described = _Categories(categories.datatype, msgspec.Raw(_encode(data)), **hints, ordered=ordered)
    text = _encode(described)
    return text.decode() if len(text) <= _MOST_BYTES else None


def of_text(text: object, name: str) -> tuple[Tensor, bool]:
    """The categories that the parameter of a column describes, and whether they are ordered. Their values are not checked."""
    try:
        if not isinstance(text, str):
            raise ValueError("expected the text of a JSON object")
        described = _decode(text)
        if described.dtype == "category":
            raise ValueError("categories cannot have the dtype category")
        array = _array(described, name)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"column {shown(name)} has the {CATEGORIES} {shown(text)}, which is not valid: {error}") from None
    parameters = {"content_type": described.content_type, DTYPE: described.dtype}
    return Tensor(name, array, {key: value for key, value in parameters.items() if value is not None}), described.ordered


def _array(described: _Categories, name: str) -> Array:
    dtype = dtype_of(described.datatype)
    if dtype.kind not in _elements:
        raise ValueError(f"no categories have the datatype {described.datatype}")
    elements: Any = msgspec.json.decode(described.data, type=_elements[dtype.kind])
    if dtype.kind == "O":
        return object_array([element.encode() for element in elements], (len(elements),))
    if dtype.kind in "iu":
        return integer_array(elements, dtype, f"the {CATEGORIES} of column {shown(name)}")
    with np.errstate(over="ignore"):
        array = np.array(elements, dtype)
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"one of them is out of range for {described.datatype}")
    return array
