"""The arguments of a call, made of a request: what each parameter takes of it, and all that is known of how a
callable is called. Knows no models, and calls nothing.

What is wrong with an input by itself is found in `inputs`; here is what only all of them together, or their
content type, show.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence, Set
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from .._codecs.content_types import Codecs, RequestReader, read_scalar_parameter
from .._codecs.rows import Rows
from .._codecs.rows_as_json import OBJECTS, list_made
from .._extensions.common import OF_PROTOCOL
from .._protocol.context import InferenceContext
from .._protocol.errors import InvalidRequest, show
from .._protocol.limits import LOOP_BYTES
from .._protocol.tensors import InferenceRequest, Tensor, make_tensor
from .callables import Returned
from .inputs import Inputs


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
    arguments = accepted.binding.arguments
    if arguments.rows is not None and OBJECTS in accepted.tensors:
        return arguments.rows.choose(list_made(accepted.tensors[OBJECTS]))
    assert arguments.whole is not None  # a signature with such a parameter has one
    return arguments.whole.read(
        [tensor for name, tensor in accepted.tensors.items() if name not in arguments.named], accepted.request
    )


def take_request(accepted: Accepted, *_: Any) -> InferenceRequest:
    """Take the request. Its inputs are the accepted tensors, which may have another shape than those that
    came."""
    request, rows = accepted.request, accepted.binding.arguments.rows
    if rows is not None and OBJECTS in accepted.tensors:
        return rows.as_json.write_columns(request)
    tensors = list(accepted.tensors.values())
    if all(map(operator.is_, tensors, request.inputs)):
        return request
    return InferenceRequest(tensors, request.id, request.parameters, request.outputs)


def take_default(_: Accepted, __: str, ___: Read | None, default: Any) -> Any:
    return default


PLAIN: Final = frozenset((take_array, take_default, take_request, None))
"""What takes no longer if there are more elements."""


class Parameter(NamedTuple):
    """How one argument is made: `from_` takes it from a call, with the name of its tensor, what reads that,
    and what stands in for it."""

    name: str
    read: Read | None = None
    default: Any = inspect.Parameter.empty
    from_: Callable[[Accepted, str, Read | None, Any], Any] | None = take_tensor
    """None for an `InferenceContext`, of which a request that was accepted knows nothing."""
    keyword: str | None = None  # None for one by position


class Arguments(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How the arguments of a call are made of accepted inputs."""

    parameters: Sequence[Parameter] = ()
    rest: Read | None = None
    """Reads each tensor for `**inputs`, which gets those without a parameter of their own; None without such
    a parameter."""
    whole: RequestReader | None = None
    """Reads all tensors that go to one parameter, such as a data frame; None without such a parameter."""
    named: Set[str] = frozenset()
    """The names of the tensors that have a parameter of their own."""
    reserved: Set[str] = frozenset()
    """Names that no tensor for `**inputs` may have: the callable uses them for something else."""
    of_one_request: type | None = None
    """The type of a parameter that takes more of a request than its tensors; None without such a
    parameter."""

    @property
    def rows(self) -> Rows | None:
        """What makes rows of a class from a request; None if no parameter takes them."""
        return self.whole.codec if self.whole is not None and isinstance(self.whole.codec, Rows) else None

    @property
    def read_parameters(self) -> bool:
        """Whether the callable may read any of the request's parameters."""
        return self.rest is not None or self.of_one_request is not None

    def make(
        self, accepted: Accepted, make_context: Callable[[], InferenceContext]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the keyword arguments for a request that was accepted."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, read, default, from_, keyword in self.parameters:
            value = make_context() if from_ is None else from_(accepted, name, read, default)
            if keyword is None:
                args.append(value)
            else:
                kwargs[keyword] = value
        if self.rest is not None:
            for name, tensor in accepted.tensors.items():
                if name in self.reserved:
                    raise InvalidRequest(
                        f"unknown input {show(name)}: the model uses this name for something else"
                    )
                if name not in self.named:
                    kwargs[name] = self.rest(tensor, accepted.content_type)
        return args, kwargs


class Binding(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How a callable is called with a request: the inputs that it may have, and the arguments of them."""

    inputs: Inputs
    arguments: Arguments
    codecs: Codecs
    returned: Returned = msgspec.field(default_factory=Returned)
    description: str = ""
    refused: Set[str] = frozenset()
    """What a request may not have among its parameters: the names of the callable's that are inputs, unless
    that may read any of them."""
    is_plain: bool = False
    """Whether all its arguments are arrays as they came, or the request itself, of which no element is looked
    at."""
    most_on_loop: int = LOOP_BYTES
    """Bytes of a body up to which the event loop decodes it, whatever it holds."""
    is_untyped: bool = False
    """Whether one parameter has no annotation, so that it can take either one tensor or all of them, such as
    a data frame."""
    knows_columns: bool = True
    """False for an estimator that would take any columns of a data frame, in any order: neither it nor a
    declaration names them."""

    @property
    def read_alone(self) -> Set[str]:
        """The names of the scalars, if these are all that is read of the request's parameters."""
        return frozenset() if self.arguments.read_parameters else self.inputs.scalars

    @property
    def takes_any_key(self) -> bool:
        """Whether each key of a flat object is an input: for a data frame that takes any name, or where
        nothing reads the request's parameters; for `**inputs` alone."""
        arguments, is_alone = self.arguments, self.arguments.of_one_request is None
        if arguments.whole is not None:
            return is_alone or self.inputs.others is not None
        return arguments.rest is not None and is_alone and not self.inputs.entries

    @property
    def may_be_null(self) -> Set[str]:
        """The names of the tensors with None as their default, which null in a flat object and None from
        Python leave out; but not of columns, where it is a missing value."""
        names = {each.name for each in self.arguments.parameters if each.default is None}
        return names and (names & self.arguments.named) - self.inputs.find_columns(names)

    def accept(self, inputs: Sequence[Tensor], content_type: str) -> dict[str, Tensor]:
        """`Inputs.accept`, for a request with a content type, which may make one value of all inputs."""
        arguments, codecs = self.arguments, self.codecs
        self._check_content_type(content_type)
        is_for_tensor = content_type in codecs.inputs
        # MLServer's clients choose the name of the only tensor in requests of `np` and `str`
        if is_for_tensor and content_type in codecs.requests and len(inputs) == 1:
            name = self._find_only_tensor()
            if name is not None and inputs[0].name != name:
                inputs = [make_tensor(name, inputs[0].array, inputs[0].parameters)]
        try:
            return self.inputs.accept(inputs, content_type)
        except InvalidRequest as error:
            if arguments.whole is not None or is_for_tensor:
                raise
            raise InvalidRequest(
                f"{error}; with the content_type {show(content_type)} the model takes one column for each "
                "of its parameters "
                f"({self._list_parameters()})"
            ) from None

    def _find_only_tensor(self) -> str | None:
        """The name of the only tensor that a request may have."""
        arguments = self.arguments
        if arguments.rest or arguments.whole or arguments.of_one_request is InferenceRequest:
            return None
        tensors = self.inputs.entries.keys() - self.inputs.scalars
        return tensors.pop() if len(tensors) == 1 else None

    def _check_content_type(self, content_type: str) -> None:
        arguments, codecs = self.arguments, self.codecs
        reader = arguments.whole
        if reader is not None and content_type != reader.codec.content_type:
            raise InvalidRequest(
                f"the request has the content_type {show(content_type)}, which cannot become "
                f"{reader.annotation}, "
                f"as the model takes it: expected {reader.codec.content_type}, or none"
            )
        is_of_columns = reader is not None or content_type in codecs.of_columns
        if content_type in codecs.request_only and not is_of_columns and (arguments.named or arguments.rest):
            raise InvalidRequest(
                f"the request has the content_type {show(content_type)}, which makes one value of all "
                "inputs, but the model takes "
                f"{self._list_parameters()}: leave it out"
            )

    def _list_parameters(self) -> str:
        """The parameters, for messages."""
        return (
            ", ".join(str(entry) for entry in self.inputs.entries.values() if entry.reader is not None)
            or "**inputs"
        )
