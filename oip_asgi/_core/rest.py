"""A REST body, JSON or JSON and bytes, <-> InferenceRequest / InferenceResponse. Knows no URLs, statuses or models.

Specification: HTTP/REST Inference, Binary Tensor Data Extension.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
import numpy as np

from . import schemas
from .datatypes import FLOATING, Buffer, DType, dtype_of
from .errors import InvalidRequest, InvalidResponse, shown
from .json_data import from_json, to_json
from .raw import count, from_raw, view_raw
from .schemas import Parameters, RequestOutput
from .tensors import Headers, InferenceRequest, InferenceResponse, Tensor, check_number

HEADER_LENGTH: Final = "Inference-Header-Content-Length"

MAX_DEPTH: Final = 100
"""How deep JSON may nest, wherever it does."""

_strict: Final = msgspec.json.Decoder(schemas.StrictInferenceRequest).decode
_lenient: Final = msgspec.json.Decoder(schemas.InferenceRequest).decode
_response: Final = msgspec.json.Decoder(schemas.ReceivedResponse).decode
_encode: Final = msgspec.json.Encoder().encode

T = TypeVar("T")

_STEPS: Final = bytes({91: 1, 123: 1, 93: 255, 125: 255, 34: 2}.get(code, 0) for code in range(256))
"""For each byte of JSON text: [ and { go one deeper, ] and } one back, 2 stands for a quote."""

_DECIMAL: Final = re.compile("[0-9]{1,18}")

_CHUNK: Final = 2**20

_LONG: Final = 2**12
"""Bytes of JSON from which it is worth a look where its `data` begin and end."""

_DATA: Final = b'"data"'
_OPENING: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*\[")
_PLACEHOLDER: Final = b"[7.77e-77]"

_LITERALS: Final = {b"NaN": b'"\\u004eaN"', b"-Infinity": b'"-\\u0049nfinity"', b"Infinity": b'"\\u0049nfinity"'}
"""What Python's json writes for non-finite numbers -> a spelling of the string that means the same, and that nobody else writes."""

_NO_JSON: Final = "NaN, Infinity and -Infinity are no JSON"


def decode_request(body: Buffer, header_length: int | None) -> InferenceRequest:
    """The body of an infer request as tensors. Each input becomes an array once: a view of the body where it is binary.

    Args:
        body: The whole body.
        header_length: How many of its bytes are JSON; None where the request did not say, and all of them are.

    Raises:
        InvalidRequest: The body is not what the specification describes; the text names the place.
    """
    text, behind = _split(body, header_length)
    if not text:
        raise InvalidRequest("the body is empty: expected a JSON object with inputs")
    if len(text) >= _LONG:
        # whatever is wrong shows in the text as a whole, below
        with suppress(InvalidRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            document = _decode_apart(bytes(text))
            if document is not None:
                return _to_request(document, behind)
    return _to_request(_decode_document(text), behind)


def _to_request(document: schemas.StrictInferenceRequest | schemas.InferenceRequest, behind: Buffer | None) -> InferenceRequest:
    check_number(document.inputs)
    inputs = _decode_tensors(document.inputs, "inputs", behind)
    outputs: list[RequestOutput] = [*(document.outputs or [])]
    for place, output in enumerate(outputs):
        if output.parameters:
            _check_flag(output.parameters, "binary_data", f"outputs[{place}].parameters")
    if document.parameters:
        _check_flag(document.parameters, "binary_data_output", "parameters")
    return InferenceRequest(inputs, document.id, document.parameters or {}, outputs)


def decode_response(body: Buffer, header_length: int | None) -> InferenceResponse:
    """The body of an infer response as tensors, as a client received it; the inverse of `encode_response`.

    Args:
        body: The whole body.
        header_length: How many of its bytes are JSON; None where the response did not say, and all of them are.

    Raises:
        InvalidResponse: The body is an error, or not what the specification describes; the text says which.
    """
    try:
        text, behind = _split(body, header_length)
        document = _decode_closely(bytes(text), _response, lambda document: document.outputs or [])
        if document.error is not None:
            raise InvalidResponse(f"the server answered with an error: {document.error}")
        if document.outputs is None:
            raise InvalidRequest("outputs is missing: expected a list of tensors")
        outputs = _decode_tensors(document.outputs, "outputs", behind)
    except InvalidRequest as error:
        raise InvalidResponse(f"the response is not one of inference: {error}") from None
    return InferenceResponse(outputs, document.parameters or {}, document.id, document.model_name or "", document.model_version)


def _split(body: Buffer, header_length: int | None) -> tuple[Buffer, Buffer | None]:
    """The JSON of a body, and what is behind it; None where the header does not say where that begins."""
    if header_length is None:
        return body, None
    if header_length > len(body):
        raise InvalidRequest(f"Inference-Header-Content-Length is {header_length}, but the body has {len(body)} bytes only")
    whole = memoryview(body)
    return whole[:header_length], whole[header_length:]


def raw_request(body: Buffer, name: str, datatype: str, shape: tuple[int, ...]) -> InferenceRequest:
    """A raw binary request: the body is the only input's bytes, and all outputs are to be binary.

    Args:
        body: The tensor's bytes.
        name: The name of the model's only input.
        datatype: Its declared datatype.
        shape: Its declared shape; at most one dimension may be -1, which the body's length decides.

    Raises:
        InvalidRequest: The body's length does not fit the shape.

    Specification: Triton's raw binary request, `Inference-Header-Content-Length: 0`.
    """
    dtype = dtype_of(datatype)
    try:
        array = from_raw(body, dtype, _deduce(shape, len(body), dtype))
    except InvalidRequest as error:
        raise InvalidRequest(f"raw binary request for input {shown(name)}: {error}") from None
    return InferenceRequest([Tensor(name, array)], parameters={"binary_data_output": True})


def _deduce(shape: tuple[int, ...], size: int, dtype: DType) -> tuple[int, ...]:
    free = shape.count(-1)
    if free == 0:
        return shape
    if free > 1:
        raise InvalidRequest(f"its declared shape {list(shape)} has more than one -1, so the body's length does not decide it")
    if dtype.hasobject:
        # as in Triton, a raw BYTES request is one element, framed like any other
        return tuple(1 if dimension == -1 else dimension for dimension in shape)
    row = count([dimension for dimension in shape if dimension != -1]) * dtype.itemsize
    if row == 0 or size % row:
        raise InvalidRequest(f"{size} bytes do not fill rows of {row} bytes, as its declared shape {list(shape)} needs")
    return tuple(size // row if dimension == -1 else dimension for dimension in shape)


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


def _decode_tensors(items: Sequence[schemas.RequestInput], field: str, behind: Buffer | None) -> list[Tensor]:
    binary = None if behind is None else _BinaryData(behind)
    tensors: list[Tensor] = []
    for item in items:
        try:
            tensors.append(_decode_tensor(item, binary))
        except InvalidRequest as error:
            raise InvalidRequest(f"{field}[{len(tensors)}] ({shown(item.name)}): {error}") from None
    if binary is not None:
        binary.finish()
    return tensors


def _decode_tensor(item: schemas.RequestInput, binary: _BinaryData | None) -> Tensor:
    dtype = dtype_of(item.datatype)
    shape = tuple(item.shape)
    data = memoryview(item.data)
    absent = len(data) <= 4 and bytes(data) in (b"", b"null")
    if not item.parameters or "binary_data_size" not in item.parameters:
        if absent:
            raise InvalidRequest("data is missing: expected data, or binary_data_size among the parameters")
        return Tensor(item.name, from_json(data, dtype, shape), item.parameters or {})
    if not absent:
        raise InvalidRequest("both data and binary_data_size are given: expected one of them")
    parameters = item.parameters
    size = parameters.pop("binary_data_size")
    if type(size) is not int or size < 0:
        raise InvalidRequest(f"parameters.binary_data_size is {shown(size)}: expected a non-negative integer")
    if size and binary is None:
        raise InvalidRequest("binary data needs the header Inference-Header-Content-Length, the length of the JSON, and it is absent")
    return Tensor(item.name, from_raw(b"" if binary is None else binary.take(size), dtype, shape), parameters)


def _check_flag(parameters: Parameters, name: str, place: str) -> None:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequest(f"{place}.{name} is {shown(value)}: expected true or false")


def _decode_apart(text: bytes) -> schemas.StrictInferenceRequest | None:
    """The JSON as a document, with its long `data` cut out before it is decoded, so that only one decoder looks at them.

    Returns:
        None where there are none, or where they are not what they look like. What is cut out is not known to be JSON, but it begins
        and ends as an array, and stands where a value may stand: once it is decoded as one, all of the text is known to be JSON.
    """
    rest: list[bytes] = []
    apart: list[memoryview] = []
    whole, position, kept = memoryview(text), 0, 0
    while (found := text.find(_DATA, position)) >= 0:
        opening = _OPENING.match(text, found + len(_DATA))
        position = found + len(_DATA) if opening is None else opening.end()
        if opening is None:
            continue
        start = position - 1
        # in arrays of numbers there is no quote and no brace, so that the first of them is behind the array
        quote = text.find(b'"', position)
        brace = text.find(b"}", position, quote if quote >= 0 else len(text))
        end = text.rfind(b"]", position, brace if brace >= 0 else quote if quote >= 0 else len(text)) + 1
        if end - start >= _LONG:
            rest.append(text[kept:start])
            apart.append(whole[start:end])
            kept = position = end
    rest.append(text[kept:])
    if not apart or any(_PLACEHOLDER in piece for piece in rest):
        return None
    document: schemas.StrictInferenceRequest = _strict(_PLACEHOLDER.join(rest))
    places = [item for item in document.inputs if len(item.data) == len(_PLACEHOLDER) and bytes(item.data) == _PLACEHOLDER]
    if len(places) != len(apart):
        return None
    for item, data in zip(places, apart, strict=True):
        item.data = msgspec.Raw(data)
    return document


def _decode_document(text: Buffer) -> schemas.StrictInferenceRequest | schemas.InferenceRequest:
    """The JSON as a document.

    The strict decoder takes most requests. It skips no field unseen but `data`, which its own decoder looks at, so nothing it takes can
    hide deep nesting or bad UTF-8. Unknown fields, the literals of Python's json, and mistakes are rare, so they pay for the closer look.
    """
    try:
        return _strict(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_closely(bytes(text), _lenient, lambda document: document.inputs)


def _decode_closely(text: bytes, decode: Callable[[bytes], T], tensors: Callable[[T], Sequence[schemas.RequestInput]]) -> T:
    _check_utf8(text)
    # the same strings without a backslash before a quote, so that quotes alone tell what is inside of one
    text = text.replace(b"\\\\", b"\\u005c").replace(b'\\"', b"\\u0022")
    if _depth(text) > MAX_DEPTH:
        raise InvalidRequest(f"the JSON is nested more than {MAX_DEPTH} deep")
    spelled = _spell_literals(text) if b"NaN" in text or b"Infinity" in text else text
    try:
        document = decode(spelled)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).replace("`", "").partition(" - at $")
        hint = "" if spelled is text else f" ({_NO_JSON})"
        raise InvalidRequest(f"{path.lstrip('.') or 'the body'}: {problem[0].lower()}{problem[1:]}{hint}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    if spelled is not text:
        taken = sum(_count_spelled(bytes(item.data)) for item in tensors(document) if item.datatype in FLOATING)
        if _count_spelled(text) or taken != _count_spelled(spelled):
            raise InvalidRequest(f"{_NO_JSON}: expected them as elements of floating-point data only")
    return document


def _check_utf8(text: bytes) -> None:
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(text), _CHUNK):
            decoder.decode(text[start : start + _CHUNK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the JSON is not valid UTF-8: {error.reason}") from None


def _depth(text: bytes) -> int:
    """How deep brackets outside strings nest, in text without escaped quotes, at one pass of numpy's over bounded chunks."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return 0
    deepest, depth, quotes = 0, 0, 0
    for start in range(0, len(text), _CHUNK):
        steps = np.frombuffer(text[start : start + _CHUNK].translate(_STEPS), np.int8)
        inside = quotes + np.cumsum(steps == 2)
        quotes = int(inside[-1])
        depths = depth + np.cumsum(np.where((inside % 2 == 1) | (steps == 2), 0, steps), dtype=np.int64)
        deepest, depth = max(deepest, int(depths.max())), int(depths[-1])
    return deepest


def _spell_literals(text: bytes) -> bytes:
    """Write the literals outside strings as strings, in text without escaped quotes, over bounded chunks."""
    parts: list[bytes] = []
    start, inside = 0, 0
    while start < len(text):
        end = text.find(b",", start + _CHUNK)  # no literal holds a comma
        end = len(text) if end < 0 else end
        pieces = text[start:end].split(b'"')
        for place in range(inside, len(pieces), 2):
            for literal, spelling in _LITERALS.items():
                pieces[place] = pieces[place].replace(literal, spelling)
        inside ^= (len(pieces) - 1) % 2
        parts.append(b'"'.join(pieces))
        start = end
    return b"".join(parts)


def _count_spelled(text: bytes) -> int:
    return sum(map(text.count, _LITERALS.values()))


def encode_response(response: InferenceResponse, request: InferenceRequest) -> tuple[bytes, list[Buffer]]:
    """A response as its JSON and the bytes of each binary output, in order.

    Args:
        response: What the model answered.
        request: What it was asked: its `binary_data` and `binary_data_output` decide each output's form.

    Raises:
        InvalidRequest: An output cannot be JSON, as the request wants it; the text says what to ask for.
    """
    every = request.parameters.get("binary_data_output", False)
    asked = {output.name: output.parameters.get("binary_data", every) for output in request.outputs if output.parameters}
    outputs, binary = _encode_tensors(response.outputs, every, asked, "output", 'ask for this output with "binary_data": true')
    document = schemas.InferenceResponse(response.model_name, outputs)
    if response.model_version is not None:
        document.model_version = response.model_version
    if response.id is not None:
        document.id = response.id
    if response.parameters:
        document.parameters = response.parameters
    return _encode(document), binary


def decoding_effort(body: Buffer, header_length: int | None) -> int:
    """How many bytes of a request's body `decode_request` looks at one by one. Those of numbers in binary data are not."""
    text = body if header_length is None else memoryview(body)[:header_length]
    return len(text) if header_length is None or b"BYTES" not in bytes(text) else len(body)


def encoding_effort(response: InferenceResponse, request: InferenceRequest) -> int:
    """How many elements of a response `encode_response` looks at one by one, unless all of them are asked for as binary."""
    is_binary = request.parameters.get("binary_data_output", False)
    elements = 0
    for tensor in response.outputs:
        if not is_binary or tensor.array.dtype.hasobject:
            elements += tensor.array.size
    return elements


def encode_request(request: InferenceRequest, *, binary: bool) -> tuple[bytes, list[Buffer]]:
    """A request as its JSON and the bytes of each binary input, in order; the inverse of `decode_request`.

    Args:
        request: The request.
        binary: Whether the inputs are sent as bytes behind the JSON.

    Raises:
        InvalidRequest: An input cannot be JSON; the text says what to do.
    """
    inputs, parts = _encode_tensors(request.inputs, binary, {}, "input", "use to_http(binary=True)")
    document = schemas.SentRequest(inputs, request.id, request.parameters, request.outputs)
    return _encode(document), parts


def _encode_tensors(
    tensors: Sequence[Tensor], every: object, asked: Mapping[str, object], what: str, remedy: str
) -> tuple[list[schemas.ResponseOutput], list[Buffer]]:
    documents: list[schemas.ResponseOutput] = []
    binary: list[Buffer] = []
    for tensor in tensors:
        document = schemas.ResponseOutput(tensor.name, tensor.shape, tensor.datatype)
        parameters = tensor.parameters
        if asked.get(tensor.name, every):
            binary.append(view_raw(tensor.array))
            parameters = {**parameters, "binary_data_size": len(binary[-1])}
        else:
            try:
                document.data = msgspec.Raw(to_json(tensor.array))
            except InvalidRequest as error:
                raise InvalidRequest(f"{what} {shown(tensor.name)}: {error}: {remedy}") from None
        if parameters:
            document.parameters = parameters
        documents.append(document)
    return documents, binary


def to_http(request: InferenceRequest, *, binary: bool) -> tuple[dict[str, str], bytes]:
    """A request as headers and body. `InferenceRequest.to_http` says more."""
    text, parts = encode_request(request, binary=binary)
    if not binary:
        return {"Content-Type": "application/json"}, text
    return {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(text))}, b"".join([text, *parts])


def from_http(headers: Headers, body: Buffer) -> InferenceResponse:
    """Headers and body as a response. `InferenceResponse.from_http` says more."""
    pairs = headers.items() if hasattr(headers, "items") else headers
    lengths = [_text(value) for name, value in pairs if _text(name).lower() == HEADER_LENGTH.lower()]
    if not lengths:
        return decode_response(body, None)
    if len(lengths) > 1 or not _DECIMAL.fullmatch(lengths[0]):
        raise InvalidResponse(f"the header {HEADER_LENGTH} is {shown(', '.join(lengths))}: expected a plain decimal number of bytes")
    return decode_response(body, int(lengths[0]))


def _text(part: str | bytes) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else part
