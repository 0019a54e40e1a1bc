"""A REST body, JSON or JSON and bytes, <-> InferenceRequest / InferenceResponse. Knows no URLs, statuses or models.

Specification: HTTP/REST Inference, Binary Tensor Data Extension.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from .. import schemas
from ..datatypes import Array, Buffer, DType, dtype_of, name_of
from ..errors import ErrorResponse, InvalidRequest, InvalidResponse, shown
from ..json import documents
from ..json.data import from_json, read_closely, read_plain, to_json
from ..limits import MAX_TENSORS, check_numbers
from ..raw import from_raw, view_raw
from ..schemas import Parameters
from ..tensors import (
    REGION,
    InferenceRequest,
    InferenceResponse,
    Lend,
    Tensor,
    check_supported,
    known_tensor,
    lend_nothing,
    own_parameters,
)

HEADER_LENGTH: Final = "Inference-Header-Content-Length"

_encode: Final = msgspec.json.Encoder().encode

_Read: TypeAlias = Callable[[Buffer, DType, tuple[int, ...]], Array]
"""What makes an array of the text of `data`."""

_DECIMAL: Final = re.compile("[0-9]{1,18}")

_MARK: Final = b"\0"
"""What stands in JSON for a text that is put there later. JSON has it nowhere."""

_LONG_TEXT: Final = 2**16
"""Bytes of a text above which it is put there later."""

_MANY: Final = 1000
"""Outputs above which their documents are written some at a time: that of each takes 300 bytes."""

_NO_OUTPUTS: Final = b'"outputs":[]'
"""Where they are put then. No string that stands before it can hold it, as its quotes would be escaped."""

_FEW: Final = 2**12
"""Bytes of a body up to which parts of it are copied in less time than views of them are made."""

_NULL_LENGTH: Final = len(b"null")

_REMEDY: Final = 'ask for this output with "binary_data": true, or a list of bytes with "content_type": "base64"'


def decode_request(body: Buffer, header_length: int | None, lend: Lend = lend_nothing) -> InferenceRequest:
    """The body of an infer request as tensors. Each input becomes an array once: a view of the body where it is binary.

    Nearly all requests are plain, and read by the quicker decoders. What these refuse is read once more, closely.

    Args:
        body: The whole body.
        header_length: How many of its bytes are JSON; None where the request did not say, and all of them are.
        lend: Reads the inputs that are in shared memory.

    Raises:
        InvalidRequest: The body is not what the specification describes; the text names the place.
    """
    text, behind = (body, None) if header_length is None else _split(body, header_length)
    if not text:
        raise InvalidRequest("the body is empty: expected a JSON object with inputs")
    read: _Read = from_json
    try:
        document = documents.plain_request(text)
        read = read_closely  # if this fails, some of its data is not plain
        return _to_request(document, behind, read_plain, _read_later)
    except documents.NotPlain:
        read = read_closely
    except (InvalidRequest, *documents.ERRORS):
        pass  # what is wrong is not told here: something else may be wrong before it
    return _to_request(documents.request_closely(text), behind, read, lend)


def _read_later(_: Parameters) -> Buffer:
    """Leave shared memory to the closer look, so that it is read once."""
    raise documents.NotPlain


def _to_request(document: documents.Request, behind: Buffer | None, read: _Read, lend: Lend = lend_nothing) -> InferenceRequest:
    if document.number + len(document.outputs) > MAX_TENSORS:
        check_numbers(document.number, len(document.outputs))
    inputs = _decode_tensors(document.inputs, "inputs", behind, read, lend)
    if document.outputs:
        for place, output in enumerate(document.outputs):
            if output.parameters:
                _check_flag(output.parameters, "binary_data", f"outputs[{place}].parameters")
    parameters = document.parameters or {}
    if parameters:
        _check_flag(parameters, "binary_data_output", "parameters")
    return InferenceRequest(inputs, document.id, parameters, document.outputs)


def decode_response(body: Buffer, header_length: int | None) -> InferenceResponse:
    """The body of an infer response as tensors, as a client received it; the inverse of `encode_response`.

    Args:
        body: The whole body.
        header_length: How many of its bytes are JSON; None where the response did not say, and all of them are.

    Raises:
        ErrorResponse: The body is an error.
        InvalidResponse: It is not what the specification describes; the text says why.
    """
    try:
        text, behind = (body, None) if header_length is None else _split(body, header_length)
        document = documents.response_document(bytes(text))
        if document.error is not None:
            raise ErrorResponse(document.error)
        if document.outputs is None:
            raise InvalidRequest("outputs is missing: expected a list of tensors")
        items = [
            schemas.RequestInput(item.name, item.shape, item.datatype, _given(item.parameters), item.data) for item in document.outputs
        ]
        outputs = _decode_tensors(items, "outputs", behind, from_json, lend_nothing)
        for item, tensor in zip(items, outputs, strict=True):
            if "binary_data_size" not in (item.parameters or {}) and not tensor.array.flags.writeable:
                tensor.array = tensor.array.copy()  # only what views the body is no one's to change
    except InvalidRequest as error:
        raise InvalidResponse(f"the response is not one of inference: {error}") from None
    return InferenceResponse(outputs, _given(document.parameters), document.id, document.model_name or "", document.model_version)


def _given(parameters: schemas.ReceivedParameters | None) -> Parameters:
    """Parameters without those that are null, as that says no more than leaving them out."""
    return {name: value for name, value in (parameters or {}).items() if value is not None}


def _split(body: Buffer, header_length: int) -> tuple[Buffer, Buffer]:
    """The JSON of a body, and what is behind it."""
    if header_length > len(body):
        raise InvalidRequest(f"Inference-Header-Content-Length is {header_length}, but the body has {len(body)} bytes only")
    whole = body if len(body) <= _FEW and type(body) is bytes else memoryview(body)
    return whole[:header_length], whole[header_length:]


class _BinaryData:
    """The bytes behind the JSON, taken from the front by each binary input in turn."""

    def __init__(self, data: Buffer) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> Buffer:
        start = self._position
        left = len(self._data) - start
        if size > left:
            raise InvalidRequest(f"binary_data_size is {size}, but {left} bytes of binary data are left in the body")
        self._position = start + size
        return self._data[start : self._position]

    def finish(self) -> None:
        left = len(self._data) - self._position
        if left:
            raise InvalidRequest(f"{left} bytes are left over in the body behind the JSON and the binary data of its tensors")


def _decode_tensors(items: Iterable[schemas.RequestInput], field: str, behind: Buffer | None, read: _Read, lend: Lend) -> list[Tensor]:
    binary = None if behind is None else _BinaryData(behind)
    tensors: list[Tensor] = []
    for item in items:
        try:
            tensors.append(_decode_tensor(item, binary, read, lend))
        except InvalidRequest as error:
            raise InvalidRequest(f"{field}[{len(tensors)}] ({shown(item.name)}): {error}") from None
    if binary is not None:
        binary.finish()
    return tensors


def _decode_tensor(item: schemas.RequestInput, binary: _BinaryData | None, read: _Read, lend: Lend) -> Tensor:
    dtype, data, parameters = dtype_of(item.datatype), item.data, item.parameters or {}
    make = known_tensor if dtype.hasobject else Tensor
    is_absent = len(data) <= _NULL_LENGTH and bytes(data) in (b"", b"null")
    if "binary_data_size" not in parameters:
        if is_absent:
            if REGION in parameters:
                return make(item.name, from_raw(lend(parameters), dtype, item.shape), own_parameters(parameters))
            check_supported(parameters, "it")
            raise InvalidRequest("data is missing: expected data, or binary_data_size among the parameters")
        return make(item.name, read(data, dtype, item.shape), parameters)
    if not is_absent:
        raise InvalidRequest("both data and binary_data_size are given: expected one of them")
    size = binary_size(parameters)
    if size and binary is None:
        raise InvalidRequest("binary data needs the header Inference-Header-Content-Length, the length of the JSON, and it is absent")
    array = from_raw(b"" if binary is None else binary.take(size), dtype, item.shape)
    return make(item.name, array, {name: value for name, value in parameters.items() if name != "binary_data_size"})


def binary_size(parameters: Mapping[str, object]) -> int:
    size = parameters["binary_data_size"]
    if type(size) is not int or size < 0:
        raise InvalidRequest(f"parameters.binary_data_size is {shown(size)}: expected a non-negative integer")
    return size


def _check_flag(parameters: Parameters, name: str, place: str) -> None:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequest(f"{place}.{name} is {shown(value)}: expected true or false")


def encode_response(response: InferenceResponse, request: InferenceRequest) -> tuple[bytes, list[Buffer]]:
    """A response as its JSON and the bytes of each binary output, in order.

    Args:
        response: What the model answered.
        request: What it was asked: its `binary_data` and `binary_data_output` decide each output's form. One in shared memory has no data.

    Raises:
        InvalidRequest: An output cannot be JSON, as the request wants it; the text says what to ask for.
    """
    every = request.parameters.get("binary_data_output", False)
    asked: dict[str, object] = {}
    if request.outputs:
        for output in request.outputs:
            if output.parameters:  # None for one in shared memory, which is not sent
                asked[output.name] = None if REGION in output.parameters else output.parameters.get("binary_data", every)
    few = response.outputs[:_MANY] if len(response.outputs) > _MANY else response.outputs
    outputs, texts, binary = _encode_tensors(few, every, asked, "output", _REMEDY)
    document = schemas.InferenceResponse(response.model_name, outputs, response.model_version, response.id, response.parameters)
    if few is response.outputs:
        text = _encode(document)
        return _filled_in(text, texts) if texts else text, binary
    document.outputs = []
    begin, end = _encode(document).split(_NO_OUTPUTS, 1)
    parts = [begin, b'"outputs":[', _listed(outputs, texts)]
    for start in range(_MANY, len(response.outputs), _MANY):
        outputs, texts, more = _encode_tensors(response.outputs[start : start + _MANY], every, asked, "output", _REMEDY)
        parts += (b",", _listed(outputs, texts))
        binary += more
    return b"".join([*parts, b"]", end]), binary


def encoder_like(response: InferenceResponse, frame: bytes) -> Callable[[Any], bytes]:
    """What encodes responses that differ from one in the contents of their only output alone, without binary data: an array of numbers,
    or one text.

    Args:
        response: That one. It has no parameters.
        frame: What is made, with `%b` in the place of the JSON.
    """
    [tensor] = response.outputs
    output = schemas.ResponseOutput(tensor.name, tensor.array.shape, tensor.datatype, tensor.parameters, msgspec.Raw(_MARK))
    document = schemas.InferenceResponse(response.model_name, [output], response.model_version, response.id, response.parameters)
    before, behind = (frame % _encode(document)).split(_MARK)
    if tensor.array.dtype.hasobject:
        return lambda text: b"%b[%b]%b" % (before, _encode(text), behind)
    return lambda array: b"%b%b%b" % (before, to_json(array), behind)


def _listed(outputs: list[schemas.ResponseOutput], texts: list[bytes]) -> bytes:
    """The JSON of some outputs, without the brackets of their list."""
    text = _encode(outputs)
    return (_filled_in(text, texts) if texts else text)[1:-1]


def encode_request(request: InferenceRequest, *, binary: bool) -> tuple[bytes, list[Buffer]]:
    """A request as its JSON and the bytes of each binary input, in order; the inverse of `decode_request`.

    Args:
        request: The request.
        binary: Whether the inputs are sent as bytes behind the JSON.

    Raises:
        InvalidRequest: An input cannot be JSON; the text says what to do.
    """
    inputs, texts, parts = _encode_tensors(request.inputs, binary, {}, "input", "use to_http(binary=True)")
    document = schemas.SentRequest(inputs, request.id, request.parameters, request.outputs)
    text = _encode(document)
    return _filled_in(text, texts) if texts else text, parts


def _encode_tensors(
    tensors: Sequence[Tensor], every: object, asked: Mapping[str, object], what: str, remedy: str
) -> tuple[list[schemas.ResponseOutput], list[bytes], list[Buffer]]:
    """Tensors as their documents, the texts of long `data` that these have a mark for, and the bytes behind the JSON."""
    written: list[schemas.ResponseOutput] = []
    texts: list[bytes] = []
    binary: list[Buffer] = []
    for tensor in tensors:
        name, array, parameters = tensor.name, tensor.array, tensor.parameters
        data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
        is_binary = asked.get(name, every)
        if is_binary:
            content = view_raw(array)
            binary.append(content)
            parameters = {**parameters, "binary_data_size": len(content)}
        elif is_binary is not None:
            try:
                text = to_json(array)
            except InvalidRequest as error:
                raise InvalidRequest(f"{what} {shown(name)}: {error}: {remedy}") from None
            if len(text) > _LONG_TEXT:
                texts.append(text)
                text = _MARK
            data = msgspec.Raw(text)
        datatype = name_of(array.dtype) or tensor.datatype
        written.append(schemas.ResponseOutput(name, array.shape, datatype, parameters, data))
    return written, texts, binary


def _filled_in(text: bytes, texts: list[bytes]) -> bytes:
    """The JSON of a document, with long texts in the place of their marks: an encoder would copy them several times."""
    parts = text.split(_MARK)
    for place in range(len(texts), 0, -1):
        parts.insert(place, texts[place - 1])
    return b"".join(parts)


def to_http(request: InferenceRequest, *, binary: bool) -> tuple[dict[str, str], bytes]:
    """A request as headers and body. `InferenceRequest.to_http` says more."""
    text, parts = encode_request(request, binary=binary)
    if not binary:
        return {"Content-Type": "application/json"}, text
    return {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(text))}, b"".join([text, *parts])
