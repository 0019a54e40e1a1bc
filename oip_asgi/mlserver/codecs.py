"""MLServer's codecs, over the types of `oip_asgi.mlserver.types`. Lists, and columns of frames, are written as `[N, 1]`, as there."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from .. import codecs as ours
from .._codecs.base import normalize
from .._models.annotations import parse_annotation
from .._protocol.tensors import Tensor
from .errors import CodecError
from .types import InferenceRequest, InferenceResponse, Parameters, RequestInput, ResponseOutput

if TYPE_CHECKING:
    from .model import MLModel

DecodedParameterName: Final = "_decoded_payload"
InputOrOutput: TypeAlias = RequestInput | ResponseOutput


class InputCodec:
    """Turns a value into one tensor, and back, by `encode_input`, `decode_input`, `encode_output` and `decode_output` of a subclass."""

    ContentType: ClassVar[str] = ""
    TypeHint: ClassVar[Any] = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:  # noqa: ARG003
        """Whether it encodes a value for which nothing names a codec."""
        return False


class RequestCodec(InputCodec):
    """Turns a value into a whole request or response, and back, by `encode_request`, `decode_request` and the two for responses."""


def _write(kind: Any, tensors: Sequence[Tensor], *, use_bytes: bool = True) -> list[Any]:
    """Tensors as MLServer writes them. `use_bytes=False` makes `str` of BYTES."""
    return [kind.of(each, is_text=not use_bytes, shape=[*each.shape, 1][: max(2, len(each.shape))]) for each in tensors]


def _own(value: Any) -> Any:
    """A decoded value that the model may change. An array of text has `str`."""
    if not isinstance(value, np.ndarray):
        return value
    with suppress(UnicodeDecodeError):
        if value.dtype.hasobject:
            return np.array([each.decode() for each in value.flat]).reshape(value.shape)
    return value if value.flags.writeable else value.copy()


def _wrap(codec: Any, hint: Any = None) -> Any:
    """A codec of this package in MLServer's form."""
    content_type = codec.content_type

    def encode_request(payload: Any, **options: Any) -> InferenceRequest:
        inputs = _write(RequestInput, codec.encode_request(payload).inputs, **options)
        return InferenceRequest(inputs=inputs, parameters=Parameters(content_type))

    def encode_response(model_name: str, payload: Any, model_version: str | None = None, **options: Any) -> InferenceResponse:
        outputs = _write(ResponseOutput, codec.encode_response(model_name, payload).outputs, **options)
        parameters = Parameters(content_type)
        return InferenceResponse(model_name=model_name, model_version=model_version, outputs=outputs, parameters=parameters)

    of_tensor: dict[str, Any] = {
        "encode_input": lambda name, payload, **options: _write(RequestInput, [codec.encode_input(name, payload)], **options)[0],
        "decode_input": lambda request_input: _own(codec.decode_input(request_input.to_tensor())),
        "encode_output": lambda name, payload, **options: _write(ResponseOutput, [codec.encode_output(name, payload)], **options)[0],
        "decode_output": lambda response_output: _own(codec.decode_output(response_output.to_tensor())),
    }
    of_request: dict[str, Any] = {
        "encode_request": encode_request,
        "decode_request": lambda request: _own(codec.decode_request(request.to_ours())),
        "encode_response": encode_response,
        "decode_response": lambda response: _own(codec.decode_response(response.to_ours())),
    }
    is_whole = issubclass(codec, ours.RequestCodec)
    methods = {
        name: staticmethod(method) for name, method in {"can_encode": codec.can_encode, **(of_request if is_whole else of_tensor)}.items()
    }
    names = {"ContentType": content_type, "TypeHint": hint}
    return type(codec.__name__, (RequestCodec if is_whole else InputCodec,), {**methods, **names})


NumpyCodec = _wrap(ours.NumpyCodec, np.ndarray)
StringCodec = _wrap(ours.StringCodec, list[str])
Base64Codec = _wrap(ours.Base64Codec, list[bytes])
DatetimeCodec = _wrap(ours.DatetimeCodec, list[datetime])
NumpyRequestCodec = _wrap(ours.NumpyRequestCodec)
StringRequestCodec = _wrap(ours.StringRequestCodec)
PandasCodec = _wrap(ours.PandasCodec)


class Registry:
    """The codecs that some models know, by content type."""

    def __init__(self, inputs: Mapping[str, Any], requests: Mapping[str, Any]) -> None:
        self.inputs, self.requests = dict(inputs), dict(requests)

    def of_hint(self, hint: Any) -> Any:
        """The codec for an annotation. Raises CodecError."""
        hint = normalize(parse_annotation(hint).wanted)
        if ours.PandasCodec.yields(hint):
            return PandasCodec
        for codec in (*self.inputs.values(), *self.requests.values()):
            if codec.TypeHint is not None and codec.TypeHint == hint:
                return codec
        raise CodecError(f"no codec for {inspect.formatannotation(hint)}: take an InferenceRequest, or register a codec of that TypeHint")


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


def decode_args(predict: Callable[..., Any]) -> Callable[[Any, InferenceRequest], Coroutine[Any, Any, InferenceResponse]]:
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
