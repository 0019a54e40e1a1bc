"""The flat JSON objects of Triton's generate extension <-> InferenceRequest / InferenceResponse. Knows no URLs, statuses or models.

A request is one object: members that are named after inputs are tensors, `id` is the identifier, and what is left are parameters. A
response is one too, in which a tensor of one element is a scalar and any other a flat list: its shape is lost.

Specification: Triton's Generate Extension.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ..datatypes import Array, dtype_of
from ..errors import InvalidRequest, shown
from ..json import documents
from ..json.data import from_json, to_json
from ..tensors import InferenceRequest, InferenceResponse, Tensor

RESERVED_INPUTS: Final = frozenset({"id", "parameters"})
"""Members of a request that are no inputs."""

RESERVED_OUTPUTS: Final = frozenset({"id", "model_name", "model_version", "error"})
"""Members of a response that are no outputs."""

_OBJECTS: Final = re.compile(rb"[ \t\r\n]*\[[ \t\r\n]*[{\]]")

_DATATYPES: Final = {str: "BYTES", bool: "BOOL", int: "INT64", float: "FP64"}
"""The datatype of an input that is not declared, by what stands in the JSON."""

_encode: Final = msgspec.json.Encoder().encode


class Declared(NamedTuple):
    """What is declared of an input. The shape has -1 for any size."""

    datatype: str
    shape: tuple[int, ...]


def read_object(text: bytes) -> dict[str, msgspec.Raw]:
    """The members of a request.

    Raises:
        InvalidRequest: It is no JSON object.
    """
    if not text:
        raise InvalidRequest("the body is empty: expected a JSON object with a member for each input")
    return documents.members(text)


def is_inference_request(members: Mapping[str, msgspec.Raw], inputs: Collection[str]) -> bool:
    """Whether an object is a whole inference request, as MLServer's clients send it to the same place: its `inputs` are objects."""
    return "inputs" in members and "inputs" not in inputs and _OBJECTS.match(members["inputs"]) is not None


def decode_request(members: Mapping[str, msgspec.Raw], declared: Mapping[str, Declared], named: Collection[str]) -> InferenceRequest:
    """The members of a flat object as a request.

    Args:
        members: The members, as JSON.
        declared: What is declared of inputs, by name.
        named: Inputs that are known by name alone.

    Raises:
        InvalidRequest: A member is not what it has to be; the text names it.
    """
    members = dict(members)
    request_id = _value(members.pop("id")) if "id" in members else None
    if request_id is not None and not isinstance(request_id, str):
        raise InvalidRequest(f"id is {shown(request_id)}: expected a string")
    for name, value in _parameters(members.pop("parameters", None)).items():
        if name in members and (name in declared or name in named):
            raise InvalidRequest(f"input {shown(name)} is there twice: in the object itself and in its parameters")
        members.setdefault(name, value)
    request = InferenceRequest([], request_id, {})
    for name, text in members.items():
        if name in declared:
            request.inputs.append(Tensor(name, _declared_array(name, bytes(text), declared[name])))
        elif name in named:
            request.inputs.append(Tensor(name, _plain_array(name, bytes(text))))
        else:
            request.parameters[name] = _parameter(name, _value(text))
    return request


def _parameters(text: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    if text is None or bytes(text) == b"null":
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise InvalidRequest("parameters: expected an object") from None


def _value(text: msgspec.Raw) -> Any:
    return msgspec.json.decode(text)


def _parameter(name: str, value: Any) -> str | int | float | bool:
    if isinstance(value, (str, int, float)):
        return value
    got = "null" if value is None else "a list" if isinstance(value, list) else "an object"
    raise InvalidRequest(
        f"parameter {shown(name)} is {got}: expected a string, a number, true or false; for a list, the model has to declare "
        f"an input {shown(name)}"
    )


def _declared_array(name: str, text: bytes, spec: Declared) -> Array:
    value, shape = _shape_of(name, text)
    if len(shape) < 2:  # one element, or a flat list, has whatever shape is declared
        shape = _deduced(name, math.prod(shape), spec.shape)
    elif len(shape) != len(spec.shape) or any(wanted not in (-1, size) for wanted, size in zip(spec.shape, shape, strict=True)):
        raise InvalidRequest(f"input {shown(name)} is nested as {list(shape)}: expected a flat list, or {list(spec.shape)}")
    return _array(name, text if isinstance(value, list) else b"[%b]" % text, spec.datatype, shape)


def _plain_array(name: str, text: bytes) -> Array:
    value, shape = _shape_of(name, text)
    while isinstance(value, list) and value and isinstance(value[0], list):
        value = value[0]
    elements = value if isinstance(value, list) else [value]
    kinds = {type(element) for element in elements}
    kind = float if kinds == {int, float} else kinds.pop() if len(kinds) == 1 else None
    if kind not in _DATATYPES and elements:
        raise InvalidRequest(f"input {shown(name)} has elements of several types: expected strings, numbers, or true and false")
    datatype = _DATATYPES.get(kind or float, "FP64")
    return _array(name, text if isinstance(value, list) or shape != (1,) else b"[%b]" % text, datatype, shape)


def _shape_of(name: str, text: bytes) -> tuple[Any, tuple[int, ...]]:
    """A value, and its shape as its first elements tell it: whether the others agree shows when it becomes an array."""
    value = _value(msgspec.Raw(text))
    if value is None or isinstance(value, dict):
        raise InvalidRequest(
            f"input {shown(name)} is {'null' if value is None else 'an object'}: expected a scalar or a list, or leave it out"
        )
    shape: list[int] = []
    part = value
    while isinstance(part, list):
        shape.append(len(part))
        part = part[0] if part else None
    return value, tuple(shape) or (1,)


def _deduced(name: str, elements: int, declared: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of so many elements: the innermost dimension of any size takes what the fixed ones leave, and any other is 1.

    Raises:
        InvalidRequest: That does not come out even.
    """
    fixed = math.prod(size for size in declared if size != -1)
    is_open = -1 in declared
    if (elements % fixed if is_open and fixed else elements != fixed) or (is_open and not fixed and elements):
        raise InvalidRequest(f"input {shown(name)} has {elements} elements, which do not fit the shape {list(declared)}")
    left, shape = elements // fixed if fixed else 0, list(declared)
    for axis in reversed(range(len(shape))):
        if shape[axis] == -1:
            shape[axis], left = left, 1
    return tuple(shape)


def _array(name: str, text: bytes, datatype: str, shape: tuple[int, ...]) -> Array:
    try:
        return from_json(text, dtype_of(datatype), shape)
    except InvalidRequest as error:
        raise InvalidRequest(f"input {shown(name)}: {error}") from None


def encode_head(response: InferenceResponse) -> bytes:
    """What all responses of one request begin with: its identifier, and the model."""
    head = b'{"model_name":%b' % _encode(response.model_name)
    if response.id is not None:
        head = b'{"id":%b,%b' % (_encode(response.id), head[1:])
    return head if response.model_version is None else b'%b,"model_version":%b' % (head, _encode(response.model_version))


def encode_response(response: InferenceResponse, head: bytes) -> bytes:
    """A response as a flat object.

    Args:
        response: The response.
        head: As `encode_head` made it, of this response or another one of the same request.

    Raises:
        InvalidRequest: It cannot be one: a BYTES element is not UTF-8, or two members would have one name.
    """
    parts = [head]
    for tensor in response.outputs:
        if tensor.name in RESERVED_OUTPUTS:
            _check_names(response)
        parts.append(b"%b:%b" % (_encode(tensor.name), _flat(tensor)))
    if response.parameters:
        _check_names(response)
        parts += [b"%b:%b" % (_encode(name), _encode(value)) for name, value in response.parameters.items()]
    return b",".join(parts) + b"}"


def _check_names(response: InferenceResponse) -> None:
    names = set(RESERVED_OUTPUTS)
    for what, members in (("output", [tensor.name for tensor in response.outputs]), ("parameter", list(response.parameters))):
        for name in members:
            if name in names:
                raise InvalidRequest(f"the {what} {shown(name)} has the name of another member: use infer or infer_stream")
            names.add(name)


def _flat(tensor: Tensor) -> bytes:
    if tensor.array.size == 1 and tensor.array.dtype.kind in "iu":
        return b"%d" % tensor.array.item()
    try:
        text = to_json(tensor.array)
    except InvalidRequest as error:
        raise InvalidRequest(f"output {shown(tensor.name)}: {error}: use infer, with binary data") from None
    return text[1:-1] if tensor.array.size == 1 and text.startswith(b"[") else text
