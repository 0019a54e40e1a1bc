"""Values of a Python caller, by name or as a data frame -> input tensors. Nothing is copied that is a tensor already.

Numbers become INT64, UINT64 or FP64, unless a declaration says what they become.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import date, datetime
from types import NoneType
from typing import Any, Final

import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .._protocol.datatypes import FIRST_ROUNDED, FLOATING, NUMBERS, Array, cast, find_overflow, make_integer_array
from .._protocol.errors import InvalidRequest, ModelFault, show
from .._protocol.schemas import Parameters
from .._protocol.specs import TensorSpec
from .._protocol.tensors import Tensor, make_tensor, to_plain
from .._protocol.to_array import as_array, check_exact, to_wire_array
from .base import AnyInputCodec
from .column_writing import column_to_tensor
from .content_types import Codecs
from .dataframes import is_foreign_frame, is_frame, is_series
from .dates import NO_DATE, DatetimeCodec
from .plain import PandasJSONCodec, StringCodec
from .rows import Rows, find_rows_of
from .torch import replace_torch

_UNENCODABLE: Final = (TypeError, ValueError, ModelFault, OverflowError)
"""What a codec raises if a value cannot be a tensor."""

_HAVE_STAND_IN: Final = (None, "str", "datetime")
"""Content types in whose columns something stands for what is missing."""

_MISSING: Final = (
    '; for a missing value in a column of a data frame, write pandas.Series(["a", None]), or pandas.Series([1, None], dtype="Int64")'
)

_DATES: Final = "; for dates, write a list of datetime.datetime; or a pandas.Series of them, in which some may be missing"


def to_inputs(
    inputs: Any,
    specs: Mapping[str, TensorSpec],
    codecs: Codecs,
    columns: Container[str] = (),
    lists: Mapping[str, Callable[..., Tensor]] | None = None,
) -> tuple[list[Tensor], Parameters]:
    """The input tensors of values by name, or of a value that a request codec encodes, with the parameters that this codec adds.

    Lists for `columns` of a data frame or of rows may hold None, as `generate` takes null there. `lists` write lists of lists.
    """
    try:
        is_plain = type(inputs) is dict and not codecs.are_extended  # as nearly always
        whole = None if is_plain else codecs.request_codec_for_value(inputs) or find_rows_of(inputs)
    except TypeError as error:  # a class whose fields are no columns
        raise InvalidRequest(f"inputs: {error}") from None
    if whole is not None:
        try:
            request = whole.encode_request(inputs)
        except _UNENCODABLE as error:
            raise InvalidRequest(str(error) if isinstance(whole, Rows) else f"inputs: {error}") from error
        # whose codec may be a user's
        return [Tensor(tensor.name, tensor.array, tensor.parameters) for tensor in request.inputs], request.parameters
    if not isinstance(inputs, Mapping):
        raise InvalidRequest(f"the inputs are {show(inputs)}: expected values by name, such as {{'x': array}}, or a data frame")
    tensors: list[Tensor] = []
    for name, value in inputs.items():
        if not isinstance(name, str):
            raise InvalidRequest(f"an input is called {show(name)}: expected a string")
        if type(value) is ndarray and value.dtype in NUMBERS:  # as nearly always
            tensors.append(Tensor(to_plain(name), value))
            continue
        if type(value) is not ndarray and (is_frame(value) or is_foreign_frame(value)):
            raise InvalidRequest(f"input {show(name)} is a data frame, whose columns are inputs: give it alone, not by a name")
        spec = specs.get(name)
        spec = None if spec is not None and spec.other_datatypes == "all" else spec
        encode = _encode_column if name in columns and isinstance(value, (list, tuple)) else _encode_value
        if lists and name in lists and type(value) is list and {*map(type, value)} == {list}:
            encode = lists[name]
        tensors.append(_make_tensor(encode, to_plain(name), value, spec, codecs))
    return tensors, {}


def _make_tensor(encode: Callable[..., Tensor], name: str, value: Any, spec: TensorSpec | None, codecs: Codecs) -> Tensor:
    try:
        return encode(name, value, spec, codecs)
    except _UNENCODABLE as error:
        text = str(error).removeprefix(f"tensor {name!r}: ")  # a codec says which one too
        raise InvalidRequest(f"input {show(name)}: {text}{_suggest_value(value, spec)}") from error


def _encode_column(name: str, values: Sequence[Any], spec: TensorSpec | None, codecs: Codecs) -> Tensor:
    """A list for a column. What is there has to be what a list without None has to be; then each None becomes what stands for it."""
    is_there = [each is not None for each in values]
    if all(is_there) or not _has_stand_in(values, spec):
        return _encode_value(name, values, spec, codecs)
    there = _encode_value(name, [each for each in values if each is not None], spec, codecs)
    if spec is not None and not spec.takes(there.array.dtype):
        return there  # refused later, as it is without None
    if there.array.ndim != 1 or there.parameters.get("content_type") not in _HAVE_STAND_IN:
        return _encode_value(name, values, spec, codecs)
    if there.parameters.get("content_type") == DatetimeCodec.content_type:
        elements = np.full(len(values), NO_DATE, object)
        elements[is_there] = there.array
        return make_tensor(name, elements, there.parameters)
    found = iter(StringCodec.decode_input(there) if there.array.dtype.hasobject else there.array.tolist())
    return PandasJSONCodec.encode_input(name, [next(found) if is_one else None for is_one in is_there])


def _has_stand_in(values: Sequence[Any], spec: TensorSpec | None) -> bool:
    """Whether None has a form of its own among such values; if not, it is NaN among numbers, null in JSON, or refused."""
    if spec is None:
        return not _are_numbers(values)
    may_miss = spec.content_type in _HAVE_STAND_IN and spec.datatype not in FLOATING
    return may_miss and (spec.datatype == "BYTES" or spec.pd_dtype is not None)


def _encode_value(name: str, value: Any, spec: TensorSpec | None, codecs: Codecs) -> Tensor:
    if isinstance(value, Tensor):
        return Tensor(name, value.array, dict(value.parameters))
    if not isinstance(value, np.ndarray):
        if is_series(value):
            return column_to_tensor(name, value)
        value = replace_torch(value)
        codec = None if isinstance(value, np.ndarray) else _find_codec(value, spec, codecs)
        if codec is not None:
            return codec.encode_input(name, value)
    array = _make_array(value, spec)
    if not isinstance(value, (np.ndarray, np.generic)) and spec is not None and array.dtype != spec.dtype:
        array = _cast_numbers(name, array, spec)
    return make_tensor(name, array, {})


def _find_codec(value: Any, spec: TensorSpec | None, codecs: Codecs) -> AnyInputCodec | None:
    if spec is not None and spec.content_type not in (None, "np"):
        return codecs.inputs[str(spec.content_type)]
    return codecs.tensor_codec_for_value(value)


def _make_array(value: Any, spec: TensorSpec | None) -> Array:
    array = as_array(value, None if spec is None or spec.other_datatypes else spec.dtype, takes_mixed=False)  # as JSON has it
    if array.ndim and array.dtype.hasobject and (spec is None or spec.datatype in FLOATING):
        elements = array.ravel().tolist()
        if _are_numbers(elements) or (spec is not None and array.size and all(each is None for each in elements)):
            array = array.astype(np.float64)  # None becomes NaN, as null in JSON
            if spec is None:
                check_exact(elements)
    array = to_wire_array(array)
    return array.reshape(1) if array.ndim == 0 and not isinstance(value, np.ndarray) else array


def _are_numbers(elements: Sequence[Any]) -> bool:
    """Whether they are numbers, beside which may be None."""
    kinds = set(map(type, elements)) - {NoneType}
    return bool(kinds) and all(issubclass(kind, (int, float, np.integer, np.floating)) and kind is not bool for kind in kinds)


def _cast_numbers(name: str, array: Array, spec: TensorSpec) -> Array:
    """Convert numbers from a list to the declared datatype. Return other values as they are: they are refused later."""
    dtype, kind = spec.dtype, array.dtype.kind
    if dtype.kind in "iu" and kind == "f" and np.isnan(array).any():
        raise InvalidRequest(f"input {show(name)} holds nan, which {spec.datatype} does not have{_MISSING}")
    if array.size == 0:
        return array.astype(dtype)
    if dtype.kind in "iu" and kind in "iu":
        return make_integer_array(array.ravel().tolist(), dtype, f"input {show(name)}").reshape(array.shape)
    if spec.datatype in FLOATING and kind in "iuf":
        converted = cast(array, dtype)
        if kind in "iu" and spec.takes(array.dtype) and (np.abs(converted) >= FIRST_ROUNDED).any():
            return array  # floats would round them
        if find_overflow(array, converted).any():
            raise InvalidRequest(f"input {show(name)} has values that are out of range for {spec.datatype}")
        return converted
    return array


def _suggest_value(value: Any, spec: TensorSpec | None) -> str:
    """Say what to write for a list or an array of dates, or with a missing value."""
    elements = value.ravel() if isinstance(value, np.ndarray) else value if isinstance(value, (list, tuple)) else [value]
    kinds = set(map(type, elements))
    if kinds & {date, np.datetime64} or (NoneType in kinds and (datetime in kinds or (spec and spec.content_type == "datetime"))):
        return _DATES
    if NoneType not in kinds and kinds != {str, float}:  # such a float is NaN
        return ""
    return '; for a missing number, write float("nan")' if spec and spec.datatype in FLOATING else _MISSING
