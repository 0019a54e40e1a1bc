"""The content types of one server, and which of them reads a tensor for a parameter. Knows no callables and no HTTP.

What decides is, in this order: the tensor's `content_type`, the request's, the declared one, the annotation, and `np`.

Specification: Content Types, Usage and Model Metadata.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from ..errors import InvalidRequest, shown
from ..tensors import InferenceRequest, Tensor
from .base import AnyInputCodec, AnyRequestCodec, InputCodec, RequestCodec, bytes_of, normal
from .base64 import Base64Codec
from .datetime import DatetimeCodec
from .numpy import NumpyCodec, NumpyRequestCodec
from .pandas import PandasCodec, PandasJSONCodec, frame_of, is_series_class, series_of
from .string import StringCodec, StringRequestCodec

Decode: TypeAlias = Callable[[Tensor], Any]
AnyCodec: TypeAlias = AnyInputCodec | AnyRequestCodec

UNTYPED: Final = (inspect.Parameter.empty, Any)

_INPUT_CODECS: Final = (NumpyCodec, StringCodec, Base64Codec, DatetimeCodec, PandasJSONCodec)
_REQUEST_CODECS: Final = (NumpyRequestCodec, StringRequestCodec, PandasCodec)


class Reader(msgspec.Struct, frozen=True, eq=False):
    """How one parameter's tensor becomes its Python value.

    Args:
        annotation: What the parameter wants, as it is called to a person; empty where it wants nothing.
        default: How to read a tensor of which the request says nothing.
        by_content_type: How to read one whose content type the request says, for those that yield the annotation.
    """

    annotation: str
    default: Decode
    by_content_type: Mapping[str, Decode]

    def read(self, tensor: Tensor, of_request: str | None) -> Any:
        """The value of a tensor.

        Args:
            tensor: The tensor.
            of_request: The request's content type, where it is one for tensors.

        Raises:
            InvalidRequest: The tensor does not hold one, or says a content type that cannot yield it.
        """
        content_type = tensor.parameters.get("content_type", of_request) if tensor.parameters else of_request
        decode = self.default if content_type is None else self.by_content_type.get(str(content_type))
        if decode is None:
            known = ", ".join(self.by_content_type)
            raise InvalidRequest(
                f"input {shown(tensor.name)} has the content_type {shown(content_type)}, which cannot become {self.annotation}, "
                f"as the model takes it: expected {known}, or none"
            )
        try:
            return decode(tensor)
        except ValueError as error:
            raise InvalidRequest(f"input {shown(tensor.name)}: {error}") from error


class WholeReader(msgspec.Struct, frozen=True, eq=False):
    """How several tensors become one Python value, such as a data frame.

    Args:
        annotation: What the parameter wants, as it is called to a person.
        content_type: The one that yields it.
        decode: Makes it of a request that holds the tensors for it alone.
    """

    annotation: str
    content_type: str
    decode: Callable[[InferenceRequest], Any]

    def read(self, request: InferenceRequest) -> Any:
        """The value of a request.

        Raises:
            InvalidRequest: It does not hold one.
        """
        try:
            return self.decode(request)
        except ValueError as error:
            raise InvalidRequest(f"the request: {error}") from error


class Codecs:
    """The codecs of one server.

    Args:
        others: What users add to those of this package; one with the same content type takes its place.

    Raises:
        TypeError: One of them is no codec, or has no content type.
    """

    def __init__(self, others: Sequence[AnyCodec] = ()) -> None:
        self.inputs: dict[str, AnyInputCodec] = {codec.content_type: codec for codec in _INPUT_CODECS}
        self.requests: dict[str, AnyRequestCodec] = {codec.content_type: codec for codec in _REQUEST_CODECS}
        self._others: list[AnyInputCodec] = []
        for codec in others:
            self._add(codec)
        self._wholes = tuple(self.requests[name] for name in self.only_whole())

    def _add(self, codec: AnyCodec) -> None:
        content_type = getattr(codec, "content_type", None)
        if not isinstance(content_type, str) or not content_type:
            raise TypeError(f'codecs=: {codec!r} has no content_type: give it one, such as content_type = "img"')
        if _is(codec, InputCodec):
            self.inputs[content_type] = codec  # type: ignore[assignment]
            self._others.append(codec)  # type: ignore[arg-type]
        elif _is(codec, RequestCodec):
            self.requests[content_type] = codec  # type: ignore[assignment]
        else:
            raise TypeError(f"codecs=: {codec!r} is neither an InputCodec nor a RequestCodec: make it a subclass of one")

    def only_whole(self) -> list[str]:
        """The content types that are for whole requests and for no single tensor."""
        return [name for name in self.requests if name not in self.inputs]

    def check(self, content_type: object, where: str, *, whole: bool) -> None:
        """Hold a `content_type` of a request against those that are known.

        Args:
            content_type: The parameter.
            where: Whose it is, for the error.
            whole: Whether it is the request's, not a tensor's.

        Raises:
            InvalidRequest: It is unknown, or for whole requests only.
        """
        if content_type in self.inputs or (whole and content_type in self.requests):
            return
        if content_type in self.requests:
            raise InvalidRequest(f"{where} has the content_type {shown(content_type)}, which is for a whole request: put it there")
        known = [*self.inputs, *(self.only_whole() if whole else ())]
        raise InvalidRequest(f"{where} has the unknown content_type {shown(content_type)}: expected one of {', '.join(known)}")

    def check_declared(self, content_type: str, where: str, *, whole: bool) -> None:
        """`check` for what a model declares.

        Raises:
            ValueError: As there.
        """
        try:
            self.check(content_type, where, whole=whole)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None

    def reader(self, annotation: Any, codec: AnyInputCodec | None) -> Reader | None:
        """How to read a tensor for a parameter.

        Args:
            annotation: The parameter's, without `Optional` and `Annotated`.
            codec: What `Annotated` names.

        Returns:
            None where no tensor can become that.
        """
        if codec is not None:
            return Reader(f"what {_called(codec)} decodes", codec.decode_input, {codec.content_type: codec.decode_input})
        if annotation in UNTYPED:
            return Reader("", _array, {name: known.decode_input for name, known in self.inputs.items()})
        called = inspect.formatannotation(annotation)
        if is_series_class(typing.get_origin(annotation) or annotation):
            return self._series_reader(called)
        for content_type, known in self.inputs.items():
            if known.yields(normal(annotation)):
                # bytes are what a tensor holds anyway: base64 is undone only where the request says that it is base64
                default = _bytes if known is Base64Codec else _array if known is NumpyCodec else known.decode_input
                return Reader(called, default, {content_type: known.decode_input})
        return None

    def _series_reader(self, called: str) -> Reader:
        others = self._column_decoders()

        def read_as(content_type: str | None) -> Decode:
            return lambda tensor: series_of(tensor, content_type, others)

        return Reader(called, read_as(None), {name: read_as(name) for name in self.inputs})

    def whole_codec(self, annotation: Any) -> AnyRequestCodec | None:
        """The codec of a parameter that takes several tensors at once, such as a `pandas.DataFrame`; None where it is no such."""
        if annotation in UNTYPED:
            return None
        return next((codec for codec in self._wholes if codec.yields(normal(annotation))), None)

    def whole_reader(self, codec: AnyRequestCodec, annotation: Any, declared: Mapping[str, str]) -> WholeReader:
        """How to read several tensors for a parameter.

        Args:
            codec: From `whole_codec`, or `Annotated`.
            annotation: The parameter's.
            declared: The declared content types of inputs, by name.
        """
        called = f"what {_called(codec)} decodes" if annotation in UNTYPED else inspect.formatannotation(annotation)
        if codec is not PandasCodec:
            return WholeReader(called, codec.content_type, codec.decode_request)
        others = self._column_decoders()
        return WholeReader(called, codec.content_type, lambda request: frame_of(request.inputs, declared, others))

    def writer(self, annotation: Any) -> AnyInputCodec | None:
        """The codec for a result that is annotated so; None where its value says what it is, as arrays, bytes and series do."""
        for codec in self.inputs.values():
            if codec not in (NumpyCodec, Base64Codec) and codec.yields(normal(annotation)):
                return codec
        return None

    def _column_decoders(self) -> dict[str, Decode]:
        return {name: codec.decode_input for name, codec in self.inputs.items() if codec not in _INPUT_CODECS}

    def of_value(self, value: Any) -> AnyInputCodec | None:
        """The codec for a result that nothing else names one for: those of users first; None for what numpy makes an array of."""
        for codec in self._others:
            if codec.can_encode(value):
                return codec
        return DatetimeCodec if isinstance(value, list) and value and DatetimeCodec.can_encode(value) else None

    def whole_of_value(self, value: Any) -> AnyRequestCodec | None:
        """The codec for a result that is a whole response."""
        for codec in self._wholes:
            if codec.can_encode(value):
                return codec
        return None


def as_codec(extras: Sequence[Any]) -> AnyCodec | None:
    """The codec among what an `Annotated` holds."""
    return next((extra for extra in extras if _is(extra, InputCodec) or _is(extra, RequestCodec)), None)


def is_input_codec(codec: AnyCodec | None) -> bool:
    """Whether a codec is one for single tensors."""
    return _is(codec, InputCodec)


def _is(codec: Any, base: type) -> bool:
    return issubclass(codec, base) if isinstance(codec, type) else isinstance(codec, base)


def _called(codec: AnyCodec) -> str:
    return codec.__name__ if isinstance(codec, type) else type(codec).__name__


def _array(tensor: Tensor) -> Any:
    return tensor.array


def _bytes(tensor: Tensor) -> list[bytes]:
    return bytes_of(tensor, "list[bytes]")
