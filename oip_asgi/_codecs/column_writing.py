"""A column of a data frame -> a tensor, with its dtype and categories as parameters. Python code runs for
single cells only if they are Python objects.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

from datetime import datetime, timezone
from types import NoneType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._protocol.specs import TensorSpec
from .._protocol.tensors import Tensor, make_tensor
from .column_dtypes import (
    CATEGORIES,
    CATEGORY,
    DTYPE,
    MASKED,
    MISSABLE,
    MOST_CATEGORIES,
    OBJECTS_WITH_NAN,
    describe_categories,
    find_default_dtype,
    find_zone,
    is_known_zone,
    to_points,
)
from .dates import DatetimeCodec, write_points
from .plain import Base64Codec, PandasJSONCodec, StringCodec

if TYPE_CHECKING:
    import pandas as pd


def write_objects(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """A column of numbers or booleans as JSON texts, if it is declared as one of objects, as it is with other
    values. One of NaN alone, as pandas has a column without any value, also if strings or dates are
    declared."""
    array = tensor.array
    if (
        not spec.dtype.hasobject
        or array.ndim != 1
        or array.dtype.hasobject
        or "content_type" in tensor.parameters
    ):
        return tensor
    if array.dtype.kind == "f" and spec.content_type in MISSABLE and np.isnan(array).all():
        return PandasJSONCodec.encode_input(tensor.name, [None] * len(array))
    return (
        PandasJSONCodec.encode_input(tensor.name, array.tolist())
        if spec.content_type == PandasJSONCodec.content_type
        else tensor
    )


def column_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    dtype = str(series.dtype)
    if isinstance(series.dtype, np.dtype) and (series.dtype.kind in "biuf" or dtype == "bfloat16"):
        try:
            return Tensor(name, series.to_numpy())
        except TypeError as error:
            raise TypeError(f"column {name!r}: {error}") from None
    if dtype in ("str", "string", "object"):
        tensor = _write_object_column(name, series)
        dtype = OBJECTS_WITH_NAN if misses_nan(series) else dtype
        is_clear = dtype == find_default_dtype(tensor.parameters.get("content_type")) and not (
            dtype == "str" and series.isna().all()
        )
        return tensor if is_clear else _add_parameters(tensor, dtype)
    if dtype in MASKED:
        return _add_parameters(_write_masked_column(name, series, MASKED[dtype]), dtype)
    if dtype == CATEGORY:
        return _write_category_column(name, series)
    if dtype.startswith("datetime64["):
        is_zoned = find_zone(series) is not None
        return _add_parameters(write_points(name, to_points(series), is_zoned), _name_dates(series))
    own = to_own_dtype(series)
    if own is not series:
        return column_to_tensor(name, own)
    raise TypeError(
        f"column {name!r} has dtype {dtype}, for which the protocol has no form: convert it with astype, "
        "such as to str"
    )


def to_own_dtype(series: pd.Series[Any]) -> pd.Series[Any]:
    """A column that is sparse, or that pyarrow keeps, with the dtype that numpy or pandas itself has for its
    values; others as they are."""
    import pandas as pd

    column, dtype = cast("Any", series), cast("Any", series.dtype)
    kind = type(dtype)
    if kind is pd.SparseDtype:
        return pd.Series(column.sparse.to_dense())
    if kind is not pd.ArrowDtype:
        return series
    if dtype.kind in "biu" and column.isna().any():
        masked = next(name for name, numpy_dtype in MASKED.items() if numpy_dtype == dtype.numpy_dtype)
        return pd.Series(column.astype(masked).array)  # numpy has integers and booleans without missing ones
    values = column.array.__arrow_array__()
    return (
        pd.Series(values.to_pylist(), dtype=object)
        if values.type.num_fields
        else pd.Series(values.to_pandas())
    )


def misses_nan(series: pd.Series[Any]) -> bool:
    """Whether a column of objects has NaN, and nothing else, where a value is missing."""
    import pandas as pd

    values: Any = series.to_numpy() if series.dtype == object else np.empty(0)
    classes = set(map(type, values[pd.isna(values)]))
    return bool(classes) and all(issubclass(cls, float) for cls in classes)


def _add_parameters(tensor: Tensor, dtype: str) -> Tensor:
    return make_tensor(tensor.name, tensor.array, {**tensor.parameters, DTYPE: dtype})


def _write_masked_column(name: str, series: pd.Series[Any], dtype: np.dtype[Any]) -> Tensor:
    if dtype.kind == "f":
        return Tensor(name, series.to_numpy(dtype, na_value=np.nan))
    return _write_json(name, series) if series.isna().any() else Tensor(name, series.to_numpy(dtype))


def _write_json(name: str, series: pd.Series[Any]) -> Tensor:
    """A column as `pd_json`, with null for missing values."""
    missing = series.isna().to_numpy()
    return PandasJSONCodec.encode_input(
        name, [None if gone else value for value, gone in zip(series.tolist(), missing, strict=True)]
    )


def _name_dates(series: pd.Series[Any]) -> str:
    """The name of a dtype of dates, for `pd_dtype`. For a zone whose name is not known, it has the offset, or
    UTC."""
    dtype: Any = series.dtype
    zone = find_zone(series)
    if zone is None:
        return str(dtype)
    offset = zone.utcoffset(None)
    names = [
        *([] if isinstance(zone, timezone) else [str(zone)]),
        *([] if offset is None else [str(timezone(offset))]),
    ]
    return f"datetime64[{dtype.unit}, {next(filter(is_known_zone, names), 'UTC')}]"


def _write_object_column(name: str, series: pd.Series[Any]) -> Tensor:
    """Strings as `str`, bytes as `base64`, datetimes as `datetime`, floats as numbers, and mixed or missing
    values as `pd_json`."""
    values = series.tolist()
    classes = set(map(type, values))
    there = classes - {NoneType}
    if all(issubclass(cls, str) for cls in classes):
        return StringCodec.encode_input(name, list(map(str, values)))
    if classes == {bytes}:
        return Base64Codec.encode_input(name, values)
    if there and all(issubclass(cls, datetime) for cls in there):  # pandas' NaT is a datetime too
        missing = series.isna().to_numpy()
        texts = DatetimeCodec.encode_input(
            name, [value for value, gone in zip(values, missing, strict=True) if not gone]
        )
        elements = np.full(len(values), b"NaT", object)
        elements[~missing] = texts.array
        return make_tensor(name, elements, texts.parameters)
    if there and series.dtype == object and all(issubclass(cls, float) for cls in there):
        numbers = np.array(values, np.float64)
        # None is null in pd_json; but pd_json has no infinities, so beside these None becomes NaN
        if NoneType not in classes or np.isinf(numbers).any():
            return Tensor(name, numbers)
    return _write_json(name, series)


def _write_category_column(name: str, series: pd.Series[Any]) -> Tensor:
    """A column of categories as its values. The categories are a parameter: all if they fit, else those that
    a row has if these fit."""
    import pandas as pd

    described = None
    if len(series.cat.categories) <= MOST_CATEGORIES:
        described = _describe(name, series)
    if described is None:
        series = series.cat.remove_unused_categories()
        described = _describe(name, series)
    dtype = series.cat.categories.dtype
    # numpy has integers and booleans without missing ones
    values = series.astype(
        object if series.isna().any() and dtype.kind in "biu" and isinstance(dtype, np.dtype) else dtype
    )
    tensor = _write_json(name, series) if series.isna().all() else column_to_tensor(name, pd.Series(values))
    parameters = {key: value for key, value in tensor.parameters.items() if key == "content_type"}
    more = {} if described is None else {CATEGORIES: described}
    return make_tensor(name, tensor.array, {**parameters, **more, DTYPE: CATEGORY})


def _describe(name: str, series: pd.Series[Any]) -> str | None:
    """The text that describes the categories of a column; None if it is too long."""
    import pandas as pd

    categories = series.cat.categories
    tensor = column_to_tensor(f"the categories of {name}", pd.Series(categories, dtype=categories.dtype))
    return describe_categories(tensor, ordered=bool(series.cat.ordered))
