"""What a request may hold: the inputs that a callable takes, and whether there may be others. A wrong name,
datatype, shape or range is 400 here. Knows no annotations, no arguments and no models.

What fits is `TensorSpec.takes`, `fits` and `find_outside`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from .._codecs.column_dtypes import MISSING, explain_column, holds_missing
from .._codecs.columns import write_objects
from .._codecs.content_types import Reader
from .._codecs.rows_as_json import OBJECTS, Objects
from .._protocol.datatypes import widen
from .._protocol.errors import InvalidRequest, describe_expected, find_near, list_names, show
from .._protocol.limits import MAX_COLUMNS, MAX_TENSORS
from .._protocol.specs import TensorSpec, describe_place
from .._protocol.tensors import Tensor, make_tensor

Becomes: TypeAlias = Literal["series", "column", "field", "value"]
"""What an input becomes: a `pd.Series`, a column of a data frame, a field of rows, or any other value. In the
first three, values may be missing, and `[N, 1]` is taken for `[N]`."""


class Input(msgspec.Struct, frozen=True, eq=False):
    """One input: what `inputs=` or an annotation declares of it, and the reader of its parameter, None if it
    has no parameter of its own.

    If it `is_needed`, a request must have it. A scalar may be among the request's parameters instead.
    """

    name: str
    spec: TensorSpec | None = None
    reader: Reader | None = None
    content_type: str | None = None
    """The content type with which it is read if a request names no other."""
    is_needed: bool = True
    is_unannotated: bool = False
    """True if it is declared and its parameter has no annotation: the content type of a request decides which
    Python type it becomes."""
    becomes: Becomes = "value"

    @property
    def is_scalar(self) -> bool:
        return self.reader is not None and self.reader.scalar is not None

    def find_spec(self) -> TensorSpec | None:
        """Its spec for metadata; None if nothing is known."""
        metadata = None if self.reader is None else self.reader.metadata
        return TensorSpec(self.name, *metadata) if self.spec is None and metadata is not None else self.spec

    def describe(self) -> TensorSpec:
        """Its spec for documents, with a guess of what is unknown."""
        spec = self.find_spec() or TensorSpec(self.name, "FP32", (-1,))
        if spec.content_type == self.content_type and spec.labels is None and spec.format is None:
            return spec
        return replace(spec, content_type=self.content_type, labels=None, format=None)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.reader.annotation}" if self.reader and self.reader.annotation else self.name
        )


class Inputs(msgspec.Struct, frozen=True, eq=False):
    """The inputs of which something is known, by name and in their order, and which others a request may
    have. `make_inputs` makes it."""

    entries: Mapping[str, Input]
    required: Set[str]
    """The names of the tensors that each request must have."""
    scalars: Set[str]
    """The names of the inputs that may be among the request's parameters."""
    ranged: Mapping[str, TensorSpec]
    """What declares a range."""
    others: Becomes | None
    """What other inputs become; None if a request may have no others."""

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """What metadata says of the inputs of which something is known."""
        return tuple(spec for entry in self.entries.values() if (spec := entry.find_spec()) is not None)

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The names of the inputs of which nothing is known."""
        return tuple(name for name, entry in self.entries.items() if entry.find_spec() is None)

    def find_columns(self, names: Iterable[str]) -> Set[str]:
        """Those of some inputs that become columns: values of theirs may be missing."""
        entries, others = self.entries, self.others
        becomes = {name: entries[name].becomes if name in entries else others for name in names}
        # an unknown one counts too, so that it is refused for its name
        return {name for name, what in becomes.items() if what != "value"}

    def check_number(self, inputs: int) -> None:
        """Refuse a request with more inputs than it may have."""
        if self.others in ("series", "column") and inputs > MAX_COLUMNS:
            raise InvalidRequest(
                f"the request has {inputs} columns: expected {MAX_COLUMNS} at most, as the model does not "
                "declare them"
            )
        if inputs > MAX_TENSORS:
            raise InvalidRequest(f"the request has {inputs} inputs: expected {MAX_TENSORS} at most")

    def accept(self, inputs: Sequence[Tensor], content_type: str | None = None) -> dict[str, Tensor]:
        """Check the inputs of a request, which says their `content_type` if that is not None. Those that are
        as declared come back as they are; new tensors replace those that can be made so."""
        entries, required = self.entries, self.required
        tensors: dict[str, Tensor] = {}
        wrong: Input | None = None
        for tensor in inputs:
            entry = entries.get(tensor.name)
            if entry is not None and entry.spec is not None:
                spec, array = entry.spec, tensor.array
                if content_type is not None or "content_type" in tensor.parameters:
                    array = spec.to_declared_rank(array)
                    if array is not tensor.array:
                        tensor = make_tensor(tensor.name, array, tensor.parameters)
                dtype = array.dtype
                if (dtype is not spec.dtype and dtype != spec.dtype) or not spec.fits(array.shape):
                    fitted = _fit(tensor, entry, spec)
                    if fitted is None:
                        wrong = wrong or entry
                    else:
                        tensor = fitted
            tensors[tensor.name] = tensor
        if tensors.keys() != required or len(tensors) != len(inputs):
            if len(inputs) == 1 and type(inputs[0]) is Objects:  # rows, which their class checks
                return {OBJECTS: inputs[0]}
            self._check_names(inputs)
        if wrong is not None:
            raise _make_unfit_error(tensors[wrong.name], wrong)
        return tensors

    def list_outside(self, tensors: Mapping[str, Tensor], *, flags: bool) -> Sequence[str]:
        """The names of the tensors that have a value outside of the declared range, of a model that `flags`
        them. Others are refused."""
        names: list[str] = []
        for name, spec in self.ranged.items():
            outside = spec.find_outside(tensors[name].array) if name in tensors else None
            if outside is None:
                continue
            names.append(name)
            if not flags:
                index, value = outside
                raise InvalidRequest(
                    f"input {show(name)}, {describe_place(tensors[name].shape, index)}: {value} is out of "
                    f"range: expected {spec.describe_range()}"
                )
        return names

    def _check_names(self, inputs: Sequence[Tensor]) -> None:
        self.check_number(len(inputs))
        seen: set[str] = set()
        for tensor in inputs:
            name = tensor.name
            if name in seen:
                raise InvalidRequest(f"input {show(name)} is there twice: expected each name once")
            seen.add(name)
            if self.others is None and name not in self.entries:
                names = sorted(self.entries)
                expected = describe_expected(names, find_near(name, names)) if names else "expected no inputs"
                raise InvalidRequest(f"unknown input {show(name)}: {expected}")
        if not self.required <= seen:
            raise InvalidRequest(
                f"missing input {_list_inputs(self.required - seen)}: expected "
                f"{_list_inputs(self.required)}, but got {_list_inputs(seen)}"
            )


def make_inputs(entries: Iterable[Input], others: Becomes | None) -> Inputs:
    by_name = {entry.name: entry for entry in entries}
    scalars = frozenset(name for name, entry in by_name.items() if entry.is_scalar)
    return Inputs(
        by_name,
        frozenset(name for name, entry in by_name.items() if entry.is_needed) - scalars,
        scalars,
        {name: entry.spec for name, entry in by_name.items() if entry.spec and entry.spec.bounds},
        others,
    )


def _fit(tensor: Tensor, entry: Input, spec: TensorSpec) -> Tensor | None:
    """A tensor of another datatype or shape than the declared ones, as declared; None if it does not fit."""
    if spec.takes(tensor.array.dtype) and spec.fits(tensor.shape):
        return _widen(tensor, spec)
    if entry.becomes == "value":
        return None
    column = write_objects(
        make_tensor(tensor.name, spec.to_declared_rank(tensor.array), tensor.parameters), spec
    )
    column.parameters = spec.complete(column.parameters)
    is_fit = spec.takes(column.array.dtype) or holds_missing(column, spec.dtype)
    return column if is_fit and spec.fits(column.shape) else None


def _widen(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """A tensor of another datatype than the declared one, which estimators take if it is one of numpy's. A
    column of numbers in which all are missing has no datatype of its own: it is one of floats."""
    is_missing = (
        spec.is_number
        and tensor.array.dtype.hasobject
        and {*tensor.array.ravel()} == {MISSING.get(tensor.parameters.get("content_type"))}
    )
    array = np.full(tensor.shape, np.nan) if is_missing else spec.to_number(widen(tensor.array))
    # what its parameters say of its elements is no longer so
    return tensor if array is tensor.array else make_tensor(tensor.name, array, {})


def _make_unfit_error(tensor: Tensor, entry: Input) -> InvalidRequest:
    spec = entry.spec
    assert spec is not None  # what nobody declared fits
    if not spec.takes(tensor.array.dtype):
        hint = f"; {explain_column(tensor, spec)}" if entry.becomes == "column" else ""
        return InvalidRequest(
            f"input {show(tensor.name)} has datatype {tensor.datatype}: expected {spec.datatype}{hint}"
        )
    return InvalidRequest(
        f"input {show(tensor.name)} has shape {list(tensor.shape)}: expected {list(spec.shape)}"
    )


def _list_inputs(names: Set[str]) -> str:
    return list_names(sorted(names)) or "no inputs"
