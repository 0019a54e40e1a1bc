"""A column of a data frame -> its tensor. Works on whole columns: no Python code runs for each cell but where they are Python objects.

pandas is imported where something of its is made, never before.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..datatypes import Array
from ..rest.schemas import Parameters
from ..tensors import Tensor, object_array
from .base import InputCodec, made
from .base64 import Base64Codec
from .categories import MOST_CATEGORIES, to_text
from .datetime import DatetimeCodec, are_in_calendar
from .pandas_dtypes import CATEGORIES, DTYPE, MASKED, is_zoned, untold_dtype, zoned_dtype
from .pandas_json import PandasJSONCodec
from .string import StringCodec

if TYPE_CHECKING:
    import pandas as pd


_TEXTS: Final = {"s": "S19", "us": "S26", "ns": "S29"}
"""The dtype of the text of a point in time by its unit."""


def column_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """A column as a tensor of shape `[N]`.

    Args:
        name: The tensor's name.
        series: The column.

    Raises:
        TypeError: The column's dtype, or an element, has no form in the protocol; the text names column and row.
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
        is_told = dtype != untold_dtype(tensor.parameters.get("content_type")) or (dtype == "str" and series.isna().all())
        return _hinted(tensor, dtype) if is_told else tensor
    raise TypeError(f"column {name!r} has dtype {dtype}, which the protocol has no form for: convert it with astype, such as to str")


def string_parameters(dtype: str) -> Parameters:
    """The parameters of a column of strings whose dtype is called so."""
    parameters: Parameters = {"content_type": StringCodec.content_type}
    return parameters if dtype == untold_dtype(StringCodec.content_type) else {**parameters, DTYPE: dtype}


def _hinted(tensor: Tensor, dtype: str) -> Tensor:
    return Tensor(tensor.name, tensor.array, {**tensor.parameters, DTYPE: dtype})


def _category_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """A column of categories as a column of its values, each made once, with what they are as a parameter.

    Where they are too many for it, those that no row has stay behind.
    """
    import pandas as pd

    told = pd.Series(series.cat.categories, dtype=series.cat.categories.dtype)
    if len(told) > MOST_CATEGORIES and len(told) > len(series):
        return _category_to_tensor(name, series.cat.remove_unused_categories())
    categories = column_to_tensor(f"the categories of {name}", told)
    codes = series.cat.codes.to_numpy()
    values = _with_missing(name, categories, told) if (codes < 0).any() else categories
    content_type = values.parameters.get("content_type")
    parameters: Parameters = {} if content_type is None else {"content_type": content_type}
    text = to_text(categories, ordered=bool(series.cat.ordered))
    if text is not None:
        parameters[CATEGORIES] = text
    elif len((used := series.cat.remove_unused_categories()).cat.categories) < len(told):
        return _category_to_tensor(name, used)
    return Tensor(name, values.array[codes], parameters)


def _with_missing(name: str, categories: Tensor, told: pd.Series[Any]) -> Tensor:
    """Categories with what stands for a missing value behind them, where its code, -1, finds it."""
    array, content_type = categories.array, categories.parameters.get("content_type")
    if array.dtype.kind == "f":
        return Tensor(name, np.append(array, array.dtype.type(np.nan)))
    if content_type != DatetimeCodec.content_type:
        return PandasJSONCodec.encode_input(name, [*told.tolist(), None])
    return Tensor(name, object_array([*array.tolist(), b"NaT"], (len(array) + 1,)), {"content_type": content_type})


def _masked_to_tensor(name: str, series: pd.Series[Any], dtype: np.dtype[Any]) -> Tensor:
    if dtype.kind == "f":
        return Tensor(name, series.to_numpy(dtype, na_value=np.nan))
    if series.isna().any():
        return _as_json(name, series)
    return Tensor(name, series.to_numpy(dtype))


def _as_json(name: str, series: pd.Series[Any]) -> Tensor:
    """A column as `pd_json`, with what is missing as null."""
    missing = series.isna().to_numpy()
    return PandasJSONCodec.encode_input(name, [None if gone else value for value, gone in zip(series.tolist(), missing, strict=True)])


def _datetimes_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    zoned = is_zoned(series.dtype)
    points = (series.dt.tz_convert("UTC").dt.tz_localize(None) if zoned else series).to_numpy()
    if not are_in_calendar(points):
        raise ValueError(f"column {name!r} has a date outside of the years 1 to 9999, which are those of ISO 8601")
    missing = np.isnat(points)
    # the coarsest unit that isoformat() has and that loses nothing
    unit = next((unit for unit in ("s", "us") if ((points.astype(f"M8[{unit}]") == points) | missing).all()), "ns")
    texts = points.astype(f"M8[{unit}]").astype(_TEXTS[unit])
    if zoned:
        texts = np.where(missing, texts, np.strings.add(texts, b"+00:00"))
    return made(name, texts.astype(object), {"content_type": DatetimeCodec.content_type})


def _objects_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """Strings as `str`, bytes as `base64`, datetimes as `datetime`, floats as they are; what is mixed or missing as `pd_json`."""
    values = series.tolist()
    classes = set(map(type, values))
    if series.dtype == object and _are_floats(classes):
        numbers = np.array(values, np.float64)
        # None stays None where it can; beside infinities, which no JSON text has, it is NaN
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
    """Whether they are of datetimes, some of which may be missing: pandas' NaT is of a class of datetimes too."""
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
