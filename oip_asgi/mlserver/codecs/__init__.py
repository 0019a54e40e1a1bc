"""MLServer's codecs, over the types of `oip_asgi.mlserver.types`. The codecs of this package do the work.

Lists, and columns of frames, are written as `[N, 1]`, as MLServer writes them. Codecs that a model's file registers are known to the models
of its folder, and to no others.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import numpy as np

from ... import codecs as ours
from ..._codecs.base import normalize
from ..._protocol.tensors import Tensor
from ..errors import CodecError
from ..types import InferenceRequest, InferenceResponse, Parameters, RequestInput, ResponseOutput

if TYPE_CHECKING:
    from ..model import MLModel

M = TypeVar("M", RequestInput, ResponseOutput)

DecodedParameterName: Final = "_decoded_payload"


class InputCodec:
    """Turns a value into one tensor, and back. A subclass has a `ContentType`, and defines `encode_input`, `decode_input`, `encode_output`
    and `decode_output`."""

    ContentType: ClassVar[str] = ""
    TypeHint: ClassVar[Any] = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:  # noqa: ARG003
        """Whether it encodes a value for which nothing names a codec."""
        return False


class RequestCodec(InputCodec):
    """Turns a value into a whole request or response, and back. A subclass has a `ContentType`, and defines `encode_request`,
    `decode_request`, `encode_response` and `decode_response`."""


def _write(kind: type[M], tensor: Tensor, options: Mapping[str, Any]) -> M:
    """A tensor as MLServer writes it. `use_bytes=False` makes `str` of BYTES."""
    return kind.of(tensor, is_text=not options.get("use_bytes", True), shape=[*tensor.shape, 1][: max(2, len(tensor.shape))])


def _own(value: Any) -> Any:
    """A decoded value that the model may change. An array of text has `str`."""
    if not isinstance(value, np.ndarray):
        return value
    with suppress(UnicodeDecodeError):
        if value.dtype.hasobject:
            return np.array([each.decode() for each in value.flat]).reshape(value.shape)
    return value if value.flags.writeable else value.copy()


class _OfTensor(InputCodec):
    """A codec of this package, for one tensor."""

    codec: ClassVar[type[ours.InputCodec[Any]]]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return cls.codec.can_encode(payload)

    @classmethod
    def encode_input(cls, name: str, payload: Any, **options: Any) -> RequestInput:
        return _write(RequestInput, cls.codec.encode_input(name, payload), options)

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        return _own(cls.codec.decode_input(request_input.to_tensor()))

    @classmethod
    def encode_output(cls, name: str, payload: Any, **options: Any) -> ResponseOutput:
        return _write(ResponseOutput, cls.codec.encode_output(name, payload), options)

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        return _own(cls.codec.decode_output(response_output.to_tensor()))


class _OfRequest(RequestCodec):
    """A codec of this package, for a whole request."""

    codec: ClassVar[type[ours.RequestCodec[Any]]]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return cls.codec.can_encode(payload)

    @classmethod
    def encode_request(cls, payload: Any, **options: Any) -> InferenceRequest:
        inputs = [_write(RequestInput, tensor, options) for tensor in cls.codec.encode_request(payload).inputs]
        return InferenceRequest(inputs=inputs, parameters=Parameters(cls.ContentType))

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        return _own(cls.codec.decode_request(request.to_ours()))

    @classmethod
    def encode_response(cls, model_name: str, payload: Any, model_version: str | None = None, **options: Any) -> InferenceResponse:
        outputs = [_write(ResponseOutput, tensor, options) for tensor in cls.codec.encode_response(model_name, payload).outputs]
        parameters = Parameters(cls.ContentType)
        return InferenceResponse(model_name=model_name, model_version=model_version, outputs=outputs, parameters=parameters)

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        return _own(cls.codec.decode_response(response.to_ours()))


class NumpyCodec(_OfTensor):
    """Arrays, which the model may change."""

    codec, ContentType, TypeHint = ours.NumpyCodec, "np", np.ndarray


class StringCodec(_OfTensor):
    """Lists of strings."""

    codec, ContentType, TypeHint = ours.StringCodec, "str", list[str]


class Base64Codec(_OfTensor):
    """Lists of bytes."""

    codec, ContentType, TypeHint = ours.Base64Codec, "base64", list[bytes]


class DatetimeCodec(_OfTensor):
    """Lists of dates."""

    codec, ContentType, TypeHint = ours.DatetimeCodec, "datetime", list[datetime]


class NumpyRequestCodec(_OfRequest):
    """One array as a whole request or response."""

    codec, ContentType = ours.NumpyRequestCodec, "np"


class StringRequestCodec(_OfRequest):
    """One list of strings as a whole request or response."""

    codec, ContentType = ours.StringRequestCodec, "str"


class PandasCodec(_OfRequest):
    """Data frames: each column is a tensor."""

    codec, ContentType = ours.PandasCodec, "pd"


class Registry:
    """The codecs that some models know, by content type."""

    def __init__(self, inputs: Mapping[str, Any], requests: Mapping[str, Any]) -> None:
        self.inputs, self.requests = dict(inputs), dict(requests)

    def of_hint(self, hint: Any) -> Any:
        """The codec for an annotation. Raises CodecError."""
        hint = next((arg for arg in typing.get_args(hint) if type(None) in typing.get_args(hint) and arg is not type(None)), hint)
        hint = np.ndarray if typing.get_origin(hint) is np.ndarray else normalize(hint)
        if ours.PandasCodec.yields(hint):
            return PandasCodec
        for codec in (*self.inputs.values(), *self.requests.values()):
            if codec.TypeHint is not None and codec.TypeHint == hint:
                return codec
        raise CodecError(f"no codec for {inspect.formatannotation(hint)}: take an InferenceRequest, or register a codec with this TypeHint")


_EVERYWHERE: Final = Registry(
    {codec.ContentType: codec for codec in (NumpyCodec, StringCodec, Base64Codec, DatetimeCodec)},
    {codec.ContentType: codec for codec in (NumpyRequestCodec, StringRequestCodec, PandasCodec)},
)
"""The codecs of models in no folder, such as in tests: MLServer's decorators have nowhere else to put them."""

registry: Final = ContextVar("registry", default=_EVERYWHERE)
"""The codecs of the folder whose file is imported now."""


def register_input_codec(codec: Any) -> Any:
    """Let the models of this folder know a codec of tensors. A decorator of the class."""
    registry.get().inputs[codec.ContentType] = codec
    return codec


def register_request_codec(codec: Any) -> Any:
    """Let the models of this folder know a codec of requests. A decorator of the class."""
    registry.get().requests[codec.ContentType] = codec
    return codec


def decode_args(predict: Callable[..., Any]) -> Callable[[MLModel, InferenceRequest], Awaitable[InferenceResponse]]:
    """Let `predict` take the values of its inputs by name, as annotated, and return those of its outputs.

    An input has the name of a parameter; a `pd.DataFrame` takes all that have none. Outputs are called `output-0` and so on.

    Raises:
        CodecError: An annotation has no codec.
    """
    known, hints = registry.get(), typing.get_type_hints(predict)
    returns = hints.pop("return", None)
    inputs = {name: known.of_hint(hint) for name, hint in hints.items()}
    outputs = [known.of_hint(hint) for hint in (typing.get_args(returns) if typing.get_origin(returns) is tuple else [returns])]
    whole = next((name for name, codec in inputs.items() if hasattr(codec, "decode_request")), None)

    @wraps(predict)
    async def predict_decoded(self: MLModel, request: InferenceRequest) -> InferenceResponse:
        values = {each.name: inputs[each.name].decode_input(each) for each in request.inputs if each.name in inputs and each.name != whole}
        rest = [each for each in request.inputs if each.name not in values]
        if rest and whole is None:
            raise CodecError(f"unknown inputs {[each.name for each in rest]}: expected {list(inputs)}")
        if rest and whole is not None:
            values[whole] = inputs[whole].decode_request(InferenceRequest(inputs=rest))
        result = predict(self, **values)
        result = await result if inspect.isawaitable(result) else result
        made: list[ResponseOutput] = []
        for place, (value, codec) in enumerate(zip(result if isinstance(result, tuple) else (result,), outputs, strict=True)):
            is_whole = hasattr(codec, "encode_response")
            made += codec.encode_response(self.name, value).outputs if is_whole else [codec.encode_output(f"output-{place}", value)]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=made)

    return predict_decoded
