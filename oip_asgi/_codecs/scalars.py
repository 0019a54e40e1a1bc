"""One element of a tensor as a Python scalar, for parameters such as `threshold: float = 0.5`. Knows no requests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from .._protocol.errors import InvalidRequest, shown
from .._protocol.tensors import Tensor

_INTEGERS: Final = ("INT64", "INT8", "INT16", "INT32", "UINT8", "UINT16", "UINT32", "UINT64")

SCALARS: Final[Mapping[type, tuple[str, ...]]] = MappingProxyType(
    {float: ("FP64", "FP16", "BF16", "FP32", *_INTEGERS), int: _INTEGERS, bool: ("BOOL",), str: ("BYTES",)}
)
"""The Python types, and the datatypes that each is read from. Metadata shows the first of these."""

CONTENT_TYPES: Final[Mapping[type, tuple[str, ...]]] = MappingProxyType({float: ("np",), int: ("np",), bool: ("np",), str: ("np", "str")})
"""The content types that a request may say for a tensor of one element."""

_PLAIN: Final[Mapping[type, tuple[type, ...]]] = MappingProxyType({float: (float, int), int: (int,), bool: (bool,), str: (str,)})
"""What a request's parameter may be for each."""


def scalar_of(kind: type, tensor: Tensor) -> Any:
    """The only element of a tensor."""
    if tensor.datatype not in SCALARS[kind]:
        raise InvalidRequest(
            f"input {shown(tensor.name)} has datatype {tensor.datatype}: expected {' or '.join(SCALARS[kind])} for {kind.__name__}"
        )
    if tensor.array.size != 1:
        raise InvalidRequest(f"input {shown(tensor.name)} has shape {list(tensor.shape)}: expected [1] or [] for {kind.__name__}")
    value = tensor.array.item()
    if kind is not str:
        return kind(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"input {shown(tensor.name)} is {shown(value)}, which is not UTF-8: {error}") from None


def scalar_of_parameter(kind: type, name: str, value: object) -> Any:
    """A request's parameter as a scalar."""
    if not isinstance(value, _PLAIN[kind]) or isinstance(value, bool) is not (kind is bool):
        raise InvalidRequest(f"parameters[{shown(name)}] is {shown(value)}: expected {_CALLED[kind]}")
    return kind(value)


_CALLED: Final[Mapping[type, str]] = MappingProxyType({float: "a number", int: "an integer", bool: "true or false", str: "a string"})
