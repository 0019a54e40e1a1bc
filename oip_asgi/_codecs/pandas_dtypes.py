"""The dtypes that a column may have, and the parameters that say what its values do not show. Knows no columns.

The parameter `pd_categories` is the text of a JSON object that describes categories as a tensor: `datatype`, `data` and, if there are any,
its parameters `content_type` and `pd_dtype`, here called `dtype`. `ordered` says whether their order has a meaning. The column itself is
sent as its values, so that clients who do not know this parameter can read it.
"""

from __future__ import annotations

import re
import zoneinfo
from contextlib import suppress
from datetime import timezone
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec
import numpy as np

from .._protocol.datatypes import dtype_of, integer_array
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import Tensor, object_array
from .datetime import DatetimeCodec
from .plain import Base64Codec

if TYPE_CHECKING:
    import pandas as pd

DTYPE: Final = "pd_dtype"
"""Parameter with the dtype of a column, if its values do not show it. MLServer's clients neither write nor read it."""

CATEGORIES: Final = "pd_categories"
"""Parameter with the categories of a column whose `pd_dtype` is `category`."""

MASKED: Final = {
    "boolean": np.dtype("?"),
    **{f"{sign}Int{bits}": np.dtype(f"{kind}{bits // 8}") for sign, kind in (("", "i"), ("U", "u")) for bits in (8, 16, 32, 64)},
    "Float32": np.dtype("f4"),
    "Float64": np.dtype("f8"),
}
"""pandas' nullable dtypes, and the numpy dtypes of their values."""

DTYPES: Final = (*MASKED, "string", "str", "object", "category")
"""What `pd_dtype` may be, beside the names of dates' dtypes."""

_MOST_BYTES: Final = 2**16
"""The longest text of categories. A column of a few rows should not carry the thousands of categories of the table it was taken from."""

MOST_CATEGORIES: Final = _MOST_BYTES // 2
"""No text holds more categories: each takes one byte at least, and a comma."""

_DATETIME: Final = re.compile(r"datetime64\[(?:s|ms|us|ns)(?:, ([A-Za-z0-9_+:/-]{1,50}))?\]")
_FIXED_ZONE: Final = re.compile("(?:UTC|(?:UTC)?[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?")
"""No zone, UTC or an offset. With the colon: pandas reads +0545 as 05:05."""


def is_datetime(name: str) -> bool:
    """Whether a dtype is one of dates, with or without a zone. Whether the zone exists is not checked."""
    return _DATETIME.fullmatch(name) is not None


def has_known_zone(name: str) -> bool:
    """Whether zoneinfo knows the zone of dates. No other may reach pandas, which lets dateutil open any file that a zone names."""
    return has_fixed_zone(name) or _zone_of(name) in _zones()


def has_fixed_zone(name: str) -> bool:
    return _FIXED_ZONE.fullmatch(_zone_of(name)) is not None


def _zone_of(name: str) -> str:
    found = _DATETIME.fullmatch(name)
    return (found and found[1]) or ""


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def find_default_dtype(content_type: object) -> str | None:
    """The dtype of a column of this content type without `pd_dtype`. Strings are `object` in pandas 2 and `str` in pandas 3."""
    if content_type == Base64Codec.content_type:
        return "object"
    if content_type in (None, DatetimeCodec.content_type):
        return None
    return "str" if has_str_dtype() else "object"


def has_str_dtype() -> bool:
    """Whether strings are of the dtype `str` by default, as since pandas 3."""
    import pandas as pd

    return not pd.__version__.startswith("2.")


def is_str(dtype: object) -> bool:
    """Whether a dtype is `str`, the default dtype of strings in pandas 3. `string` is another one."""
    import pandas as pd

    return has_str_dtype() and isinstance(dtype, pd.StringDtype) and dtype.na_value is np.nan


def is_zoned(dtype: object) -> TypeGuard[pd.DatetimeTZDtype]:
    import pandas as pd

    return isinstance(dtype, pd.DatetimeTZDtype)


def name_zoned_dtype(dtype: pd.DatetimeTZDtype) -> str:
    """The name of a dtype of dates with a zone, for `pd_dtype`."""
    import pandas as pd

    zone, offset = dtype.tz, dtype.tz.utcoffset(None)
    names = [] if isinstance(zone, timezone) else [str(zone)]
    names += [] if offset is None else [str(timezone(offset))]
    for name in names:
        called = f"datetime64[{dtype.unit}, {name}]"
        with suppress(TypeError, ValueError, KeyError):  # what pandas raises for zones that it does not know
            if is_datetime(called) and has_known_zone(called) and str(pd.DatetimeTZDtype(dtype.unit, name).tz) == name:
                return called
    return f"datetime64[{dtype.unit}, UTC]"


class _Categories(msgspec.Struct, omit_defaults=True):
    datatype: str
    data: msgspec.Raw
    content_type: str | None = None
    dtype: str | None = None
    ordered: bool = False


_ELEMENTS: Final = {"O": list[str], "b": list[bool], "f": list[float], "i": list[int], "u": list[int]}
"""What the data of categories are in JSON, by the kind of their dtype."""


def write_categories(categories: Tensor, *, ordered: bool) -> str | None:
    """The text that describes categories; None if they are too many, or not all of them are finite."""
    array, parameters = categories.array, categories.parameters
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return None
    data = msgspec.Raw(msgspec.json.encode([element.decode() for element in array] if array.dtype.hasobject else array.tolist()))
    hints: dict[str, Any] = {"content_type": parameters.get("content_type"), "dtype": parameters.get(DTYPE)}
    text = msgspec.json.encode(_Categories(categories.datatype, data, **hints, ordered=ordered))
    return text.decode() if len(text) <= _MOST_BYTES else None


def read_categories(text: object, name: str) -> tuple[Tensor, bool]:
    """The categories that the parameter of a column describes, and whether they are ordered. Their values are not checked."""
    try:
        if not isinstance(text, str):
            raise ValueError("expected the text of a JSON object")
        described = msgspec.json.decode(text, type=_Categories)
        if described.dtype == "category":
            raise ValueError("categories cannot have the dtype category")
        dtype = dtype_of(described.datatype)
        if dtype.kind not in _ELEMENTS:
            raise ValueError(f"no categories have the datatype {described.datatype}")
        elements: Any = msgspec.json.decode(described.data, type=_ELEMENTS[dtype.kind])
        if dtype.kind == "O":
            array = object_array([element.encode() for element in elements], (len(elements),))
        elif dtype.kind in "iu":
            array = integer_array(elements, dtype, f"the {CATEGORIES} of column {show(name)}")
        else:
            with np.errstate(over="ignore"):
                array = np.array(elements, dtype)
        if dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"one of them is out of range for {described.datatype}")
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"column {show(name)} has the {CATEGORIES} {show(text)}, which is not valid: {error}") from None
    parameters = {"content_type": described.content_type, DTYPE: described.dtype}
    return Tensor(name, array, {key: value for key, value in parameters.items() if value is not None}), described.ordered
