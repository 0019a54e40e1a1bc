"""The categories of a column of a data frame <-> the text of the parameter `pd_categories`.

The text is a JSON object, which describes categories as a tensor: `datatype`, `data` and, if there are any,
its parameters `content_type` and `pd_dtype`, here called `dtype`. `ordered` says whether their order has a
meaning. The column itself is sent as its values: others can read it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .._json.tensor_data import from_json, to_value
from .._protocol.datatypes import dtype_of
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import Tensor
from .column_dtypes import CATEGORY, DTYPE

CATEGORIES: Final = "pd_categories"
"""Parameter with the categories of a column whose `pd_dtype` is `category`."""

_MOST_BYTES: Final = 2**16
"""The longest text of categories. A column of a few rows should not carry the thousands of categories of the
table it was taken from."""

MOST_CATEGORIES: Final = _MOST_BYTES // 2
"""No text holds more categories: each takes one byte at least, and a comma."""


class _Categories(msgspec.Struct, omit_defaults=True):
    datatype: str
    data: msgspec.Raw
    content_type: str | None = None
    dtype: str | None = None
    ordered: bool = False


def read_categories(text: object, name: str) -> tuple[Tensor, bool]:
    """The categories that the parameter of a column describes, and whether they are ordered. Their values are
    not checked."""
    try:
        if not isinstance(text, str):
            raise ValueError("expected the text of a JSON object")
        described = msgspec.json.decode(text, type=_Categories)
        if described.dtype == CATEGORY:
            raise ValueError("categories cannot have the dtype category")
        number = len(msgspec.json.decode(described.data, type=list[Any]))
        array = from_json(described.data, dtype_of(described.datatype), (number,))
    except (ValueError, msgspec.MsgspecError, RecursionError, InvalidRequest) as error:
        raise InvalidRequest(
            f"column {show(name)} has the {CATEGORIES} {show(text)}, which is not valid: {error}"
        ) from None
    parameters = {"content_type": described.content_type, DTYPE: described.dtype}
    return Tensor(
        name, array, {key: value for key, value in parameters.items() if value is not None}
    ), described.ordered


def describe_categories(tensor: Tensor, *, ordered: bool) -> str | None:
    """The text that describes categories; None if it is too long."""
    hints: dict[str, Any] = {
        "content_type": tensor.parameters.get("content_type"),
        "dtype": tensor.parameters.get(DTYPE),
    }
    data = msgspec.Raw(msgspec.json.encode(to_value(tensor.array)))
    text = msgspec.json.encode(_Categories(tensor.datatype, data, **hints, ordered=ordered))
    return text.decode() if len(text) <= _MOST_BYTES else None
