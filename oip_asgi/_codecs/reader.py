"""Reads tensors as the Python values of parameters. `registry` decides which codec does it. Knows no callables and no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import InferenceRequest, Tensor, make_tensor
from .base import AnyRequestCodec

Decode: TypeAlias = Callable[[Tensor], Any]


class Scalar(NamedTuple):
    """What a Python scalar, as in `threshold: float = 0.5`, is made of: a tensor of one element, or a request's parameter."""

    datatypes: tuple[str, ...]  # metadata shows the first of these
    content_types: tuple[str, ...]
    kinds: tuple[type, ...]  # of parameters
    expected: str


_INTEGERS: Final = ("INT64", "INT8", "INT16", "INT32", "UINT8", "UINT16", "UINT32", "UINT64")

SCALARS: Final[Mapping[type, Scalar]] = MappingProxyType(
    {
        float: Scalar(("FP64", "FP16", "BF16", "FP32", *_INTEGERS), ("np",), (float, int), "a number"),
        int: Scalar(_INTEGERS, ("np",), (int,), "an integer"),
        bool: Scalar(("BOOL",), ("np",), (bool,), "true or false"),
        str: Scalar(("BYTES",), ("np", "str"), (str,), "a string"),
    }
)


def read_scalar(kind: type, tensor: Tensor) -> Any:
    """The only element of a tensor."""
    datatypes = SCALARS[kind].datatypes
    if tensor.datatype not in datatypes:
        raise InvalidRequest(
            f"input {show(tensor.name)} has datatype {tensor.datatype}: expected {' or '.join(datatypes)} for {kind.__name__}"
        )
    if tensor.array.size != 1:
        raise InvalidRequest(f"input {show(tensor.name)} has shape {list(tensor.shape)}: expected [1] or [] for {kind.__name__}")
    value = tensor.array.item()
    if kind is not str:
        return kind(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"input {show(tensor.name)} is {show(value)}, which is not UTF-8: {error}") from None


def read_scalar_parameter(kind: type, name: str, value: object) -> Any:
    """A request's parameter as a scalar."""
    if not isinstance(value, SCALARS[kind].kinds) or isinstance(value, bool) is not (kind is bool):
        raise InvalidRequest(f"parameters[{show(name)}] is {show(value)}: expected {SCALARS[kind].expected}")
    return kind(value)


def get_array(tensor: Tensor) -> Any:
    """A tensor's elements as they are."""
    return tensor.array


class Reader(msgspec.Struct, frozen=True, eq=False):
    """How one parameter's tensor becomes its Python value: by the content type that the request says, else by `default`."""

    annotation: str
    """As text; empty if there is none."""
    default: Decode
    by_content_type: Mapping[str, Decode]
    """For the content types that make what the annotation asks for."""
    datatypes: tuple[str, ...] = ()
    """The only ones that can be read; empty for any."""
    metadata: tuple[str, tuple[int, ...], str | None] | None = None
    """The datatype, shape and content type for metadata of an input that is not declared; None if nothing is known."""
    scalar: type | None = None
    """The Python type of one element, if the value is that and may come as a request's parameter too."""
    content_type: str | None = None
    """The one that `default` reads; None if it takes the tensor's elements as they are."""

    def read(self, tensor: Tensor, of_request: str | None) -> Any:
        content_type = tensor.parameters.get("content_type", of_request) if tensor.parameters else of_request
        decode = self.default if content_type is None else self.by_content_type.get(str(content_type))
        if decode is None:
            known = ", ".join(self.by_content_type)
            raise InvalidRequest(
                f"input {show(tensor.name)} has the content_type {show(content_type)}, which cannot become {self.annotation}, "
                f"as the model takes it: expected {known}, or none"
            )
        try:
            return decode(tensor)
        except ValueError as error:
            raise InvalidRequest(f"input {show(tensor.name)}: {error}") from error


class RequestReader(msgspec.Struct, frozen=True, eq=False):
    """How several tensors become one Python value, such as a data frame."""

    annotation: str
    content_type: str
    codec: AnyRequestCodec
    declared: Mapping[str, str]
    """The content types of inputs, by name."""
    decoders: Mapping[str, Decode]
    """For content types that are not this package's."""

    def read(self, tensors: list[Tensor], request: InferenceRequest) -> Any:
        """The value of some tensors of a request. A tensor without content type is read with the declared one."""
        if self.declared:
            tensors = list(map(self._add_declared_type, tensors))
        try:
            return self.codec.decode_request(InferenceRequest(tensors, request.id, request.parameters, request.outputs, self.decoders))
        except ValueError as error:
            raise InvalidRequest(f"the request: {error}") from error

    def _add_declared_type(self, tensor: Tensor) -> Tensor:
        content_type = self.declared.get(tensor.name)
        if content_type is None or "content_type" in tensor.parameters:
            return tensor
        return make_tensor(tensor.name, tensor.array, {"content_type": content_type, **tensor.parameters})
