"""Checks the inputs of a request against what a callable takes, and makes its arguments of them. Knows no
annotations and no models.

A wrong name, datatype, shape or range is 400 here; what fits is `TensorSpec.takes`, `fits` and
`find_outside`. Nothing here calls the callable.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np

from .._codecs.column_dtypes import MISSING, explain_column, holds_missing
from .._codecs.column_writing import write_objects
from .._codecs.content_types import Codecs, Reader, RequestReader, read_scalar_parameter
from .._codecs.rows import Rows
from .._codecs.rows_as_json import OBJECTS, Objects, list_made
from .._extensions.reserved import OF_PROTOCOL
from .._protocol.datatypes import widen
from .._protocol.errors import InvalidRequest, describe_expected, find_near, list_names, show
from .._protocol.limits import LOOP_BYTES, LOOP_COLUMNS, MAX_COLUMNS, MAX_TENSORS
from .._protocol.specs import TensorSpec, describe_place
from .._protocol.tensors import InferenceContext, InferenceRequest, Tensor, make_tensor
from .annotations import Returned


class Accepted(Protocol):
    """A request that the model accepts: all from which the arguments of a call are made.

    `content_type` is that of the request, if it applies to each tensor.
    """

    @property
    def binding(self) -> Binding: ...
    @property
    def tensors(self) -> dict[str, Tensor]: ...
    @property
    def content_type(self) -> str | None: ...
    @property
    def request(self) -> InferenceRequest: ...
    def make_context(self) -> InferenceContext: ...


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


Read: TypeAlias = Callable[[Tensor, str | None], Any]


def take_array(accepted: Accepted, name: str, read: Read | None, default: Any) -> Any:
    """Take the array of the tensor `name` as it is, if neither it nor the request has a content type."""
    tensor = accepted.tensors.get(name)
    if tensor is None or tensor.parameters or accepted.content_type is not None:
        return take_tensor(accepted, name, read, default)
    return tensor.array


def take_tensor(accepted: Accepted, name: str, read: Read | None, default: Any) -> Any:
    """Take the value of the tensor `name`, or the default if the request has no such tensor."""
    tensor = accepted.tensors.get(name)
    return default if tensor is None or read is None else read(tensor, accepted.content_type)


def take_scalar(kind: type, accepted: Accepted, name: str, read: Read | None, default: Any) -> Any:
    """Take the one element of the tensor `name`, else the request's parameter of this name, else the
    default."""
    parameters, tensor = accepted.request.parameters, accepted.tensors.get(name)
    if name not in parameters or name in OF_PROTOCOL:
        if tensor is None and default is inspect.Parameter.empty:
            raise InvalidRequest(
                f"missing input {show(name)}: send it as an input of shape [1], or among the request's "
                "parameters"
            )
        return take_tensor(accepted, name, read, default)
    if tensor is not None:
        raise InvalidRequest(f"{show(name)} is there twice: as an input and in the request's parameters")
    return read_scalar_parameter(kind, name, parameters[name])


def take_unnamed(accepted: Accepted, *_: Any) -> Any:
    """Take one value of all tensors without a parameter of their own."""
    named, reader, rows = accepted.binding.named, accepted.binding.request_reader, accepted.binding.rows
    if rows is not None and OBJECTS in accepted.tensors:
        return rows.choose(list_made(accepted.tensors[OBJECTS]))
    assert reader is not None  # a signature with such a parameter has one
    return reader.read(
        [tensor for name, tensor in accepted.tensors.items() if name not in named], accepted.request
    )


def take_request(accepted: Accepted, *_: Any) -> InferenceRequest:
    """Take the request. Its inputs are the accepted tensors, which may have another shape than those that
    came."""
    request, rows = accepted.request, accepted.binding.rows
    if rows is not None and OBJECTS in accepted.tensors:
        return rows.as_json.write_columns(request)
    tensors = list(accepted.tensors.values())
    if all(map(operator.is_, tensors, request.inputs)):
        return request
    return InferenceRequest(tensors, request.id, request.parameters, request.outputs, request.decoders)


def take_context(accepted: Accepted, *_: Any) -> InferenceContext:
    return accepted.make_context()


def take_default(_: Accepted, __: str, ___: Read | None, default: Any) -> Any:
    return default


_PLAIN: Final = frozenset((take_array, take_context, take_default, take_request))
"""What takes no longer if there are more elements."""


class Parameter(NamedTuple):
    """How one argument is made: `from_` takes it from a call, with the name of its tensor, what reads that,
    and what stands in for it."""

    name: str
    read: Read | None = None
    default: Any = inspect.Parameter.empty
    from_: Callable[[Accepted, str, Read | None, Any], Any] = take_tensor
    keyword: str | None = None  # None for one by position


class Bound(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What `bind` decides of a callable: its inputs, and how its arguments are made of them."""

    entries: Collection[Input]
    parameters: Collection[Parameter]
    codecs: Codecs
    is_open: bool
    rest: Read | None = None
    """Reads each tensor for `**inputs`, which gets those without a parameter of their own; None without such
    a parameter."""
    makes_series: bool = False
    """Whether each tensor for `**inputs` becomes a `pd.Series`."""
    request_reader: RequestReader | None = None
    """Reads all tensors that go to one parameter, such as a data frame; None without such a parameter."""
    of_one_request: type | None = None
    """The type of a parameter that takes more of a request than its tensors; None without such a
    parameter."""
    reserved: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    """The names of the callable's parameters."""
    is_untyped: bool = False
    """Whether one parameter has no annotation, so that it can take either one tensor or all of them, such as
    a data frame."""
    knows_columns: bool = True
    """False for an estimator that would take any columns of a data frame, in any order: neither it nor a
    declaration names them."""
    flags_ranges: bool = False
    """Whether values outside of a declared range are answered and flagged. If not, they are refused."""
    returned: Returned = msgspec.field(default_factory=Returned)
    description: str = ""


class Binding(Bound, frozen=True, kw_only=True, eq=False):
    """How a callable is called: what was decided of it, and what follows from that for each request.
    `make_binding` makes it."""

    inputs: tuple[TensorSpec, ...]
    """What metadata says of the inputs of which something is known."""
    undeclared: tuple[str, ...]
    """The names of the inputs of which nothing is known."""
    scalars: frozenset[str]
    """The names of the inputs that may be among the request's parameters."""
    refused: frozenset[str]
    """The names of the callable's parameters that a request may send as inputs, but not among its own
    parameters."""
    read_alone: frozenset[str]
    """The names of the scalars, if these are all that is read of the request's parameters."""
    takes_any_key: bool
    """Whether each key of a flat object is an input: for a data frame that takes any name, or where nothing
    reads the request's parameters; for `**inputs` alone."""
    is_plain: bool
    """Whether all its arguments are arrays as they came, or the request itself, of which no element is looked
    at."""
    most_on_loop: int
    """Bytes of a body up to which the event loop decodes it, whatever it holds."""
    takes_frame: bool
    """Whether one parameter is a data frame, whose columns are the inputs that no other parameter has."""
    rows: Rows | None
    """What makes the rows of a class of a request; None for other parameters."""
    named: frozenset[str]
    """The names of the tensors that have a parameter of their own."""
    columns: frozenset[str]
    """The names of the tensors that are read as a `pd.Series`. As columns of a frame, only these may differ
    from what is declared."""
    may_be_null: frozenset[str]
    """The names of the tensors with None as their default, for which null stands in a flat object."""
    required: frozenset[str]
    """The names of the tensors that each request must have."""
    _specs: dict[str, TensorSpec]
    _ranged: dict[str, TensorSpec]
    _known: frozenset[str] | None  # the names of all inputs; None if it may have others
    _single_input: str | None  # the name of the only tensor

    def find_columns(self, names: Iterable[str]) -> Set[str]:
        """Those of some inputs that are columns: values of theirs may be missing."""
        return self.columns.union(set(names) - self.named) if self.takes_frame else self.columns

    def check_number(self, inputs: int) -> None:
        """Refuse a request with more inputs than it may have."""
        if self.is_open and (self.takes_frame or self.makes_series) and inputs > MAX_COLUMNS:
            raise InvalidRequest(
                f"the request has {inputs} columns: expected {MAX_COLUMNS} at most, as the model does not "
                "declare them"
            )
        if inputs > MAX_TENSORS:
            raise InvalidRequest(f"the request has {inputs} inputs: expected {MAX_TENSORS} at most")

    def accept_request(self, request: InferenceRequest, content_type: str | None) -> dict[str, Tensor]:
        """Check a request's inputs against the signature. The request itself stays as it is."""
        inputs = request.inputs
        if content_type is None:
            return self.accept_inputs(inputs)
        self._check_content_type(content_type)
        is_for_tensor, name = content_type in self.codecs.inputs, self._single_input
        # MLServer's clients choose the name of the only tensor in requests of `np` and `str`
        if (
            name is not None
            and is_for_tensor
            and content_type in self.codecs.requests
            and len(inputs) == 1
            and inputs[0].name != name
        ):
            inputs = [make_tensor(name, inputs[0].array, inputs[0].parameters)]
        try:
            return self.accept_inputs(inputs, content_type)
        except InvalidRequest as error:
            if self.request_reader is not None or is_for_tensor:
                raise
            raise InvalidRequest(
                f"{error}; with the content_type {show(content_type)} the model takes one column for each "
                "of its parameters "
                f"({self._list_parameters()})"
            ) from None

    def accept_inputs(self, inputs: Sequence[Tensor], content_type: str | None = None) -> dict[str, Tensor]:
        """`accept_request`, for a request without a content type, or with one that is checked already."""
        if self.rows is not None and len(inputs) == 1 and type(inputs[0]) is Objects:
            return {OBJECTS: inputs[0]}
        specs, required, present = self._specs, self.required, 0
        tensors: dict[str, Tensor] = {}
        wrong: str | None = None
        for tensor in inputs:
            name = tensor.name
            if name in required:
                present += 1
            spec = specs.get(name)
            if spec is not None:
                array = tensor.array
                if content_type is not None or "content_type" in tensor.parameters:
                    array = spec.to_declared_rank(array)
                    if array is not tensor.array:
                        tensor = make_tensor(name, array, tensor.parameters)
                dtype = array.dtype
                if (dtype is not spec.dtype and dtype != spec.dtype) or not spec.fits(array.shape):
                    column = (
                        _widen(tensor, spec)
                        if spec.takes(dtype) and spec.fits(array.shape)
                        else self._fit_column(tensor, spec)
                    )
                    wrong, tensor = (wrong or name, tensor) if column is None else (wrong, column)
            tensors[name] = tensor
        if not present == len(required) == len(tensors) == len(inputs):
            self._check_names(inputs)
        if wrong is not None:
            raise _make_unfit_error(
                tensors[wrong],
                specs[wrong],
                is_column=self.rows is None and self.request_reader is not None and wrong not in self.named,
            )
        if self._ranged and not self.flags_ranges:
            self._check_ranges(tensors)
        return tensors

    def list_outside(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The names of the tensors that have a value outside of the declared range, of a model that is called
        with them nevertheless."""
        return [
            name
            for name, spec in self._ranged.items()
            if name in tensors and spec.find_outside(tensors[name].array) is not None
        ]

    def _check_ranges(self, tensors: Mapping[str, Tensor]) -> None:
        for name, spec in self._ranged.items():
            outside = spec.find_outside(tensors[name].array) if name in tensors else None
            if outside is not None:
                index, value = outside
                place = describe_place(tensors[name].shape, index)
                raise InvalidRequest(
                    f"input {show(name)}, {place}: {value} is out of range: expected {spec.describe_range()}"
                )

    def _fit_column(self, tensor: Tensor, spec: TensorSpec) -> Tensor | None:
        """The tensor as a column of a data frame: reshaped from `[N, 1]`, or with missing values. None if it
        does not fit."""
        if tensor.name in self.named - self.columns or (
            self.request_reader is None and spec.pd_dtype is None
        ):
            return None
        column = write_objects(
            make_tensor(tensor.name, spec.to_declared_rank(tensor.array), tensor.parameters), spec
        )
        column.parameters = spec.complete(column.parameters)
        is_fit = spec.takes(column.array.dtype) or holds_missing(column, spec.dtype)
        return column if is_fit and spec.fits(column.shape) else None

    def _check_names(self, inputs: Sequence[Tensor]) -> None:
        self.check_number(len(inputs))
        seen: set[str] = set()
        for tensor in inputs:
            name = tensor.name
            if name in seen:
                raise InvalidRequest(f"input {show(name)} is there twice: expected each name once")
            seen.add(name)
            if self._known is not None and name not in self._known:
                names = sorted(self._known)
                expected = describe_expected(names, find_near(name, names)) if names else "expected no inputs"
                raise InvalidRequest(f"unknown input {show(name)}: {expected}")
            if name in self.reserved:
                raise InvalidRequest(
                    f"unknown input {show(name)}: the model uses this name for something else"
                )
        if not self.required <= seen:
            raise InvalidRequest(
                f"missing input {_list_inputs(self.required - seen)}: expected "
                f"{_list_inputs(self.required)}, but got {_list_inputs(seen)}"
            )

    def _check_content_type(self, content_type: str) -> None:
        reader, codecs = self.request_reader, self.codecs
        if not self.knows_columns:
            raise InvalidRequest(
                f"the request has the content_type {show(content_type)}, but the model does not know the "
                "names of its columns, so it would "
                "take any, in any order: leave it out, and send one tensor of all columns"
            )
        if reader is not None and content_type != reader.codec.content_type:
            raise InvalidRequest(
                f"the request has the content_type {show(content_type)}, which cannot become "
                f"{reader.annotation}, "
                f"as the model takes it: expected {reader.codec.content_type}, or none"
            )
        is_refused = (
            reader is None and content_type in codecs.request_only and content_type not in codecs.of_columns
        )
        if is_refused and (self.named or self.rest):
            raise InvalidRequest(
                f"the request has the content_type {show(content_type)}, which makes one value of all "
                "inputs, but the model takes "
                f"{self._list_parameters()}: leave it out"
            )

    def _list_parameters(self) -> str:
        """The parameters, for messages."""
        return ", ".join(str(entry) for entry in self.entries if entry.reader is not None) or "**inputs"

    def make_arguments(self, accepted: Accepted) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the keyword arguments for a request that was accepted."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, read, default, from_, keyword in self.parameters:
            value = from_(accepted, name, read, default)
            if keyword is None:
                args.append(value)
            else:
                kwargs[keyword] = value
        if self.rest is not None:
            for name, tensor in accepted.tensors.items():
                if name not in self.named:
                    kwargs[name] = self.rest(tensor, accepted.content_type)
        return args, kwargs


def make_binding(bound: Bound) -> Binding:
    entries, rest, reader, kind = bound.entries, bound.rest, bound.request_reader, bound.of_one_request
    specs = [(entry.name, entry.find_spec()) for entry in entries]
    declared = {entry.name: entry.spec for entry in entries if entry.spec is not None}
    scalars = frozenset(entry.name for entry in entries if entry.is_scalar)
    tensors = [entry.name for entry in entries if entry.name not in scalars]
    named = frozenset(entry.name for entry in entries if entry.reader is not None)
    columns = frozenset(
        entry.name for entry in entries if entry.reader is not None and entry.reader.is_column
    )
    takes_rest, takes_all, is_alone = rest is not None, reader is not None, kind is None
    takes_any = takes_rest or takes_all or kind is InferenceRequest
    reads_others = takes_rest or not is_alone
    ranged = {name: spec for name, spec in declared.items() if spec.has_range}
    rows = reader.codec if reader is not None and isinstance(reader.codec, Rows) else None
    takes_frame = reader is not None and reader.codec.content_type == "pd"
    return Binding(
        **msgspec.structs.asdict(bound),
        inputs=tuple(spec for _, spec in specs if spec is not None),
        undeclared=tuple(name for name, spec in specs if spec is None),
        scalars=scalars,
        refused=frozenset() if reads_others else bound.names - scalars,
        read_alone=frozenset() if reads_others else scalars,
        takes_any_key=(takes_all and (bound.is_open or is_alone))
        or (takes_rest and is_alone and not entries),
        most_on_loop=LOOP_COLUMNS if bound.makes_series or (takes_frame and rows is None) else LOOP_BYTES,
        takes_frame=takes_frame,
        is_plain=not (takes_rest or ranged) and {each.from_ for each in bound.parameters} <= _PLAIN,
        rows=rows,
        named=named,
        columns=columns,
        may_be_null=frozenset(each.name for each in bound.parameters if each.default is None)
        & named - columns,
        required=frozenset(entry.name for entry in entries if entry.is_needed) - scalars,
        _specs=declared,
        _ranged=ranged,
        _known=None if bound.is_open else frozenset(entry.name for entry in entries),
        _single_input=None if takes_any or len(tensors) != 1 else tensors[0],
    )


def _widen(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """A tensor of another datatype than the declared one, which estimators take if it is one of numpy's. A
    column of numbers in which all are missing has no datatype of its own: it is one of floats."""
    is_missing = (
        spec.is_number
        and tensor.array.dtype.hasobject
        and {*tensor.array.ravel()} == {MISSING.get(tensor.parameters.get("content_type"))}
    )
    array = np.full(tensor.shape, np.nan) if is_missing else spec.to_number(widen(tensor.array))
    return (
        tensor
        if array is tensor.array
        else make_tensor(tensor.name, array, {} if is_missing else tensor.parameters)
    )


def _make_unfit_error(tensor: Tensor, spec: TensorSpec, *, is_column: bool) -> InvalidRequest:
    if tensor.array.dtype != spec.dtype:
        hint = f"; {explain_column(tensor, spec)}" if is_column else ""
        return InvalidRequest(
            f"input {show(tensor.name)} has datatype {tensor.datatype}: expected {spec.datatype}{hint}"
        )
    return InvalidRequest(
        f"input {show(tensor.name)} has shape {list(tensor.shape)}: expected {list(spec.shape)}"
    )


def _list_inputs(names: Set[str]) -> str:
    return list_names(sorted(names)) or "no inputs"
