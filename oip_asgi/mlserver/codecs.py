"""MLServer's codecs, over the types of `oip_asgi.mlserver.types`. Lists, and columns of frames, are written
as `[N, 1]`, as there."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from .. import codecs as ours
from .errors import CodecError
from .types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput

DecodedParameterName: Final = "_decoded_payload"
InputOrOutput: TypeAlias = RequestInput | ResponseOutput


class InputCodec:
    """Turns a value into one tensor, and back, by `encode_input`, `decode_input`, `encode_output` and
    `decode_output` of a subclass."""

    ContentType: ClassVar[str] = ""
    TypeHint: ClassVar[Any] = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:  # noqa: ARG003
        """Whether it encodes a value for which nothing names a codec."""
        return False


class RequestCodec(InputCodec):
    """Turns a value into a whole request or response, and back, by `encode_request`, `decode_request` and the
    two for responses."""


def _wrap_codec(codec: Any, hint: Any = None) -> Any:
    """A codec of this package in MLServer's form."""
    is_whole = issubclass(codec, ours.RequestCodec)
    kinds: Any = (
        {"request": InferenceRequest, "response": InferenceResponse}
        if is_whole
        else {"input": RequestInput, "output": ResponseOutput}
    )
    encoders = {
        f"encode_{name}": _wrap_encoder(getattr(codec, f"encode_{name}"), kind)
        for name, kind in kinds.items()
    }
    decoders = {f"decode_{name}": _wrap_decoder(getattr(codec, f"decode_{name}")) for name in kinds}
    methods = {
        name: staticmethod(method)
        for name, method in {**encoders, **decoders, "can_encode": codec.can_encode}.items()
    }
    base = RequestCodec if is_whole else InputCodec
    return type(codec.__name__, (base,), {**methods, "ContentType": codec.content_type, "TypeHint": hint})


def _wrap_encoder(encode: Callable[..., Any], kind: Any) -> Callable[..., Any]:
    """`[N]` becomes `[N, 1]`, and BYTES become `str` with `use_bytes=False`, as in MLServer."""

    def encode_theirs(*args: Any, use_bytes: bool = True, **options: Any) -> Any:
        message = kind.of(encode(*args, **options), is_text=not use_bytes)
        for each in getattr(message, "inputs", None) or getattr(message, "outputs", None) or [message]:
            each.shape = [*each.shape, 1][: max(2, len(each.shape))]
        return message

    return encode_theirs


def _wrap_decoder(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What is decoded belongs to the model, which may change it. An array of text has `str`."""

    def decode_theirs(message: Any) -> Any:
        value = decode(message.to_ours())
        if not isinstance(value, np.ndarray):
            return value
        with suppress(UnicodeDecodeError):
            if value.dtype.hasobject:
                return np.array([each.decode() for each in value.flat]).reshape(value.shape)
        return value if value.flags.writeable else value.copy()

    return decode_theirs


NumpyCodec = _wrap_codec(ours.NumpyCodec, np.ndarray)
StringCodec = _wrap_codec(ours.StringCodec, list[str])
Base64Codec = _wrap_codec(ours.Base64Codec, list[bytes])
DatetimeCodec = _wrap_codec(ours.DatetimeCodec, list[datetime])
NumpyRequestCodec = _wrap_codec(ours.NumpyRequestCodec)
StringRequestCodec = _wrap_codec(ours.StringRequestCodec)
PandasCodec = _wrap_codec(ours.PandasCodec)


@dataclass(frozen=True)
class Registry:
    """The codecs that some models know, by content type."""

    inputs: dict[str, Any]
    requests: dict[str, Any]

    def copy(self) -> Registry:
        return Registry(self.inputs.copy(), self.requests.copy())


_EVERYWHERE: Final = Registry(
    {codec.ContentType: codec for codec in (NumpyCodec, StringCodec, Base64Codec, DatetimeCodec)},
    {codec.ContentType: codec for codec in (NumpyRequestCodec, StringRequestCodec, PandasCodec)},
)
"""The codecs of models in no folder, such as in tests: MLServer's decorators have nowhere else to put
them."""

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


def _normalize(annotation: Any) -> Any:
    """An annotation as codecs have it: without `None`, and `np.ndarray` for each array."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    alias = getattr(origin or annotation, "__value__", None)
    if alias is not None:  # a `type` statement, as NDArray is one since numpy 2.5
        return _normalize(alias[args] if origin else alias)
    if origin in (typing.Union, UnionType):
        members = [each for each in args if each is not NoneType]
        return _normalize(members[0]) if len(members) == 1 else annotation
    return np.ndarray if origin is np.ndarray else list[args] if origin is list else annotation  # type: ignore[valid-type]


def _find_codec(annotation: Any) -> Any:
    """The codec of tensors, or of requests, for an annotation."""
    hint = _normalize(annotation)
    if ours.PandasCodec.yields(hint):
        return PandasCodec
    codecs = registry.get()
    for codec in (*codecs.inputs.values(), *codecs.requests.values()):
        if codec.TypeHint is not None and codec.TypeHint == hint:
            return codec
    raise CodecError(
        f"no codec for {inspect.formatannotation(hint)}: take an InferenceRequest, or register a codec of "
        "that TypeHint"
    )


def decode_args(
    predict: Callable[..., Any],
) -> Callable[[Any, InferenceRequest], Coroutine[Any, Any, InferenceResponse]]:
    """Let `predict` take the values of its inputs by name, as annotated, and return those of its outputs.

    An input has the name of a parameter; a `pd.DataFrame` takes all that have none. Outputs are called
    `output-0` and so on.

    Raises:
        CodecError: An annotation has no codec.
    """
    hints = typing.get_type_hints(predict)
    returns = hints.pop("return", None)
    outputs = [
        _find_codec(hint)
        for hint in (typing.get_args(returns) if typing.get_origin(returns) is tuple else [returns])
    ]
    codecs = {name: _find_codec(hint) for name, hint in hints.items()}
    of_tensors = {name: codec for name, codec in codecs.items() if not hasattr(codec, "decode_request")}
    parameters = inspect.signature(predict).parameters
    needed = [name for name in of_tensors if parameters[name].default is inspect.Parameter.empty]

    @wraps(predict)
    async def predict_decoded(self: Any, request: InferenceRequest) -> InferenceResponse:
        values = {
            each.name: of_tensors[each.name].decode_input(each)
            for each in request.inputs
            if each.name in of_tensors
        }
        rest = [each for each in request.inputs if each.name not in of_tensors]
        if rest and codecs == of_tensors:
            raise CodecError(f"unknown inputs {[each.name for each in rest]}: expected {list(codecs)}")
        if missing := [name for name in needed if name not in values]:
            raise CodecError(f"missing inputs {missing}: expected {list(codecs)}")
        values |= {
            name: codecs[name].decode_request(InferenceRequest(inputs=rest))
            for name in codecs.keys() - of_tensors.keys()
        }
        result = predict(self, **values)
        result = await result if inspect.isawaitable(result) else result
        tensors: list[ResponseOutput] = []
        for index, (value, codec) in enumerate(
            zip(result if isinstance(result, tuple) else (result,), outputs, strict=True)
        ):
            tensors += (
                codec.encode_response(self.name, value).outputs
                if hasattr(codec, "encode_response")
                else [codec.encode_output(f"output-{index}", value)]
            )
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=tensors)

    return predict_decoded
