"""What the annotation of a parameter or a result means, and what is known of outputs by it. Knows no callables and no requests.

Which codec reads what is `codecs.known`'s to say.
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
from .specs import TensorSpec

_ITERATED: Final = frozenset({Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator})


class Meaning(NamedTuple):
    """What an annotation asks for.

    Args:
        wanted: The type, without `Optional` and `Annotated`.
        spec: The declaration that `Annotated` adds.
        codec: The codec that `Annotated` adds.
    """

    wanted: Any
    spec: TensorSpec | None = None
    codec: AnyInputCodec | AnyRequestCodec | None = None


def meaning_of(annotation: Any) -> Meaning:
    """What an annotation asks for.

    Raises:
        TypeError: The codec in an `Annotated` lacks something; the text says what.
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
        return Meaning(meaning_of(inner).wanted, next((extra for extra in extras if isinstance(extra, TensorSpec)), None), codec)
    if origin in (typing.Union, UnionType):
        members = [member for member in typing.get_args(annotation) if member is not NoneType]
        if len(members) == 1:
            return meaning_of(members[0])
    return Meaning(np.ndarray if origin is np.ndarray else annotation)


class Returned(NamedTuple):
    """What a return annotation says.

    Args:
        specs: The outputs that it declares.
        codecs: Which codec writes each output, by position; None for what its value says.
        every: Which codec writes each value of a mapping.
        whole: Which codec writes the result as a whole response.
        is_partial: Whether it declares some outputs and not all, so that `specs` has none.
    """

    specs: tuple[TensorSpec, ...] = ()
    codecs: tuple[AnyInputCodec | None, ...] = ()
    every: AnyInputCodec | None = None
    whole: AnyRequestCodec | None = None
    is_partial: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it leaves it to the value how that is written."""
        return self.every is None and self.whole is None and not any(self.codecs)


class Outputs:
    """What is known of a model's outputs before it has answered.

    Args:
        declared: The declared outputs, or nothing.
        returned: What the return annotation says.
        codecs: Those of the server.
    """

    def __init__(self, declared: Sequence[TensorSpec], returned: Returned, codecs: Codecs) -> None:
        self.declared = declared
        self.returned = returned
        self.codecs = codecs
        self.sole = declared[0] if len(declared) == 1 else None
        """The only declared output."""
        is_written = any(spec.content_type is not None for spec in declared)
        self.are_open = len(declared) < 2 and returned.is_open and not codecs.are_extended and not is_written
        """Whether an array of numbers is the only output as it is: no codec has a say in that."""


def read_as(annotation: Any, called: str, *, is_declared: bool) -> tuple[Any, AnyInputCodec | None]:
    """What `*inputs` or `**inputs` reads each tensor as.

    Args:
        annotation: Theirs.
        called: The callable, for the error.
        is_declared: Whether its inputs are declared beside it.

    Returns:
        The type, and the codec that `Annotated` names.

    Raises:
        TypeError: It is for a whole request, or for one tensor.
    """
    wanted, spec, codec = meaning_of(annotation)
    if spec is not None and not is_declared:
        raise TypeError(f"{called}: {inspect.formatannotation(annotation)} declares one tensor where any may come: use inputs=")
    if is_request_codec(codec):
        raise TypeError(f"{called}: {inspect.formatannotation(annotation)} is for a whole request: give it a parameter of its own")
    return wanted, codec if is_input_codec(codec) else None


def each_of(annotation: Any) -> Any:
    """What a generator yields, by its return annotation, such as `Iterator[X]` or `AsyncGenerator[X, None]`; else the annotation itself."""
    meaning = meaning_of(annotation)
    args = typing.get_args(meaning.wanted)
    return args[0] if args and typing.get_origin(meaning.wanted) in _ITERATED else annotation


def returned_as(annotation: Any, codecs: Codecs) -> Returned:
    """What a return annotation says of one output, of a tuple of them, or of the values of a mapping.

    Raises:
        TypeError: A codec in an `Annotated` lacks something.
        ValueError: It needs a package that is not installed.
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
    specs = tuple(member.spec for member in members if member.spec is not None)
    is_partial = bool(specs) and (is_every or len(specs) < len(members))
    if is_every:
        return Returned(every=_writer(members[0], codecs), is_partial=is_partial)
    return Returned(() if is_partial else specs, tuple(_writer(member, codecs) for member in members), is_partial=is_partial)


def _writer(meaning: Meaning, codecs: Codecs) -> AnyInputCodec | None:
    return meaning.codec if is_input_codec(meaning.codec) else codecs.writer(meaning.wanted)
