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

from .._codecs.base import AnyInputCodec, AnyRequestCodec
from .._codecs.registry import Codecs, as_codec, check_complete, is_input_codec, is_request_codec
from .specs import TensorSpec
from .tensor_annotations import TensorAnnotation, parse_array, parse_extras

_ITERATED: Final = frozenset({Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator})


class ParsedAnnotation(NamedTuple):
    """The parts of an annotation.

    Args:
        wanted: The type, without `Optional` and `Annotated`.
        spec: The `TensorSpec` in `Annotated`, or None.
        codec: The codec in `Annotated`, or None.
        tensor: The tensor's datatype and shape, if it says them without a `TensorSpec`.
    """

    wanted: Any
    spec: TensorSpec | None = None
    codec: AnyInputCodec | AnyRequestCodec | None = None
    tensor: TensorAnnotation | None = None

    def spec_for(self, name: str) -> TensorSpec | None:
        """The `TensorSpec` in `Annotated`, else one of this name for the datatype and shape; None if the annotation says neither."""
        return self.spec if self.spec is not None or self.tensor is None else self.tensor.spec(name)


def parse_annotation(annotation: Any) -> ParsedAnnotation:
    """The parts of an annotation. Raises TypeError or ValueError with what to write, if it can mean nothing."""
    origin = typing.get_origin(annotation)
    alias = getattr(origin or annotation, "__value__", None)
    if alias is not None:  # a `type` statement, as NDArray is one since numpy 2.5
        return parse_annotation(alias[typing.get_args(annotation)] if origin else alias)
    if origin is Annotated:
        inner, *extras = typing.get_args(annotation)
        codec = as_codec(extras)
        if codec is not None:
            check_complete(codec, inspect.formatannotation(annotation))
        meant = parse_annotation(inner)
        spec = next((extra for extra in extras if isinstance(extra, TensorSpec)), None)
        return ParsedAnnotation(meant.wanted, spec, codec, parse_extras(annotation, extras) or meant.tensor)
    if origin in (typing.Union, UnionType):
        members = [member for member in typing.get_args(annotation) if member is not NoneType]
        if len(members) == 1:
            return parse_annotation(members[0])
    if origin is np.ndarray:
        return ParsedAnnotation(np.ndarray, tensor=parse_array(typing.get_args(annotation)))
    return ParsedAnnotation(annotation)


class Returned(NamedTuple):
    """What a return annotation says.

    Args:
        specs: The outputs that it declares.
        codecs: The codec for each output, by position; None if the value itself decides.
        each: The codec for each value of a mapping or of a tuple of any length.
        request_codec: The codec that makes a whole response of the result.
        is_partial: Whether it declares only some of the outputs. Then `specs` is empty.
    """

    specs: tuple[TensorSpec, ...] = ()
    codecs: tuple[AnyInputCodec | None, ...] = ()
    each: AnyInputCodec | None = None
    request_codec: AnyRequestCodec | None = None
    is_partial: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the value alone decides how it is written."""
        return self.each is None and self.request_codec is None and not any(self.codecs)


class Outputs:
    """What is known of a model's outputs at registration."""

    def __init__(self, declared: Sequence[TensorSpec], returned: Returned, codecs: Codecs) -> None:
        self.declared = declared
        self.returned = returned
        self.codecs = codecs
        self.single = declared[0] if len(declared) == 1 else None
        """The declared output, if it is the only one."""
        is_written = any(spec.content_type is not None for spec in declared)
        self.are_open = len(declared) < 2 and returned.is_open and not codecs.are_extended and not is_written
        """Whether an array of numbers becomes the only output without a codec."""


def parse_each(annotation: Any, called: str, *, is_declared: bool) -> tuple[Any, AnyInputCodec | None, str | None]:
    """The type, the codec and the datatype in the annotation of `*inputs` or `**inputs`, which are for each of their tensors."""
    wanted, spec, codec, tensor = parse_annotation(annotation)
    is_one = spec is not None or (tensor is not None and tensor.shape is not None)
    if is_one and not is_declared:
        raise TypeError(f"{called}: {inspect.formatannotation(annotation)} declares one tensor, but any number may come: use inputs=")
    if is_request_codec(codec):
        raise TypeError(f"{called}: {inspect.formatannotation(annotation)} is for a whole request: give it a parameter of its own")
    return wanted, codec if is_input_codec(codec) else None, None if tensor is None else tensor.datatype or None


def annotation_of_items(annotation: Any) -> Any:
    """What a generator yields, by its return annotation, such as `Iterator[X]` or `AsyncGenerator[X, None]`; else the annotation itself."""
    meaning = parse_annotation(annotation)
    args = typing.get_args(meaning.wanted)
    return args[0] if args and typing.get_origin(meaning.wanted) in _ITERATED else annotation


def parse_return(annotation: Any, codecs: Codecs) -> Returned:
    """What a return annotation says about one output, a tuple of outputs, or the values of a mapping."""
    meaning = parse_annotation(annotation)
    if is_request_codec(meaning.codec):
        codecs.check_installed(meaning.codec, inspect.formatannotation(annotation))
        return Returned(request_codec=meaning.codec)
    origin, args = typing.get_origin(meaning.wanted), typing.get_args(meaning.wanted)
    if isinstance(origin, type) and issubclass(origin, Mapping) and len(args) == 2:
        members, is_each = [parse_annotation(args[1])], True
    elif origin is tuple:
        is_each = args[1:] == (...,)
        members = [parse_annotation(member) for member in (args[:1] if is_each else args)]
    else:
        members, is_each = [meaning], False
    has_specs = any(member.spec is not None for member in members)
    if is_each:
        return Returned(each=_writer(members[0], codecs), is_partial=has_specs)
    named = [member.spec_for(f"output_{place}") for place, member in enumerate(members)]
    specs = tuple(spec for spec in named if spec is not None)
    is_complete = len(specs) == len(members)  # datatypes in annotations count only if all outputs have one
    writers = tuple(_writer(member, codecs) for member in members)
    return Returned(specs if is_complete else (), writers, is_partial=has_specs and not is_complete)


def _writer(meaning: ParsedAnnotation, codecs: Codecs) -> AnyInputCodec | None:
    return meaning.codec if is_input_codec(meaning.codec) else codecs.writer(meaning.wanted)
