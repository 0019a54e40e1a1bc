"""The JSON text of a request or a response -> its document. Knows no tensors, and nothing of the binary data
after the JSON.

One decoder that knows all types reads a short text, with its `data`. If it refuses, or the text is long, what
may be large is decoded part by part: so no call makes many objects at once, and the error names the place.

Specification: Inference Request JSON Object, Inference Response JSON Object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from .._protocol import schemas
from .._protocol.datatypes import FLOATING, MAX_RANK, Buffer
from .._protocol.errors import InvalidRequest, show
from .._protocol.limits import MAX_TENSORS, NO_64_BITS, has_64_bits
from .text import ERRORS, NO_JSON, NO_SCALARS, OF_TENSORFLOW, ONLY_FLOATS, check_members, check_unseen, refuse

MAX_PARAMETERS: Final = 100_000
"""How many parameters one object may have. Each takes ten times its text."""

_MAX_MEMBERS: Final = 7 * MAX_TENSORS + MAX_PARAMETERS
"""How many members all objects of a request may have: five of each input, two of each output, and
parameters."""

_MASKS: Final = {b"-Infinity": b"-1.555555", b"Infinity": b"1.555555", b"NaN": b"1.5"}
"""What Python's json writes for non-finite numbers -> a number of the same length."""

decode_short: Final = msgspec.json.Decoder(schemas.InferenceRequest).decode
"""Decodes the JSON of a short request, with its `data`. What is unusual raises one of `REFUSALS`."""

_decode_parts: Final = msgspec.json.Decoder(schemas.RequestParts).decode
_decode_shape: Final = msgspec.json.Decoder(tuple[schemas.Dimension, ...]).decode
_decode_parameters: Final = msgspec.json.Decoder(schemas.UncheckedParameters | None, float_hook=float).decode
_decode_response: Final = msgspec.json.Decoder(schemas.ReceivedResponse).decode

_NO_INPUTS: Final = "Object missing required field `inputs`"
"""What the decoder says of a plain object."""

_OTHER_INPUTS: Final = (
    "Expected `array`, got `object` - at `$.inputs`",
    "Expected `object`, got `array` - at `$.inputs[0]`",
)
"""What it says of the inputs of TensorFlow Serving, by name or of a single one."""

_PLAIN: Final = "; a plain object is for generate or generate_stream"

T = TypeVar("T")


class Request(NamedTuple):
    """A request of any length. Its inputs can be iterated over once."""

    id: str | None
    parameters: schemas.Parameters | None
    outputs: list[schemas.RequestOutput]
    inputs: Iterable[schemas.TensorText]


def read_request(text: Buffer) -> Request:
    """The JSON of any request. Its inputs are decoded one by one, and their `data` are left as text."""
    check_members(text, _MAX_MEMBERS, "the JSON has")
    parts = _decode(text, _decode_parts, lambda parts: parts.inputs)
    outputs = [
        schemas.RequestOutput(output.name, _read_parameters(output.parameters, f"outputs[{index}]."))
        for index, output in enumerate(parts.outputs or ())
    ]
    for number, what in ((len(parts.inputs), "inputs"), (len(outputs), "outputs")):
        if number > MAX_TENSORS:
            raise InvalidRequest(f"the request has {number} {what}: expected {MAX_TENSORS} at most")
    return Request(
        parts.id, _read_parameters(parts.parameters, ""), outputs, _read_inputs(text, parts.inputs)
    )


def _read_parameters(text: msgspec.Raw, path: str) -> schemas.Parameters | None:
    if not len(text):
        return None
    check_members(text, MAX_PARAMETERS, "the request has")
    parameters: schemas.Parameters | None = _decode_part(_decode_parameters, text, f"{path}parameters")
    for name, value in (parameters or {}).items():
        if type(value) in NO_SCALARS:
            what = NO_SCALARS[type(value)]
            raise InvalidRequest(
                f"{path}parameters[{show(name)}] is {what}: expected a string, a number, true or false"
            )
        if type(value) is float and math.isinf(value):
            raise InvalidRequest(f"{path}parameters[{show(name)}]: number out of range")
        if type(value) is int and not has_64_bits(value):
            raise InvalidRequest(f"{path}parameters[{show(name)}] {NO_64_BITS}")
    return parameters


def _read_inputs(text: Buffer, inputs: list[schemas.InputParts]) -> Iterator[schemas.TensorText]:
    """Decode one input after the other. The parts of one are freed before the next."""
    inputs.reverse()
    for number in range(len(inputs)):
        parts, path = inputs.pop(), f"inputs[{number}]"
        if bytes(parts.shape).count(b",") > MAX_RANK * MAX_RANK:
            raise InvalidRequest(f"{path}.shape has too many dimensions: at most {MAX_RANK} are possible")
        shape = _decode_part(_decode_shape, parts.shape, f"{path}.shape")
        parameters: Any = _read_parameters(parts.parameters, f"{path}.")
        yield schemas.TensorText(parts.name, shape, parts.datatype, parameters, parts.data)
    check_unseen(text)  # at the end, so that errors in data name the input


def _decode_part(decode: Callable[[msgspec.Raw], T], text: msgspec.Raw, path: str, hint: str = "") -> T:
    try:
        return decode(text)
    except ERRORS as error:
        refuse(error, path, text, hint)


def read_response(text: Buffer) -> schemas.ReceivedResponse:
    """The JSON of a response, or of an error, as a document."""
    document = _decode(text, _decode_response, lambda document: document.outputs or ())
    check_unseen(text)
    return document


def _decode(text: Buffer, decode: Callable[[Buffer], T], tensors: Callable[[T], Sequence[Any]]) -> T:
    """A text as a document. The `data` of floating-point tensors may have literals that are no JSON."""
    try:
        return decode(text)
    except ERRORS as error:
        masked = None if isinstance(error, msgspec.ValidationError) else _mask_literals(text)
        if masked is None:
            refuse(error, "", text, _find_hint(str(error), text))
    return _decode_literals(text, masked, decode, tensors)


def _find_hint(problem: str, text: Buffer) -> str:
    """What to write in the place of a document of another protocol."""
    if problem == _NO_INPUTS:
        return OF_TENSORFLOW if b'"instances"' in bytes(text) else _PLAIN
    return OF_TENSORFLOW if problem in _OTHER_INPUTS else ""


def _decode_literals(
    text: Buffer, masked: bytes, decode: Callable[[Buffer], T], tensors: Callable[[T], Sequence[Any]]
) -> T:
    """The masked text shows the places of the data. The text without them must be JSON."""
    try:
        masked_items = tensors(decode(masked))
    except ERRORS as error:
        refuse(error, "", text, f" ({NO_JSON})")
    view, parts, end = memoryview(text), list[Buffer](), 0
    data: dict[int, memoryview] = {}
    for number, item in enumerate(masked_items):
        if len(item.data) and item.datatype in FLOATING:
            start = _find_address(item.data) - _find_address(masked)
            parts += view[end:start], b"0"
            end = start + len(item.data)
            data[number] = view[start:end]
    try:
        document = decode(b"".join([*parts, view[end:]]))
    except ERRORS:
        check_unseen(text)
        for number, item in enumerate(masked_items):
            if isinstance(item.shape, msgspec.Raw):  # it may be here
                _decode_part(_decode_shape, item.shape, f"inputs[{number}].shape", f" ({NO_JSON})")
        raise InvalidRequest(ONLY_FLOATS) from None
    items = tensors(document)
    for number, literal in data.items():
        items[number].data = msgspec.Raw(literal)
    return document


def _mask_literals(text: Buffer) -> bytes | None:
    """A text of the same length, with numbers in the place of the literals; None if it has none. Strings may
    be changed too."""
    masked = whole = bytes(text)
    for literal, number in _MASKS.items():
        masked = masked.replace(literal, number)
    return None if masked == whole else masked


def _find_address(part: Any) -> int:
    return int(np.frombuffer(part, np.uint8).__array_interface__["data"][0])
