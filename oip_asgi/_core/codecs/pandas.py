"""The content types `pd` and `pd_json`: requests and responses as data frames, one tensor for each column.

pandas is imported where a frame is made or taken apart, never before. Works on whole columns: no Python code runs for each cell but
where a column holds Python objects.

Specification: Content Types, Pandas DataFrame; NaN values.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np

from ..datatypes import Array
from ..errors import InvalidRequest, shown
from ..tensors import InferenceRequest, InferenceResponse, Tensor, object_array
from .base import InputCodec, RequestCodec, bytes_of, decode_elements, rows_of
from .base64 import Base64Codec
from .datetime import DATE, LOCAL_DATES, ZONED_DATES, DatetimeCodec, from_text
from .string import StringCodec

if TYPE_CHECKING:
    import pandas as pd

Decode: TypeAlias = Callable[[Tensor], Any]

_DEEPEST: Final = 100
"""How deep JSON in a column may nest: a model that gets it must be able to copy, compare and return it."""

_FIRST_YEAR: Final = np.datetime64("0001", "Y")
_LAST_YEAR: Final = np.datetime64("9999", "Y")

DTYPE: Final = "pd_dtype"
"""Parameter of a column whose dtype its values do not tell. MLServer's clients neither write nor mind it."""

_MASKED: Final = {
    "boolean": np.dtype("?"),
    **{f"{sign}Int{bits}": np.dtype(f"{kind}{bits // 8}") for sign, kind in (("", "i"), ("U", "u")) for bits in (8, 16, 32, 64)},
    "Float32": np.dtype("f4"),
    "Float64": np.dtype("f8"),
}
"""pandas' nullable dtypes, and numpy's for their values."""

_HINTS: Final = (*_MASKED, "string", "str", "object", "category")
_DATETIME: Final = re.compile(r"datetime64\[(s|ms|us|ns)(, [A-Za-z0-9_+:/-]{1,50})?\]")


class PandasJSONCodec(InputCodec[list[Any]]):
    """Lists of any Python values that JSON has, each as its own JSON text: what MLServer writes for columns of mixed objects."""

    content_type = "pd_json"
    datatype = "BYTES"
    needs_pandas = True

    @classmethod
    def encode_input(cls, name: str, payload: list[Any], use_bytes: bool = True) -> Tensor:
        return Tensor(name, object_array(_to_json_texts(payload, name), (len(payload),)), {"content_type": cls.content_type})

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[Any]:
        return decode_elements(request_input, _from_json_text, cls.content_type, "JSON")


class PandasCodec(RequestCodec["pd.DataFrame"]):
    """Data frames: a tensor for each column, of shape `[N]`. The index stays behind, as on MLServer.

    Columns of numbers are tensors of their datatype, NaN and all; strings are `str`, bytes `base64`, points in time `datetime`, and
    everything else, missing values too, `pd_json`. Column names that are integers become strings.
    """

    content_type = "pd"
    needs_pandas = True

    @classmethod
    def yields(cls, annotation: Any) -> bool:
        return is_frame_class(annotation)

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_frame(payload)

    @classmethod
    def encode_request(cls, payload: pd.DataFrame, use_bytes: bool = True) -> InferenceRequest:
        return InferenceRequest(cls.encode_outputs(payload, use_bytes), parameters={"content_type": cls.content_type})

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> pd.DataFrame:
        return frame_of(request.inputs, request.decoders)

    @classmethod
    def encode_response(
        cls, model_name: str, payload: pd.DataFrame, model_version: str | None = None, use_bytes: bool = True
    ) -> InferenceResponse:
        outputs = cls.encode_outputs(payload, use_bytes)
        return InferenceResponse(outputs, {"content_type": cls.content_type}, model_name=model_name, model_version=model_version)

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> pd.DataFrame:
        return frame_of(response.outputs, {})

    @classmethod
    def encode_outputs(cls, payload: pd.DataFrame, use_bytes: bool = True) -> list[Tensor]:
        """The columns of a frame as tensors; the arguments are those of `encode_request`."""
        return [column_to_tensor(name, series) for name, series in columns_of(payload)]

    @classmethod
    def take_out(cls, payload: pd.DataFrame, names: Collection[str]) -> tuple[pd.DataFrame, dict[str, Any]]:
        if not names:
            return payload, {}
        taken = {name: series for name, series in columns_of(payload) if name in names}
        return payload[[label for label in payload if str(label) not in taken]], taken


def is_frame_class(annotation: object) -> bool:
    """Whether something is `pandas.DataFrame`, without importing pandas to see."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and annotation is pandas.DataFrame


def is_series_class(annotation: object) -> bool:
    """Whether something is `pandas.Series`, without importing pandas to see."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and annotation is pandas.Series


def is_frame(value: object) -> bool:
    """Whether a value is a `pandas.DataFrame` or of a subclass, without importing pandas to see."""
    return any(map(is_frame_class, type(value).__mro__))


def is_series(value: object) -> bool:
    """Whether a value is a `pandas.Series` or of a subclass, without importing pandas to see."""
    return any(map(is_series_class, type(value).__mro__))


def columns_of(frame: pd.DataFrame) -> list[tuple[str, pd.Series[Any]]]:
    """A frame's columns under the names that their tensors have.

    Raises:
        TypeError: It is no frame, or a name is neither a string nor an integer.
        ValueError: Two columns have the same name.
    """
    if not is_frame(frame):
        raise TypeError(f"the content_type 'pd' is for a pandas.DataFrame, and this is {shown(frame)}")
    columns: list[tuple[str, pd.Series[Any]]] = []
    seen: set[str] = set()
    for label, series in frame.items():
        if not isinstance(label, (str, int, np.integer)):
            raise TypeError(f"column {label!r} is neither called by a string nor by an integer, so no tensor can have its name: rename it")
        name = str(label)
        if name in seen:
            raise ValueError(f"column {name!r} is there twice, and each tensor needs a name of its own: rename it")
        seen.add(name)
        columns.append((name, series))
    return columns


def column_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """A column as a tensor of shape `[N]`.

    Args:
        name: The tensor's name.
        series: The column.

    Raises:
        TypeError: The column's dtype, or an element, has no form in the protocol; the text names column and row.
    """
    dtype = str(series.dtype)
    kind = getattr(series.dtype, "kind", "O")
    if dtype == "category":
        plain = series.astype(object) if series.isna().any() else series.astype(series.cat.categories.dtype)
        return _hinted(column_to_tensor(name, plain), dtype)
    if dtype in _MASKED:
        return _hinted(_masked_to_tensor(name, series, _MASKED[dtype]), dtype)
    if isinstance(series.dtype, np.dtype) and kind in "biuf":
        try:
            return Tensor(name, series.to_numpy())
        except TypeError as error:
            raise TypeError(f"column {name!r}: {error}") from None
    if kind == "M" and _DATETIME.fullmatch(dtype):
        return _hinted(_datetimes_to_tensor(name, series), dtype)
    if dtype in ("str", "string", "object"):
        tensor = _objects_to_tensor(name, series)
        return tensor if dtype == _untold_dtype(tensor.parameters["content_type"]) else _hinted(tensor, dtype)
    raise TypeError(f"column {name!r} has dtype {dtype}, which the protocol has no form for: convert it with astype, such as to str")


def _hinted(tensor: Tensor, dtype: str) -> Tensor:
    return Tensor(tensor.name, tensor.array, {**tensor.parameters, DTYPE: dtype})


def _untold_dtype(content_type: object) -> str | None:
    """What a column of this content type is when nobody says; strings are `object` in pandas 2, `str` in pandas 3."""
    import pandas as pd

    if content_type == Base64Codec.content_type:
        return "object"
    return None if content_type == DatetimeCodec.content_type else str(pd.Series(["text"]).dtype)


def _masked_to_tensor(name: str, series: pd.Series[Any], dtype: np.dtype[Any]) -> Tensor:
    if dtype.kind == "f":
        return Tensor(name, series.to_numpy(dtype, na_value=np.nan))
    missing = series.isna().to_numpy()
    if missing.any():
        return PandasJSONCodec.encode_input(name, [None if gone else value for value, gone in zip(series.tolist(), missing, strict=True)])
    return Tensor(name, series.to_numpy(dtype))


def _datetimes_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    zoned = getattr(series.dtype, "tz", None) is not None
    points = (series.dt.tz_convert("UTC").dt.tz_localize(None) if zoned else series).to_numpy()
    there = points[~np.isnat(points)]
    years = there.astype("M8[Y]")
    if ((years < _FIRST_YEAR) | (years > _LAST_YEAR)).any():
        raise ValueError(f"column {name!r} has a date outside of the years 1 to 9999, which are those of ISO 8601")
    # the coarsest unit that isoformat() has and that loses nothing
    unit = next((unit for unit in ("s", "us") if (there.astype(f"M8[{unit}]") == there).all()), "ns")
    texts = np.datetime_as_string(points, unit=unit)  # type: ignore[call-overload]
    # dates are ASCII, so their code points are their bytes; numpy's own conversion takes a hundred times as long
    ascii_texts = texts.view(np.uint32).astype(np.uint8).view(f"S{texts.itemsize // 4}")
    if zoned:
        ascii_texts = np.where(np.isnat(points), ascii_texts, np.strings.add(ascii_texts, b"+00:00"))
    return Tensor(name, ascii_texts.astype(object), {"content_type": DatetimeCodec.content_type})


def _objects_to_tensor(name: str, series: pd.Series[Any]) -> Tensor:
    """Strings as `str`, bytes as `base64`, datetimes as `datetime`; what is mixed or missing as `pd_json`."""
    values = series.tolist()
    classes = set(map(type, values))
    if classes <= {str}:
        codec: type[InputCodec[Any]] = StringCodec
    elif classes == {bytes}:
        codec = Base64Codec
    elif DatetimeCodec.can_encode(values) and not series.isna().any():
        codec = DatetimeCodec
    else:
        missing = series.isna().to_numpy()
        if missing.any():
            values = [None if gone else value for value, gone in zip(values, missing, strict=True)]
        return PandasJSONCodec.encode_input(name, values)
    tensor = codec.encode_input(name, values)
    return Tensor(name, tensor.array.reshape(-1), tensor.parameters)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def _to_json_texts(values: Sequence[Any], name: str) -> list[bytes]:
    if set(map(type, values)) <= {str, int, bool, type(None)}:
        with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate, whose row the slow way names
            return list(map(_encode, values))
    texts: list[bytes] = []
    for row, value in enumerate(values):
        try:
            texts.append(json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False).encode())
        except RecursionError:
            raise TypeError(f"column {name!r}, row {row} is nested too deep for JSON") from None
        except (TypeError, ValueError) as error:
            raise TypeError(f"column {name!r}, row {row} is {shown(value)}, which has no JSON form: {error}") from None
    return texts


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON type")


def _from_json_text(text: bytes) -> Any:
    try:
        value = _decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    if text.count(b"[") + text.count(b"{") > _DEEPEST and _is_deep(value):
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST + 1):
        insides = [outer.values() if isinstance(outer, dict) else outer for outer in level if isinstance(outer, (list, dict))]
        level = [inner for inside in insides for inner in inside]
        if not level:
            return False
    return True


def frame_of(tensors: Sequence[Tensor], others: Mapping[str, Decode]) -> pd.DataFrame:
    """Tensors as the columns of a frame.

    Args:
        tensors: Each of shape `[N]` or `[N, 1]`, with the same N.
        others: How to decode content types that this module does not know, each to a sequence of N values.

    Raises:
        InvalidRequest: A tensor is no column, two have the same name, or their numbers of rows differ.
    """
    import pandas as pd

    columns: dict[str, Any] = {}
    rows = -1
    for tensor in tensors:
        name = tensor.name
        if name in columns:
            raise InvalidRequest(f"column {shown(name)} is there twice: expected each name once")
        columns[name] = column = column_of(tensor, tensor.parameters.get("content_type"), others)
        if rows not in (-1, len(column)):
            raise InvalidRequest(f"column {shown(name)} has {len(column)} rows, but those before it have {rows}: expected as many in each")
        rows = len(column)
    return pd.DataFrame(columns)


def series_of(tensor: Tensor, content_type: Any, others: Mapping[str, Decode]) -> pd.Series[Any]:
    """A tensor as one `pandas.Series` of its name; the arguments are those of `column_of`."""
    import pandas as pd

    return pd.Series(column_of(tensor, content_type, others), name=tensor.name, copy=True)


def column_of(tensor: Tensor, content_type: Any, others: Mapping[str, Decode]) -> Any:
    """A tensor as what a frame takes as a column: an array or a `pandas.Series`.

    Args:
        tensor: Of shape `[N]` or `[N, 1]`.
        content_type: Its content type; None for what its datatype says, with BYTES as strings.
        others: As in `frame_of`.

    Raises:
        InvalidRequest: The tensor is no column, or does not hold what its content type says.
    """
    decode = others.get(content_type)
    if decode is not None:
        column: Any = _of_user(tensor, decode, content_type)
    elif content_type is None:
        column = _strings(tensor) if tensor.datatype == "BYTES" else rows_of(tensor, "pd")
    elif content_type in _COLUMNS:
        column = _COLUMNS[content_type](tensor)
    else:
        known = ", ".join([*_COLUMNS, *others])
        raise InvalidRequest(f"column {shown(tensor.name)} has the content_type {shown(content_type)}: expected one of {known}")
    hint = tensor.parameters.get(DTYPE)
    return column if hint is None else _as_hinted(column, hint, tensor.name)


def _of_user(tensor: Tensor, decode: Decode, content_type: str) -> Any:
    rows = rows_of(tensor, "pd").shape[0]
    try:
        values = list(decode(tensor))
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"column {shown(tensor.name)} of the content_type {shown(content_type)}: {error}") from error
    if len(values) != rows:
        raise InvalidRequest(
            f"column {shown(tensor.name)} has {rows} rows, but its content_type {shown(content_type)} makes {len(values)} values of them"
        )
    return _objects(values)


def _objects(values: list[Any]) -> Any:
    import pandas as pd

    return pd.Series(object_array(values, (len(values),)), dtype=object)


def _raw(tensor: Tensor) -> Any:
    return _objects(bytes_of(tensor, "np")) if tensor.datatype == "BYTES" else rows_of(tensor, "np")


def _strings(tensor: Tensor) -> Any:
    import pandas as pd

    return pd.Series(StringCodec.decode_input(tensor), dtype="str")


def _from_base64(tensor: Tensor) -> Any:
    return _objects(Base64Codec.decode_input(tensor))


def _from_json(tensor: Tensor) -> Any:
    import pandas as pd

    values = PandasJSONCodec.decode_input(tensor)
    hint = tensor.parameters.get(DTYPE)
    if hint in _MASKED and set(map(type, values)) <= {bool if hint == "boolean" else int, type(None)}:
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
    is_zoned = _are_zoned(elements, tensor.name)
    texts = [element.decode() for element in elements]
    parsed = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", errors="coerce", utc=True)
    if any(elements[place] != b"NaT" for place in np.flatnonzero(parsed.isna())):
        parsed = pd.Series(pd.DatetimeIndex(_microseconds(elements, tensor.name)).tz_localize("UTC"))
    return parsed if is_zoned else parsed.dt.tz_localize(None)


def _are_zoned(elements: list[bytes], name: str) -> bool:
    """Whether dates have an offset from UTC, which is all of them or none.

    Raises:
        InvalidRequest: One of them is no date, or some have an offset and others have none.
    """
    lines = b"".join([element + b"\n" for element in elements])
    if lines.count(b"\n") == len(elements):
        if LOCAL_DATES.fullmatch(lines):
            return False
        if ZONED_DATES.fullmatch(lines):
            return True
    for place, element in enumerate(elements):
        if element != b"NaT" and DATE.fullmatch(element) is None:
            raise _no_date(name, place, elements, "an ISO 8601 date and time")
    place = next(place for place, element in enumerate(elements) if ZONED_DATES.fullmatch(element + b"\n") is None)
    raise _no_date(name, place, elements, "a date and time with an offset from UTC, as others of the column are")


def _microseconds(elements: list[bytes], name: str) -> Array:
    """Points in time in UTC, one by one: pandas 2 reads nanoseconds only, so 1677 to 2262, and no offsets with seconds."""
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
        f"tensor {shown(name)}: element {place} is {shown(elements[place])}, which is not {expected} as the content_type 'datetime' wants"
    )


_COLUMNS: Final[Mapping[str, Decode]] = {
    "np": _raw,
    "str": _strings,
    "base64": _from_base64,
    "datetime": _datetimes,
    "pd_json": _from_json,
}


def _as_hinted(column: Any, hint: Any, name: str) -> Any:
    """A column with the dtype that its `pd_dtype` says, which must be one that holds just the values that are there."""
    import pandas as pd

    if hint not in _HINTS and not (isinstance(hint, str) and _DATETIME.fullmatch(hint)):
        raise InvalidRequest(f"column {shown(name)} has the {DTYPE} {shown(hint)}: expected one of {', '.join(_HINTS)}, or datetime64[...]")
    series = pd.Series(column)
    if str(series.dtype) == hint:
        return series
    if not _is_form_of(series, hint):
        raise InvalidRequest(f"column {shown(name)} cannot be {hint}, as its {DTYPE} says: its values are {series.dtype}")
    try:
        if ", " in hint and series.dt.tz is None:
            series = series.dt.tz_localize("UTC")
        hinted = series.astype(hint)
        if hint == "str":
            hinted = hinted.where(series.notna(), None)  # pandas 2 would write "None"
    except (TypeError, ValueError, KeyError, ImportError, NotImplementedError) as error:
        raise InvalidRequest(f"column {shown(name)} cannot be {hint}, as its {DTYPE} says: {error}") from None
    if hint.startswith("datetime64") and ((hinted != series) & series.notna()).any():
        raise InvalidRequest(f"column {shown(name)} cannot be {hint}, as its {DTYPE} says: its values are finer than that")
    return hinted


def _is_form_of(series: pd.Series[Any], hint: str) -> bool:
    """Whether a column as it came is how one of dtype `hint` is sent."""
    import pandas as pd

    if hint in _MASKED:
        return bool(series.dtype == _MASKED[hint])
    if hint in ("str", "string"):
        return pd.api.types.infer_dtype(series, skipna=True) in ("string", "empty")
    return series.dtype.kind == "M" if hint.startswith("datetime64") else True
