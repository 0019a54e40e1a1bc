"""Values of a Python caller, by name or as a data frame -> input tensors. Nothing is copied that is a tensor
already.

Numbers of Python become INT64, UINT64 or FP64, unless a declaration says what they become. Arrays keep their
dtype, and are refused if a model takes another one.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Mapping
from contextlib import suppress
from datetime import date, datetime
from types import NoneType
from typing import Any, Final

import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .._protocol.datatypes import NUMBERS, SEQUENCES, as_array, find_classes, to_wire_array, widen
from .._protocol.errors import InvalidRequest, ModelFault, show
from .._protocol.schemas import Parameters
from .._protocol.specs import TensorSpec
from .._protocol.tensors import Tensor, make_tensor, to_plain
from .base import AnyInputCodec
from .columns import column_to_tensor
from .content_types import Codecs
from .dataframes import is_foreign_frame, is_frame, is_series
from .entering import enter
from .rows import Rows, find_rows_of
from .torch import replace_torch

_UNENCODABLE: Final = (TypeError, ValueError, ModelFault, OverflowError, RecursionError)
"""What a codec raises if a value cannot be a tensor."""

_PLAIN: Final = (*SEQUENCES, range, bool, int, float, str, bytes, datetime, date, dict, NoneType)
"""What is no array by itself."""

_NO_NUMBERS: Final = (np.flexible, np.datetime64, np.timedelta64, np.object_)
"""The scalars of numpy that are none; but for numpy, durations are integers."""

_OWN: Final = frozenset(_PLAIN) - {*SEQUENCES, range}


def to_inputs(
    inputs: Any,
    specs: Mapping[str, TensorSpec],
    codecs: Codecs,
    columns: Container[str] = (),
    may_be_null: Container[str] = (),
) -> tuple[list[Tensor], Parameters]:
    """The input tensors of values by name, or of a value that a request codec encodes, with the parameters
    that this codec adds.

    Lists for `columns` of a data frame or of rows may hold None, as `generate` takes null there. Those that
    `may_be_null` are left out if they are.
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
        # a user's codec may have made them: a model gets tensors of ours
        return [
            Tensor(tensor.name, tensor.array, tensor.parameters) for tensor in request.inputs
        ], request.parameters
    if not isinstance(inputs, Mapping):
        raise InvalidRequest(
            f"the inputs are {show(inputs)}: expected values by name, such as {{'x': array}}, or a data frame"
        )
    tensors: list[Tensor] = []
    for name, value in inputs.items():
        if not isinstance(name, str):
            raise InvalidRequest(f"an input is called {show(name)}: expected a string")
        if type(value) is ndarray and value.dtype in NUMBERS:  # as nearly always
            tensors.append(Tensor(to_plain(name), value))
            continue
        if value is None and name in may_be_null:
            continue
        if type(value) is not ndarray and (is_frame(value) or is_foreign_frame(value)):
            raise InvalidRequest(
                f"input {show(name)} is a data frame, whose columns are inputs: give it alone, not by a name"
            )
        key, spec = to_plain(name), specs.get(name)
        try:
            tensors.append(_encode_value(key, value, spec, codecs, is_column=name in columns))
        except _UNENCODABLE as error:
            text = "it is nested too deep" if isinstance(error, RecursionError) else f"{error}"
            # some codecs begin with the name of the tensor
            raise InvalidRequest(f"input {show(key)}: {text.removeprefix(f'tensor {key!r}: ')}") from error
    return tensors, {}


def _encode_value(
    name: str, value: Any, spec: TensorSpec | None, codecs: Codecs, *, is_column: bool
) -> Tensor:
    if isinstance(value, Tensor):
        return Tensor(name, value.array, dict(value.parameters))
    if not isinstance(value, ndarray):
        if is_series(value):
            return column_to_tensor(name, value)
        value = replace_torch(value)
    if not isinstance(value, (ndarray, np.generic)):
        codec = _find_codec(value, spec, codecs)
        if codec is not None:
            return codec.encode_input(name, value)
        value = _convert_value(value, spec)
    if isinstance(value, (ndarray, np.generic)):
        found = np.atleast_1d(value) if isinstance(value, np.generic) else as_array(value)
        # objects and dates that are no tensor by themselves are read as a list is
        with suppress(*((TypeError,) if found.dtype.kind in "OM" else ())):
            return make_tensor(name, to_wire_array(found), {})
        value = _unwrap(found)
    return enter(name, value, spec, is_json=False, is_column=is_column)


def _find_codec(value: Any, spec: TensorSpec | None, codecs: Codecs) -> AnyInputCodec | None:
    """The codec of the user that makes a tensor of a value."""
    if spec is None or spec.content_type is None or spec.content_type == "np":
        return codecs.users_codec_for_value(value)
    return codecs.inputs[spec.content_type] if codecs.is_users(spec.content_type) else None


def _convert_value(value: Any, spec: TensorSpec | None) -> Any:
    """A value of Python's own classes, or a list of them; or the array that numpy makes of what it knows, if
    a model may get that."""
    if isinstance(value, _PLAIN):
        if type(value) is list and _OWN.issuperset(map(type, value)):
            return value
        if isinstance(value, SEQUENCES):
            value = [
                np.asarray(each)
                if isinstance(each, array) or (isinstance(each, memoryview) and each.format != "B")
                else each
                for each in value
            ]
        classes = find_classes(value)
        are_numbers = all(
            issubclass(each, np.generic) and not issubclass(each, _NO_NUMBERS) for each in classes
        )
        if (
            not are_numbers
            or (spec is not None and spec.dtype.hasobject)
            or (np.bool_ in classes and len(classes) > 1)
        ):
            return _unwrap(value)
    found = np.atleast_1d(as_array(value))
    if spec is None or spec.takes(found.dtype) or found.dtype.kind not in "biufV" or spec.dtype.hasobject:
        return found
    return widen(found).tolist() if found.size else found.astype(spec.dtype)


def _unwrap(value: Any) -> Any:
    """A value, or what a list holds, as one of Python's own classes."""
    if isinstance(value, (*SEQUENCES, range)):
        return (
            value if type(value) is list and _OWN.issuperset(map(type, value)) else list(map(_unwrap, value))
        )
    if isinstance(value, np.generic) and not isinstance(value, _NO_NUMBERS):
        return value.item()
    if isinstance(value, np.datetime64):
        moment = value.astype("M8[us]")
        return moment.item() if moment == value or np.isnat(value) else value
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        array = np.asarray(value)
        return list(map(_unwrap, array)) if array.ndim else _unwrap(array[()])
    of = next(
        (each for each in (bytes, bytearray, memoryview, str, bool, int, float) if isinstance(value, each)),
        type(value),
    )
    if of in (bytes, bytearray, memoryview):
        return bytes(value)
    return value if type(value) is of else str.__str__(value) if of is str else of(value)
