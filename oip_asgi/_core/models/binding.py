"""How a callable is called with a request, as its signature decided. Runs for each request; knows no annotations and no models.

Nothing here runs the callable: `Binding.arguments` says what to call it with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec

from ..codecs.registry import WholeReader
from ..errors import InvalidRequest, shown
from ..tensors import InferenceContext, InferenceRequest, Tensor
from .annotations import Returned
from .specs import InputNames, TensorSpec


class Given(Protocol):
    """A call, of which its arguments are taken."""

    @property
    def binding(self) -> Binding:
        """How it is called."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The input tensors by name, as `Binding.accept` returned them."""

    @property
    def content_type(self) -> str | None:
        """That of the request, where it is one for each tensor."""

    @property
    def request(self) -> InferenceRequest:
        """The request, which was accepted."""

    def context(self) -> InferenceContext:
        """Make its context."""


Taker: TypeAlias = Callable[[Given], Any]


def tensor_of(name: str, read: Callable[[Tensor, str | None], Any]) -> Taker:
    """The value of the tensor `name`."""
    return lambda given: read(given.tensors[name], given.content_type)


def tensor_or(name: str, read: Callable[[Tensor, str | None], Any], default: Any) -> Taker:
    """The value of the tensor `name`, or a default where the request has none."""
    return lambda given: read(given.tensors[name], given.content_type) if name in given.tensors else default


def unclaimed_of(given: Given) -> Any:
    """One value of all tensors that no parameter is named after."""
    claimed, reader = given.binding.claimed, given.binding.whole
    assert reader is not None  # the signature that takes such a value says how
    return reader.read([tensor for name, tensor in given.tensors.items() if name not in claimed], given.request)


def request_of(given: Given) -> InferenceRequest:
    """The request, with the tensors as they were accepted."""
    request = given.request
    tensors = list(given.tensors.values())
    if all(map(operator.is_, tensors, request.inputs)):
        return request
    return InferenceRequest(tensors, request.id, request.parameters, request.outputs, request.decoders)


def context_of(given: Given) -> InferenceContext:
    """The request's context."""
    return given.context()


def constant(value: Any) -> Taker:
    """A value that no request changes."""
    return lambda _: value


class Binding(msgspec.Struct, frozen=True, eq=False):
    """How a callable is called.

    Args:
        inputs: What is declared of its input tensors.
        returned: What its return annotation says.
        names: Which inputs it takes.
        claimed: The names of the tensors that parameters are named after.
        takes: The same with what each is read as, for people.
        positional: What is passed by position, in order.
        keywords: What is passed by keyword.
        rest: How the tensors are read that go to `**inputs`, those that are not claimed; None where there is no such parameter.
        whole: How those are read that go to one parameter, such as a data frame; None where there is no such parameter.
        sole: Its only parameter for a tensor; None where there are several, or others that take tensors.
        is_free: Whether one parameter without an annotation could as well take all tensors as one value, such as a data frame, or one.
        of_one: The content types of whole requests that are those of a tensor too, such as `np` and `str`.
        only_whole: Those that no tensor can have, such as `pd`.
        of_columns: Those of `only_whole` that stand for one tensor a column, such as `pd`.
        unannotated: The declared inputs whose parameters have no annotation, so that a request's content type decides what Python type
            they get, each with the content type that it is declared with, or `np`.
    """

    inputs: tuple[TensorSpec, ...]
    returned: Returned
    names: InputNames
    claimed: frozenset[str]
    takes: str
    positional: tuple[Taker, ...]
    keywords: dict[str, Taker]
    rest: Callable[[Tensor, str | None], Any] | None
    whole: WholeReader | None
    sole: str | None
    is_free: bool
    of_one: frozenset[str]
    only_whole: frozenset[str]
    of_columns: frozenset[str]
    unannotated: dict[str, str]

    def accept(self, request: InferenceRequest, content_type: str | None) -> dict[str, Tensor]:
        """Check a request's inputs against the signature. The request itself stays as it is.

        Args:
            request: The request.
            content_type: The request's own content type, None where it has none.

        Returns:
            The tensors that the model is called with, by name. They are the request's own, but for these: a single tensor gets the name
            of the model's one parameter where the content type is for the whole request, and where a content type is said, `[N, 1]`
            becomes the declared `[-1]`.

        Raises:
            InvalidRequest: The names, datatypes, shapes or the content type are not what the model takes; the text names them.

        Specification: Content Types: `np` and `str` at the level of the request are for models of a single tensor.
        """
        inputs = request.inputs
        if content_type is None:
            return self.names.take(inputs, has_content_type=False)
        self._check_content_type(content_type)
        if self.sole is not None and content_type in self.of_one and len(inputs) == 1 and inputs[0].name != self.sole:
            inputs = [Tensor(self.sole, inputs[0].array, inputs[0].parameters)]
        try:
            return self.names.take(inputs, has_content_type=True)
        except InvalidRequest as error:
            if self.whole is not None or content_type not in self.only_whole:
                raise
            raise InvalidRequest(
                f"{error}; with the content_type {shown(content_type)} the model takes one column for each of its parameters ({self.takes})"
            ) from None

    def content_type_of_tensors(self, content_type: str | None) -> str | None:
        """The content type that a request's own one is for each of its tensors; None where it says nothing about them alone.

        Args:
            content_type: The request's own content type, None where it has none.
        """
        return None if self.whole is not None or content_type in self.only_whole else content_type

    def overridden_by(self, tensors: Mapping[str, Tensor], content_type: str | None) -> str | None:
        """The content type by which a request gave the callable another Python type than its declaration does; None where none did.

        A callable that fails with that need not be at fault.

        Args:
            tensors: The tensors that it was called with.
            content_type: What the request says for each of them.
        """
        for name, declared in self.unannotated.items():
            tensor = tensors.get(name)
            said = None if tensor is None else tensor.parameters.get("content_type", content_type)
            if said is not None and said != declared:
                return str(said)
        return None

    def _check_content_type(self, content_type: str) -> None:
        if self.whole is not None and content_type != self.whole.content_type:
            raise InvalidRequest(
                f"the request has the content_type {shown(content_type)}, which cannot become {self.whole.annotation}, "
                f"as the model takes it: expected {self.whole.content_type}, or none"
            )
        is_refused = self.whole is None and content_type in self.only_whole and content_type not in self.of_columns
        if is_refused and (self.claimed or self.rest):
            raise InvalidRequest(
                f"the request has the content_type {shown(content_type)}, which makes one value of the whole and cannot become what "
                f"the model takes ({self.takes}): leave it out"
            )

    def arguments(self, given: Given) -> tuple[list[Any], dict[str, Any]]:
        """What to call the callable with, for a request that was accepted.

        Raises:
            InvalidRequest: A tensor does not hold what its content type or the annotation says; the text names it.
        """
        args = [take(given) for take in self.positional] if self.positional else []
        kwargs = {}
        for keyword, take in self.keywords.items():
            kwargs[keyword] = take(given)
        if self.rest is not None:
            for name, tensor in given.tensors.items():
                if name not in self.claimed:
                    kwargs[name] = self.rest(tensor, given.content_type)
        return args, kwargs
