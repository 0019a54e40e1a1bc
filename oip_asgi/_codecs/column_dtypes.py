"""The dtype of a column of a data frame, and its categories: parameters of its tensor, if the values do not
show them. Imports no pandas.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from datetime import tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import numpy as np

from .._json.tensor_data import from_json, to_value
from .._protocol.datatypes import Array, dtype_of
from .._protocol.errors import InvalidRequest, show
from .._protocol.specs import TensorSpec
from .._protocol.tensors import Tensor
from .plain import Base64Codec, DatetimeCodec, PandasJSONCodec, StringCodec

if TYPE_CHECKING:
    import pandas as pd


DTYPE: Final = "pd_dtype"
"""Parameter with the dtype of a column, if its values do not show it. MLServer's clients neither write nor
read it."""

MASKED: Final = {
    "boolean": np.dtype("?"),
    **{
        f"{sign}Int{bits}": np.dtype(f"{kind}{bits // 8}")
        for sign, kind in (("", "i"), ("U", "u"))
        for bits in (8, 16, 32, 64)
    },
    "Float32": np.dtype("f4"),
    "Float64": np.dtype("f8"),
}
"""pandas' nullable dtypes, and the numpy dtypes of their values."""

OBJECTS_WITH_NAN: Final = "object[NaN]"
"""A column of objects in which a missing value is NaN, as `read_csv` has it, and not None. pandas calls the
dtype `object`."""

OBJECT_DTYPES: Final = ("object", OBJECTS_WITH_NAN)

TEXT_DTYPES: Final = ("string", "str", *OBJECT_DTYPES)

CATEGORY: Final = "category"

_DTYPES: Final = (*MASKED, *TEXT_DTYPES, CATEGORY)

KNOWN_DTYPES: Final = f"one of {', '.join(_DTYPES)}, or datetime64[...]"
"""What a `pd_dtype` may be."""

COLUMN_CODECS: Final = (StringCodec, Base64Codec, DatetimeCodec, PandasJSONCodec)
"""The codecs whose content types a column has when it leaves."""

READ_AS: Final[Mapping[str, tuple[str, ...]]] = {
    StringCodec.content_type: (StringCodec.content_type, PandasJSONCodec.content_type),
    PandasJSONCodec.content_type: (PandasJSONCodec.content_type, StringCodec.content_type),
}
"""The content types that a column of a declared one may have: texts with missing ones are `pd_json`, and
without `str`."""

MISSING: Final[Mapping[object, bytes]] = {
    PandasJSONCodec.content_type: b"null",
    DatetimeCodec.content_type: b"NaT",
}
"""A missing value, for each content type that has one."""

MISSABLE: Final = (*MISSING, StringCodec.content_type, None)
"""The declared content types whose columns may have no value at all."""

DATETIME: Final = re.compile(r"datetime64\[(?:s|ms|us|ns)(?:, ([A-Za-z0-9_+:/-]{1,50}))?\]")

FIXED_ZONE: Final = re.compile("UTC|(?:UTC)?[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]")
"""UTC, or an offset with a colon, because pandas reads +0545 as 05:05."""


def is_pandas_3() -> bool:
    """Whether pandas is 3 or later: strings are of the dtype `str` by default, and dates need not be in
    nanoseconds."""
    import pandas as pd

    return not pd.__version__.startswith("2.")


def find_default_dtype(content_type: object) -> str | None:
    """The dtype of a column of this content type without `pd_dtype`. Strings are `object` in pandas 2 and
    `str` in pandas 3."""
    if content_type in (None, DatetimeCodec.content_type):
        return None
    return "str" if is_pandas_3() and content_type != Base64Codec.content_type else "object"


_list_zones: Final = cache(zoneinfo.available_timezones)


def is_known_zone(zone: str) -> bool:
    """Whether a zone is fixed, or zoneinfo knows it. No other may reach pandas, which lets dateutil open any
    file that a zone names."""
    return FIXED_ZONE.fullmatch(zone) is not None or zone in _list_zones()


def find_zone(dates: pd.Series[Any]) -> tzinfo | None:
    """The time zone of a column of dates, without the accessor `dt`, which makes an index of them for it."""
    return cast("tzinfo | None", getattr(dates.dtype, "tz", None))


def to_points(dates: pd.Series[Any]) -> Array:
    """Dates as numpy has them, in UTC if they have a time zone."""
    points: Array = dates.to_numpy(cast("Any", dates.dtype).base)
    return points


def holds_missing(tensor: Tensor, dtype: np.dtype[Any]) -> bool:
    """Whether a tensor is how a frame's nullable column of this dtype, or one of categories, is sent if
    values are missing."""
    parameters = tensor.parameters
    masked = MASKED.get(str(parameters.get(DTYPE)))  # None is no dtype, but numpy takes it for that of floats
    is_nullable = parameters.get(DTYPE) == CATEGORY if masked is None else masked == dtype
    return (
        tensor.array.dtype.hasobject
        and is_nullable
        and parameters.get("content_type") == PandasJSONCodec.content_type
    )


def explain_column(tensor: Tensor, spec: TensorSpec) -> str:
    """How a column gets the declared datatype, which it does not have."""
    if (
        tensor.parameters.get("content_type") == PandasJSONCodec.content_type
        and spec.dtype.kind in "biu"
        and spec.pd_dtype is None
    ):
        masked = next(name for name, dtype in MASKED.items() if dtype == spec.dtype)
        return (
            f'only a column that the model declares with pd_dtype="{masked}", as specs_of does for that '
            "dtype, may miss values"
        )
    dtype = spec.pd_dtype
    # `str` would write missing ones as texts, and objects are sent as what each of them is
    if dtype in (None, "str", *OBJECT_DTYPES):
        dtype = "string" if spec.dtype.hasobject else str(spec.dtype)
    if dtype == CATEGORY:
        return f"in pandas, send a column of the categories {spec.pd_categories}"
    return f"in pandas, frame.astype({{{tensor.name!r}: {dtype!r}}}) makes it so"


def is_dtype(name: object) -> bool:
    return name in _DTYPES or (isinstance(name, str) and DATETIME.fullmatch(name) is not None)


def is_nullable(dtype: object) -> bool:
    return str(dtype) in MASKED


def is_of(tensor: Tensor, declared: str) -> bool:
    """Whether a tensor has the declared content type, or the other one of texts."""
    return tensor.parameters.get("content_type") in READ_AS.get(declared, (declared,))


CATEGORIES: Final = "pd_categories"
"""Parameter with the categories of a column whose `pd_dtype` is `category`: the text of a JSON object, which
describes them as a tensor: `datatype`, `data` and, if there are any, its parameters `content_type` and
`pd_dtype`, here called `dtype`. `ordered` says whether their order has a meaning. The column itself is sent
as its values: others can read it."""

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
