"""A column of a data frame <-> a tensor, with its dtype and categories as parameters. Python code runs for
single cells only if they are Python objects.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from .._protocol.datatypes import Array, object_array, widen
from .._protocol.errors import InvalidRequest, list_names, show
from .._protocol.specs import TensorSpec
from .._protocol.tensors import Tensor, make_tensor
from .base import bytes_of, rows_of
from .column_dtypes import (
    CATEGORIES,
    CATEGORY,
    DATETIME,
    DTYPE,
    FIXED_ZONE,
    KNOWN_DTYPES,
    MASKED,
    MISSABLE,
    MISSING,
    MOST_CATEGORIES,
    OBJECT_DTYPES,
    OBJECTS_WITH_NAN,
    READ_AS,
    describe_categories,
    find_default_dtype,
    find_zone,
    is_dtype,
    is_known_zone,
    is_pandas_3,
    read_categories,
    to_points,
)
from .plain import (
    CALENDAR,
    NANOSECONDS,
    Base64Codec,
    DatetimeCodec,
    PandasJSONCodec,
    StringCodec,
    are_between,
    read_beside_missing,
    read_points,
    write_points,
)

if TYPE_CHECKING:
    import pandas as pd

Decode: TypeAlias = Callable[[Tensor], Any]


def apply_declaration(tensor: Tensor, spec: TensorSpec | None) -> Tensor:
    """Give a column of a request the parameters that are declared. Raises InvalidRequest if its values are of
    another kind."""
    if spec is None or not (spec.parameters or tensor.parameters):
        return tensor
    here = f"input {show(tensor.name)}"
    declared, sent = spec.content_type, tensor.parameters.get("content_type")
    array, parameters = tensor.array, spec.complete(tensor.parameters)
    readable = READ_AS.get(str(declared), (str(declared),))
    is_another = sent is not None and declared is not None and sent != declared
    is_missing = (
        is_another
        and sent in MISSING
        and declared in MISSABLE
        and all(text.strip() == MISSING[sent] for text in array.ravel())
    )
    if is_missing:
        # nothing shows what a column without any value is one of
        sent = str(declared if declared in MISSING else PandasJSONCodec.content_type)
        array, parameters = np.full(array.shape, MISSING[sent], object), {**parameters, "content_type": sent}
    elif is_another and not array.size:
        sent, parameters = declared, {**parameters, "content_type": str(declared)}
    elif is_another and sent not in readable:
        raise InvalidRequest(
            f"{here} has the content_type {show(sent)}, but the model declares {show(declared)}: expected "
            f"{' or '.join(readable)}, or none"
        )
    are_texts = declared == StringCodec.content_type or (
        declared is None and spec.dtype.hasobject and spec.other_datatypes is None
    )
    if sent == PandasJSONCodec.content_type and are_texts:
        for index, text in enumerate(map(bytes.strip, array.ravel())):
            if text != b"null" and text[:1] != b'"':
                raise InvalidRequest(
                    f"{here}: element {index} is {show(text)}: expected the JSON text of a string, or null"
                )
        # nulls alone would not show that it is one of strings
        parameters = {DTYPE: str(find_default_dtype(StringCodec.content_type)), **parameters}
    return make_tensor(tensor.name, array, parameters)


def read_series(tensor: Tensor, content_type: str | None, spec: TensorSpec | None) -> pd.Series[Any]:
    """A tensor as a `pandas.Series` with its name and the declared dtype, read as `content_type`, or as its
    own if that is None."""
    import pandas as pd

    parameters = (
        tensor.parameters if content_type is None else {**tensor.parameters, "content_type": content_type}
    )
    column = apply_declaration(make_tensor(tensor.name, tensor.array, parameters), spec)
    return pd.Series(read_column(column), name=tensor.name, copy=True)


def read_column(tensor: Tensor) -> Any:
    """A tensor of shape `[N]` or `[N, 1]` as something that a frame takes as a column: an array or a
    `pandas.Series`."""
    content_type: Any = tensor.parameters.get("content_type")
    if content_type not in _COLUMNS:
        raise InvalidRequest(
            f"column {show(tensor.name)} has the content_type {show(content_type)}: expected one of "
            f"{', '.join(COLUMN_TYPES)}"
        )
    column = _COLUMNS[content_type](tensor)
    return _to_dtype(column, tensor) if DTYPE in tensor.parameters else column


def _make_objects(values: list[Any]) -> Any:
    import pandas as pd

    return pd.Series(object_array(values, (len(values),)), dtype=object)


def _read_numbers(tensor: Tensor, content_type: str) -> Array:
    return widen(rows_of(tensor, content_type))  # pandas can neither sort nor select a column of BF16


def _read_strings(tensor: Tensor) -> Any:
    import pandas as pd

    texts: list[Any] = StringCodec.decode_input(tensor)
    return pd.Series(texts, dtype="str") if is_pandas_3() else object_array(texts, (len(texts),))


def _read_json(tensor: Tensor) -> Any:
    import pandas as pd

    dtype: Any = tensor.parameters.get(DTYPE)
    values = read_beside_missing(tensor, MASKED[dtype].kind if dtype in MASKED else "O")
    classes = set(map(type, values))
    if dtype in MASKED and classes <= {bool if dtype == "boolean" else int, NoneType}:
        try:
            # of a list of large whole numbers, numpy would make floats
            return pd.Series(pd.array(object_array(values, (len(values),)), dtype=dtype))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(
                f"column {show(tensor.name)} cannot be {dtype}, as its {DTYPE} says: {error}"
            ) from None
    return (
        pd.Series(values)
        if values and dtype not in OBJECT_DTYPES and classes <= {str, NoneType}
        else _make_objects(values)
    )


def _read_datetimes(tensor: Tensor) -> Any:
    """Dates in the unit that pandas would choose: nanoseconds in pandas 2 if they reach, else at least
    microseconds."""
    import pandas as pd

    points, are_zoned = read_points(tensor)
    if not is_pandas_3() and are_between(points, *NANOSECONDS):
        points = points.astype("M8[ns]")
    return pd.Series(pd.DatetimeIndex(points, tz="UTC") if are_zoned else points)


_COLUMNS: Final[Mapping[str | None, Decode]] = {
    None: lambda tensor: _read_strings(tensor) if tensor.datatype == "BYTES" else _read_numbers(tensor, "pd"),
    "np": lambda tensor: (
        _make_objects(bytes_of(tensor, "np")) if tensor.datatype == "BYTES" else _read_numbers(tensor, "np")
    ),
    "str": _read_strings,
    "base64": lambda tensor: _make_objects(Base64Codec.decode_input(tensor)),
    "datetime": _read_datetimes,
    "pd_json": _read_json,
}

COLUMN_TYPES: Final = tuple(filter(None, _COLUMNS))
"""The content types of columns. A codec of a user is for an input of its own."""


def _to_dtype(column: Any, tensor: Tensor) -> Any:
    """A column converted to the dtype in its `pd_dtype`. No value may change by that."""
    import pandas as pd

    dtype: Any = tensor.parameters[DTYPE]
    here = f"column {show(tensor.name)}"
    cannot = f"{here} cannot be {dtype}, as its {DTYPE} says"
    if not is_dtype(dtype):
        raise InvalidRequest(f"{here} has the {DTYPE} {show(dtype)}: expected {KNOWN_DTYPES}")
    if dtype == OBJECTS_WITH_NAN:
        column = _make_objects([np.nan if value is None else value for value in pd.Series(column).tolist()])
        dtype = "object"
    dates = DATETIME.fullmatch(dtype)
    zone = dates[1] if dates else None
    if zone is not None and not is_known_zone(zone):
        raise InvalidRequest(
            f"{cannot}: expected UTC, an offset such as UTC+02:00, or a name that Python's zoneinfo knows, "
            "such as Europe/Amsterdam"
        )
    series = pd.Series(column)
    if dtype == CATEGORY and CATEGORIES in tensor.parameters:
        return _to_categories(series, tensor)
    if str(series.dtype) == dtype:
        return series
    if not _can_become(series, dtype):
        raise InvalidRequest(f"{cannot}: its values are {series.dtype}")
    try:
        if dates:
            _check_zone(series, zone)
        if zone is not None:
            series = _localize_dates(series, zone)
        converted = series.astype(dtype)
        if dtype == "str":
            return converted.where(series.notna(), None)  # pandas 2 would write "None"
        other_unit = dates and not str(series.dtype).startswith(dtype.partition(",")[0].rstrip("]"))
        if other_unit and ((converted != series) & series.notna()).any():
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
    return series.dtype.kind == "M" or not dtype.startswith("datetime64")


def _check_zone(series: pd.Series[Any], zone: object) -> None:
    """Refuse dates without an offset for a column with a time zone, and the opposite: which moment each is
    would be a guess."""
    has_zone = find_zone(series) is not None
    if has_zone and zone is None:
        raise ValueError(
            "its dates have an offset from UTC, such as Z: send them without one, in the time zone that the "
            "model expects"
        )
    if not has_zone and zone is not None and series.notna().any():
        raise ValueError(
            "its dates have no offset from UTC: send each with its own, such as 2026-01-31T09:30:00+01:00, "
            "or Z for UTC itself"
        )


def _localize_dates(series: pd.Series[Any], zone: str) -> pd.Series[Any]:
    """Dates in UTC, after a check that they can be converted to a zone."""
    points, day = to_points(series), np.timedelta64(1, "D")
    if zone != "UTC" and not (are_between(points - day, *CALENDAR) and are_between(points + day, *CALENDAR)):
        raise ValueError("some are too near to the ends of the years 1 to 9999 for a time zone")
    if not is_pandas_3() and not FIXED_ZONE.fullmatch(zone) and (points < NANOSECONDS[0]).any():
        raise ValueError(
            "some are before 1678, and pandas 2 has no time zones for them but UTC and fixed offsets"
        )
    return series if find_zone(series) is not None else series.dt.tz_localize("UTC")


def _to_categories(series: pd.Series[Any], tensor: Tensor) -> pd.Series[Any]:
    """Values as a column of the categories in `pd_categories`. Each value must be one of them."""
    import pandas as pd

    described, ordered = read_categories(tensor.parameters[CATEGORIES], tensor.name)
    values = read_column(described)
    try:
        categories = pd.Index(values, dtype=values.dtype)
        if not categories.is_unique:
            raise ValueError("one of them is there twice")
        codes = _find_codes(series, categories)
        unknown = np.flatnonzero((codes < 0) & series.notna().to_numpy())
        if len(unknown):
            raise InvalidRequest(
                f"column {show(tensor.name)}, row {unknown[0]}: {show(series.iloc[unknown[:1]].tolist()[0])} "
                f"is no category: expected {list_names(categories.tolist())}"
            )
        if (
            (codes < 0).any()
            and categories.dtype == object
            and any(isinstance(each, (bytes, datetime)) for each in categories)
        ):
            raise ValueError(
                "a value is missing, and categories of bytes, or of dates as objects, cannot be sent back "
                "with missing values"
            )
        return pd.Series(pd.Categorical.from_codes(codes, categories=categories, ordered=ordered))
    except (TypeError, ValueError, NotImplementedError, OverflowError) as error:
        raise InvalidRequest(
            f"column {show(tensor.name)} cannot have the categories in its {CATEGORIES}: {error}"
        ) from None


def _find_codes(series: pd.Series[Any], categories: Any) -> Array:
    """The place of each value among the categories, and -1 for values that are not among them."""
    if series.isna().all():
        return np.full(len(series), -1)
    if series.dtype.kind != "M" or categories.dtype.kind != "M":
        codes: Array = categories.get_indexer(series)
        if series.dtype == object and categories.dtype.kind in "iuf":  # to pandas, true is the category 1
            codes[[type(value) is bool for value in series]] = -1
        return codes
    _check_zone(series, categories.tz)
    alike = series.astype(categories.dtype)  # with another unit or zone, pandas finds nothing, or raises
    return np.where((alike == series).to_numpy(), categories.get_indexer(alike), -1)


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
