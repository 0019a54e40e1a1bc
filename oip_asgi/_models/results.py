"""The result of a model -> output tensors. Knows no wire formats.

What is just as declared is taken as it is, rows are written by their class, and a data frame by a codec. Any
other value has one road. `_write` makes a tensor of it: the declaration decides how, else the annotation,
else the value itself, and a codec does it, else numpy. `_cast` gives it the declared shape and datatype, or
raises. `_write_as_asked` writes it anew in the content type that the request names. Whether it leaves as
`[N]` or `[N, 1]` is decided by `_codecs.base`. A result that is wrong is the model's fault: it raises
`ModelFault`, whose text is for the log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import numpy as np
from numpy import ndarray  # `np.ndarray` takes longer, as the module has a `__getattr__`

from .._codecs.base import AnyInputCodec
from .._codecs.column_dtypes import CATEGORIES, COLUMN_CODECS, DTYPE, holds_missing, is_of
from .._codecs.columns import column_to_tensor
from .._codecs.content_types import Codecs
from .._codecs.dataframes import PandasCodec, is_series
from .._codecs.plain import DatetimeCodec, NumpyCodec, PandasJSONCodec, StringCodec
from .._codecs.rows import Rows
from .._codecs.torch import replace_torch
from .._protocol.datatypes import DType, as_array, cast, find_overflow, object_array, to_wire_array
from .._protocol.errors import InferenceError, InvalidRequest, ModelFault, list_names, show
from .._protocol.schemas import RequestOutput
from .._protocol.specs import TensorSpec
from .._protocol.tensor_bytes import count
from .._protocol.tensors import InferenceResponse, Tensor, make_tensor, to_plain, to_plain_parameters
from .callables import Outputs, Written, refuse_coroutine

T = TypeVar("T")

OF_COLUMNS: Final = (None, NumpyCodec, *COLUMN_CODECS)
"""The codecs of this package that write results; None for no codec."""

OF_TEXTS: Final = (StringCodec, DatetimeCodec, PandasJSONCodec)

ALONE: Final = (str, bytes, bool, int, float, datetime, np.generic)
"""What is no list, and is taken for a list of one."""


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
    """The response with the outputs that a model's result stands for: as it is declared, then as the request
    asks. An `InferenceResponse` may lack outputs that are not `requested`.

    `rows` is how many JSON objects the request was. If it is not 0, the response may be JSON objects too.
    """
    if outputs.are_open and not content_types:  # as nearly always
        if type(result) is dict:
            tensors = _take_items(result, outputs.named)
            if tensors is not None:
                return InferenceResponse(tensors)
        elif outputs.only is not None:
            name, spec = outputs.only
            output = _take_plain(name, spec, result)
            if output is not None:
                return InferenceResponse([output])
    response = _make_response(refuse_coroutine(result), outputs, requested, 0 if content_types else rows)
    if content_types:
        # a comprehension would make cells of the arguments, which takes longer where nothing is asked for
        for index, tensor in enumerate(response.outputs):
            response.outputs[index] = _write_as_asked(tensor, content_types.get(tensor.name), outputs)
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
    try:
        if kind is ndarray:
            array = value
        elif kind is str or (kind is list and set(map(type, value)) == {str}):
            texts = [value] if kind is str else value
            array = object_array(list(map(str.encode, texts)), (len(texts),))
        elif kind in (int, float, bool):
            array = np.array([value])
        else:
            return None
        if not array.size or (spec is not None and (array.dtype != spec.dtype or not spec.fits(array.shape))):
            return None
        # texts were just encoded
        return make_tensor(name, array, {}) if kind is str or kind is list else Tensor(name, array)
    except (TypeError, ValueError):  # what takes any result says so
        return None


def _make_response(
    result: Any, outputs: Outputs, requested: Sequence[RequestOutput], rows: int
) -> InferenceResponse:
    """The response of any result, as it is declared."""
    declared, of_rows = outputs.declared, outputs.rows
    if type(result) is CheckedResponse and result.declared and result.declared == declared:
        return result
    if of_rows is not None and type(result) is not InferenceResponse and declared is of_rows.as_outputs.specs:
        return _call_encoder(of_rows.encode_response, "", result, None, True, rows)
    response = _make_outputs(result, outputs)
    names = [tensor.name for tensor in response.outputs]
    by_name = dict(zip(names, response.outputs, strict=True))
    if len(by_name) != len(names):
        raise ModelFault(f"outputs {names} have the same name twice")
    if not declared:
        return response
    needed = {output.name for output in requested if isinstance(result, InferenceResponse)} or {
        spec.name for spec in declared
    }
    if not needed <= by_name.keys() <= {spec.name for spec in declared}:
        raise ModelFault(f"outputs {names} came back, but {[spec.name for spec in declared]} are declared")
    response.outputs = [_cast(by_name[spec.name], spec) for spec in declared if spec.name in by_name]
    return response


def _make_outputs(result: Any, outputs: Outputs) -> InferenceResponse:
    """The outputs that a result stands for, as it is annotated and declared, or as it shows itself."""
    if isinstance(result, InferenceResponse):
        return _recheck(result)
    returned, codecs = outputs.returned, outputs.codecs
    request_codec = returned.request_codec or codecs.request_codec_for_value(result)
    if request_codec is not None:
        response = _call_encoder(request_codec.encode_response, "", result)
        if request_codec is not PandasCodec and not isinstance(request_codec, Rows):
            response = _recheck(response)  # a user's codec may make anything
        if request_codec.content_type == PandasCodec.content_type:
            response.outputs = [
                _to_type(tensor, spec.content_type, codecs)
                if (spec := outputs.specs.get(tensor.name))
                else tensor
                for tensor in response.outputs
            ]
        return response
    named = _name_outputs(result, outputs)
    annotated = returned.written if len(returned.written) == len(named) else (returned.each,) * len(named)
    tensors = []
    for (key, value), written in zip(named, annotated, strict=True):
        name = _check_name(key)
        if value is None:
            raise ModelFault(
                "the model gave None: did you forget `return` or `yield x`?"
                if result is None
                else f"output {name!r} is None"
            )
        tensors.append(_write(name, value, written, outputs.specs.get(name), codecs))
    return InferenceResponse(tensors)


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


def _recheck(response: InferenceResponse) -> InferenceResponse:
    """A copy of a response that a model or its codec made, and may have changed to something invalid."""
    copies = []
    for tensor in response.outputs:
        copy = _to_tensor(_check_name(tensor.name), tensor.array)
        copy.parameters = to_plain_parameters(
            f"output {tensor.name!r}",
            # the size of another answer: no client could read it beside JSON data
            {name: value for name, value in tensor.parameters.items() if name != "binary_data_size"},
            ModelFault,
        )
        copies.append(copy)
    parameters = to_plain_parameters("the response", response.parameters, ModelFault)
    return InferenceResponse(copies, parameters, None, response.model_name, response.model_version)


def _write(name: str, value: Any, annotated: Written, spec: TensorSpec | None, codecs: Codecs) -> Tensor:
    """One output. The declaration decides how it is written, else the annotation, else the value itself."""
    value = _call_encoder(replace_torch, value)
    dtype, declared = (annotated.dtype, None) if spec is None else (spec.dtype, spec.content_type)
    codec = annotated.codec if declared is None else codecs.inputs[declared]
    if codec is None and (dtype is None or not isinstance(value, list) or value):
        # an empty list shows nothing, and a codec would guess what it is a list of
        codec = codecs.tensor_codec_for_value(value)
    if is_series(value) and codec in OF_COLUMNS:
        column = _call_encoder(column_to_tensor, name, value)
        return _to_type(column, None if codec is None else codec.content_type, codecs)
    if isinstance(value, ALONE) and codec in OF_COLUMNS:
        value = [value]
    return _to_tensor(name, value, dtype, spec) if codec is None else _encode(codec, name, value, dtype)


def _encode(codec: AnyInputCodec, name: str, value: Any, dtype: DType | None) -> Tensor:
    """Write a value with a codec that is known: codecs of lists get an array as a list, which keeps its
    shape, and `np` gets a list as an array."""
    if codec is NumpyCodec:
        return _call_encoder(NumpyCodec.encode_output, name, _call_encoder(as_array, value, dtype))
    if is_series(value):
        value = value.tolist()
    shape = value.shape if isinstance(value, ndarray) and value.ndim else (1, 1, 1)
    if shape[1:] in ((), (1,)) and value.dtype.kind != "M":
        value = _call_encoder(as_array, value).ravel().tolist()
    return _keep_shape(_call_encoder(codec.encode_output, name, value), shape)


def _keep_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """N values keep the shape `[N, 1]` that they had."""
    if shape[1:] == (1,) and tensor.shape == shape[:1]:
        tensor.array = tensor.array.reshape(shape)
    return tensor


def _to_type(tensor: Tensor, content_type: str | None, codecs: Codecs) -> Tensor:
    """A column in the declared content type, or in the other one that texts have."""
    is_right = content_type is None or is_of(tensor, content_type)
    return tensor if is_right else _convert(tensor, str(content_type), codecs)


def _convert(tensor: Tensor, content_type: str, codecs: Codecs) -> Tensor:
    """An output in another content type: what it stands for is written anew."""
    reader, codec = codecs.inputs.get(str(tensor.parameters.get("content_type"))), codecs.inputs[content_type]
    if reader is None and codec in OF_TEXTS and tensor.array.dtype.hasobject:
        reader = StringCodec  # what says nothing of its elements has texts, where texts are wanted
    try:
        value = tensor.array if reader is None else reader.decode_output(tensor)
    except (InferenceError, ValueError) as error:
        raise ModelFault(str(error)) from None
    return _keep_shape(_encode(codec, tensor.name, value, tensor.array.dtype), tensor.shape)


def _to_tensor(name: str, value: Any, dtype: DType | None = None, spec: TensorSpec | None = None) -> Tensor:
    """An output as numpy makes an array of its value. N values of a list have the declared rank."""
    try:
        array = to_wire_array(value, dtype)
    except (TypeError, ValueError) as error:
        if isinstance(value, (Generator, AsyncGenerator)):
            raise ModelFault(
                "the model returned a generator: to answer with each item, write yield in the function itself"
            ) from error
        several = (
            ': to return several outputs, return a dict, as in {"label": label, "scores": scores}, or a tuple'
            if isinstance(value, list) and {list, tuple, ndarray} & set(map(type, value))
            else ""
        )
        raise ModelFault(f"output {name!r} is no tensor: {error}{several}") from error
    if array.ndim == 0 and not isinstance(value, ndarray):
        array = array.reshape(1)
    if spec is not None and array.ndim == 1 and isinstance(value, (list, tuple)):
        # an empty list has no further dimensions of its own
        empty = (0, *(max(size, 0) for size in spec.shape[1:]))
        array = spec.to_declared_rank(array) if array.size else array.reshape(empty)
    if not array.size:
        try:
            count(array.shape)
        except InvalidRequest as error:
            raise ModelFault(f"output {name!r} has {show(array.shape)} as its shape: {error}") from None
    return make_tensor(name, array, {})


def _call_encoder(encode: Callable[..., T], *args: Any) -> T:
    """Call an encoder. What it refuses is the model's fault."""
    try:
        return encode(*args)
    except (TypeError, ValueError) as error:
        raise ModelFault(f"the result cannot be encoded: {error}") from error


def _check_name(name: Any) -> str:
    try:
        return to_plain(name)
    except (TypeError, AttributeError, UnicodeEncodeError):
        raise ModelFault(
            f"an output is called {show(name)}: expected a string without lone surrogates"
        ) from None


def _cast(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """An output in the declared shape and datatype."""
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
    if spec.dtype.hasobject or array.dtype.hasobject or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        raise ModelFault(
            f"output {spec.name!r} has datatype {tensor.datatype}, but {spec.datatype} is declared"
        )
    converted = cast(array, spec.dtype)
    lost = converted != array if spec.dtype.kind in "ui" else find_overflow(array, converted)
    if np.any(lost):
        raise ModelFault(
            f"output {spec.name!r} has values of {tensor.datatype} that do not fit the declared "
            f"{spec.datatype}"
        )
    # the values no longer have the dtype that these parameters name
    parameters = {name: value for name, value in tensor.parameters.items() if name not in (DTYPE, CATEGORIES)}
    return Tensor(spec.name, converted, parameters)


def _write_as_asked(tensor: Tensor, content_type: str | None, outputs: Outputs) -> Tensor:
    """An output in the content type that the request asks for."""
    if content_type is None or content_type == tensor.parameters.get("content_type"):
        return tensor
    try:
        spec, converted = outputs.specs.get(tensor.name), _convert(tensor, content_type, outputs.codecs)
        return converted if spec is None else _cast(converted, spec)
    except ModelFault as error:
        raise InvalidRequest(
            f"output {show(tensor.name)} cannot have the content_type {show(content_type)}: {error}"
        ) from None


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
