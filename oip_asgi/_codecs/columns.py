"""A tensor <-> a column of a data frame. Python code runs for single cells only if they are Python objects, or dates of different forms.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from .._protocol.datatypes import Array
from .._protocol.errors import InvalidRequest, show
from .._protocol.schemas import Parameters
from .._protocol.tensors import Tensor, make_tensor, object_array
from .base import bytes_of, rows_of
from .datetime import DatetimeCodec, are_between, are_in_calendar, read_points
from .pandas_dtypes import (
    CATEGORIES,
    DTYPE,
    DTYPES,
    MASKED,
    MOST_CATEGORIES,
    find_default_dtype,
    has_fixed_zone,
    has_known_zone,
    has_str_dtype,
    is_datetime,
    is_zoned,
    name_zoned_dtype,
    read_categories,
    write_categories,
)
from .pandas_json import PandasJSONCodec
from .plain import Base64Codec, StringCodec

if TYPE_CHECKING:
    import pandas as pd

_FIRST_YEAR: Final = np.datetime64("1678", "Y")
_LAST_YEAR: Final = np.datetime64("2261", "Y")
"""The first and the last whole year that 64 bits of nanoseconds reach."""

_TEXTS: Final = {"s": "S19", "us": "S26", "ns": "S29"}
"""The dtypes of the texts of dates, by the unit of the dates."""

Decode: TypeAlias = Callable[[Tensor], Any]


def read_series(tensor: Tensor, content_type: str | None, decoders: Mapping[str, Decode]) -> pd.Series[Any]:
    """A tensor of a content type, whatever its own is, as a `pandas.Series` of the same name."""
    import pandas as pd

    return pd.Series(read_column(tensor, content_type, decoders), name=tensor.name, copy=True)


def read_column(tensor: Tensor, content_type: Any, decoders: Mapping[str, Decode]) -> Any:
    """A tensor of shape `[N]` or `[N, 1]` as something that a frame takes as a column: an array or a `pandas.Series`."""
    if content_type in decoders:
        column: Any = _decode_with(decoders[content_type], tensor, content_type)
    elif content_type in _COLUMNS:
        column = _COLUMNS[content_type](tensor)
    else:
        known = ", ".join([*filter(None, _COLUMNS), *decoders])
        raise InvalidRequest(f"column {show(tensor.name)} has the content_type {show(content_type)}: expected one of {known}")
    return _to_dtype(column, tensor, decoders) if DTYPE in tensor.parameters else column


def _decode_with(decode: Decode, tensor: Tensor, content_type: str) -> Any:
    """Decode a column with a user's codec."""
    rows = len(rows_of(tensor, "pd"))
    here = f"column {show(tensor.name)}"
    try:
        made = decode(tensor)
    except ValueError as error:
        raise InvalidRequest(f"{here} of the content_type {show(content_type)}: {error}") from error
    try:
        values = list(made)
    except TypeError as error:
        raise InvalidRequest(f"{here}: its content_type {show(content_type)} does not make a list of it: {error}") from None
    if len(values) != rows:
        raise InvalidRequest(f"{here} has {rows} rows, but its content_type {show(content_type)} makes {len(values)} values of them")
    return _make_objects(values)


def _make_objects(values: list[Any]) -> Any:
    import pandas as pd

    return pd.Series(object_array(values, (len(values),)), dtype=object)


def _read_numbers(tensor: Tensor, wanted: str) -> Array:
    rows: Array = rows_of(tensor, wanted)
    # pandas can neither sort nor select a column of BF16; FP32 holds each of its values
    return rows.astype(np.float32) if tensor.datatype == "BF16" else rows


def _read_strings(tensor: Tensor) -> Any:
    import pandas as pd

    texts: list[Any] = StringCodec.decode_input(tensor)
    return pd.Series(texts, dtype="str") if has_str_dtype() else object_array(texts, (len(texts),))


def _read_json(tensor: Tensor) -> Any:
    import pandas as pd

    values = PandasJSONCodec.decode_input(tensor)
    dtype, classes = tensor.parameters.get(DTYPE), set(map(type, values))
    if dtype in MASKED and classes <= {bool if dtype == "boolean" else int, type(None)}:
        try:
            return pd.Series(pd.array(values, dtype=dtype))  # type: ignore[call-overload]
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"column {show(tensor.name)} cannot be {dtype}, as its {DTYPE} says: {error}") from None
    return pd.Series(values) if values and dtype != "object" and classes <= {str, type(None)} else _make_objects(values)


def _read_datetimes(tensor: Tensor) -> Any:
    """Dates in the unit that pandas would choose: nanoseconds in pandas 2 if they reach, else at least microseconds."""
    import pandas as pd

    points, are_zoned = read_points(tensor)
    if not has_str_dtype():
        points = points.astype("M8[ns]" if are_for_nanoseconds(points) else "M8[us]")
    elif np.datetime_data(points.dtype)[0] == "s":
        points = points.astype("M8[us]")
    series: pd.Series[Any] = pd.Series(points)
    return series.dt.tz_localize("UTC") if are_zoned else series


def are_for_nanoseconds(points: Array) -> bool:
    """Whether 64 bits of nanoseconds reach all dates that are not missing."""
    return are_between(points, _FIRST_YEAR, _LAST_YEAR)


_COLUMNS: Final[Mapping[str | None, Decode]] = {
    None: lambda tensor: _read_strings(tensor) if tensor.datatype == "BYTES" else _read_numbers(tensor, "pd"),
    "np": lambda tensor: _make_objects(bytes_of(tensor, "np")) if tensor.datatype == "BYTES" else _read_numbers(tensor, "np"),
    "str": _read_strings,
    "base64": lambda tensor: _make_objects(Base64Codec.decode_input(tensor)),
    "datetime": _read_datetimes,
    "pd_json": _read_json,
}


def _to_dtype(column: Any, tensor: Tensor, decoders: Mapping[str, Decode]) -> Any:
    """A column converted to the dtype in its `pd_dtype`. No value may change by that."""
    import pandas as pd

    dtype: Any = tensor.parameters[DTYPE]
    here, cannot = f"column {show(tensor.name)}", f"column {show(tensor.name)} cannot be {dtype}, as its {DTYPE} says"
    if dtype not in DTYPES and not (isinstance(dtype, str) and is_datetime(dtype)):
        raise InvalidRequest(f"{here} has the {DTYPE} {show(dtype)}: expected one of {', '.join(DTYPES)}, or datetime64[...]")
    if not has_known_zone(dtype):
        raise InvalidRequest(
            f"{cannot}: expected UTC, an offset such as UTC+02:00, or a name that Python's zoneinfo knows, such as Europe/Amsterdam"
        )
    series = pd.Series(column)
    if dtype == "category" and CATEGORIES in tensor.parameters:
        return _to_categories(series, tensor, decoders)
    if str(series.dtype) == dtype:
        return series
    if not _can_become(series, dtype):
        raise InvalidRequest(f"{cannot}: its values are {series.dtype}")
    try:
        if ", " in dtype:
            series = _localize(series, dtype)
        converted = series.astype(dtype)
        if dtype == "str":
            return converted.where(series.notna(), None)  # pandas 2 would write "None"
        if is_datetime(dtype) and ((converted != series) & series.notna()).any():
            raise ValueError("its values are finer than that")
    except (TypeError, ValueError, KeyError, ImportError, NotImplementedError, OverflowError) as error:
        raise InvalidRequest(f"{cannot}: {error}") from None
    return converted


def _can_become(series: pd.Series[Any], dtype: str) -> bool:
    """Whether a column of this dtype is sent as the values that came."""
    import pandas as pd

    if dtype in MASKED:
        return bool(series.dtype == MASKED[dtype])
    if dtype in ("str", "string"):
        return pd.api.types.infer_dtype(series, skipna=True) in ("string", "empty")
    return series.dtype.kind == "M" if is_datetime(dtype) else True


def _localize(series: pd.Series[Any], dtype: str) -> pd.Series[Any]:
    """Dates in UTC, after a check that they can be converted to the zone of a dtype."""
    zoned = series.dt.tz_localize("UTC") if series.dt.tz is None else series
    points, day = zoned.dt.tz_localize(None).to_numpy(), np.timedelta64(1, "D")
    if not dtype.endswith(", UTC]") and not (are_in_calendar(points - day) and are_in_calendar(points + day)):
        raise ValueError("some are too near to the ends of the years 1 to 9999 for a time zone")
    if not has_str_dtype() and not has_fixed_zone(dtype) and (points < _FIRST_YEAR).any():
        raise ValueError("some are before 1678, and pandas 2 has no time zones for them but UTC and fixed offsets")
    return zoned


def _to_categories(series: pd.Series[Any], tensor: Tensor, decoders: Mapping[str, Decode]) -> pd.Series[Any]:
    """Values as a column of the categories in `pd_categories`. Each value must be one of them."""
    import pandas as pd

    described, ordered = read_categories(tensor.parameters[CATEGORIES], tensor.name)
    values = read_column(described, described.parameters.get("content_type"), decoders)
    try:
        categories = pd.Index(values, dtype=values.dtype)
        if not categories.is_unique:
            raise ValueError("one of them is there twice")
        codes = _find_codes(series, categories)
        unknown = np.flatnonzero((codes < 0) & series.notna().to_numpy())
        if len(unknown):
            raise ValueError(f"row {unknown[0]} is {show(series.iloc[unknown[0]])}, which is not one of them")
        if (codes < 0).any() and categories.dtype == object and any(isinstance(category, bytes) for category in categories):
            raise ValueError("a value is missing, and categories of bytes cannot be sent back with missing values")
        return pd.Series(pd.Categorical.from_codes(codes, categories=categories, ordered=ordered))
    except (TypeError, ValueError, NotImplementedError, OverflowError) as error:
        raise InvalidRequest(f"column {show(tensor.name)} cannot have the categories in its {CATEGORIES}: {error}") from None


def _find_codes(series: pd.Series[Any], categories: Any) -> Array:
    """The place of each value among the categories, and -1 for values that are not among them."""
    if series.isna().all():
        return np.full(len(series), -1)
    if series.dtype.kind != "M" or categories.dtype.kind != "M":
        codes: Array = categories.get_indexer(series)
        return codes
    alike = series.astype(categories.dtype)  # with another unit or zone, pandas finds nothing, or raises
    return np.where((alike == series).to_numpy(), categories.get_indexer(alike), -1)


def column_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """A column as a tensor of shape `[N]`."""
    dtype = str(series.dtype)
    if isinstance(series.dtype, np.dtype) and (series.dtype.kind in "biuf" or dtype == "bfloat16"):
        try:
            return Tensor(name, series.to_numpy())
        except TypeError as error:
            raise TypeError(f"column {name!r}: {error}") from None
    if dtype in ("str", "string", "object"):
        tensor = _write_objects(name, series)
        is_clear = dtype == find_default_dtype(tensor.parameters.get("content_type")) and not (dtype == "str" and series.isna().all())
        return tensor if is_clear else _add_dtype(tensor, dtype)
    if dtype in MASKED:
        return _add_dtype(_write_masked(name, series, MASKED[dtype]), dtype)
    if dtype == "category":
        return _add_dtype(_write_categories(name, series), dtype)
    if dtype.startswith("datetime64["):
        return _add_dtype(_write_datetimes(name, series), name_zoned_dtype(series.dtype) if is_zoned(series.dtype) else dtype)
    raise TypeError(f"column {name!r} has dtype {dtype}, for which the protocol has no form: convert it with astype, such as to str")


def make_string_parameters(dtype: str) -> Parameters:
    """The parameters of a column of strings of the dtype with this name."""
    parameters: Parameters = {"content_type": StringCodec.content_type}
    return parameters if dtype == find_default_dtype(StringCodec.content_type) else {**parameters, DTYPE: dtype}


def _add_dtype(tensor: Tensor, dtype: str) -> Tensor:
    return make_tensor(tensor.name, tensor.array, {**tensor.parameters, DTYPE: dtype})


def _write_masked(name: str, series: pd.Series[Any], dtype: np.dtype[Any]) -> Tensor:
    if dtype.kind == "f":
        return Tensor(name, series.to_numpy(dtype, na_value=np.nan))
    return _write_json(name, series) if series.isna().any() else Tensor(name, series.to_numpy(dtype))


def _write_json(name: str, series: pd.Series[Any]) -> Tensor:
    """A column as `pd_json`, with null for missing values."""
    missing = series.isna().to_numpy()
    return PandasJSONCodec.encode_input(name, [None if gone else value for value, gone in zip(series.tolist(), missing, strict=True)])


def _write_datetimes(name: str, series: pd.Series[Any]) -> Tensor:
    zoned = is_zoned(series.dtype)
    points = (series.dt.tz_convert("UTC").dt.tz_localize(None) if zoned else series).to_numpy()
    if not are_in_calendar(points):
        raise ValueError(f"column {name!r} has a date outside of the years 1 to 9999, the only ones of ISO 8601")
    missing = np.isnat(points)
    # the coarsest unit of those that isoformat() writes, as long as no digit is lost
    unit = next((unit for unit in ("s", "us") if ((points.astype(f"M8[{unit}]") == points) | missing).all()), "ns")
    texts = points.astype(f"M8[{unit}]").astype(_TEXTS[unit])
    if zoned:
        texts = np.where(missing, texts, np.strings.add(texts, b"+00:00"))
    return make_tensor(name, texts.astype(object), {"content_type": DatetimeCodec.content_type})


def _write_objects(name: str, series: pd.Series[Any]) -> Tensor:
    """Strings as `str`, bytes as `base64`, datetimes as `datetime`, floats as numbers, and mixed or missing values as `pd_json`."""
    values = series.tolist()
    classes = set(map(type, values))
    there = classes - {NoneType}
    if classes <= {str}:
        return StringCodec.encode_input(name, values)
    if classes == {bytes}:
        return Base64Codec.encode_input(name, values)
    if there and all(issubclass(cls, datetime) for cls in there):  # pandas' NaT is a datetime too
        missing = series.isna().to_numpy()
        texts = DatetimeCodec.encode_input(name, [value for value, gone in zip(values, missing, strict=True) if not gone])
        elements = np.full(len(values), b"NaT", object)
        elements[~missing] = texts.array
        return make_tensor(name, elements, texts.parameters)
    if there and series.dtype == object and all(issubclass(cls, float) for cls in there):
        numbers = np.array(values, np.float64)
        # None is null in pd_json; but pd_json has no infinities, so beside these None becomes NaN
        if NoneType not in classes or np.isinf(numbers).any():
            return Tensor(name, numbers)
    return _write_json(name, series)


def _write_categories(name: str, series: pd.Series[Any]) -> Tensor:
    """A column of categories as a column of its values, with the categories as a parameter: all, else those that a row has, if they fit."""
    import pandas as pd

    categories = series.cat.categories
    if len(categories) > max(MOST_CATEGORIES, len(series)):
        return _write_categories(name, series.cat.remove_unused_categories())
    tensor = column_to_tensor(f"the categories of {name}", pd.Series(categories, dtype=categories.dtype))
    text = write_categories(tensor, ordered=bool(series.cat.ordered))
    if text is None and len((used := series.cat.remove_unused_categories()).cat.categories) < len(categories):
        return _write_categories(name, used)
    codes = series.cat.codes.to_numpy()
    values = _add_missing(name, tensor, categories) if (codes < 0).any() else tensor
    parameters = {key: value for key, value in values.parameters.items() if key == "content_type"}
    if text is not None:
        parameters[CATEGORIES] = text
    return make_tensor(name, values.array[codes], parameters)


def _add_missing(name: str, tensor: Tensor, categories: pd.Index[Any]) -> Tensor:
    """Categories followed by a missing value, which then has the index -1, its code."""
    array, content_type = tensor.array, tensor.parameters.get("content_type")
    if array.dtype.kind == "f":
        return Tensor(name, np.append(array, array.dtype.type(np.nan)))
    if content_type != DatetimeCodec.content_type:
        return PandasJSONCodec.encode_input(name, [*categories.tolist(), None])
    return Tensor(name, object_array([*array.tolist(), b"NaT"], (len(array) + 1,)), {"content_type": content_type})
