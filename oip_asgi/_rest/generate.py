"""The flat JSON objects of Triton's generate extension <-> InferenceRequest / InferenceResponse. Knows no
URLs, statuses or models.

A request is one object: members that are named after inputs are tensors, `id` is the identifier, and all
others are parameters. A response is one too, in which a tensor of one element is a scalar and any other a
flat list: its shape is lost.

Specification: Triton's Generate Extension.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import NoneType
from typing import Any, Final

import msgspec

from .._codecs.entering import enter
from .._codecs.plain import NO_DATE, DatetimeCodec, PandasJSONCodec
from .._codecs.rows_as_json import RowsAsJSON
from .._json.tensor_data import to_value
from .._json.text import ERRORS, NO_SCALARS, OF_TENSORFLOW, ONLY_FLOATS, Literal
from .._protocol.errors import InvalidRequest, describe_expected, find_near, show
from .._protocol.limits import NO_64_BITS, has_64_bits
from .._protocol.specs import TensorSpec
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor

RESERVED_INPUTS: Final = frozenset({"id", "parameters"})
"""Members of a request that are no inputs."""

RESERVED_OUTPUTS: Final = frozenset({"id", "model_name", "model_version", "error"})
"""Members of a response that are no outputs."""

_LIKENESS: Final = 0.83
"""The least likeness of two names at which one is taken for a misspelling of the other: `temprature` is one
of `temperature`, and `top_p` is not one of `top_k`."""

_MOST_COMPARED: Final = 50_000
"""Pairs of characters in two lists of names: to compare these takes 10 milliseconds at most."""

_encode: Final = msgspec.json.Encoder().encode


def decode_request(
    request: Mapping[str, Any],
    declared: Mapping[str, TensorSpec],
    named: Collection[str],
    columns: Collection[str] = (),
    may_be_null: Collection[str] = (),
) -> InferenceRequest:
    """A flat object as a request. Inputs that are `columns` of a data frame may have missing values. Those
    that `may_be_null` are left out if they are."""
    for name in RESERVED_INPUTS.intersection(declared, request):
        raise InvalidRequest(f"input {show(name)} has the name of another member of the object: use infer")
    members = dict(request)
    request_id, parameters = _read_id(members.pop("id", None)), members.pop("parameters", None)
    if not isinstance(parameters, (dict, NoneType)):
        raise InvalidRequest("parameters: expected an object")
    for name, value in (parameters or {}).items():
        if name in members and (name in declared or name in named):
            raise InvalidRequest(
                f"input {show(name)} is there twice: in the object itself and in its parameters"
            )
        members.setdefault(name, value)
    names = declared.keys() | named
    unknown = sorted(members.keys() - names)
    if unknown:
        _check_spelling(unknown, names, names - members.keys())
    inference = InferenceRequest([], request_id, {})
    for name, value in members.items():
        if value is None and name in may_be_null:
            continue
        if name in names:
            inference.inputs.append(
                enter(name, value, declared.get(name), is_json=True, is_column=name in columns)
            )
            continue
        what = NO_SCALARS.get(type(value))
        if what is not None:
            declare = f"; for a list, the model has to declare an input {show(name)}"
            hint = OF_TENSORFLOW if name in ("inputs", "instances") else declare
            raise InvalidRequest(
                f"parameter {show(name)} is {what}: expected a string, a number, true or false{hint}"
            )
        inference.parameters[name] = _check_scalar(f"parameter {show(name)}", value)
    return inference


def _check_spelling(unknown: Collection[str], names: Collection[str], missing: Collection[str]) -> None:
    """Refuse the misspelled name of a missing input. As a parameter, it would silently leave an optional
    input at its default."""
    if len(", ".join(unknown)) * len(", ".join(missing)) > _MOST_COMPARED:
        return
    for name in unknown:
        near = find_near(name, missing, _LIKENESS)
        if near is not None:
            raise InvalidRequest(f"unknown input {show(name)}: {describe_expected(sorted(names), near)}")


def _read_id(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    _check_scalar("id", value)
    raise InvalidRequest(f"id is {NO_SCALARS.get(type(value)) or show(value)}: expected a string")


def _check_scalar(what: str, value: Any) -> Any:
    if type(value) is Literal:
        raise InvalidRequest(ONLY_FLOATS)
    if type(value) is float and math.isinf(value):
        raise InvalidRequest(f"{what}: number out of range")
    if type(value) is int and not has_64_bits(value):
        raise InvalidRequest(f"{what} {NO_64_BITS}")
    return value


class FlatEncoder:
    """Encodes the responses to one request as flat objects. What all of them begin with, and a name that
    comes again, is encoded once."""

    def __init__(self, response: InferenceResponse) -> None:
        head = b'{"model_name":%b' % _encode(response.model_name)
        if response.id is not None:
            head = b'{"id":%b,%b' % (_encode(response.id), head[1:])
        if response.model_version is not None:
            head = b'%b,"model_version":%b' % (head, _encode(response.model_version))
        self._head = head
        self._names: dict[str, bytes] = {}

    def encode(self, response: InferenceResponse) -> bytes:
        head, names = self._head, self._names
        if isinstance(response, RowsAsJSON):  # of one row
            _check_names(response.names, response.parameters)
            more = (
                b",%b:%b" % (_encode(name), _encode(value)) for name, value in response.parameters.items()
            )
            return b"%b,%b%b}" % (head, response.text[2:-2], b"".join(more))
        parameters, parts = response.parameters, [head]
        if parameters:
            _check_names([tensor.name for tensor in response.outputs], parameters)
        for tensor in response.outputs:
            name, array = tensor.name, tensor.array
            if name not in names:
                if name in RESERVED_OUTPUTS:
                    _check_names([name], ())
                names[name] = b",%b:" % _encode(name)
            try:
                text = _write_elements(tensor) if tensor.parameters else _encode(to_value(array))
            except InvalidRequest as error:
                raise InvalidRequest(f"output {show(name)}: {error}: use infer, with binary data") from None
            parts += names[name], text[1:-1] if array.size == 1 else text
        if parameters:
            parts += [b",%b:%b" % (_encode(name), _encode(value)) for name, value in parameters.items()]
        if len(names) > len(response.outputs):  # else they might grow without end
            self._names = {}
        parts.append(b"}")
        return b"".join(parts)


def encode_rows(response: InferenceResponse) -> bytes:
    """A response as a list of flat objects, one for each row of its outputs."""
    if isinstance(response, RowsAsJSON):
        return response.text
    numbers = {tensor.shape[:1] for tensor in response.outputs}
    if len(numbers) != 1 or () in numbers:
        raise InvalidRequest(
            "the outputs have no row for each row of the request: send an object with a list for each input"
        )
    columns = {tensor.name: _read_elements(tensor) for tensor in response.outputs}
    return _encode(
        [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    )


def _read_elements(tensor: Tensor) -> list[Any]:
    """The elements of a tensor as JSON has them, of each row."""
    values: list[Any] = msgspec.json.decode(_write_elements(tensor))
    shape = tensor.shape
    width = math.prod(shape[1:])
    return values if len(shape) == 1 else [values[row * width : (row + 1) * width] for row in range(shape[0])]


def _write_elements(tensor: Tensor) -> bytes:
    """The JSON list of a tensor's elements. Values of a column among which some are no texts are as they are,
    and a missing date is null."""
    array, content_type = tensor.array, tensor.parameters.get("content_type")
    elements = array.ravel().tolist() if array.dtype.hasobject else []
    if content_type == DatetimeCodec.content_type and NO_DATE in elements:
        with suppress(UnicodeDecodeError):  # `to_value` says which element is no text
            return _encode([None if element == NO_DATE else element.decode() for element in elements])
    if content_type == PandasJSONCodec.content_type:
        text = (b"[%b]" % b",".join(elements)).translate(None, b"\r\n")  # which end a line of an event
        with suppress(*ERRORS):
            if len(msgspec.json.decode(text)) == array.size:
                return text
    return _encode(to_value(array))


def _check_names(outputs: Collection[str], parameters: Collection[str]) -> None:
    names = set(RESERVED_OUTPUTS)
    for what, members in (("output", outputs), ("parameter", parameters)):
        for name in members:
            if name in names:
                raise InvalidRequest(
                    f"the {what} {show(name)} has the name of another member: use infer or infer_stream"
                )
            names.add(name)
