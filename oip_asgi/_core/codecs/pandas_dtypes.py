"""Which dtypes of pandas a column may have, and the parameters that bring back what its values do not tell. Knows no columns.

pandas is imported where a dtype is made, never before.
"""

from __future__ import annotations

import re
import zoneinfo
from datetime import timezone
from functools import cache
from typing import TYPE_CHECKING, Final, TypeGuard

import numpy as np

from .base64 import Base64Codec
from .datetime import DatetimeCodec

if TYPE_CHECKING:
    import pandas as pd

DTYPE: Final = "pd_dtype"
"""Parameter of a column whose dtype its values do not tell. MLServer's clients neither write nor mind it."""

CATEGORIES: Final = "pd_categories"
"""Parameter of a column whose `pd_dtype` is `category`: which there are, in order; see `categories`."""

MASKED: Final = {
    "boolean": np.dtype("?"),
    **{f"{sign}Int{bits}": np.dtype(f"{kind}{bits // 8}") for sign, kind in (("", "i"), ("U", "u")) for bits in (8, 16, 32, 64)},
    "Float32": np.dtype("f4"),
    "Float64": np.dtype("f8"),
}
"""pandas' nullable dtypes, and numpy's for their values."""

_DATETIME: Final = re.compile(r"datetime64\[(?:s|ms|us|ns)(?:, ([A-Za-z0-9_+:/-]{1,50}))?\]")
_OFFSET: Final = re.compile("(?:UTC)?[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]")
"""With the colon: pandas reads +0545 as 05:05."""

HINTS: Final = (*MASKED, "string", "str", "object", "category")
"""What else `pd_dtype` may be."""


def is_datetime(name: str) -> bool:
    """Whether a dtype's name is one of points in time, without a zone or with one; whether there is such a zone is not looked at."""
    return _DATETIME.fullmatch(name) is not None


def has_known_zone(name: str) -> bool:
    """Whether the zone in a dtype's name, if it has one, is UTC, an offset from it such as `UTC+02:00`, or one of zoneinfo's names.

    Only such a name may reach pandas: it hands others to libraries that open the file which a name spells.
    """
    return has_fixed_zone(name) or _zone_of(name) in _zones()


def has_fixed_zone(name: str) -> bool:
    """Whether the zone in a dtype's name, if it has one, is UTC or an offset from it."""
    zone = _zone_of(name)
    return zone in ("", "UTC") or _OFFSET.fullmatch(zone) is not None


def _zone_of(name: str) -> str:
    found = _DATETIME.fullmatch(name)
    return (found and found[1]) or ""


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def untold_dtype(content_type: object) -> str | None:
    """What a column of this content type is when nobody says; strings are `object` in pandas 2, `str` in pandas 3."""
    if content_type == Base64Codec.content_type:
        return "object"
    if content_type in (None, DatetimeCodec.content_type):
        return None
    return "str" if has_str_dtype() else "object"


def has_str_dtype() -> bool:
    """Whether strings have a dtype of their own when nobody says, as since pandas 3. Making a column to see takes 100 times as long."""
    import pandas as pd

    return not pd.__version__.startswith("2.")


def is_str(dtype: object) -> bool:
    """Whether a dtype is the one of strings that pandas 3 has where nobody says; `string` is another."""
    import pandas as pd

    return has_str_dtype() and isinstance(dtype, pd.StringDtype) and dtype.na_value is np.nan


def is_zoned(dtype: object) -> TypeGuard[pd.DatetimeTZDtype]:
    """Whether a dtype is one of points in time with a zone."""
    import pandas as pd

    return isinstance(dtype, pd.DatetimeTZDtype)


def zoned_dtype(dtype: pd.DatetimeTZDtype) -> str:
    """What a dtype is called so that every reader finds its zone.

    A fixed offset goes by its offset, since its name, such as "CEST", need not say it. What has no name at all, as a zone of
    dateutil's, goes as UTC: the same points in time.
    """
    import pandas as pd

    zone, offset = dtype.tz, dtype.tz.utcoffset(None)
    names = [] if isinstance(zone, timezone) else [str(zone)]
    names += [] if offset is None else [str(timezone(offset))]
    for name in names:
        called = f"datetime64[{dtype.unit}, {name}]"
        try:
            if is_datetime(called) and has_known_zone(called) and str(pd.DatetimeTZDtype(dtype.unit, name).tz) == name:
                return called
        except (TypeError, ValueError, KeyError):  # as pandas calls zones that it does not know
            continue
    return f"datetime64[{dtype.unit}, UTC]"
