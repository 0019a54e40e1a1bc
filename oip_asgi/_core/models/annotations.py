"""What the annotation of a parameter or of a result means, and what is known of a model's outputs. Knows no callables and no requests.

Which codec is for which annotation is decided in `codecs.registry`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from ..codecs.base import AnyInputCodec, AnyRequestCodec
from ..codecs.registry import Codecs, as_codec, check_complete, is_input_codec, is_request_codec
from .said import Said, said_in, said_of_array
from .specs import TensorSpec

_ITERATED: Final = frozenset({Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator})


class Meaning(NamedTuple):
    """The parts of an annotation.

    Args:
        wanted: The type, without `Optional` and `Annotated`.
        spec: The `TensorSpec` in `Annotated`, or None.
        codec: The codec in `Annotated`, or None.
        said: What it says of the tensor without a `TensorSpec`, or None.
    """

    wanted: Any
    spec: TensorSpec | None = None
    codec: AnyInputCodec | AnyRequestCodec | None = None
    said: Said | None = None

    def spec_for(self, name: str) -> TensorSpec | None:
        """The `TensorSpec` in `Annotated`, or else one of this name with what is said; None where nothing is."""
        return self.spec if self.spec is not None or self.said is None else self.said.spec(name)


def meaning_of(annotation: Any) -> Meaning:
    """The parts of an annotation.

    Raises:
        TypeError: The codec in `Annotated` is incomplete, or what is meant as a datatype is none; the text says what to write.
        ValueError: The shape in `Annotated` cannot be one.
    """
    origin = typing.get_origin(annotation)
    alias = getattr(origin or annotation, "__value__", None)
    if alias is not None:  # a `type` statement, as NDArray is one since numpy 2.5
        return meaning_of(alias[typing.get_args(annotation)] if origin else alias)
    if origin is Annotated:
        inner, *extras = typing.get_args(annotation)
        codec = as_codec(extras)
        if codec is not None:
            check_complete(codec, inspect.formatannotation(annotation))
        meant = meaning_of(inner)
        spec = next((extra for extra in extras if isinstance(extra, TensorSpec)), None)
        return Meaning(meant.wanted, spec, codec, said_in(annotation, extras) or meant.said)
    if origin in (typing.Union, UnionType):
        members = [member for member in typing.get_args(annotation) if member is not NoneType]
        if len(members) == 1:
            return meaning_of(members[0])
    if origin is np.ndarray:
        return Meaning(np.ndarray, said=said_of_array(typing.get_args(annotation)))
    return Meaning(annotation)


class Returned(NamedTuple):
    """What a return annotation says.

    Args:
        specs: The outputs that it declares.
        codecs: The codec for each output, by position; None if the value itself decides.
        every: The codec for each value of a mapping or of a tuple of any length.
        whole: The codec that makes a whole response of the result.
        is_partial: Whether it declares only some of the outputs. Then `specs` is empty.
    """

    specs: tuple[TensorSpec, ...] = ()
    codecs: tuple[AnyInputCodec | None, ...] = ()
    every: AnyInputCodec | None = None
    whole: AnyRequestCodec | None = None
    is_partial: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the value alone decides how it is written."""
        return self.every is None and self.whole is None and not any(self.codecs)


class Outputs:
    """What is known of a model's outputs at registration.

    Args:
        declared: The declared outputs, which may be none.
        returned: What the return annotation says.
        codecs: The server's codecs.
    """

    def __init__(self, declared: Sequence[TensorSpec], returned: Returned, codecs: Codecs) -> None:
        self.declared = declared
        self.returned = returned
        self.codecs = codecs
        self.sole = declared[0] if len(declared) == 1 else None
        """The declared output, if it is the only one."""
        is_written = any(spec.content_type is not None for spec in declared)
        self.are_open = len(declared) < 2 and returned.is_open and not codecs.are_extended and not is_written
        """Whether an array of numbers becomes the only output without a codec."""


def read_as(annotation: Any, called: str, *, is_declared: bool) -> tuple[Any, AnyInputCodec | None, str | None]:
    """The type, the codec and the datatype in the annotation of `*inputs` or `**inputs`, which are for each of their tensors.

    Args:
        annotation: The annotation.
        called: The callable, for the error.
        is_declared: Whether the inputs are declared with `inputs=`.

    Raises:
        TypeError: The annotation is for a whole request, or declares one tensor.
    """
    wanted, spec, codec, said = meaning_of(annotation)
    is_one = spec is not None or (said is not None and said.shape is not None)
    if is_one and not is_declared:
        raise TypeError(f"{called}: {inspect.formatannotation(annotation)} declares one tensor, but any number may come: use inputs=")
    if is_request_codec(codec):
        raise TypeError(f"{called}: {inspect.formatannotation(annotation)} is for a whole request: give it a parameter of its own")
    return wanted, codec if is_input_codec(codec) else None, None if said is None else said.datatype or None


def each_of(annotation: Any) -> Any:
    """What a generator yields, by its return annotation, such as `Iterator[X]` or `AsyncGenerator[X, None]`; else the annotation itself."""
    meaning = meaning_of(annotation)
    args = typing.get_args(meaning.wanted)
    return args[0] if args and typing.get_origin(meaning.wanted) in _ITERATED else annotation


def returned_as(annotation: Any, codecs: Codecs) -> Returned:
    """What a return annotation says about one output, a tuple of outputs, or the values of a mapping.

    Raises:
        TypeError: A codec in `Annotated` is incomplete.
        ValueError: A codec needs a package that is not installed.
    """
    meaning = meaning_of(annotation)
    if is_request_codec(meaning.codec):
        codecs.check_installed(meaning.codec, inspect.formatannotation(annotation))
        return Returned(whole=meaning.codec)
    origin, args = typing.get_origin(meaning.wanted), typing.get_args(meaning.wanted)
    if isinstance(origin, type) and issubclass(origin, Mapping) and len(args) == 2:
        members, is_every = [meaning_of(args[1])], True
    elif origin is tuple:
        is_every = args[1:] == (...,)
        members = [meaning_of(member) for member in (args[:1] if is_every else args)]
    else:
        members, is_every = [meaning], False
    has_specs = any(member.spec is not None for member in members)
    if is_every:
        return Returned(every=_writer(members[0], codecs), is_partial=has_specs)
    named = [member.spec_for(f"output_{place}") for place, member in enumerate(members)]
    specs = tuple(spec for spec in named if spec is not None)
    is_whole = len(specs) == len(members)  # what arrays say of themselves counts only where all say it
    writers = tuple(_writer(member, codecs) for member in members)
    return Returned(specs if is_whole else (), writers, is_partial=has_specs and not is_whole)


def _writer(meaning: Meaning, codecs: Codecs) -> AnyInputCodec | None:
    return meaning.codec if is_input_codec(meaning.codec) else codecs.writer(meaning.wanted)
