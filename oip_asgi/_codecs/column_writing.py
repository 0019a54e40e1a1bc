"""A column of a data frame -> a tensor. Python code runs for single cells only if they are Python objects.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._protocol.schemas import Parameters
from .._protocol.tensors import Tensor, make_tensor, object_array
from .datetime import DatetimeCodec, are_in_calendar
from .pandas_dtypes import CATEGORIES, DTYPE, MASKED, MOST_CATEGORIES, find_default_dtype, is_zoned, name_zoned_dtype, write_categories
from .pandas_json import PandasJSONCodec
from .plain import Base64Codec, StringCodec

if TYPE_CHECKING:
    import pandas as pd


_TEXTS: Final = {"s": "S19", "us": "S26", "ns": "S29"}
"""The dtypes of the texts of dates, by the unit of the dates."""


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
