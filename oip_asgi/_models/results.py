"""The result of a model -> output tensors, checked against the declared outputs. Knows no wire formats.

A list becomes what numpy makes of it, and texts become bytes, by `to_wire_array` of `_protocol.to_array`; or
what a codec makes. Whether it leaves as `[N]` or `[N, 1]` is decided by `_protocol.column_shape`, and by the
codec `np` in `_codecs.plain`. A result that is wrong is the model's fault: it raises `ModelFault`, whose text
is for the log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .._codecs.base import AnyInputCodec
from .._codecs.column_categories import CATEGORIES
from .._codecs.column_dtypes import COLUMN_CODECS, DTYPE, has_declared_type, holds_missing
from .._codecs.column_writing import column_to_tensor
from .._codecs.content_types import Codecs
from .._codecs.dataframes import PandasCodec, is_series
from .._codecs.rows import Rows
from .._codecs.torch import replace_torch
from .._protocol.datatypes import Array, DType, cast, find_overflow
from .._protocol.errors import InferenceError, InvalidRequest, ModelFault, list_names, show
from .._protocol.schemas import RequestOutput
from .._protocol.specs import TensorSpec
from .._protocol.tensor_bytes import count
from .._protocol.tensors import InferenceResponse, Tensor, make_tensor, to_plain, to_plain_parameters
from .._protocol.to_array import as_array, object_array, to_wire_array
from .annotations import Outputs, Written
from .callables import refuse_coroutine

T = TypeVar("T")


class CheckedResponse(InferenceResponse):
    """A response that its model has checked itself, and keeps nowhere. Its outputs are as `declared`, and in
    that order."""

    declared: Sequence[TensorSpec] = ()


def to_response(
    result: Any,
    outputs: Outputs,
    content_types: Mapping[str, str],
    requested: Sequence[RequestOutput] = (),
    rows: int = 0,
) -> InferenceResponse:
    """The response with the outputs that a model's result stands for. An `InferenceResponse` may lack outputs
    that are not `requested`.

    `rows` is how many JSON objects the request was. If it is not 0, the response may be JSON objects too.
    """
    if outputs.are_open and not content_types:  # as nearly always
        if type(result) is dict:
            tensors = _take_items(result, outputs.named)
            if tensors is not None:
                return InferenceResponse(tensors)
        elif outputs.only is not None:
            name, spec = outputs.only
            tensor = _take_plain(name, spec, result)
            if tensor is not None:
                return InferenceResponse([tensor])
    if (
        outputs.rows is not None
        and not content_types
        and type(result) is not InferenceResponse
        and outputs.declared is outputs.rows.as_outputs.specs
    ):
        return _call_encoder(outputs.rows.encode_response, "", refuse_coroutine(result), None, True, rows)
    if (
        type(result) is CheckedResponse
        and result.declared
        and result.declared == outputs.declared
        and not content_types
    ):
        return result
    result = refuse_coroutine(result)
    response = (
        _recheck_response(result, outputs, content_types)
        if isinstance(result, InferenceResponse)
        else _encode_result(result, outputs, content_types)
    )
    if outputs.declared:
        response.outputs = _order_outputs(
            response.outputs, outputs.declared, requested if isinstance(result, InferenceResponse) else ()
        )
    elif len(response.outputs) > 1:
        names = [tensor.name for tensor in response.outputs]
        if len(set(names)) != len(names):
            raise ModelFault(f"outputs {names} have the same name twice")
    return response


def _take_items(
    result: dict[Any, Any], declared: Sequence[tuple[str, TensorSpec | None]]
) -> list[Tensor] | None:
    """The outputs, if all items of a result are just as they are declared."""
    named = declared or [(name, None) for name in result if type(name) is str and name.isascii()]
    tensors = [
        tensor for name, spec in named if (tensor := _take_plain(name, spec, result.get(name))) is not None
    ]
    return tensors if len(tensors) == len(named) == len(result) else None


def _take_plain(name: str, spec: TensorSpec | None, value: Any) -> Tensor | None:
    """An output that is an array, one text or number, or a list of texts, just as declared; None for anything
    else."""
    kind = type(value)
    if kind is ndarray:
        array = value
    elif kind is str or (kind is list and set(map(type, value)) == {str}):
        texts = [value] if kind is str else value
        try:
            array = object_array(list(map(str.encode, texts)), (len(texts),))
        except UnicodeEncodeError:
            return None
    elif kind in (int, float, bool):
        array = np.array([value])
    else:
        return None
    if not array.size or (spec is not None and (array.dtype != spec.dtype or not spec.fits(array.shape))):
        return None
    if kind is str or kind is list:  # texts were just encoded
        return make_tensor(name, array, {})
    try:
        return Tensor(name, array)
    except (TypeError, ValueError):  # what takes any result says so
        return None


def _encode_result(result: Any, outputs: Outputs, content_types: Mapping[str, str]) -> InferenceResponse:
    returned, codecs = outputs.returned, outputs.codecs
    request_codec = returned.request_codec or codecs.request_codec_for_value(result)
    specs = {spec.name: spec for spec in outputs.declared}
    if request_codec is None:
        response, named = InferenceResponse([]), _name_outputs(result, outputs)
    else:
        written_as = {spec.name for spec in outputs.declared if spec.content_type is not None}
        result, taken = _call_encoder(request_codec.take_out, result, written_as | content_types.keys())
        response, named = _call_encoder(request_codec.encode_response, "", result), taken.items()
        # a user's codec may make anything
        if request_codec is not PandasCodec and (content_types or not isinstance(request_codec, Rows)):
            response = _recheck_response(response, outputs, content_types)
    annotated = returned.written if len(returned.written) == len(named) else (returned.each,) * len(named)
    for (key, value), written in zip(named, annotated, strict=True):
        name = _check_name(key)
        if value is None:
            raise ModelFault(
                "the model gave None: did you forget `return` or `yield x`?"
                if result is None
                else f"output {name!r} is None"
            )
        spec, content_type = specs.get(name), content_types.get(name)
        column = (
            _write_column(name, value, spec, codecs)
            if request_codec is PandasCodec and content_type is None
            else None
        )
        response.outputs.append(column or _write_output(name, value, written, spec, content_type, codecs))
    return response


def _write_column(name: str, column: Any, spec: TensorSpec | None, codecs: Codecs) -> Tensor | None:
    """A column of a frame as data frames are sent, with missing values and its dtype. None if that is not as
    declared."""
    if spec is None or codecs.inputs.get(str(spec.content_type)) not in COLUMN_CODECS:
        return None
    tensor = _call_encoder(column_to_tensor, name, column)
    return tensor if has_declared_type(tensor, spec) else None


def _name_outputs(result: Any, outputs: Outputs) -> Collection[tuple[str, Any]]:
    if isinstance(result, Mapping):
        return result.items() if type(result) is dict else list(result.items())
    declared = outputs.declared
    is_several = isinstance(result, tuple) or (isinstance(result, list) and len(declared) > 1)
    values = list(result) if is_several else [result]
    names = [spec.name for spec in declared] or [f"output_{index}" for index in range(len(values))]
    # of a NamedTuple, which may have another order
    fields = getattr(result, "_fields", ()) if is_several else ()
    if sorted(fields) == sorted(names):
        names = list(fields)
    if len(names) != len(values):
        raise ModelFault(f"{len(values)} outputs came back, but {names} are declared")
    return list(zip(names, values, strict=True))


def _recheck_response(
    response: InferenceResponse, outputs: Outputs, content_types: Mapping[str, str]
) -> InferenceResponse:
    """A copy of a response that a model or its codec made, and may have changed to something invalid."""
    specs = {spec.name: spec for spec in outputs.declared} if content_types else {}
    checked = [
        _recheck_tensor(tensor, specs.get(tensor.name), content_types.get(tensor.name), outputs.codecs)
        for tensor in response.outputs
    ]
    parameters = to_plain_parameters("the response", response.parameters, ModelFault)
    return InferenceResponse(checked, parameters, None, response.model_name, response.model_version)


def _recheck_tensor(
    tensor: Tensor, spec: TensorSpec | None, content_type: str | None, codecs: Codecs
) -> Tensor:
    copy = _to_tensor(_check_name(tensor.name), tensor.array)
    copy.parameters = to_plain_parameters(f"output {tensor.name!r}", tensor.parameters, ModelFault)
    # another answer's: no client could read it beside JSON data
    copy.parameters.pop("binary_data_size", None)
    own = tensor.parameters.get("content_type")
    if content_type is None or content_type == own:
        return copy
    codec = codecs.inputs.get(str(own))
    try:
        value = tensor.array if codec is None else codec.decode_output(tensor)
    except (InferenceError, ValueError) as error:
        raise _make_type_error(tensor.name, content_type, error) from None
    return _write_as_asked(
        tensor.name,
        value,
        codecs.inputs[content_type],
        None if spec is None else spec.dtype,
        spec,
        lambda: copy,
    )


def _write_output(
    name: str,
    value: Any,
    annotated: Written,
    spec: TensorSpec | None,
    content_type: str | None,
    codecs: Codecs,
) -> Tensor:
    """One output. The request decides how it is written, else the declaration, else the annotation, else the
    value itself."""
    value = _call_encoder(replace_torch, value)
    if isinstance(value, ndarray):
        _check_shape(name, value)
    codec, dtype = annotated if spec is None else (annotated.codec, spec.dtype)
    if spec is not None and spec.content_type is not None:
        codec = codecs.inputs[spec.content_type]

    def write() -> Tensor:
        # a codec would guess what it is a list of
        is_known = annotated.dtype is not None and isinstance(value, list) and not value
        encoder = codec or (None if is_known else codecs.tensor_codec_for_value(value))
        tensor = (
            _to_tensor(name, value, dtype)
            if encoder is None
            else _write_with_codec(encoder, name, value, dtype)
        )
        array = tensor.array
        if (
            spec is not None
            and not tensor.parameters
            and array.ndim == 1
            and isinstance(value, (list, tuple))
        ):
            # an empty list has no further dimensions of its own
            shape = (0, *(max(size, 0) for size in spec.shape[1:]))
            tensor.array = (
                spec.to_declared_rank(array) if array.size or not spec.shape else np.empty(shape, spec.dtype)
            )
        return tensor

    return (
        write()
        if content_type is None
        else _write_as_asked(name, value, codecs.inputs[content_type], dtype, spec, write)
    )


def _write_as_asked(
    name: str,
    value: Any,
    codec: AnyInputCodec,
    dtype: DType | None,
    spec: TensorSpec | None,
    write: Callable[[], Tensor],
) -> Tensor:
    """Write an output in the content type that the request asks for, and as declared. Raises if not even
    `write` makes it as declared."""
    try:
        tensor = _write_with_codec(codec, name, value, dtype)
    except ModelFault as error:
        raise _make_type_error(name, codec.content_type, error) from None
    if spec is None:
        return tensor
    try:
        return _cast_output(tensor, spec)
    except ModelFault as error:
        _cast_output(write(), spec)
        raise _make_type_error(name, codec.content_type, error) from None


def _write_with_codec(codec: AnyInputCodec, name: str, value: Any, dtype: DType | None) -> Tensor:
    """Write a value with a codec that was chosen by name: codecs of lists get an array as a list, and `np`
    gets a list as an array."""
    if codec.content_type == "np":
        value = _call_encoder(as_array, value, dtype)
    elif is_series(value):
        value = value.tolist()
    elif isinstance(value, ndarray) and value.ndim in (1, 2) and value.shape[1:] in ((), (1,)):
        tensor = _call_encoder(
            codec.encode_output, name, _to_list(name, _call_encoder(as_array, value).reshape(-1))
        )
        if tensor.shape == value.shape[:1]:
            tensor.array = tensor.array.reshape(value.shape)
        return tensor
    return _call_encoder(codec.encode_output, name, value)


def _to_list(name: str, array: Array) -> Any:
    if array.dtype.kind != "M":
        return array.tolist()
    points = array.astype("M8[us]")  # the unit in which numpy makes datetime.datetime objects
    if np.any((points != array) & ~np.isnat(array)):
        raise ModelFault(
            f"output {name!r} has dates of {array.dtype} that are finer than microseconds: return a "
            "pandas.Series"
        )
    return points.tolist()


def _to_tensor(name: str, value: Any, dtype: DType | None = None) -> Tensor:
    """An output as numpy makes an array of its value."""
    if is_series(value):
        return _call_encoder(column_to_tensor, name, value)
    try:
        array = to_wire_array(value, dtype)
    except (TypeError, ValueError) as error:
        if isinstance(value, (Generator, AsyncGenerator)):
            raise ModelFault(
                "the model returned a generator: to answer with each item, write yield in the function itself"
            ) from error
        is_several = isinstance(value, list) and {list, tuple, ndarray} & set(map(type, value))
        several = (
            ': to return several outputs, return a dict, as in {"label": label, "scores": scores}, or a tuple'
            if is_several
            else ""
        )
        are_dates = getattr(getattr(value, "dtype", None), "kind", "") == "M"
        dates = ": for dates, return a list of datetime.datetime, or a pandas.Series" if are_dates else ""
        raise ModelFault(f"output {name!r} is no tensor: {error}{several}{dates}") from error
    if array.ndim == 0 and not isinstance(value, ndarray):
        array = array.reshape(1)
    _check_shape(name, array)
    return make_tensor(name, array, {}) if array.dtype.hasobject else Tensor(name, array)


def _call_encoder(encode: Callable[..., T], *args: Any) -> T:
    """Call an encoder. What it refuses is the model's fault."""
    try:
        return encode(*args)
    except (TypeError, ValueError) as error:
        raise ModelFault(f"the result cannot be encoded: {error}") from error


def _make_type_error(name: str, content_type: str, error: Exception) -> InvalidRequest:
    return InvalidRequest(f"output {show(name)} cannot have the content_type {show(content_type)}: {error}")


def _check_name(name: Any) -> str:
    try:
        return to_plain(name)
    except (TypeError, AttributeError, UnicodeEncodeError):
        raise ModelFault(
            f"an output is called {show(name)}: expected a string without lone surrogates"
        ) from None


def _check_shape(name: str, array: Array) -> None:
    if not array.size:
        try:
            count(array.shape)
        except InvalidRequest as error:
            raise ModelFault(f"output {name!r} has {show(array.shape)} as its shape: {error}") from None


def _order_outputs(
    outputs: list[Tensor], declared: Sequence[TensorSpec], requested: Sequence[RequestOutput]
) -> list[Tensor]:
    by_name = {tensor.name: tensor for tensor in outputs}
    names = [spec.name for spec in declared]
    needed = {output.name for output in requested} or set(names)
    if len(by_name) != len(outputs) or not needed <= by_name.keys() <= set(names):
        raise ModelFault(f"outputs {[tensor.name for tensor in outputs]} came back, but {names} are declared")
    return [_cast_output(by_name[spec.name], spec) for spec in declared if spec.name in by_name]


def _cast_output(tensor: Tensor, spec: TensorSpec) -> Tensor:
    array = tensor.array
    if array.shape == (1,) and not spec.shape:
        array = array.reshape(())  # a Python scalar, and a scalar is declared
    if "content_type" in tensor.parameters:
        array = spec.to_declared_rank(array)
    if not spec.fits(array.shape):
        hint = (
            ": of a list with one array, as session.run gives it, return the array: write [0]"
            if array.shape[:1] == (1,) and spec.fits(array.shape[1:])
            else ""
        )
        raise ModelFault(
            f"output {spec.name!r} has shape {list(array.shape)}, but {list(spec.shape)} is declared{hint}"
        )
    if array.dtype == spec.dtype or holds_missing(tensor, spec.dtype):
        tensor.array = array
        return tensor
    # the values no longer have the dtype that these parameters name
    parameters = {name: value for name, value in tensor.parameters.items() if name not in (DTYPE, CATEGORIES)}
    return Tensor(spec.name, _convert_array(array, tensor, spec), parameters)


def _convert_array(array: Array, tensor: Tensor, spec: TensorSpec) -> Array:
    dtype = spec.dtype
    if dtype.hasobject or array.dtype.hasobject or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ModelFault(
            f"output {spec.name!r} has datatype {tensor.datatype}, but {spec.datatype} is declared"
        )
    converted = cast(array, dtype)
    lost = converted != array if dtype.kind in "ui" else find_overflow(array, converted)
    if np.any(lost):
        raise ModelFault(
            f"output {spec.name!r} has values of {tensor.datatype} that do not fit the declared "
            f"{spec.datatype}"
        )
    return converted


def select_outputs(outputs: list[Tensor], requested: Sequence[RequestOutput]) -> list[Tensor]:
    check_requested(requested, [tensor.name for tensor in outputs])
    by_name = {tensor.name: tensor for tensor in outputs}
    return [by_name[output.name] for output in requested]


def check_requested(requested: Sequence[RequestOutput], names: Sequence[str]) -> None:
    there = frozenset(names)
    seen: set[str] = set()
    for output in requested:
        if output.name in seen:
            raise InvalidRequest(f"output {show(output.name)} is asked for twice: expected each name once")
        seen.add(output.name)
        if output.name not in there:
            raise InvalidRequest(f"unknown output {show(output.name)}: expected {list_names(names)}")
