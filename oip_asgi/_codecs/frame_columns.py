"""A tensor <-> a column of a data frame, whose dtype and categories are parameters if the values do not show them.

Python code runs for single cells only if they are Python objects. The parameter `pd_categories` is the text of a JSON object that describes
categories as a tensor: `datatype`, `data` and, if there are any, its parameters `content_type` and `pd_dtype`, here called `dtype`.
`ordered` says whether their order has a meaning. The column itself is sent as its values, so that others can read it.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec
import numpy as np

from .._json.tensor_data import from_json, to_value
from .._protocol.column_shape import rows_of
from .._protocol.datatypes import Array, dtype_of
from .._protocol.errors import InvalidRequest, show
from .._protocol.schemas import Parameters
from .._protocol.specs import TensorSpec
from .._protocol.tensors import Tensor, make_tensor
from .._protocol.to_array import object_array
from .base import bytes_of
from .dates import CALENDAR, NANOSECONDS, DatetimeCodec, are_between, read_points
from .plain import Base64Codec, PandasJSONCodec, StringCodec

if TYPE_CHECKING:
    import pandas as pd

Decode: TypeAlias = Callable[[Tensor], Any]

DTYPE: Final = "pd_dtype"
"""Parameter with the dtype of a column, if its values do not show it. MLServer's clients neither write nor read it."""

CATEGORIES: Final = "pd_categories"
"""Parameter with the categories of a column whose `pd_dtype` is `category`."""

_MASKED: Final = {
    "boolean": np.dtype("?"),
    **{f"{sign}Int{bits}": np.dtype(f"{kind}{bits // 8}") for sign, kind in (("", "i"), ("U", "u")) for bits in (8, 16, 32, 64)},
    "Float32": np.dtype("f4"),
    "Float64": np.dtype("f8"),
}
"""pandas' nullable dtypes, and the numpy dtypes of their values."""

OBJECTS_WITH_NAN: Final = "object[NaN]"
"""A column of objects in which a missing value is NaN, as `read_csv` has it, and not None. pandas calls the dtype `object`."""

_OBJECTS: Final = ("object", OBJECTS_WITH_NAN)

_CATEGORY: Final = "category"

_DTYPES: Final = (*_MASKED, "string", "str", *_OBJECTS, _CATEGORY)

KNOWN_DTYPES: Final = f"one of {', '.join(_DTYPES)}, or datetime64[...]"
"""What a `pd_dtype` may be."""

COLUMN_CODECS: Final = (StringCodec, Base64Codec, DatetimeCodec, PandasJSONCodec)
"""The codecs whose content types a column has when it leaves."""

_READ_AS: Final[Mapping[str, tuple[str, ...]]] = {
    StringCodec.content_type: (StringCodec.content_type, PandasJSONCodec.content_type),
    PandasJSONCodec.content_type: (PandasJSONCodec.content_type, StringCodec.content_type),
}
"""The content types that a column of a declared one may have: texts with missing ones are `pd_json`, and without `str`."""

_MISSING: Final[Mapping[object, bytes]] = {PandasJSONCodec.content_type: b"null", DatetimeCodec.content_type: b"NaT"}
"""A missing value, for each content type that has one."""

_MISSABLE: Final = (*_MISSING, StringCodec.content_type, None)
"""The declared content types whose columns may have no value at all."""

_MOST_BYTES: Final = 2**16
"""The longest text of categories. A column of a few rows should not carry the thousands of categories of the table it was taken from."""

_MOST_CATEGORIES: Final = _MOST_BYTES // 2
"""No text holds more categories: each takes one byte at least, and a comma."""

_DATETIME: Final = re.compile(r"datetime64\[(?:s|ms|us|ns)(?:, ([A-Za-z0-9_+:/-]{1,50}))?\]")
_FIXED_ZONE: Final = re.compile("UTC|(?:UTC)?[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]")
"""UTC, or an offset with a colon, because pandas reads +0545 as 05:05."""


def is_pandas_3() -> bool:
    """Whether pandas is 3 or later: strings are of the dtype `str` by default, and dates need not be in nanoseconds."""
    import pandas as pd

    return not pd.__version__.startswith("2.")


def find_default_dtype(content_type: object) -> str | None:
    """The dtype of a column of this content type without `pd_dtype`. Strings are `object` in pandas 2 and `str` in pandas 3."""
    if content_type in (None, DatetimeCodec.content_type):
        return None
    return "str" if is_pandas_3() and content_type != Base64Codec.content_type else "object"


_list_zones: Final = cache(zoneinfo.available_timezones)


def _is_known(zone: str) -> bool:
    """Whether a zone is fixed, or zoneinfo knows it. No other may reach pandas, which lets dateutil open any file that a zone names."""
    return _FIXED_ZONE.fullmatch(zone) is not None or zone in _list_zones()


def holds_missing(tensor: Tensor, dtype: np.dtype[Any]) -> bool:
    """Whether a tensor is how a frame's nullable column of this dtype, or one of categories, is sent if values are missing."""
    parameters = tensor.parameters
    masked = _MASKED.get(str(parameters.get(DTYPE)))  # None is no dtype, but numpy takes it for that of floats
    is_nullable = parameters.get(DTYPE) == _CATEGORY if masked is None else masked == dtype
    return tensor.array.dtype.hasobject and is_nullable and parameters.get("content_type") == PandasJSONCodec.content_type


def write_objects(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """A column of numbers or booleans as JSON texts, if it is declared as one of objects, as it is with other values. One of NaN alone, as
    pandas has a column without any value, also if strings or dates are declared."""
    array = tensor.array
    if not spec.dtype.hasobject or array.ndim != 1 or array.dtype.hasobject or "content_type" in tensor.parameters:
        return tensor
    if array.dtype.kind == "f" and spec.content_type in _MISSABLE and np.isnan(array).all():
        return PandasJSONCodec.encode_input(tensor.name, [None] * len(array))
    return PandasJSONCodec.encode_input(tensor.name, array.tolist()) if spec.content_type == PandasJSONCodec.content_type else tensor


def explain_column(tensor: Tensor, spec: TensorSpec) -> str:
    """How a column gets the declared datatype, which it does not have."""
    if tensor.parameters.get("content_type") == PandasJSONCodec.content_type and spec.dtype.kind in "biu" and spec.pd_dtype is None:
        masked = next(name for name, dtype in _MASKED.items() if dtype == spec.dtype)
        return f'only a column that the model declares with pd_dtype="{masked}", as specs_of does for that dtype, may miss values'
    dtype = spec.pd_dtype
    if dtype in (None, "str", *_OBJECTS):  # `str` would write missing ones as texts, and objects are sent as what each of them is
        dtype = "string" if spec.dtype.hasobject else str(spec.dtype)
    if dtype == _CATEGORY:
        return f"in pandas, send a column of the categories {spec.pd_categories}"
    return f"in pandas, frame.astype({{{tensor.name!r}: {dtype!r}}}) makes it so"


def is_dtype(name: object) -> bool:
    return name in _DTYPES or (isinstance(name, str) and _DATETIME.fullmatch(name) is not None)


def is_nullable(dtype: object) -> bool:
    return str(dtype) in _MASKED


def has_declared_type(tensor: Tensor, spec: TensorSpec) -> bool:
    """True if a tensor has the declared content type, or the other one of texts, or if none is declared."""
    declared = spec.content_type
    return declared is None or tensor.parameters.get("content_type") in _READ_AS.get(declared, (declared,))


# Tensors -> columns


def apply_declaration(tensor: Tensor, spec: TensorSpec | None) -> Tensor:
    """Give a column of a request the parameters that are declared. Raises InvalidRequest if its values are of another kind."""
    if spec is None or not (spec.parameters or tensor.parameters):
        return tensor
    here, declared, sent = f"input {show(tensor.name)}", spec.content_type, tensor.parameters.get("content_type")
    array, parameters = tensor.array, spec.complete(tensor.parameters)
    readable = _READ_AS.get(str(declared), (str(declared),))
    is_another = sent is not None and declared is not None and sent != declared
    is_missing = is_another and sent in _MISSING and declared in _MISSABLE and all(text.strip() == _MISSING[sent] for text in array.ravel())
    if is_missing:
        # nothing shows what a column without any value is one of
        sent = str(declared if declared in _MISSING else PandasJSONCodec.content_type)
        array, parameters = np.full(array.shape, _MISSING[sent], object), {**parameters, "content_type": sent}
    elif is_another and not array.size:
        sent, parameters = declared, {**parameters, "content_type": str(declared)}
    if is_another and sent not in readable:
        raise InvalidRequest(
            f"{here} has the content_type {show(sent)}, but the model declares {show(declared)}: expected {' or '.join(readable)}, or none"
        )
    if sent == PandasJSONCodec.content_type and declared == StringCodec.content_type:
        for index, text in enumerate(() if is_missing else array.ravel()):
            if text.strip() != b"null" and text.strip()[:1] != b'"':
                raise InvalidRequest(f"{here}: element {index} is {show(text.strip())}: expected the JSON text of a string, or null")
        # nulls alone would not show that it is one of strings
        parameters = {DTYPE: str(find_default_dtype(declared)), **parameters}
    return make_tensor(tensor.name, array, parameters)


def read_series(tensor: Tensor, content_type: str | None, decoders: Mapping[str, Decode], spec: TensorSpec | None) -> pd.Series[Any]:
    """A tensor as a `pandas.Series` with its name and the declared dtype, read as `content_type`, or as its own if that is None."""
    import pandas as pd

    parameters = tensor.parameters if content_type is None else {**tensor.parameters, "content_type": content_type}
    column = apply_declaration(make_tensor(tensor.name, tensor.array, parameters), spec)
    return pd.Series(read_column(column, decoders), name=tensor.name, copy=True)


def read_column(tensor: Tensor, decoders: Mapping[str, Decode]) -> Any:
    """A tensor of shape `[N]` or `[N, 1]` as something that a frame takes as a column: an array or a `pandas.Series`."""
    content_type: Any = tensor.parameters.get("content_type")
    if content_type in decoders:
        column: Any = _decode_with(decoders[content_type], tensor, content_type)
    elif content_type in _COLUMNS:
        column = _COLUMNS[content_type](tensor)
    else:
        types = ", ".join([*filter(None, _COLUMNS), *decoders])
        raise InvalidRequest(f"column {show(tensor.name)} has the content_type {show(content_type)}: expected one of {types}")
    return _to_dtype(column, tensor, decoders) if DTYPE in tensor.parameters else column


def _decode_with(decode: Decode, tensor: Tensor, content_type: str) -> Any:
    rows, here = len(rows_of(tensor, "pd")), f"column {show(tensor.name)}"
    try:
        decoded = decode(tensor)
    except ValueError as error:
        raise InvalidRequest(f"{here} of the content_type {show(content_type)}: {error}") from error
    if not isinstance(decoded, Iterable):
        raise InvalidRequest(
            f"{here}: its content_type {show(content_type)} does not make a list of it: {type(decoded).__name__!r} object is not iterable"
        )
    values = list(decoded)
    if len(values) != rows:
        raise InvalidRequest(f"{here} has {rows} rows, but its content_type {show(content_type)} makes {len(values)} values of them")
    return _make_objects(values)


def _make_objects(values: list[Any]) -> Any:
    import pandas as pd

    return pd.Series(object_array(values, (len(values),)), dtype=object)


def _read_numbers(tensor: Tensor, content_type: str) -> Array:
    rows: Array = rows_of(tensor, content_type)
    # pandas can neither sort nor select a column of BF16; FP32 holds each of its values
    return rows.astype(np.float32) if tensor.datatype == "BF16" else rows


def _read_strings(tensor: Tensor) -> Any:
    import pandas as pd

    texts: list[Any] = StringCodec.decode_input(tensor)
    return pd.Series(texts, dtype="str") if is_pandas_3() else object_array(texts, (len(texts),))


def _read_json(tensor: Tensor) -> Any:
    import pandas as pd

    values = PandasJSONCodec.decode_input(tensor)
    dtype, classes = tensor.parameters.get(DTYPE), set(map(type, values))
    if dtype in _MASKED and classes <= {bool if dtype == "boolean" else int, NoneType}:
        try:
            return pd.Series(pd.array(values, dtype=dtype))  # type: ignore[call-overload]
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"column {show(tensor.name)} cannot be {dtype}, as its {DTYPE} says: {error}") from None
    return pd.Series(values) if values and dtype not in _OBJECTS and classes <= {str, NoneType} else _make_objects(values)


def _read_datetimes(tensor: Tensor) -> Any:
    """Dates in the unit that pandas would choose: nanoseconds in pandas 2 if they reach, else at least microseconds."""
    import pandas as pd

    points, are_zoned = read_points(tensor)
    if not is_pandas_3() and are_between(points, *NANOSECONDS):
        points = points.astype("M8[ns]")
    series: pd.Series[Any] = pd.Series(points)
    return series.dt.tz_localize("UTC") if are_zoned else series


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
    if not is_dtype(dtype):
        raise InvalidRequest(f"{here} has the {DTYPE} {show(dtype)}: expected {KNOWN_DTYPES}")
    if dtype == OBJECTS_WITH_NAN:
        column, dtype = _make_objects([np.nan if value is None else value for value in pd.Series(column).tolist()]), "object"
    dates = _DATETIME.fullmatch(dtype)
    zone = dates[1] if dates else None
    if zone is not None and not _is_known(zone):
        raise InvalidRequest(
            f"{cannot}: expected UTC, an offset such as UTC+02:00, or a name that Python's zoneinfo knows, such as Europe/Amsterdam"
        )
    series = pd.Series(column)
    if dtype == _CATEGORY and CATEGORIES in tensor.parameters:
        return _to_categories(series, tensor, decoders)
    if str(series.dtype) == dtype:
        return series
    if not _can_become(series, dtype):
        raise InvalidRequest(f"{cannot}: its values are {series.dtype}")
    try:
        if dates:
            _check_zone(series, zone)
        if zone is not None:
            series = _localize(series, zone)
        converted = series.astype(dtype)
        if dtype == "str":
            return converted.where(series.notna(), None)  # pandas 2 would write "None"
        if dates and ((converted != series) & series.notna()).any():
            raise ValueError("its values are finer than that")
    except (TypeError, ValueError, KeyError, ImportError, NotImplementedError, OverflowError) as error:
        raise InvalidRequest(f"{cannot}: {error}") from None
    return converted


def _can_become(series: pd.Series[Any], dtype: str) -> bool:
    """Whether a column of this dtype is sent as the values that came."""
    import pandas as pd

    if dtype in _MASKED:
        return bool(series.dtype == _MASKED[dtype])
    if dtype in ("str", "string"):
        return pd.api.types.infer_dtype(series, skipna=True) in ("string", "empty")
    return series.dtype.kind == "M" or not dtype.startswith("datetime64")


def _check_zone(series: pd.Series[Any], zone: object) -> None:
    """Refuse dates without an offset for a column with a time zone, and the opposite: which moment each is would be a guess."""
    has_zone = series.dt.tz is not None
    if has_zone and zone is None:
        raise ValueError("its dates have an offset from UTC, such as Z: send them without one, in the time zone that the model expects")
    if not has_zone and zone is not None and series.notna().any():
        raise ValueError(
            "its dates have no offset from UTC: send each with its own, such as 2026-01-31T09:30:00+01:00, or Z for UTC itself"
        )


def _localize(series: pd.Series[Any], zone: str) -> pd.Series[Any]:
    """Dates in UTC, after a check that they can be converted to a zone."""
    zoned = series.dt.tz_localize("UTC") if series.dt.tz is None else series
    points, day = zoned.dt.tz_localize(None).to_numpy(), np.timedelta64(1, "D")
    if zone != "UTC" and not (are_between(points - day, *CALENDAR) and are_between(points + day, *CALENDAR)):
        raise ValueError("some are too near to the ends of the years 1 to 9999 for a time zone")
    if not is_pandas_3() and not _FIXED_ZONE.fullmatch(zone) and (points < NANOSECONDS[0]).any():
        raise ValueError("some are before 1678, and pandas 2 has no time zones for them but UTC and fixed offsets")
    return zoned


class _Categories(msgspec.Struct, omit_defaults=True):
    datatype: str
    data: msgspec.Raw
    content_type: str | None = None
    dtype: str | None = None
    ordered: bool = False


def _read_categories(text: object, name: str) -> tuple[Tensor, bool]:
    """The categories that the parameter of a column describes, and whether they are ordered. Their values are not checked."""
    try:
        if not isinstance(text, str):
            raise ValueError("expected the text of a JSON object")
        described = msgspec.json.decode(text, type=_Categories)
        if described.dtype == _CATEGORY:
            raise ValueError("categories cannot have the dtype category")
        number = len(msgspec.json.decode(described.data, type=list[Any]))
        array = from_json(described.data, dtype_of(described.datatype), (number,))
    except (ValueError, msgspec.MsgspecError, RecursionError, InvalidRequest) as error:
        raise InvalidRequest(f"column {show(name)} has the {CATEGORIES} {show(text)}, which is not valid: {error}") from None
    parameters = {"content_type": described.content_type, DTYPE: described.dtype}
    return Tensor(name, array, {key: value for key, value in parameters.items() if value is not None}), described.ordered


def _to_categories(series: pd.Series[Any], tensor: Tensor, decoders: Mapping[str, Decode]) -> pd.Series[Any]:
    """Values as a column of the categories in `pd_categories`. Each value must be one of them."""
    import pandas as pd

    described, ordered = _read_categories(tensor.parameters[CATEGORIES], tensor.name)
    values = read_column(described, decoders)
    try:
        categories = pd.Index(values, dtype=values.dtype)
        if not categories.is_unique:
            raise ValueError("one of them is there twice")
        codes = _find_codes(series, categories)
        unknown = np.flatnonzero((codes < 0) & series.notna().to_numpy())
        if len(unknown):
            raise ValueError(f"row {unknown[0]} is {show(series.iloc[unknown[0]])}, which is not one of them")
        if (codes < 0).any() and categories.dtype == object and any(isinstance(each, (bytes, datetime)) for each in categories):
            raise ValueError("a value is missing, and categories of bytes, or of dates as objects, cannot be sent back with missing values")
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
    _check_zone(series, categories.tz)
    alike = series.astype(categories.dtype)  # with another unit or zone, pandas finds nothing, or raises
    return np.where((alike == series).to_numpy(), categories.get_indexer(alike), -1)


# Columns -> tensors


def column_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    dtype = str(series.dtype)
    if isinstance(series.dtype, np.dtype) and (series.dtype.kind in "biuf" or dtype == "bfloat16"):
        try:
            return Tensor(name, series.to_numpy())
        except TypeError as error:
            raise TypeError(f"column {name!r}: {error}") from None
    if dtype in ("str", "string", "object"):
        tensor = _write_objects(name, series)
        dtype = OBJECTS_WITH_NAN if misses_nan(series) else dtype
        is_clear = dtype == find_default_dtype(tensor.parameters.get("content_type")) and not (dtype == "str" and series.isna().all())
        return tensor if is_clear else _add_parameters(tensor, dtype)
    if dtype in _MASKED:
        return _add_parameters(_write_masked(name, series, _MASKED[dtype]), dtype)
    if dtype == _CATEGORY:
        return _write_categories(name, series)
    if dtype.startswith("datetime64["):
        return _add_parameters(_write_datetimes(name, series), _name_dates(series))
    own = to_own_dtype(series)
    if own is not series:
        return column_to_tensor(name, own)
    raise TypeError(f"column {name!r} has dtype {dtype}, for which the protocol has no form: convert it with astype, such as to str")


def to_own_dtype(series: pd.Series[Any]) -> pd.Series[Any]:
    """A column that is sparse, or that pyarrow keeps, with the dtype that numpy or pandas itself has for its values; others as they are."""
    import pandas as pd

    column, dtype = cast("Any", series), cast("Any", series.dtype)
    kind = type(dtype)
    if kind is pd.SparseDtype:
        return pd.Series(column.sparse.to_dense())
    if kind is not pd.ArrowDtype:
        return series
    if dtype.kind in "biu" and column.isna().any():
        masked = next(name for name, known in _MASKED.items() if known == dtype.numpy_dtype)
        return pd.Series(column.astype(masked).array)  # numpy has integers and booleans without missing ones
    values = column.array.__arrow_array__()
    return pd.Series(values.to_pylist(), dtype=object) if values.type.num_fields else pd.Series(values.to_pandas())


def misses_nan(series: pd.Series[Any]) -> bool:
    """Whether a column of objects has NaN, and nothing else, where a value is missing."""
    import pandas as pd

    values: Any = series.to_numpy() if series.dtype == object else np.empty(0)
    classes = set(map(type, values[pd.isna(values)]))
    return bool(classes) and all(issubclass(cls, float) for cls in classes)


def make_string_parameters(dtype: str) -> Parameters:
    """The parameters of a column of strings of the dtype with this name."""
    parameters: Parameters = {"content_type": StringCodec.content_type}
    return parameters if dtype == find_default_dtype(StringCodec.content_type) else {**parameters, DTYPE: dtype}


def _add_parameters(tensor: Tensor, dtype: str) -> Tensor:
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
    is_zoned = series.dt.tz is not None
    points = (series.dt.tz_convert("UTC").dt.tz_localize(None) if is_zoned else series).to_numpy()
    if not are_between(points, *CALENDAR):
        raise ValueError(f"column {name!r} has a date outside of the years 1 to 9999, the only ones of ISO 8601")
    missing = np.isnat(points)
    # the coarsest unit of those that isoformat() writes, as long as no digit is lost
    unit = next((unit for unit in ("s", "us") if ((points.astype(f"M8[{unit}]") == points) | missing).all()), "ns")
    texts = points.astype(f"M8[{unit}]").astype("S")
    if is_zoned:
        texts = np.where(missing, texts, np.strings.add(texts, b"+00:00"))
    return make_tensor(name, texts.astype(object), {"content_type": DatetimeCodec.content_type})


def _name_dates(series: pd.Series[Any]) -> str:
    """The name of a dtype of dates, for `pd_dtype`. For a zone whose name is not known, it has the offset, or UTC."""
    dtype: Any = series.dtype
    zone = series.dt.tz
    if zone is None:
        return str(dtype)
    offset = zone.utcoffset(None)
    names = [*([] if isinstance(zone, timezone) else [str(zone)]), *([] if offset is None else [str(timezone(offset))])]
    return f"datetime64[{dtype.unit}, {next(filter(_is_known, names), 'UTC')}]"


def _write_objects(name: str, series: pd.Series[Any]) -> Tensor:
    """Strings as `str`, bytes as `base64`, datetimes as `datetime`, floats as numbers, and mixed or missing values as `pd_json`."""
    values = series.tolist()
    classes = set(map(type, values))
    there = classes - {NoneType}
    if all(issubclass(cls, str) for cls in classes):
        return StringCodec.encode_input(name, list(map(str, values)))
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
    """A column of categories as its values, with the categories as a parameter: all, else those that a row has, if they fit."""
    import pandas as pd

    described = None
    if len(series.cat.categories) <= _MOST_CATEGORIES:
        described = _describe_categories(name, series)
    if described is None:
        series = series.cat.remove_unused_categories()
        described = _describe_categories(name, series)
    dtype = series.cat.categories.dtype
    # numpy has integers and booleans without missing ones
    values = series.astype(object if series.isna().any() and dtype.kind in "biu" and isinstance(dtype, np.dtype) else dtype)
    tensor = _write_json(name, series) if series.isna().all() else column_to_tensor(name, pd.Series(values))
    parameters = {key: value for key, value in tensor.parameters.items() if key == "content_type"}
    more = {} if described is None else {CATEGORIES: described}
    return make_tensor(name, tensor.array, {**parameters, **more, DTYPE: _CATEGORY})


def _describe_categories(name: str, series: pd.Series[Any]) -> str | None:
    """The text that describes the categories of a column; None if it is too long."""
    import pandas as pd

    categories = series.cat.categories
    tensor = column_to_tensor(f"the categories of {name}", pd.Series(categories, dtype=categories.dtype))
    hints: dict[str, Any] = {"content_type": tensor.parameters.get("content_type"), "dtype": tensor.parameters.get(DTYPE)}
    data = msgspec.Raw(msgspec.json.encode(to_value(tensor.array)))
    text = msgspec.json.encode(_Categories(tensor.datatype, data, **hints, ordered=bool(series.cat.ordered)))
    return text.decode() if len(text) <= _MOST_BYTES else None
