"""Typed contents of gRPC's requests: which field holds a datatype, and how much of it a request may have. Knows no protobuf and no models.

A library parses a message in one call, which holds the interpreter, and makes an object of each tensor and parameter. So what it is given
is limited.

Format: gRPC, `ModelInferRequest`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from .._protocol.datatypes import MAX_RANK, Buffer
from .._protocol.errors import InvalidRequest, TooLarge
from .._protocol.limits import MAX_TENSORS
from .._protocol.tensor_bytes import count
from .wire import BYTES, VARINT, fields_of

TYPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BOOL": "bool_contents",
        "UINT8": "uint_contents",
        "UINT16": "uint_contents",
        "UINT32": "uint_contents",
        "UINT64": "uint64_contents",
        "INT8": "int_contents",
        "INT16": "int_contents",
        "INT32": "int_contents",
        "INT64": "int64_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
        "BYTES": "bytes_contents",
    }
)
"""For each datatype, the field of `InferTensorContents` that holds it. FP16 and BF16 have none: they travel raw."""

MAX_PARSED: Final = 2**23
"""The most bytes of a request that a library parses: all but its raw contents."""

_OTHERS: Final = "fields of other kinds"
_KINDS: Final = {4 << 3 | BYTES: "parameters", 5 << 3 | BYTES: "inputs", 6 << 3 | BYTES: "outputs", 7 << 3 | BYTES: "raw contents"}
_KINDS_IN: Final[Mapping[int, Mapping[int, str]]] = {
    5 << 3 | BYTES: {
        1 << 3 | BYTES: "names",
        2 << 3 | BYTES: "datatypes",
        3 << 3 | VARINT: "dimensions",
        3 << 3 | BYTES: "dimensions",
        4 << 3 | BYTES: "parameters",
        5 << 3 | BYTES: "contents",
    },
    6 << 3 | BYTES: {1 << 3 | BYTES: "names of outputs", 2 << 3 | BYTES: "parameters"},
}
"""What the fields of a request are by their tags, and those of its inputs and requested outputs. It may have `MAX_TENSORS` of each."""

_MAX_SHAPE: Final = 10 * MAX_RANK
"""The most bytes of dimensions, which have ten each at most."""


def check_parsed(message: Buffer) -> None:
    """Look at the size of a long request, without its raw contents, and at how much a library would make of it."""
    if len(message) > MAX_PARSED:
        raise TooLarge(
            f"the request has {len(message)} bytes beside raw_input_contents, typed contents mostly: expected {MAX_PARSED} at most: "
            "send raw_input_contents, in a request of 5000 inputs at most"
        )
    numbers = Counter[str]()
    try:
        for what, size in _counted(memoryview(message)):
            numbers[what] += 1
            if what == "dimensions" and size > _MAX_SHAPE:
                raise InvalidRequest(f"the shape of an input has more than {MAX_RANK} dimensions")
            if numbers[what] > MAX_TENSORS:
                raise InvalidRequest(f"the request has more than {MAX_TENSORS} {what}")
    except (IndexError, KeyError):
        raise InvalidRequest("the request cannot be parsed: expected the bytes of inference.ModelInferRequest") from None


def _counted(message: memoryview) -> Iterator[tuple[str, int]]:
    """What each field is in a request and in its tensors, and how many bytes it has."""
    for tag, value, end in fields_of(message):
        yield _KINDS.get(tag, _OTHERS), end - value
        if tag in _KINDS_IN:
            kinds = _KINDS_IN[tag]
            for inner, start, stop in fields_of(message[value:end]):
                yield kinds.get(inner, _OTHERS), stop - start


def field_of(datatype: str) -> str:
    """The field of `InferTensorContents` that holds a datatype."""
    field = TYPED.get(datatype)
    if field is None:
        raise InvalidRequest(f"datatype {datatype} has no field in contents: send it as raw_input_contents")
    return field


def check_count(elements: int, field: str, shape: tuple[int, ...]) -> None:
    """Compare how many elements there are with the shape."""
    expected = count(shape)
    if elements != expected:
        raise InvalidRequest(f"contents.{field} has {elements} elements: expected {expected} for shape {list(shape)}")
