"""A REST body, JSON or JSON and bytes, <-> InferenceRequest / InferenceResponse. Knows no URLs, statuses or
models.

`Body` of `_protocol.request_body` limits how long a body and its JSON may be. `_http.messages` reads
`Inference-Header-Content-Length`; for clients, `_rest.client` does.

Specification: HTTP/REST Inference, Binary Tensor Data Extension; Triton's raw binary request,
`Inference-Header-Content-Length: 0`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any, Final

import msgspec

from .._json import documents
from .._json.tensor_data import ALWAYS_SHORT, from_json, from_value, is_short, to_value
from .._json.text import REFUSALS, Unusual
from .._protocol import schemas
from .._protocol.array_requests import ArrayModel, ArrayRequest
from .._protocol.datatypes import Array, Buffer, dtype_of, name_of, object_array
from .._protocol.errors import ErrorResponse, InvalidRequest, InvalidResponse, show
from .._protocol.limits import LOOP_BINARY, LOOP_BYTES, LOOP_TEXT, may_hold_more
from .._protocol.schemas import Parameters
from .._protocol.specs import fill_shape
from .._protocol.tensor_bytes import find_memories, from_bytes, own_bytes, own_one, view_bytes
from .._protocol.tensors import (
    REGION,
    InferenceRequest,
    InferenceResponse,
    ReadRegion,
    Tensor,
    check_supported,
    drop_shared_memory,
    make_tensor,
    refuse_region,
)

HEADER_LENGTH: Final = "Inference-Header-Content-Length"

_encode: Final = msgspec.json.Encoder().encode

FEW: Final = 2**12
"""Up to so many bytes of a body, copying its parts takes less time than making views of them."""

_NULL_LENGTH: Final = len(b"null")

_MAX_FITTED: Final = 2**20
"""Bytes of a list of texts, up to which its shape may be wrong. To read a longer one whole would hold the
interpreter."""

_REMEDY: Final = (
    'ask for this output by "outputs": [{"name": ..., "parameters": {"content_type": "base64"}}], or with '
    '{"binary_data": true} there'
)


def decode_request(
    body: Buffer,
    header_length: int | None,
    read_region: ReadRegion = refuse_region,
    *,
    is_lax: bool = False,
    model: ArrayModel | None = None,
) -> InferenceRequest | ArrayRequest:
    """The body of an infer request as tensors. Each input becomes an array once: a view of the body if it is
    binary.

    With `is_lax`, texts may have a shape that does not fit. A request that says no more than the arrays of
    the `model` comes as those.
    """
    text, binary = (body, None) if header_length is None else _split_body(body, header_length)
    if not text:
        raise InvalidRequest("the body is empty: expected a JSON object with inputs")
    document: schemas.InferenceRequest | documents.Request
    try:
        if len(text) > ALWAYS_SHORT and not is_short(text):
            raise Unusual
        document = documents.decode_short(text)
        request = None if model is None else _read_arrays(document, binary, model)
        if request is not None:
            return request
        tensors = _decode_tensors(document.inputs, "inputs", binary, read_region, is_lax=is_lax)
    except REFUSALS:
        document = documents.read_request(text)
        tensors = _decode_tensors(document.inputs, "inputs", binary, read_region, is_lax=is_lax)
    parameters: Parameters = document.parameters or {}
    outputs = list(document.outputs or ())
    for index, output in enumerate(outputs):
        if output.parameters:
            _check_flag(output.parameters, "binary_data", f"outputs[{index}].parameters")
    _check_flag(parameters, "binary_data_output", "parameters")
    return InferenceRequest(tensors, document.id, parameters, outputs)


def _read_arrays(
    document: schemas.InferenceRequest, binary: Buffer | None, model: ArrayModel
) -> ArrayRequest | None:
    """The arrays of a request; None if it says more, or something is wrong."""
    parameters, outputs, items, position = document.parameters, document.outputs, document.inputs, 0
    is_binary: object = False
    if parameters:
        is_binary = parameters.get("binary_data_output") if len(parameters) == 1 else None
    if outputs and type(is_binary) is bool:
        is_binary = _find_way(outputs, is_binary, model)
    if type(is_binary) is not bool or len(items) != len(model.inputs):
        return None
    arrays: dict[str, Array] = {}
    try:
        for item in items:
            name, shape, of_input = item.name, item.shape, item.parameters
            dtype = model.find_dtype(len(arrays), name, item.datatype, shape)
            if dtype is None:
                return None
            if not of_input and type(item.data) is list:
                arrays[name] = from_value(item.data, dtype, shape)
            elif of_input and len(of_input) == 1 and "binary_data_size" in of_input and item.data is None:
                content = _take_bytes(binary, position, of_input["binary_data_size"])
                arrays[name] = from_bytes(content, dtype, shape)
                position += len(content)
            else:
                return None
    except InvalidRequest:  # what reads other requests says where
        return None
    if binary is not None and position != len(binary):
        return None
    return ArrayRequest(model, arrays, document.id, is_binary, parameters or {}, outputs or [])


def _find_way(outputs: Sequence[schemas.RequestOutput], every: object, model: ArrayModel) -> object:
    """Whether all outputs of a model are asked for as bytes; None if one is asked for in another way."""
    ways = [
        every if not (given := each.parameters) else given.get("binary_data") if len(given) == 1 else None
        for each in outputs
    ]
    is_each = [each.name for each in outputs] == [name for name, _ in model.outputs]
    return ways[0] if is_each and all(way is ways[0] for way in ways) else None  # 1 is not true


def is_quick(body: Buffer, header_length: int | None) -> bool:
    """Whether a long body is decoded quickly: it holds plain numbers, few of them as JSON."""
    if header_length is None:
        return len(body) <= LOOP_TEXT and is_short(body) and not may_hold_more(bytes(body))
    is_bounded = len(body) <= LOOP_BINARY and header_length <= LOOP_BYTES
    return is_bounded and not may_hold_more(bytes(memoryview(body)[:header_length]))


def are_all_binary(request: InferenceRequest) -> bool:
    """Whether all outputs leave as bytes."""
    every = request.parameters.get("binary_data_output", False)
    return (
        all((output.parameters or {}).get("binary_data", every) for output in request.outputs)
        if request.outputs
        else bool(every)
    )


def _fit_texts(data: Any, shape: tuple[int, ...]) -> tuple[list[str], tuple[int, ...]]:
    """Texts, with the shape `[N]` if theirs does not fit. Raises one of `REFUSALS` for anything else.

    MLServer compares no `shape` with `data`, and its documentation sends a text with its length as the shape,
    or without a list around it.
    """
    if type(data) is msgspec.Raw:
        if len(data) > _MAX_FITTED:
            raise Unusual
        data = msgspec.json.decode(data)
    decoded = msgspec.convert(data, str | list[str])
    texts = [decoded] if isinstance(decoded, str) else decoded
    return texts, shape if prod(shape) == len(texts) else (len(texts),)


def decode_raw_request(body: Buffer, name: str, datatype: str, shape: tuple[int, ...]) -> InferenceRequest:
    """A raw binary request: the body is the only input's bytes, and all outputs are to be binary."""
    dtype = dtype_of(datatype)
    # the body is the only element of BYTES, without a length in front
    number, left = (1, 0) if dtype.hasobject else divmod(len(body), dtype.itemsize)
    is_open = shape.count(-1) > 1 and not dtype.hasobject  # so that the body's length does not decide it
    filled = None if left or is_open else fill_shape(shape, number)
    try:
        if filled is None:
            raise InvalidRequest(
                f"{len(body)} bytes do not fill its declared shape {list(shape)}, which may have one -1"
            )
        array = object_array([bytes(body)], filled) if dtype.hasobject else from_bytes(body, dtype, filled)
    except InvalidRequest as error:
        raise InvalidRequest(f"raw binary request for input {show(name)}: {error}") from None
    return InferenceRequest([Tensor(name, array)], parameters={"binary_data_output": True})


def decode_response(body: Buffer, header_length: int | None) -> InferenceResponse:
    """The body of an infer response as tensors, as a client received it; the inverse of `encode_response`."""
    try:
        text, binary = (body, None) if header_length is None else _split_body(body, header_length)
        document = documents.read_response(text)
        if document.error is not None:
            raise ErrorResponse(document.error)
        if document.outputs is None:
            raise InvalidRequest("outputs is missing: expected a list of tensors")
        items = document.outputs
        for item in items:
            item.parameters = _drop_nulls(item.parameters)
        outputs = _decode_tensors(items, "outputs", binary, refuse_region)
        for item, tensor in zip(items, outputs, strict=True):
            if len(item.data) and not tensor.array.flags.writeable:
                tensor.array = tensor.array.copy()  # only views of the body stay read-only
    except InvalidRequest as error:
        raise InvalidResponse(f"the response is not one of inference: {error}") from None
    parameters = _drop_nulls(document.parameters)
    return InferenceResponse(
        outputs, parameters, document.id, document.model_name or "", document.model_version
    )


def _drop_nulls(parameters: schemas.ReceivedParameters | None) -> Any:
    """Parameters without those that are null, as that says no more than leaving them out."""
    if parameters and None in parameters.values():
        return {name: value for name, value in parameters.items() if value is not None}
    return parameters or {}


def _split_body(body: Buffer, header_length: int) -> tuple[Buffer, Buffer]:
    """The JSON of a body, and the binary data after it."""
    if header_length > len(body):
        raise InvalidRequest(
            f"Inference-Header-Content-Length is {header_length}, but the body has {len(body)} bytes only"
        )
    whole = body if len(body) <= FEW and type(body) is bytes else memoryview(body)
    return whole[:header_length], whole[header_length:]


def _decode_tensors(
    items: Iterable[schemas.RequestInput | schemas.TensorText],
    field: str,
    binary: Buffer | None,
    read_region: ReadRegion,
    *,
    is_lax: bool = False,
) -> list[Tensor]:
    """Decode the tensors of a body. Each binary one takes the next bytes of the binary data."""
    tensors: list[Tensor] = []
    position = 0
    for item in items:
        data: Any = item.data
        parameters: Any = item.parameters or {}
        is_text = type(data) is msgspec.Raw
        is_absent = data is None or (is_text and len(data) <= _NULL_LENGTH and bytes(data) in (b"", b"null"))
        try:
            dtype = dtype_of(item.datatype)
            if "binary_data_size" in parameters:
                if not is_absent:
                    raise InvalidRequest("both data and binary_data_size are given: expected one of them")
                content = _take_bytes(binary, position, parameters.pop("binary_data_size"))
                position += len(content)
                array = from_bytes(content, dtype, item.shape)
            elif not is_absent:
                if is_lax and dtype.hasobject:
                    with suppress(*REFUSALS):
                        data, item.shape = _fit_texts(data, item.shape)
                        is_text = False
                array = from_json(data, dtype, item.shape) if is_text else from_value(data, dtype, item.shape)
            elif REGION in parameters:
                array = from_bytes(read_region(parameters), dtype, item.shape)
                parameters = drop_shared_memory(parameters)
            else:
                check_supported(parameters, "it")
                raise InvalidRequest(
                    "data is missing: expected data, or binary_data_size among the parameters"
                )
        except InvalidRequest as error:
            raise InvalidRequest(f"{field}[{len(tensors)}] ({show(item.name)}): {error}") from None
        make = make_tensor if dtype.hasobject else Tensor
        tensors.append(make(item.name, array, parameters))
    left = 0 if binary is None else len(binary) - position
    if left:
        raise InvalidRequest(
            f"{left} bytes are left over in the body after the JSON and the binary data of its tensors"
        )
    return tensors


def _take_bytes(binary: Buffer | None, position: int, size: object) -> Buffer:
    """The next bytes of the binary data."""
    if type(size) is not int or size < 0:
        raise InvalidRequest(f"parameters.binary_data_size is {show(size)}: expected a non-negative integer")
    if binary is None:
        if size:
            raise InvalidRequest(
                "binary data needs the header Inference-Header-Content-Length, the length of the JSON, but "
                "it is absent"
            )
        return b""
    left = len(binary) - position
    if size > left:
        raise InvalidRequest(
            f"binary_data_size is {size}, but {left} bytes of binary data are left in the body"
        )
    return binary[position : position + size]


def _check_flag(parameters: Parameters, name: str, path: str) -> None:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequest(f"{path}.{name} is {show(value)}: expected true or false")


def encode_response(response: InferenceResponse, request: InferenceRequest) -> tuple[bytes, list[Buffer]]:
    """A response as its JSON and the bytes of each binary output, in order."""
    every = request.parameters.get("binary_data_output", False)
    is_binary_by_name: dict[str, object] = {}
    for output in request.outputs:
        if output.parameters:  # None for an output in shared memory, whose data are not sent
            is_binary_by_name[output.name] = (
                None if REGION in output.parameters else output.parameters.get("binary_data", every)
            )
    outputs, binary = _encode_tensors(
        response.outputs,
        every,
        is_binary_by_name,
        "output",
        _REMEDY,
        find_memories(response.outputs, request) if every or is_binary_by_name else None,
    )
    document = schemas.InferenceResponse(
        response.model_name, outputs, response.model_version, response.id, response.parameters
    )
    return _encode(document), binary


def encode_arrays(request: ArrayRequest, arrays: Sequence[Array]) -> tuple[bytes, list[Buffer]]:
    """The outputs of an `ArrayRequest`, as `encode_response` writes them."""
    model = request.model
    outputs: list[schemas.SentTensor] = []
    binary: list[Buffer] = []
    for name, _ in model.outputs:
        array = arrays[len(outputs)]
        datatype = name_of(array.dtype)
        if request.is_binary:
            content = own_one(array, request.arrays.values())
            binary.append(content)
            parameters: Parameters = {"binary_data_size": len(content)}
            outputs.append(schemas.SentTensor(name, array.shape, datatype, parameters))
        else:
            outputs.append(schemas.SentTensor(name, array.shape, datatype, {}, to_value(array)))
    return _encode(schemas.InferenceResponse(model.name, outputs, model.version, request.id)), binary


def encode_request(
    request: InferenceRequest, *, binary: bool, remedy: str = "use to_http(binary=True)"
) -> tuple[bytes, list[Buffer]]:
    """A request as its JSON and the bytes of each binary input, in order; the inverse of `decode_request`.

    `remedy` is what the caller may write for bytes that JSON cannot hold.
    """
    inputs, parts = _encode_tensors(request.inputs, binary, {}, "input", remedy)
    document = schemas.SentRequest(inputs, request.id, request.parameters, request.outputs)
    return _encode(document), parts


def _encode_tensors(
    tensors: Sequence[Tensor],
    every: object,
    is_binary_by_name: Mapping[str, object],
    what: str,
    remedy: str,
    memories: Container[int] | None = None,
) -> tuple[list[schemas.SentTensor], list[Buffer]]:
    """Tensors as their documents, and their binary data: of a response, bytes that stay as they are. Its
    `memories` are those of `find_memories`."""
    written: list[schemas.SentTensor] = []
    binary: list[Buffer] = []
    for tensor in tensors:
        name, array, parameters = tensor.name, tensor.array, tensor.parameters
        data: Any = msgspec.UNSET
        is_binary = is_binary_by_name.get(name, every)
        if is_binary:
            content = view_bytes(array) if memories is None else own_bytes(array, memories)
            binary.append(content)
            parameters = {**parameters, "binary_data_size": len(content)}
        elif is_binary is not None:
            try:
                data = to_value(array)
            except InvalidRequest as error:
                raise InvalidRequest(f"{what} {show(name)}: {error}: {remedy}") from None
        datatype = name_of(array.dtype)
        written.append(schemas.SentTensor(name, array.shape, datatype, parameters, data))
    return written, binary


def to_http(request: InferenceRequest, *, binary: bool = False) -> tuple[dict[str, str], bytes]:
    """The request as any HTTP client sends it, to `models/{name}/infer`.

    Args:
        binary: Whether the inputs go as bytes after the JSON, not in it. The outputs come back as bytes if
            the parameter `binary_data_output` of the request is true.

    Returns:
        Headers and body. The client adds Content-Length.

    Raises:
        InvalidRequest: A BYTES element is not UTF-8, so JSON cannot carry it: send it as binary.

    Specification: Inference Request JSON Object, Binary Tensor Data Extension.
    """
    text, parts = encode_request(request, binary=binary)
    if not binary:
        return {"Content-Type": "application/json"}, text
    return {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(text))}, b"".join(
        [text, *parts]
    )
