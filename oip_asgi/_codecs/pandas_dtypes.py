"""The dtypes that a column may have, and the parameters that name a dtype which the values do not show. Knows no columns."""

from __future__ import annotations

import re
import zoneinfo
from contextlib import suppress
from datetime import timezone
from functools import cache
from typing import TYPE_CHECKING, Final, TypeGuard

import numpy as np

from .base64 import Base64Codec
from .datetime import DatetimeCodec

if TYPE_CHECKING:
    import pandas as pd

DTYPE: Final = "pd_dtype"
"""Parameter with the dtype of a column, if its values do not show it. MLServer's clients neither write nor read it."""

CATEGORIES: Final = "pd_categories"
"""Parameter with the categories of a column whose `pd_dtype` is `category`; see the module `categories`."""

MASKED: Final = {
    "boolean": np.dtype("?"),
    **{f"{sign}Int{bits}": np.dtype(f"{kind}{bits // 8}") for sign, kind in (("", "i"), ("U", "u")) for bits in (8, 16, 32, 64)},
    "Float32": np.dtype("f4"),
    "Float64": np.dtype("f8"),
}
"""pandas' nullable dtypes, and the numpy dtypes of their values."""

DTYPES: Final = (*MASKED, "string", "str", "object", "category")
"""What `pd_dtype` may be, beside the names of dates' dtypes."""

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


def default_dtype(content_type: object) -> str | None:
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


def zoned_dtype(dtype: pd.DatetimeTZDtype) -> str:
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
