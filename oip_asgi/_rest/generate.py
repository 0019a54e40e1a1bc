"""The flat JSON objects of Triton's generate extension <-> InferenceRequest / InferenceResponse. Knows no URLs, statuses or models.

A request is one object: members that are named after inputs are tensors, `id` is the identifier, and all others are parameters. A
response is one too, in which a tensor of one element is a scalar and any other a flat list: its shape is lost.

Specification: Triton's Generate Extension.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from .._json import flat
from .._json.data import from_json, to_value
from .._json.text import ONLY_FLOATS
from .._protocol.datatypes import Array, Buffer, dtype_of
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor

RESERVED_INPUTS: Final = frozenset({"id", "parameters"})
"""Members of a request that are no inputs."""

RESERVED_OUTPUTS: Final = frozenset({"id", "model_name", "model_version", "error"})
"""Members of a response that are no outputs."""

_OBJECTS: Final = re.compile(rb"[ \t\r\n]*\[[ \t\r\n]*[{\]]")

_DATATYPES: Final[Mapping[flat.Kind, str]] = MappingProxyType({"string": "BYTES", "bool": "BOOL", "int": "INT64", "float": "FP64"})
"""The datatype of an input that is not declared, by the kind of its JSON."""

_NO_SCALAR: Final = {ord("["): "a list", ord("{"): "an object", ord("n"): "null"}
"""What errors call a value that is no scalar, by its first character."""

_decode_scalar: Final = msgspec.json.Decoder(str | int | float | bool).decode
_encode: Final = msgspec.json.Encoder().encode


class Declared(NamedTuple):
    """What is declared of an input. The shape has -1 for any size."""

    datatype: str
    shape: tuple[int, ...]


def read_object(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of a request."""
    if not text:
        raise InvalidRequest("the body is empty: expected a JSON object with a member for each input")
    return flat.read(text)


def is_inference_request(members: Mapping[str, msgspec.Raw], inputs: Collection[str]) -> bool:
    """True if an object is an inference request, as MLServer's clients send it to the same path: its `inputs` are objects."""
    return "inputs" in members and "inputs" not in inputs and _OBJECTS.match(members["inputs"]) is not None


def decode_request(request: Mapping[str, msgspec.Raw], declared: Mapping[str, Declared], named: Collection[str]) -> InferenceRequest:
    """A flat object as a request."""
    members = dict(request)
    request_id = _read_id(members.pop("id")) if "id" in members else None
    for name, value in _read_parameters(members.pop("parameters", None)).items():
        if name in members and (name in declared or name in named):
            raise InvalidRequest(f"input {show(name)} is there twice: in the object itself and in its parameters")
        members.setdefault(name, value)
    made = InferenceRequest([], request_id, {})
    for name, value in members.items():
        if name in declared or name in named:
            made.inputs.append(Tensor(name, _read_input(name, bytes(value), declared.get(name))))
            continue
        what = _name_no_scalar(value)
        if what is not None:
            raise InvalidRequest(
                f"parameter {show(name)} is {what}: expected a string, a number, true or false; for a list, the model has to declare an "
                f"input {show(name)}"
            )
        made.parameters[name] = _read_scalar(f"parameter {show(name)}", value)
    return made


def _read_parameters(text: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    if text is None or bytes(text) == b"null":
        return {}
    try:
        return flat.read_members(bytes(text))
    except msgspec.ValidationError:
        raise InvalidRequest("parameters: expected an object") from None


def _read_id(text: msgspec.Raw) -> str | None:
    what = _name_no_scalar(text)
    if what == "null":
        return None
    value = None if what else _read_scalar("id", text)
    if isinstance(value, str):
        return value
    raise InvalidRequest(f"id is {what or show(value)}: expected a string")


def _name_no_scalar(text: Buffer) -> str | None:
    """What errors call a value that is no scalar; None for a scalar. Such a value is not decoded, as it may be long."""
    return _NO_SCALAR.get(memoryview(text)[0])


def _read_scalar(what: str, text: msgspec.Raw) -> str | int | float | bool:
    try:
        scalar: str | int | float | bool = _decode_scalar(text)
    except msgspec.DecodeError as error:
        if not isinstance(error, msgspec.ValidationError):  # all is JSON but for the literals
            raise InvalidRequest(ONLY_FLOATS) from None
        raise InvalidRequest(f"{what}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    return scalar


def _read_input(name: str, text: bytes, spec: Declared | None) -> Array:
    """A member as an array. If its input is not declared, its elements decide the datatype."""
    here, what, shape = f"input {show(name)}", _name_no_scalar(text), flat.shape_of(text)
    if what not in (None, "a list"):
        raise InvalidRequest(f"{here} is {what}: expected a scalar or a list, or leave it out")
    if shape is None:
        text, shape = b"[%b]" % text, (1,)
    if spec is None:
        kind = flat.kind_of(text)
        if kind is None:
            raise InvalidRequest(f"{here} has elements of several types: expected strings, numbers, or true and false")
        datatype = _DATATYPES[kind]
    else:
        datatype = spec.datatype
        if len(shape) < 2:  # one element, or a flat list, has whatever shape is declared
            shape = _deduce_shape(here, shape[0], spec.shape)
        elif len(shape) != len(spec.shape) or any(wanted not in (-1, size) for wanted, size in zip(spec.shape, shape, strict=True)):
            raise InvalidRequest(f"{here} is nested as {list(shape)}: expected a flat list, or {list(spec.shape)}")
    try:
        return from_json(text, dtype_of(datatype), shape)
    except InvalidRequest as error:
        raise InvalidRequest(f"{here}: {error}") from None


def _deduce_shape(here: str, elements: int, declared: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of so many elements: the innermost -1 takes what the fixed dimensions leave, and any other -1 is 1."""
    fixed = math.prod(size for size in declared if size != -1)
    is_open = -1 in declared
    if (elements % fixed if is_open and fixed else elements != fixed) or (is_open and not fixed and elements):
        raise InvalidRequest(f"{here} has {elements} elements, which do not fit the shape {list(declared)}")
    left, shape = elements // fixed if fixed else 0, list(declared)
    for axis in reversed(range(len(shape))):
        if shape[axis] == -1:
            shape[axis], left = left, 1
    return tuple(shape)


def encode_head(response: InferenceResponse) -> bytes:
    """Encode what all responses of one request begin with: its identifier, and the model."""
    head = b'{"model_name":%b' % _encode(response.model_name)
    if response.id is not None:
        head = b'{"id":%b,%b' % (_encode(response.id), head[1:])
    return head if response.model_version is None else b'%b,"model_version":%b' % (head, _encode(response.model_version))


def encode_response(response: InferenceResponse, head: bytes) -> bytes:
    """A response as a flat object."""
    if response.parameters:
        _check_names(response)
    parts = [head]
    for tensor in response.outputs:
        if tensor.name in RESERVED_OUTPUTS:
            _check_names(response)
        try:
            text = _encode(to_value(tensor.array))
        except InvalidRequest as error:
            raise InvalidRequest(f"output {show(tensor.name)}: {error}: use infer, with binary data") from None
        parts.append(b"%b:%b" % (_encode(tensor.name), text[1:-1] if tensor.array.size == 1 else text))
    for name, value in response.parameters.items():
        parts.append(b"%b:%b" % (_encode(name), _encode(value)))
    return b",".join(parts) + b"}"


def _check_names(response: InferenceResponse) -> None:
    names = set(RESERVED_OUTPUTS)
    for what, members in (("output", [tensor.name for tensor in response.outputs]), ("parameter", list(response.parameters))):
        for name in members:
            if name in names:
                raise InvalidRequest(f"the {what} {show(name)} has the name of another member: use infer or infer_stream")
            names.add(name)
