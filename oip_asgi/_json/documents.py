"""The JSON text of a request or a response -> its document. Knows no tensors, and nothing of the bytes behind the JSON.

A short text is read by a decoder that knows all its types. If it refuses, or the text is long, the parts are read one by one: so no call
makes many objects at once, and the error names the place.

Specification: Inference Request JSON Object, Inference Response JSON Object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from .._protocol import schemas
from .._protocol.datatypes import FLOATING, MAX_RANK, Buffer
from .._protocol.errors import InvalidRequest
from .._protocol.limits import LOOP_BYTES, MAX_TENSORS, check_numbers
from .text import NO_JSON, ONLY_FLOATS, blanked, check_members, check_unseen, mask_literals, place_of

MAX_PARAMETERS: Final = 100_000
"""How many parameters a request may have, those of its tensors included. Each takes ten times its text."""

_MAX_MEMBERS: Final = 7 * MAX_TENSORS + MAX_PARAMETERS
"""How many members all objects of a request may have: five of each input, two of each output, and parameters."""

ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoders raise."""

_VALUES: Final = {list: "array", dict: "object", type(None): "null"}
"""What is no value of a parameter."""

_short_request: Final = msgspec.json.Decoder(schemas.InferenceRequest).decode
_request: Final = msgspec.json.Decoder(schemas.RequestParts).decode
_input: Final = msgspec.json.Decoder(schemas.InputParts).decode
_outputs: Final = msgspec.json.Decoder(list[schemas.OutputParts] | None).decode
_name: Final = msgspec.json.Decoder(str).decode
_shape: Final = msgspec.json.Decoder(tuple[schemas.Dimension, ...]).decode
_id: Final = msgspec.json.Decoder(str | None).decode
_parameters: Final = msgspec.json.Decoder(schemas.UncheckedParameters | None, float_hook=float).decode
_response: Final = msgspec.json.Decoder(schemas.ReceivedResponse).decode

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True, eq=False):
    """The document of a request.

    Args:
        id: Its `id`.
        parameters: Its parameters.
        outputs: The outputs that it asks for.
        inputs: Its inputs, to be gone through once. If there are many, each is decoded in its turn: `InvalidRequest` names the place.
    """

    id: str | None
    parameters: schemas.Parameters | None
    outputs: list[schemas.RequestOutput]
    inputs: Iterable[schemas.RequestInput]


def request_document(text: Buffer) -> Request:
    """The JSON of a request as a document."""
    if len(text) <= LOOP_BYTES:
        try:
            short = _short_request(text)
        except ERRORS:
            pass  # such as unknown fields, which are rare
        else:
            return Request(short.id, short.parameters, [*short.outputs] if short.outputs else [], short.inputs)
    return request_in_parts(text)


def request_in_parts(text: Buffer) -> Request:
    """`request_document` for any text, part by part."""
    check_members(text, _MAX_MEMBERS, "the JSON has")
    parts = _document(text, _request, lambda parts: parts.inputs, _is_floating)
    counted = _Counted()
    outputs = [
        schemas.RequestOutput(output.name, counted.parameters(output.parameters, f"outputs[{place}]."))
        for place, output in enumerate(_part(_outputs, parts.outputs, "outputs") or ())
    ]
    check_numbers(len(parts.inputs), len(outputs))
    parameters = counted.parameters(parts.parameters, "")
    return Request(_part(_id, parts.id, "id"), parameters, outputs, _each(parts.inputs, counted))


class _Counted:
    """Decodes parameters, and counts those of one request."""

    def __init__(self) -> None:
        self._left = MAX_PARAMETERS

    def parameters(self, text: msgspec.Raw, where: str) -> schemas.Parameters | None:
        """The parameters of what `where` names."""
        check_members(text, MAX_PARAMETERS, "the request has")
        found = _part(_parameters, text, f"{where}parameters")
        for value in (found or {}).values():
            if type(value) in _VALUES:
                raise InvalidRequest(f"{where}parameters[...]: expected bool | float | int | str, got {_VALUES[type(value)]}")
            if type(value) is float and math.isinf(value):
                raise InvalidRequest(f"{where}parameters[...]: number out of range")
        self._left -= len(found or ())
        if self._left < 0:
            raise InvalidRequest(f"the request has more than {MAX_PARAMETERS} parameters")
        return found


def _each(inputs: list[schemas.InputParts], counted: _Counted) -> Iterator[schemas.RequestInput]:
    """The inputs one after the other. The parts of one are let go before the next."""
    inputs.reverse()
    for place in range(len(inputs)):
        yield _typed(inputs.pop(), f"inputs[{place}]", counted)


def _typed(parts: schemas.InputParts, place: str, counted: _Counted) -> schemas.RequestInput:
    if bytes(parts.shape).count(b",") > MAX_RANK * MAX_RANK:
        raise InvalidRequest(f"{place}.shape has too many dimensions: at most {MAX_RANK} are possible")
    return schemas.RequestInput(
        _given(_name, parts.name, f"{place}.name"),
        _given(_shape, parts.shape, f"{place}.shape"),
        _given(_name, parts.datatype, f"{place}.datatype"),
        counted.parameters(parts.parameters, f"{place}."),
        parts.data,
    )


def _part(decode: Callable[[msgspec.Raw], T], text: msgspec.Raw, place: str) -> T | None:
    """A part of a request, None if it is absent."""
    return _given(decode, text, place) if len(text) else None


def _given(decode: Callable[[msgspec.Raw], T], text: msgspec.Raw, place: str) -> T:
    try:
        return decode(text)
    except ERRORS as error:
        refuse(error, place, text)


def _is_floating(parts: schemas.InputParts, place: int) -> bool:
    return _typed(parts, f"inputs[{place}]", _Counted()).datatype in FLOATING


def response_document(text: bytes) -> schemas.ReceivedResponse:
    """The JSON of a response, or of an error, as a document."""
    return _document(text, _response, lambda document: document.outputs or (), lambda output, _: output.datatype in FLOATING)


def _document(
    text: Buffer, decode: Callable[[Buffer], T], tensors: Callable[[T], Sequence[Any]], is_floating: Callable[[Any, int], bool]
) -> T:
    """A text as a document. The `data` of floating-point tensors may have literals that are no JSON."""
    try:
        document = decode(text)
    except ERRORS as error:
        masked = None if isinstance(error, msgspec.ValidationError) else mask_literals(text)
        if masked is None:
            refuse(error, "", text)
        document = _with_literals(text, masked, decode, tensors, is_floating)
    check_unseen(text)
    return document


def _with_literals(
    text: Buffer,
    masked: bytes,
    decode: Callable[[Buffer], T],
    tensors: Callable[[T], Sequence[Any]],
    is_floating: Callable[[Any, int], bool],
) -> T:
    """The masked text tells where the data are. The text without them must be JSON."""
    try:
        found = tensors(decode(masked))
        data = [place_of(masked, item.data) if len(item.data) and is_floating(item, place) else None for place, item in enumerate(found)]
    except InvalidRequest as error:
        raise InvalidRequest(f"{error} ({NO_JSON})") from None
    except ERRORS as error:
        refuse(error, "", text, f" ({NO_JSON})")
    try:
        document = decode(blanked(text, [place for place in data if place is not None]))
    except ERRORS:
        check_unseen(text)
        raise InvalidRequest(ONLY_FLOATS) from None
    for item, place in zip(tensors(document), data, strict=True):
        if place is not None:
            item.data = msgspec.Raw(memoryview(text)[place])
    return document


def refuse(error: Exception, place: str, text: Buffer, hint: str = "") -> NoReturn:
    """Say what a decoder found wrong in a text, or in the part of it that has a place."""
    check_unseen(text)
    if not isinstance(error, msgspec.ValidationError):
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    problem, _, path = str(error).replace("`", "").partition(" - at $")
    where = f"{place}{path}".lstrip(".") or "the body"
    raise InvalidRequest(f"{where}: {problem[0].lower()}{problem[1:]}{hint}") from None
