"""The content types of one server, and which of them reads a tensor for a parameter. Knows no callables and no HTTP.

What decides is, in this order: the tensor's `content_type`, the request's, the declared one, the annotation, and `np`.

Specification: Content Types, Usage and Model Metadata.
"""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from ..errors import InvalidRequest, shown
from ..log import log_raised
from ..tensors import InferenceRequest, Tensor
from .base import AnyInputCodec, AnyRequestCodec, InputCodec, RequestCodec, bytes_of, normal
from .base64 import Base64Codec
from .column_reading import series_of
from .datetime import DatetimeCodec
from .numpy import NumpyCodec, NumpyRequestCodec
from .pandas import PandasCodec, is_series_class
from .pandas_json import PandasJSONCodec
from .string import StringCodec, StringRequestCodec

Decode: TypeAlias = Callable[[Tensor], Any]
AnyCodec: TypeAlias = AnyInputCodec | AnyRequestCodec

UNTYPED: Final = (inspect.Parameter.empty, Any)

_INPUT_CODECS: Final = (NumpyCodec, StringCodec, Base64Codec, DatetimeCodec, PandasJSONCodec)
_REQUEST_CODECS: Final = (NumpyRequestCodec, StringRequestCodec, PandasCodec)

_INPUT_METHODS: Final = ("encode_input", "decode_input")
_REQUEST_METHODS: Final = ("encode_request", "decode_request", "encode_response", "decode_response")


class Reader(msgspec.Struct, frozen=True, eq=False):
    """How one parameter's tensor becomes its Python value.

    Args:
        annotation: What the parameter wants, as it is called to a person; empty where it wants nothing.
        default: How to read a tensor of which the request says nothing.
        by_content_type: How to read one whose content type the request says, for those that yield the annotation.
        datatype: The only datatype that can become that; None for any.
    """

    annotation: str
    default: Decode
    by_content_type: Mapping[str, Decode]
    datatype: str | None = None

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
        codec: The one of that content type.
        decode: Makes it of a request that holds the tensors for it alone.
        declared: The declared content types of inputs, by name.
        decoders: How to decode content types that are not this package's.
    """

    annotation: str
    content_type: str
    codec: AnyRequestCodec
    decode: Callable[[InferenceRequest], Any]
    declared: Mapping[str, str]
    decoders: Mapping[str, Decode]

    def read(self, tensors: list[Tensor], request: InferenceRequest) -> Any:
        """The value of some tensors of a request. A tensor that does not say its content type has the declared one.

        Args:
            tensors: The tensors, which stay as they are.
            request: Their request.

        Raises:
            InvalidRequest: They do not hold such a value.
        """
        if self.declared:
            tensors = list(map(self._as_declared, tensors))
        try:
            return self.decode(InferenceRequest(tensors, request.id, request.parameters, request.outputs, self.decoders))
        except ValueError as error:
            raise InvalidRequest(f"the request: {error}") from error

    def of_inputs(self, names: Sequence[str]) -> WholeReader:
        """The same reader, prepared for the inputs of these names where they are declared and the codec is this package's own."""
        if self.codec is not PandasCodec or not names:
            return self
        return msgspec.structs.replace(self, decode=PandasCodec.decoder_of(names))

    def _as_declared(self, tensor: Tensor) -> Tensor:
        content_type = self.declared.get(tensor.name)
        if content_type is None or "content_type" in tensor.parameters:
            return tensor
        return Tensor(tensor.name, tensor.array, {"content_type": content_type, **tensor.parameters})


class Codecs:
    """The codecs of one server.

    Args:
        others: What users add to those of this package; one with the same content type takes its place.
        has_pandas: Whether pandas can be imported. Without it, its content types are unknown.

    Raises:
        TypeError: One of them is no complete codec, or has the content type of another of them.
        ValueError: One needs pandas, which is not installed.
    """

    def __init__(self, others: Sequence[AnyCodec] = (), *, has_pandas: bool) -> None:
        self._has_pandas = has_pandas
        self.inputs: dict[str, AnyInputCodec] = {codec.content_type: codec for codec in _INPUT_CODECS if self._is_usable(codec)}
        self.requests: dict[str, AnyRequestCodec] = {codec.content_type: codec for codec in _REQUEST_CODECS if self._is_usable(codec)}
        self._others: list[AnyInputCodec] = []
        for codec in others:
            self._add(codec)
        self._wholes = tuple(self.requests[name] for name in self.only_whole())
        self.are_extended = len(others) > 0
        """Whether any of them is a user's, and may know more values than those of this package do."""

    def _is_usable(self, codec: AnyCodec) -> bool:
        return self._has_pandas or not codec.needs_pandas

    def _add(self, codec: AnyCodec) -> None:
        check_complete(codec, "codecs=")
        self.check_installed(codec, "codecs=")
        if is_input_codec(codec):
            if any(codec.content_type == other.content_type for other in self._others):
                raise TypeError(f"codecs=: two input codecs have the content_type {codec.content_type!r}: give each its own")
            self.inputs[codec.content_type] = codec
            self._others.append(codec)
        elif is_request_codec(codec):
            if self.requests.get(codec.content_type) not in (None, *_REQUEST_CODECS):
                raise TypeError(f"codecs=: two request codecs have the content_type {codec.content_type!r}: give each its own")
            self.requests[codec.content_type] = codec

    def only_whole(self) -> list[str]:
        """The content types that are for whole requests and for no single tensor."""
        return [name for name in self.requests if name not in self.inputs]

    def of_columns(self) -> list[str]:
        """Those of `only_whole` that make a data frame, whose columns are tensors that a model can take one by one as well."""
        return [name for name in self.only_whole() if _is(self.requests[name], PandasCodec)]

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
            ValueError: As there, or it needs pandas, which is not installed.
        """
        if content_type not in self.inputs and content_type not in self.requests:
            for codec in (*_INPUT_CODECS, *_REQUEST_CODECS):
                if codec.content_type == content_type:
                    self.check_installed(codec, where)
        try:
            self.check(content_type, where, whole=whole)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None

    def check_installed(self, codec: AnyCodec, where: str) -> None:
        """Refuse a codec whose package is not installed.

        Raises:
            ValueError: The text names the extra.
        """
        if not self._is_usable(codec):
            raise ValueError(f"{where}: the content_type {codec.content_type!r} needs pandas: pip install 'oip_asgi[pandas]'")

    def reader(self, annotation: Any, codec: AnyInputCodec | None) -> Reader | None:
        """How to read a tensor for a parameter.

        Args:
            annotation: The parameter's, without `Optional` and `Annotated`.
            codec: What `Annotated` names.

        Returns:
            None where no tensor can become that.
        """
        if codec is not None:
            decode = _decode_of(codec)
            return Reader(f"what {_called(codec)} decodes", decode, {codec.content_type: decode}, codec.datatype)
        if annotation in UNTYPED:
            return Reader("", _array, {name: _decode_of(known) for name, known in self.inputs.items()})
        called = inspect.formatannotation(annotation)
        if is_series_class(typing.get_origin(annotation) or annotation):
            return self._series_reader(called)
        for content_type, known in self.inputs.items():
            if known.yields(normal(annotation)):
                # bytes are what a tensor holds anyway: base64 is undone only where the request says that it is base64
                decode = _decode_of(known)
                default = _bytes if known is Base64Codec else _array if known is NumpyCodec else decode
                return Reader(called, default, {content_type: decode}, known.datatype)
        return None

    def _series_reader(self, called: str) -> Reader:
        others = self._own_decoders()

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

        Raises:
            ValueError: It needs pandas, which is not installed.
        """
        called = f"what {_called(codec)} decodes" if annotation in UNTYPED else inspect.formatannotation(annotation)
        self.check_installed(codec, called)
        return WholeReader(called, codec.content_type, codec, codec.decode_request, declared, self._own_decoders())

    def writer(self, annotation: Any) -> AnyInputCodec | None:
        """The codec for a result that is annotated so; None where its value says what it is, as arrays, bytes and series do."""
        for codec in self.inputs.values():
            if codec not in (NumpyCodec, Base64Codec) and codec.yields(normal(annotation)):
                return codec
        return None

    def _own_decoders(self) -> dict[str, Decode]:
        return {name: _decode_of(codec) for name, codec in self.inputs.items() if codec not in _INPUT_CODECS}

    def of_value(self, value: Any) -> AnyInputCodec | None:
        """The codec for a result that nothing else names one for: those of users first; None for what numpy makes an array of."""
        for codec in self._others:
            if _encodes(codec, value):
                return codec
        return DatetimeCodec if isinstance(value, list) and value and DatetimeCodec.can_encode(value) else None

    def whole_of_value(self, value: Any) -> AnyRequestCodec | None:
        """The codec for a result that is a whole response."""
        for codec in self._wholes:
            if _encodes(codec, value):
                return codec
        return None


def as_codec(extras: Sequence[Any]) -> AnyCodec | None:
    """The codec among what an `Annotated` holds."""
    return next((extra for extra in extras if is_input_codec(extra) or is_request_codec(extra)), None)


def is_input_codec(codec: object) -> TypeGuard[AnyInputCodec]:
    """Whether something is a codec for single tensors."""
    return _is(codec, InputCodec)


def is_request_codec(codec: object) -> TypeGuard[AnyRequestCodec]:
    """Whether something is a codec for whole requests."""
    return _is(codec, RequestCodec)


def check_complete(codec: AnyCodec, where: str) -> None:
    """Hold what somebody gives as a codec against what one needs.

    Args:
        codec: What is given.
        where: Whose it is, for the error.

    Raises:
        TypeError: It is none, or both, or lacks its content type or a method; the text says what to write.
    """
    for_one, for_whole = is_input_codec(codec), is_request_codec(codec)
    content_type = getattr(codec, "content_type", None)
    if not isinstance(content_type, str) or not content_type:
        raise TypeError(f'{where}: {codec!r} has no content_type: give it one, such as content_type = "img"')
    if not for_one and not for_whole:
        raise TypeError(f"{where}: {codec!r} is neither an InputCodec nor a RequestCodec: make it a subclass of one")
    if for_one and for_whole:
        raise TypeError(f"{where}: {codec!r} is both an InputCodec and a RequestCodec: make it two, which may share their content_type")
    base, methods = (InputCodec, _INPUT_METHODS) if for_one else (RequestCodec, _REQUEST_METHODS)
    missing = [name for name in methods if _function(codec, name) is _function(base, name)]
    if missing:
        raise TypeError(f"{where}: {codec!r} does not define {', '.join(missing)}")


def _function(codec: object, name: str) -> Any:
    method = getattr(codec, name)
    return getattr(method, "__func__", method)


def _is(codec: object, base: type) -> bool:
    return issubclass(codec, base) if isinstance(codec, type) else isinstance(codec, base)


def _called(codec: AnyCodec) -> str:
    return codec.__name__ if isinstance(codec, type) else type(codec).__name__


def _encodes(codec: AnyCodec, value: Any) -> bool:
    # a user's codec is asked about the results of all models, so its mistakes must not become theirs
    try:
        return bool(codec.can_encode(value))
    except Exception as error:
        log_raised(logging.ERROR, error, "%s.can_encode raised, so it counts as no", _called(codec))
        return False


def _decode_of(codec: AnyInputCodec) -> Decode:
    """How a codec decodes a tensor. What datatype it reads is checked before a user's codec is called, as ours check it themselves."""
    datatype = codec.datatype
    if datatype is None or codec in _INPUT_CODECS:
        return codec.decode_input

    def decode(tensor: Tensor) -> Any:
        if tensor.datatype != datatype:
            raise InvalidRequest(
                f"tensor {shown(tensor.name)} has datatype {tensor.datatype}: expected {datatype} for {codec.content_type!r}"
            )
        return codec.decode_input(tensor)

    return decode


def _array(tensor: Tensor) -> Any:
    return tensor.array


def _bytes(tensor: Tensor) -> list[bytes]:
    return bytes_of(tensor, "list[bytes]")
