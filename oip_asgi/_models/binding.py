"""A request -> the arguments of a callable, in the way that was decided from its signature. Knows no annotations and no models.

Nothing here calls the callable.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from .._codecs.reader import Reader, RequestReader
from .._codecs.registry import Codecs
from .._codecs.scalars import scalar_of_parameter
from .._protocol.errors import InvalidRequest, shown
from .._protocol.tensors import ELSEWHERE, InferenceContext, InferenceRequest, Tensor, known_tensor
from .annotations import Returned
from .specs import InputNames, TensorSpec

OF_PROTOCOL: Final = frozenset(
    {"binary_data_output", "content_type", "headers", "priority", "sequence_end", "sequence_id", "sequence_start", "timeout", *ELSEWHERE}
)
"""Parameters of requests that mean something else than an argument of the model."""


class Given(Protocol):
    """One call of a callable, with all that its arguments are made of."""

    @property
    def binding(self) -> Binding:
        """How the callable is called."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The input tensors by name, as `Binding.accept` returned them."""

    @property
    def content_type(self) -> str | None:
        """The request's content type, if it is one for each tensor; see `Binding.content_type_of_tensors`."""

    @property
    def request(self) -> InferenceRequest:
        """The request that was accepted."""

    def context(self) -> InferenceContext:
        """Make the context of the request."""


class Shown(NamedTuple):
    """The inputs of a callable as a document shows them to people, each with the content type that its values are read with.

    An input that is not declared is a guess: FP32 of shape `[-1]`, unless its annotation needs another datatype.

    Args:
        required: The inputs that a request must have.
        optional: The inputs that it may have.
        is_open: Whether it may have others too.
    """

    required: tuple[TensorSpec, ...] = ()
    optional: tuple[TensorSpec, ...] = ()
    is_open: bool = False


Taker: TypeAlias = Callable[[Given], Any]


def tensor_of(name: str, read: Callable[[Tensor, str | None], Any], *, takes_array: bool = False) -> Taker:
    """Take the value of the tensor `name`."""

    def take(given: Given) -> Any:
        tensor = given.tensors[name]
        if takes_array and not tensor.parameters and given.content_type is None:
            return tensor.array
        return read(tensor, given.content_type)

    return take


def tensor_or(name: str, read: Callable[[Tensor, str | None], Any], default: Any) -> Taker:
    """Take the value of the tensor `name`, or the default if the request has no such tensor."""
    return lambda given: read(given.tensors[name], given.content_type) if name in given.tensors else default


def scalar_or(name: str, reader: Reader, default: Any) -> Taker:
    """Take the one element of the tensor `name`, else the request's parameter of this name, else the default."""
    assert reader.scalar is not None  # others are tensors only
    kind, may_be_parameter = reader.scalar, name not in OF_PROTOCOL

    def take(given: Given) -> Any:
        parameters = given.request.parameters
        is_parameter = may_be_parameter and name in parameters
        if name in given.tensors:
            if is_parameter:
                raise InvalidRequest(f"{shown(name)} is there twice: as an input and in the request's parameters")
            return reader.read(given.tensors[name], given.content_type)
        if is_parameter:
            return scalar_of_parameter(kind, name, parameters[name])
        if default is inspect.Parameter.empty:
            raise InvalidRequest(f"missing input {shown(name)}: send it as an input of shape [1], or among the request's parameters")
        return default

    return take


def unnamed_of(given: Given) -> Any:
    """One value of all tensors that no parameter has the name of."""
    named, reader = given.binding.named, given.binding.request_reader
    assert reader is not None  # a signature with such a parameter has one
    return reader.read([tensor for name, tensor in given.tensors.items() if name not in named], given.request)


def request_of(given: Given) -> InferenceRequest:
    """The request. Its inputs are the accepted tensors, which may have another shape than those that came."""
    request = given.request
    tensors = list(given.tensors.values())
    if all(map(operator.is_, tensors, request.inputs)):
        return request
    return InferenceRequest(tensors, request.id, request.parameters, request.outputs, request.decoders)


def context_of(given: Given) -> InferenceContext:
    """The request's context."""
    return given.context()


def constant(value: Any) -> Taker:
    """Take a value that is the same for each request."""
    return lambda _: value


class Binding(msgspec.Struct, frozen=True, eq=False):
    """How a callable is called.

    Args:
        inputs: What metadata says of the inputs: those that are declared, and those of which an annotation says what is known.
        undeclared: The names of the others.
        returned: What the return annotation says.
        names: Which inputs the callable takes.
        named: The names of the tensors that have a parameter of their own.
        takes: These names and their annotations, for errors.
        codecs: The server's codecs.
        shown: The inputs as a document shows them.
        positional: The arguments that are passed by position, in order.
        keywords: The arguments that are passed by keyword.
        rest: Reads each tensor that goes to `**inputs`, which gets those that are not named; None without such a parameter.
        request_reader: Reads all tensors that go to one parameter, such as a data frame; None without such a parameter.
        single_input: The name of the only tensor that the callable takes; None if it takes several, or any.
        is_untyped: Whether one parameter has no annotation, so that it can take either one tensor or all of them, such as a data frame.
        unannotated: The declared inputs whose parameters have no annotation, and the content type that is declared for each, or `np`.
            A request with another content type decides what Python type they get.
    """

    inputs: tuple[TensorSpec, ...]
    undeclared: tuple[str, ...]
    returned: Returned
    names: InputNames
    named: frozenset[str]
    takes: str
    codecs: Codecs
    shown: Shown
    positional: tuple[Taker, ...] = ()
    keywords: dict[str, Taker] = {}
    rest: Callable[[Tensor, str | None], Any] | None = None
    request_reader: RequestReader | None = None
    single_input: str | None = None
    is_untyped: bool = False
    unannotated: dict[str, str] = {}

    @property
    def takes_surroundings(self) -> bool:
        """Whether the callable takes more of a request than its tensors."""
        return any(take in (request_of, context_of) for take in (*self.positional, *self.keywords.values()))

    def accept(self, request: InferenceRequest, content_type: str | None) -> dict[str, Tensor]:
        """Check a request's inputs against the signature. The request itself stays as it is."""
        inputs = request.inputs
        if content_type is None:
            return self.names.take(inputs, has_content_type=False)
        self._check_content_type(content_type)
        is_for_tensor, name = content_type in self.codecs.inputs, self.single_input
        # MLServer's clients choose the name of the only tensor in requests of `np` and `str`
        if name is not None and is_for_tensor and content_type in self.codecs.requests and len(inputs) == 1 and inputs[0].name != name:
            inputs = [known_tensor(name, inputs[0].array, inputs[0].parameters)]
        try:
            return self.names.take(inputs, has_content_type=True)
        except InvalidRequest as error:
            if self.request_reader is not None or is_for_tensor:
                raise
            raise InvalidRequest(
                f"{error}; with the content_type {shown(content_type)} the model takes one column for each of its parameters ({self.takes})"
            ) from None

    def content_type_of_tensors(self, content_type: str | None) -> str | None:
        """The content type that each tensor of a request has if it does not say its own; None if the request's is not for tensors."""
        return content_type if self.request_reader is None and content_type in self.codecs.inputs else None

    def overridden_by(self, tensors: Mapping[str, Tensor], content_type: str | None) -> str | None:
        """The content type of a request that gave the callable another Python type than is declared; None if the types are as declared."""
        for name, declared in self.unannotated.items():
            tensor = tensors.get(name)
            requested = None if tensor is None else tensor.parameters.get("content_type", content_type)
            if requested is not None and requested != declared:
                return str(requested)
        return None

    def _check_content_type(self, content_type: str) -> None:
        reader, codecs = self.request_reader, self.codecs
        if reader is not None and content_type != reader.content_type:
            raise InvalidRequest(
                f"the request has the content_type {shown(content_type)}, which cannot become {reader.annotation}, "
                f"as the model takes it: expected {reader.content_type}, or none"
            )
        is_refused = reader is None and content_type in codecs.request_only and content_type not in codecs.of_columns
        if is_refused and (self.named or self.rest):
            raise InvalidRequest(
                f"the request has the content_type {shown(content_type)}, which makes one value of all inputs, but the model takes "
                f"{self.takes}: leave it out"
            )

    def arguments(self, given: Given) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the keyword arguments for a request that was accepted."""
        args = [take(given) for take in self.positional] if self.positional else []
        kwargs = {}
        for keyword, take in self.keywords.items():
            kwargs[keyword] = take(given)
        if self.rest is not None:
            for name, tensor in given.tensors.items():
                if name not in self.named:
                    kwargs[name] = self.rest(tensor, given.content_type)
        return args, kwargs
