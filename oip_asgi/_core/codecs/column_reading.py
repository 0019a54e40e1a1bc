"""A tensor -> a column of a data frame. Works on whole columns: Python code runs for single cells only if they are Python objects.

pandas is imported in the functions that make something of it, so that servers without pandas can import this module.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ..datatypes import Array
from ..errors import InvalidRequest, shown
from ..tensors import Tensor, object_array
from .base import bytes_of, rows_of
from .base64 import Base64Codec
from .categories import of_text
from .datetime import DATE, ZONED_DATES, DatetimeCodec, are_in_calendar, are_zoned, from_text, points_of
from .pandas_dtypes import CATEGORIES, DTYPE, HINTS, MASKED, has_fixed_zone, has_known_zone, has_str_dtype, is_datetime
from .pandas_json import PandasJSONCodec
from .string import StringCodec

if TYPE_CHECKING:
    import pandas as pd

_FIRST_YEAR: Final = np.datetime64("1678", "Y")
_LAST_YEAR: Final = np.datetime64("2261", "Y")
"""The first and the last whole year that 64 bits of nanoseconds reach."""

Decode: TypeAlias = Callable[[Tensor], Any]


def series_of(tensor: Tensor, content_type: Any, others: Mapping[str, Decode]) -> pd.Series[Any]:
    """A tensor as a `pandas.Series` of the same name. The arguments are those of `column_of`."""
    import pandas as pd

    return pd.Series(column_of(tensor, content_type, others), name=tensor.name, copy=True)


def column_of(tensor: Tensor, content_type: Any, others: Mapping[str, Decode]) -> Any:
    """A tensor as something that a frame takes as a column: an array or a `pandas.Series`.

    Args:
        tensor: Of shape `[N]` or `[N, 1]`.
        content_type: Its content type. None: the datatype decides, and BYTES are strings.
        others: The decoders of content types that this module does not know. Each returns N values.

    Raises:
        InvalidRequest: The tensor has another shape, or does not hold what its content type says.
    """
    decode = others.get(content_type)
    if decode is not None:
        column: Any = _of_user(tensor, decode, content_type)
    elif content_type is None:
        column = _strings(tensor) if tensor.datatype == "BYTES" else _numbers(tensor, "pd")
    elif content_type in _COLUMNS:
        column = _COLUMNS[content_type](tensor)
    else:
        known = ", ".join([*_COLUMNS, *others])
        raise InvalidRequest(f"column {shown(tensor.name)} has the content_type {shown(content_type)}: expected one of {known}")
    return _as_hinted(column, tensor, others) if DTYPE in tensor.parameters else column


def _of_user(tensor: Tensor, decode: Decode, content_type: str) -> Any:
    rows = rows_of(tensor, "pd").shape[0]
    try:
        made = decode(tensor)
    except ValueError as error:
        raise InvalidRequest(f"column {shown(tensor.name)} of the content_type {shown(content_type)}: {error}") from error
    try:
        values = list(made)
    except TypeError as error:
        raise InvalidRequest(
            f"column {shown(tensor.name)}: its content_type {shown(content_type)} does not make a list of it: {error}"
        ) from None
    if len(values) != rows:
        raise InvalidRequest(
            f"column {shown(tensor.name)} has {rows} rows, but its content_type {shown(content_type)} makes {len(values)} values of them"
        )
    return _objects(values)


def _objects(values: list[Any]) -> Any:
    import pandas as pd

    return pd.Series(object_array(values, (len(values),)), dtype=object)


def _raw(tensor: Tensor) -> Any:
    return _objects(bytes_of(tensor, "np")) if tensor.datatype == "BYTES" else _numbers(tensor, "np")


def _numbers(tensor: Tensor, wanted: str) -> Array:
    rows: Array = rows_of(tensor, wanted)
    # pandas can neither sort nor select a column of BF16; FP32 holds each of its values
    return rows.astype(np.float32) if tensor.datatype == "BF16" else rows


def _strings(tensor: Tensor) -> Any:
    import pandas as pd

    texts: list[Any] = StringCodec.decode_input(tensor)
    return pd.Series(texts, dtype="str") if has_str_dtype() else object_array(texts, (len(texts),))


def _from_base64(tensor: Tensor) -> Any:
    return _objects(Base64Codec.decode_input(tensor))


def _from_json(tensor: Tensor) -> Any:
    import pandas as pd

    values = PandasJSONCodec.decode_input(tensor)
    hint = tensor.parameters.get(DTYPE)
    if hint in MASKED and set(map(type, values)) <= {bool if hint == "boolean" else int, type(None)}:
        try:
            return pd.Series(pd.array(values, dtype=hint))  # type: ignore[call-overload]
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"column {shown(tensor.name)} cannot be {hint}, as its {DTYPE} says: {error}") from None
    if values and hint != "object" and set(map(type, values)) <= {str, type(None)}:
        return pd.Series(values)
    return _objects(values)


def _datetimes(tensor: Tensor) -> Any:
    import pandas as pd

    elements = bytes_of(tensor, DatetimeCodec.content_type)
    if not elements:
        return pd.Series([], dtype="datetime64[ns]")
    found = points_of(elements)
    if found is not None and (series := _series_of_points(*found)) is not None:
        return series
    is_zoned = _are_zoned(elements, tensor.name)
    texts = list(map(bytes.decode, elements))
    parsed = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", errors="coerce", utc=True)
    if any(elements[place] != b"NaT" for place in np.flatnonzero(parsed.isna())):
        parsed = pd.Series(pd.DatetimeIndex(_microseconds(elements, tensor.name)).tz_localize("UTC"))
    local = parsed.dt.tz_localize(None)
    if not are_in_calendar(local.to_numpy()):
        raise InvalidRequest(f"tensor {shown(tensor.name)}: some of its dates are not in the years 1 to 9999 in UTC")
    return parsed if is_zoned else local


def _series_of_points(points: Array, is_zoned: bool) -> pd.Series[Any] | None:
    """The column that pandas itself would read, in the unit that it would choose. None for dates that pandas 2 has no nanoseconds for."""
    import pandas as pd

    if not has_str_dtype():
        if not are_for_nanoseconds(points):
            return None
        points = points.astype("M8[ns]")
    elif np.datetime_data(points.dtype)[0] == "s":
        points = points.astype("M8[us]")
    series: pd.Series[Any] = pd.Series(points)
    return series.dt.tz_localize("UTC") if is_zoned else series


def are_for_nanoseconds(points: Array) -> bool:
    """Whether 64 bits of nanoseconds reach dates, of which there is at least one."""
    return bool(points.min() >= _FIRST_YEAR and points.max().astype("M8[Y]") <= _LAST_YEAR)


def _are_zoned(elements: list[bytes], name: str) -> bool:
    """Whether the dates of a column have an offset from UTC.

    Raises:
        InvalidRequest: An element is no date, or some have an offset and others do not.
    """
    is_zoned = are_zoned(elements)
    if is_zoned is not None:
        return is_zoned
    for place, element in enumerate(elements):
        if element != b"NaT" and DATE.fullmatch(element) is None:
            raise _no_date(name, place, elements, "an ISO 8601 date and time")
    place = next(place for place, element in enumerate(elements) if ZONED_DATES.fullmatch(element + b"\n") is None)
    raise _no_date(name, place, elements, "a date and time with an offset from UTC, as others of the column are")


def _microseconds(elements: list[bytes], name: str) -> Array:
    """Dates in UTC, read one by one: pandas 2 itself reads only the years that nanoseconds reach, and no offsets with seconds."""
    points = np.full(len(elements), np.datetime64("NaT", "us"))
    for place, element in enumerate(elements):
        if element == b"NaT":
            continue
        try:
            value = from_text(element)
            points[place] = (value if value.tzinfo is None else value.astimezone(UTC)).replace(tzinfo=None)
        except (ValueError, OverflowError) as error:
            raise _no_date(name, place, elements, f"an ISO 8601 date and time ({error})") from None
    return points


def _no_date(name: str, place: int, elements: list[bytes], expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"tensor {shown(name)}: element {place} is {shown(elements[place])}, which is not {expected} as the content_type 'datetime' needs"
    )


_COLUMNS: Final[Mapping[str, Decode]] = {
    "np": _raw,
    "str": _strings,
    "base64": _from_base64,
    "datetime": _datetimes,
    "pd_json": _from_json,
}


def _as_hinted(column: Any, tensor: Tensor, others: Mapping[str, Decode]) -> Any:
    """A column converted to the dtype in its `pd_dtype`. No value may change by that."""
    import pandas as pd

    hint: Any = tensor.parameters[DTYPE]
    name = tensor.name
    if hint not in HINTS and not (isinstance(hint, str) and is_datetime(hint)):
        raise InvalidRequest(f"column {shown(name)} has the {DTYPE} {shown(hint)}: expected one of {', '.join(HINTS)}, or datetime64[...]")
    if not has_known_zone(hint):
        raise InvalidRequest(
            f"column {shown(name)} cannot be {hint}, as its {DTYPE} says: expected UTC, an offset such as UTC+02:00, or a name that "
            "Python's zoneinfo knows, such as Europe/Amsterdam"
        )
    series = pd.Series(column)
    if hint == "category" and CATEGORIES in tensor.parameters:
        return _of_categories(series, tensor, others)
    if str(series.dtype) == hint:
        return series
    if not _can_become(series, hint):
        raise InvalidRequest(f"column {shown(name)} cannot be {hint}, as its {DTYPE} says: its values are {series.dtype}")
    try:
        if ", " in hint:
            series = _zoned(series, hint)
        hinted = series.astype(hint)
        if hint == "str":
            hinted = hinted.where(series.notna(), None)  # pandas 2 would write "None"
    except (TypeError, ValueError, KeyError, ImportError, NotImplementedError, OverflowError) as error:
        raise InvalidRequest(f"column {shown(name)} cannot be {hint}, as its {DTYPE} says: {error}") from None
    if hint.startswith("datetime64") and ((hinted != series) & series.notna()).any():
        raise InvalidRequest(f"column {shown(name)} cannot be {hint}, as its {DTYPE} says: its values are finer than that")
    return hinted


def _zoned(series: pd.Series[Any], hint: str) -> pd.Series[Any]:
    """Dates in UTC, after a check that they can be converted to the zone.

    pandas crashes, with the whole process, where a zone moves a date out of the calendar. pandas 2 also crashes when it makes Python
    objects of dates before 1678 in a zone that has a name.
    """
    local = series if series.dt.tz is None else series.dt.tz_localize(None)
    points, day = local.to_numpy(), np.timedelta64(1, "D")
    if not hint.endswith(", UTC]") and not (are_in_calendar(points - day) and are_in_calendar(points + day)):
        raise ValueError("some are too near to the ends of the years 1 to 9999 for a time zone")
    if not has_str_dtype() and not has_fixed_zone(hint) and (points < _FIRST_YEAR).any():
        raise ValueError("some are before 1678, and pandas 2 has no time zones for them but UTC and fixed offsets")
    return series.dt.tz_localize("UTC") if series.dt.tz is None else series


def _of_categories(series: pd.Series[Any], tensor: Tensor, others: Mapping[str, Decode]) -> pd.Series[Any]:
    """Values as a column of the categories in `pd_categories`. Each value must be one of them."""
    import pandas as pd

    where = f"column {shown(tensor.name)} cannot have the categories in its {CATEGORIES}"
    described, ordered = of_text(tensor.parameters[CATEGORIES], tensor.name)
    values = column_of(described, described.parameters.get("content_type"), others)
    try:
        categories = pd.Index(values, dtype=values.dtype)
        if not categories.is_unique:
            raise ValueError("one of them is there twice")
        codes = _codes(series, categories)
        unknown = np.flatnonzero((codes < 0) & series.notna().to_numpy())
        if len(unknown):
            raise ValueError(f"row {unknown[0]} is {shown(series.iloc[unknown[0]])}, which is not one of them")
        if (codes < 0).any() and categories.dtype == object and any(isinstance(category, bytes) for category in categories):
            raise ValueError("a value is missing, and categories of bytes cannot be sent back with missing values")
        return pd.Series(pd.Categorical.from_codes(codes, categories=categories, ordered=ordered))
    except (TypeError, ValueError, NotImplementedError, OverflowError) as error:
        raise InvalidRequest(f"{where}: {error}") from None


def _codes(series: pd.Series[Any], categories: Any) -> Array:
    """The place of each value among the categories, and -1 for values that are not among them."""
    if series.isna().all():
        return np.full(len(series), -1)
    if series.dtype.kind != "M" or categories.dtype.kind != "M":
        codes: Array = categories.get_indexer(series)
        return codes
    alike = series.astype(categories.dtype)  # with another unit or zone, pandas finds nothing, or raises
    return np.where((alike == series).to_numpy(), categories.get_indexer(alike), -1)


def _can_become(series: pd.Series[Any], hint: str) -> bool:
    """Whether a column of dtype `hint` is sent as the values that came."""
    import pandas as pd

    if hint in MASKED:
        return bool(series.dtype == MASKED[hint])
    if hint in ("str", "string"):
        return pd.api.types.infer_dtype(series, skipna=True) in ("string", "empty")
    return series.dtype.kind == "M" if hint.startswith("datetime64") else True
