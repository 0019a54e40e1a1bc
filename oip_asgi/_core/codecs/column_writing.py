"""A column of a data frame -> a tensor. Works on whole columns: Python code runs for single cells only if they are Python objects.

pandas is imported in the functions that make something of it, so that servers without pandas can import this module.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..datatypes import Array
from ..schemas import Parameters
from ..tensors import Tensor, known_tensor, object_array
from .base import InputCodec
from .base64 import Base64Codec
from .categories import MOST_CATEGORIES, to_text
from .datetime import DatetimeCodec, are_in_calendar
from .pandas_dtypes import CATEGORIES, DTYPE, MASKED, default_dtype, is_zoned, zoned_dtype
from .pandas_json import PandasJSONCodec
from .string import StringCodec

if TYPE_CHECKING:
    import pandas as pd


_TEXTS: Final = {"s": "S19", "us": "S26", "ns": "S29"}
"""The dtypes of the texts of dates, by the unit of the dates."""


def column_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """A column as a tensor of shape `[N]`.

    Args:
        name: The tensor's name.
        series: The column.

    Raises:
        TypeError: The protocol has no form for the column's dtype or for a value; the text names column and row.
        ValueError: A date is out of the years 1 to 9999, or a string has lone surrogates.
    """
    dtype = str(series.dtype)
    if isinstance(series.dtype, np.dtype) and (series.dtype.kind in "biuf" or dtype == "bfloat16"):
        try:
            return Tensor(name, series.to_numpy())
        except TypeError as error:
            raise TypeError(f"column {name!r}: {error}") from None
    if dtype == "category":
        return _hinted(_category_to_tensor(name, series), dtype)
    if dtype in MASKED:
        return _hinted(_masked_to_tensor(name, series, MASKED[dtype]), dtype)
    if dtype.startswith("datetime64["):
        return _hinted(_datetimes_to_tensor(name, series), zoned_dtype(series.dtype) if is_zoned(series.dtype) else dtype)
    if dtype in ("str", "string", "object"):
        tensor = _objects_to_tensor(name, series)
        is_clear = dtype == default_dtype(tensor.parameters.get("content_type")) and not (dtype == "str" and series.isna().all())
        return tensor if is_clear else _hinted(tensor, dtype)
    raise TypeError(f"column {name!r} has dtype {dtype}, for which the protocol has no form: convert it with astype, such as to str")


def string_parameters(dtype: str) -> Parameters:
    """The parameters of a column of strings of a dtype of this name."""
    parameters: Parameters = {"content_type": StringCodec.content_type}
    return parameters if dtype == default_dtype(StringCodec.content_type) else {**parameters, DTYPE: dtype}


def _hinted(tensor: Tensor, dtype: str) -> Tensor:
    return known_tensor(tensor.name, tensor.array, {**tensor.parameters, DTYPE: dtype})


def _category_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """A column of categories as a column of its values, with the categories as a parameter.

    If they are too many for the parameter, those that no row has are left out.
    """
    import pandas as pd

    listed = pd.Series(series.cat.categories, dtype=series.cat.categories.dtype)
    if len(listed) > MOST_CATEGORIES and len(listed) > len(series):
        return _category_to_tensor(name, series.cat.remove_unused_categories())
    categories = column_to_tensor(f"the categories of {name}", listed)
    codes = series.cat.codes.to_numpy()
    values = _with_missing(name, categories, listed) if (codes < 0).any() else categories
    content_type = values.parameters.get("content_type")
    parameters: Parameters = {} if content_type is None else {"content_type": content_type}
    text = to_text(categories, ordered=bool(series.cat.ordered))
    if text is not None:
        parameters[CATEGORIES] = text
    elif len((used := series.cat.remove_unused_categories()).cat.categories) < len(listed):
        return _category_to_tensor(name, used)
    return known_tensor(name, values.array[codes], parameters)


def _with_missing(name: str, categories: Tensor, listed: pd.Series[Any]) -> Tensor:
    """Categories followed by a missing value, which then has the index -1, its code."""
    array, content_type = categories.array, categories.parameters.get("content_type")
    if array.dtype.kind == "f":
        return Tensor(name, np.append(array, array.dtype.type(np.nan)))
    if content_type != DatetimeCodec.content_type:
        return PandasJSONCodec.encode_input(name, [*listed.tolist(), None])
    return Tensor(name, object_array([*array.tolist(), b"NaT"], (len(array) + 1,)), {"content_type": content_type})


def _masked_to_tensor(name: str, series: pd.Series[Any], dtype: np.dtype[Any]) -> Tensor:
    if dtype.kind == "f":
        return Tensor(name, series.to_numpy(dtype, na_value=np.nan))
    if series.isna().any():
        return _as_json(name, series)
    return Tensor(name, series.to_numpy(dtype))


def _as_json(name: str, series: pd.Series[Any]) -> Tensor:
    """A column as `pd_json`, with null for missing values."""
    missing = series.isna().to_numpy()
    return PandasJSONCodec.encode_input(name, [None if gone else value for value, gone in zip(series.tolist(), missing, strict=True)])


def _datetimes_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
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
    return known_tensor(name, texts.astype(object), {"content_type": DatetimeCodec.content_type})


def _objects_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """Strings as `str`, bytes as `base64`, datetimes as `datetime`, floats as numbers, and mixed or missing values as `pd_json`."""
    values = series.tolist()
    classes = set(map(type, values))
    if series.dtype == object and _are_floats(classes):
        numbers = np.array(values, np.float64)
        # None is null in pd_json; but pd_json has no infinities, so beside these None becomes NaN
        if type(None) not in classes or np.isinf(numbers).any():
            return Tensor(name, numbers)
    if classes <= {str}:
        codec: type[InputCodec[Any]] = StringCodec
    elif classes == {bytes}:
        codec = Base64Codec
    elif _are_datetimes(classes):
        return _dates_to_tensor(name, values, series.isna().to_numpy())
    else:
        return _as_json(name, series)
    return codec.encode_input(name, values)


def _are_datetimes(classes: set[type]) -> bool:
    """Whether values of these classes are datetimes, or missing: pandas' NaT is a datetime too."""
    others = classes - {type(None)}
    return bool(others) and all(issubclass(cls, datetime) for cls in others)


def _dates_to_tensor(name: str, values: list[Any], missing: Array) -> Tensor:
    there = [value for value, gone in zip(values, missing, strict=True) if not gone]
    texts = iter(DatetimeCodec.encode_input(name, there).array.tolist())
    elements = [b"NaT" if gone else next(texts) for gone in missing]
    return Tensor(name, object_array(elements, (len(elements),)), {"content_type": DatetimeCodec.content_type})


def _are_floats(classes: set[type]) -> bool:
    others = classes - {type(None)}
    return bool(others) and all(issubclass(cls, float) for cls in others)
