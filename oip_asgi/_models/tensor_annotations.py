"""The datatype and shape in an annotation without `TensorSpec`: `npt.NDArray[np.float32]`, `Annotated[np.ndarray, "FP32", [-1, 4]]`.

Knows no callables and no requests.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from .._protocol.datatypes import DTYPES, datatype_of
from .specs import AnyShape, TensorSpec

_ABSTRACT: Final = frozenset(
    {np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact, np.floating, np.complexfloating}
    | {np.flexible, np.character}
)
"""numpy's classes of several dtypes: an annotation with one of them names no datatype."""

_LIKE_A_DATATYPE: Final = re.compile(r"(?i)(u?int|fp|float|bf|bfloat)\d+")

_KNOWN: Final = ", ".join([*DTYPES, "BF16"])


class TensorAnnotation(NamedTuple):
    """A tensor's datatype and shape, as an annotation says them.

    Args:
        datatype: One of the protocol's datatypes, or "" for elements that it has none for.
        shape: The dimensions, -1 for any size; None if they are unknown.
        unreadable: numpy's name for elements that no input can hold, else None.
    """

    datatype: str
    shape: tuple[int, ...] | None = None
    unreadable: str | None = None

    def spec(self, name: str) -> TensorSpec | None:
        """The declaration of a tensor of this name; None if the protocol has no datatype for it."""
        if not self.datatype:
            return None
        return AnyShape(name, self.datatype, [-1]) if self.shape is None else TensorSpec(name, self.datatype, self.shape)


def parse_array(args: Sequence[Any]) -> TensorAnnotation | None:
    """Parse the arguments of `np.ndarray[shape, np.dtype[scalar]]`, which `npt.NDArray[scalar]` stands for."""
    dtype = args[1] if len(args) == 2 else None
    scalar = next(iter(typing.get_args(dtype)), None) if typing.get_origin(dtype) is np.dtype else None
    if not isinstance(scalar, type) or not issubclass(scalar, np.generic) or scalar in _ABSTRACT:
        return None
    shape = _shape(args[0])
    if issubclass(scalar, (np.object_, np.character)):
        return TensorAnnotation("BYTES", shape, "str_" if issubclass(scalar, np.str_) else None)
    datatype = datatype_of(np.dtype(scalar).newbyteorder("<"))
    return TensorAnnotation(datatype or "", shape, None if datatype else scalar.__name__)


def _shape(argument: Any) -> tuple[int, ...] | None:
    """The shape in `tuple[int, Literal[4]]`: `int` is any size. None if the rank is unknown."""
    sizes = typing.get_args(argument)
    if typing.get_origin(argument) is not tuple or not sizes or Ellipsis in sizes:
        return None
    return tuple(_size(size) for size in sizes)


def _size(argument: Any) -> int:
    values = typing.get_args(argument) if typing.get_origin(argument) is Literal else ()
    return values[0] if len(values) == 1 and type(values[0]) is int else -1


def parse_extras(annotation: Any, extras: Sequence[Any]) -> TensorAnnotation | None:
    """Parse `Annotated[..., "FP32", [-1, 4]]`: a datatype, and a shape or none. Other extras, such as texts for readers, are ignored."""
    shapes = [extra for extra in extras if isinstance(extra, (list, tuple)) and all(type(size) is int for size in extra)]
    texts = [extra for extra in extras if isinstance(extra, str)]
    datatype = next((text for text in texts if text in DTYPES or text == "BF16"), None)
    if datatype is not None:
        shape = tuple(shapes[0]) if shapes else None
        TensorSpec("x", datatype, shape or ())  # raises if it cannot be one
        return TensorAnnotation(datatype, shape)
    meant = next((text for text in texts if shapes or _LIKE_A_DATATYPE.fullmatch(text)), None)
    if meant is not None:
        raise TypeError(f"{inspect.formatannotation(annotation)}: {meant!r} is no datatype: expected one of {_KNOWN}")
    if shapes:
        raise TypeError(
            f"{inspect.formatannotation(annotation)} has a shape and no datatype: write "
            f'Annotated[np.ndarray, "FP32", {list(shapes[0])}], or TensorSpec("name", "FP32", {list(shapes[0])})'
        )
    return None
