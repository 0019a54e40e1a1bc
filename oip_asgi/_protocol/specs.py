"""Declared tensors, and which shapes fit them. Knows no callables and no wire formats.

Specification: Model Metadata.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

import numpy as np

from .datatypes import (
    FIRST_ROUNDED,
    FLOATING,
    MAX_ELEMENTS,
    MAX_RANK,
    Array,
    Datatype,
    DType,
    cast,
    dtype_of,
    find_overflow,
)
from .errors import InvalidRequest
from .schemas import Parameters
from .tensors import to_plain_name

OTHER_DATATYPES: Final = "other_datatypes"
"""The parameter of an input in metadata that says which datatypes are taken beside its own: "numbers" or
"all"."""
LABELS: Final = "labels"
"""The parameter of an output in metadata that has its labels: a list in JSON, as a parameter is no list."""


class _Resolved:
    """Values that a `TensorSpec` makes from its fields. They stand here so that the dataclass does not take
    them for fields."""

    dtype: DType
    """The numpy dtype of the datatype."""
    _fixed: tuple[tuple[int, int], ...]
    """The axes whose size is declared, and these sizes."""
    parameters: Mapping[str, str]
    """The parameters of the tensor in metadata."""
    is_number: bool = False
    """Whether a column of any datatype is known as one of numbers: whole ones become floats then, as they
    were in the training."""
    other_datatypes: str | None = None
    """Which datatypes are taken beside the declared one, as metadata says it in `OTHER_DATATYPES`; None for
    no other."""


@dataclass(frozen=True)
class TensorSpec(_Resolved):
    """A declared input or output tensor.

    Args:
        name: The tensor's name.
        datatype: One of the protocol's datatypes, such as "FP32".
        shape: The dimensions; -1 stands for any size.
        content_type: How the values are read or written if a request says nothing else, such as "str".
            Metadata shows it among the tensor's `parameters`.
        labels: What the elements of an output's row are called, in order, such as ["cat", "dog"]: clients
            that ask for the largest of them by classification get these.
        format: The order of an image's dimensions, "NCHW" or "NHWC". Clients of images read it in the model's
            configuration.
        example: The elements of an example for the page and the OpenAPI documents, flat, as JSON has them: as
            many as the shape has with 1 for each -1. Left out, they show zeros.
        pd_dtype: The dtype of a data frame's column where its values do not show it, such as "Int64" or
            "datetime64[us]". The column has it in each request, and metadata shows it among the tensor's
            `parameters`. "object[NaN]" is a column of objects in which a missing value is NaN and not None.
        pd_categories: The categories of a column whose `pd_dtype` is "category", as the text of a JSON object
            that `specs_of` writes.
        minimum: The least value of an input of numbers: a tensor with a smaller one is refused, or flagged if
            the model says so. NaN and missing values count as inside. None for no bound. Outputs are not
            checked: their metadata shows no range.
        maximum: The largest value, in the same way.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The datatype is unknown, a dimension is below -1, the name has lone surrogates, the labels
            cannot be those of this tensor, the format is unknown or has not as many dimensions, the example
            has another number of elements, or the range is empty or of no numbers.

    Example:
        >>> TensorSpec("pixels", "UINT8", [-1, 28, 28]).fits((5, 28, 28))
        True

    Specification: Content Types, Model Metadata; Triton's Classification Extension.
    """

    name: str
    datatype: Datatype
    shape: Sequence[int]
    content_type: str | None = None
    labels: Sequence[str] | None = None
    format: str | None = None
    example: Sequence[str | float | bool | None] | None = None
    pd_dtype: str | None = None
    pd_categories: str | None = None
    minimum: float | None = None
    maximum: float | None = None

    def __post_init__(self) -> None:
        here = f"TensorSpec({self.name!r}, {self.datatype!r}, {self.shape!r})"
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"{here}: the name must be a non-empty string")
        object.__setattr__(self, "name", to_plain_name(self.name, here))
        if not isinstance(self.datatype, str):
            raise TypeError(f'{here}: the datatype must be a string, such as "FP32"')
        try:
            object.__setattr__(self, "dtype", dtype_of(self.datatype))
        except InvalidRequest as error:
            raise ValueError(f"{here}: {error}") from None
        if not isinstance(self.shape, (list, tuple)) or not all(
            type(dimension) is int for dimension in self.shape
        ):
            raise TypeError(f"{here}: the shape must be a list of integers, such as [-1, 4]")
        if not all(-1 <= dimension <= MAX_ELEMENTS for dimension in self.shape) or len(self.shape) > MAX_RANK:
            raise ValueError(
                f"{here}: dimensions must be -1 (any size) or more, below 2**60, and at most {MAX_RANK}"
            )
        named = {
            "content_type": self.content_type,
            "pd_dtype": self.pd_dtype,
            "pd_categories": self.pd_categories,
        }
        object.__setattr__(
            self, "parameters", {field: value for field, value in named.items() if value is not None}
        )
        for field, value in self.parameters.items():
            if not isinstance(value, str):
                raise TypeError(f'{here}: {field}={value!r} must be a string, such as pd_dtype="Int64"')
        if (self.pd_dtype == "category") is not (self.pd_categories is not None):
            raise ValueError(
                f'{here}: pd_dtype="category" and pd_categories= go together, as specs_of(frame) writes them'
            )
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(
            self, "_fixed", tuple((axis, size) for axis, size in enumerate(self.shape) if size != -1)
        )
        if self.labels is not None:
            self._check_labels(here)
            object.__setattr__(self, "labels", tuple(map(str, self.labels)))
        if self.format is not None:
            if self.format not in ("NCHW", "NHWC"):
                raise ValueError(f'{here}: format={self.format!r} must be "NCHW" or "NHWC", or left out')
            if len(self.shape) not in (3, 4):
                raise ValueError(
                    f"{here}: format={self.format!r} is for images, whose shape has 3 dimensions, or 4 with "
                    "that of the batch"
                )
        if self.bounds:
            self._check_range(here)
        if self.example is not None:
            if not isinstance(self.example, (list, tuple)) or not all(
                isinstance(each, (str, int, float, NoneType)) for each in self.example
            ):
                raise TypeError(
                    f"{here}: example={self.example!r} must be a flat list of numbers, booleans or strings"
                )
            elements = math.prod(1 if size == -1 else size for size in self.shape)
            if len(self.example) != elements:
                raise ValueError(
                    f"{here}: example= has {len(self.example)} elements, and with 1 for each -1 the shape "
                    f"has {elements}"
                )
            object.__setattr__(self, "example", tuple(map(_to_plain, self.example)))

    def _check_range(self, here: str) -> None:
        bounds = list(self.bounds.values())
        for bound in bounds:
            if type(bound) not in (int, float) or not math.isfinite(bound):
                raise TypeError(f"{here}: minimum= and maximum= are numbers, or left out, not {bound!r}")
        if self.datatype in ("BYTES", "BOOL"):
            raise ValueError(f"{here}: minimum= and maximum= are for numbers")
        wide = np.array(bounds, np.float64)
        if self.datatype in FLOATING and find_overflow(wide, cast(wide, self.dtype)).any():
            raise ValueError(
                f"{here}: {self.datatype} does not reach a bound, so infinity would be inside: leave that "
                "bound out"
            )
        if bounds != sorted(bounds):
            raise ValueError(f"{here}: minimum={self.minimum} is above maximum={self.maximum}")

    @property
    def may_miss(self) -> bool:
        """Whether a list may hold None for a missing value, as far as metadata tells it: it does not say
        which texts and numbers are columns of a data frame."""
        return (
            self.other_datatypes == "all"
            or self.pd_dtype is not None
            or self.content_type in ("datetime", "pd_json")
        )

    @property
    def bounds(self) -> Mapping[str, float]:
        """The bounds that there are."""
        return {
            name: bound
            for name, bound in (("minimum", self.minimum), ("maximum", self.maximum))
            if bound is not None
        }

    def find_outside(self, array: Array) -> tuple[int, float] | None:
        """The place and the value of the first element outside of the range; None if all are inside."""
        values: Any = (
            [_read_number(text) for text in array.ravel()] if array.dtype.hasobject else array.ravel()
        )
        numbers = np.array(values, object) if array.dtype.hasobject else values
        if numbers.dtype.kind == "V":
            numbers = cast(numbers, np.dtype(np.float64))
        outside = np.zeros(numbers.shape, bool)
        for bound, is_outside in ((self.minimum, np.less), (self.maximum, np.greater)):
            if bound is not None:
                # a float would make floats of whole numbers, which rounds the large ones
                exact = int(bound) if numbers.dtype.kind in "iu" and bound == int(bound) else bound
                with np.errstate(invalid="ignore"):  # of NaN among objects
                    outside |= is_outside(numbers, exact)
        if not outside.any():
            return None
        index = int(outside.argmax())
        return index, values[index] if array.dtype.hasobject else numbers[index].item()

    def describe_range(self) -> str:
        if self.minimum is None or self.maximum is None:
            return f"{self.maximum} or less" if self.minimum is None else f"{self.minimum} or more"
        return f"{self.minimum} to {self.maximum}"

    def _check_labels(self, here: str) -> None:
        labels = self.labels
        if not isinstance(labels, (list, tuple)) or not all(isinstance(label, str) for label in labels):
            raise TypeError(f'{here}: labels={labels!r} must be a list of strings, such as ["cat", "dog"]')
        for label in labels:
            if ":" in label:
                raise ValueError(
                    f"{here}: the label {label!r} has a colon, at which clients split what they are told"
                )
            to_plain_name(label, f"{here}: label {label!r}")
        if self.dtype.kind not in "iuf":
            raise ValueError(f"{here}: labels are for integers, FP16, FP32 and FP64")
        row = self.shape if len(self.shape) < 2 else self.shape[1:]
        if -1 not in row and math.prod(row) != len(labels):
            raise ValueError(f"{here}: {len(labels)} labels for {math.prod(row)} elements of each row")

    def complete(self, parameters: Parameters) -> Parameters:
        """A column's own parameters, completed by the declared ones. Its dtype and categories are as
        declared; a date may have a zone."""
        own = {name: value for name, value in parameters.items() if name not in ("pd_dtype", "pd_categories")}
        if self.pd_dtype is None and self.content_type == "datetime" and "pd_dtype" in parameters:
            own["pd_dtype"] = parameters["pd_dtype"]
        return {**self.parameters, **own}

    def takes(self, dtype: DType) -> bool:
        """Whether elements of this dtype may be sent."""
        return dtype == self.dtype

    def to_number(self, array: Array) -> Array:
        """An array of another datatype than the declared one, as the model gets it."""
        return array

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor's shape has the declared rank and fixed dimensions."""
        if len(shape) != len(self.shape):
            return False
        for axis, size in self._fixed:  # noqa: SIM110  (a generator costs more than all of it)
            if shape[axis] != size:
                return False
        return True

    def to_declared_rank(self, array: Array) -> Array:
        """N values as `[N]` or `[N, 1]`, as it is declared: `[N, 1]` is reshaped for `[-1]`, and `[N]` of
        BYTES for `[-1, 1]` and `[-1, -1]`. Other arrays are returned as they are."""
        rank = len(self.shape)
        if rank == 1 and array.ndim == 2 and array.shape[1] == 1:
            return array.reshape(-1)
        if rank == 2 and array.ndim == 1 and self.shape[1] in (-1, 1) and array.dtype.hasobject:
            return array.reshape(-1, 1)
        return array


def fill_shape(declared: Sequence[int], number: int) -> tuple[int, ...] | None:
    """The declared shape of so many elements: the innermost -1 takes what the fixed dimensions leave, and any
    other -1 is 1, or 0 for none. None if they do not fit."""
    fixed, left = abs(math.prod(declared)), number  # each -1 changes the sign only
    if left % fixed if fixed and -1 in declared else left != fixed:
        return None
    left, shape = left // fixed if fixed else 0, list(declared)
    for axis in reversed(range(len(shape))):
        if shape[axis] == -1:
            shape[axis], left = left, min(left, 1)
    return tuple(shape)


def describe_place(shape: tuple[int, ...], index: int) -> str:
    """Where an element stands: in which row, and where in it if rows have several."""
    row, *others = (int(each) for each in np.unravel_index(index, shape)) if shape else (0,)
    if math.prod(shape[1:]) == 1:
        return f"row {row}"
    return f"row {row}, column {others[0]}" if len(others) == 1 else f"row {row}, element {others}"


def _read_number(text: bytes) -> float:
    """The number of a JSON text, as columns with missing values are sent; NaN for one that is missing, or is
    no number."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # the first is refused later, where it is read
        return math.nan
    return value if type(value) in (int, float) else math.nan


def _to_plain(element: str | float | bool | None) -> str | float | bool | None:
    """Numpy's texts and floats are Python's too, but JSON is not written of them."""
    return (
        str(element)
        if isinstance(element, str)
        else float(element)
        if isinstance(element, float)
        else element
    )


def write_spec(name: str, datatype: str, shape: Sequence[int]) -> str:
    """A declaration as it is written in Python."""
    return f'TensorSpec({json.dumps(name)}, "{datatype}", {list(shape)})'


@dataclass(frozen=True)
class OpenSpec(TensorSpec):
    """A tensor that may be more than the declared datatype and shape, which metadata shows."""

    other_datatypes: str | None = None
    any_shape: bool = False
    """Whether any shape is taken. What metadata has to say of it is `[-1]`."""
    gap_dtype: str | None = None
    """The dtype of a column in which texts are missing, unless it came with a dtype that says something
    else."""
    is_number: bool = False

    def takes(self, dtype: DType) -> bool:
        return (
            self.other_datatypes == "all"
            or dtype == self.dtype
            or (self.other_datatypes == "numbers" and not dtype.hasobject)
        )

    def fits(self, shape: tuple[int, ...]) -> bool:
        return self.any_shape or TensorSpec.fits(self, shape)

    def to_number(self, array: Array) -> Array:
        floats = array.astype(np.float64) if self.is_number and array.dtype.kind in "iu" else array
        return array if floats is array or (np.abs(floats) >= FIRST_ROUNDED).any() else floats

    def to_declared_rank(self, array: Array) -> Array:
        return array if self.any_shape else TensorSpec.to_declared_rank(self, array)

    def complete(self, parameters: Parameters) -> Parameters:
        """A column of any datatype has the dtype and the categories that it came with."""
        if self.other_datatypes != "all":
            return TensorSpec.complete(self, parameters)
        has_texts = self.gap_dtype is not None and parameters.get("content_type") == "pd_json"
        return {"pd_dtype": str(self.gap_dtype), **parameters} if has_texts else parameters

    @classmethod
    def find_fields(cls, shape: Sequence[int], parameters: Mapping[str, object]) -> Mapping[str, Any]:
        """What a tensor of metadata is to be: `[-1]` may stand for any shape there, if the model does not say
        it."""
        others = parameters.get(OTHER_DATATYPES)
        return {
            "other_datatypes": others if others in ("numbers", "all") else None,
            "any_shape": tuple(shape) == (-1,),
        }
