"""`MLModel`, from which models that were written for MLServer inherit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, cast

from .codecs import registry
from .errors import CodecError, InferenceError
from .settings import ModelSettings
from .types import (
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    Parameters,
    RequestInput,
    RequestOutput,
    ResponseOutput,
)

MAX_COLUMNS: Final = 4096
"""The most columns of a frame that nobody declares, as of a function that takes one."""


class MLModel:
    """A model as MLServer has it. A subclass defines `load`, and `predict` or `predict_stream`.

    Args:
        settings: What `model-settings.json` says.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = self._settings = settings
        self.name, self.version = settings.name, settings.version
        self.inputs: list[MetadataTensor] = settings.inputs
        self.outputs: list[MetadataTensor] = settings.outputs
        self.ready = False
        self._codecs = registry.get()

    async def load(self) -> bool:
        """Load the model. It may set `inputs` and `outputs`, which metadata shows. Returns whether it is
        ready."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request. It runs on the event loop, as an `async def` does, so what blocks belongs into
        `asyncio.to_thread`."""
        raise NotImplementedError

    async def predict_stream(
        self, payloads: AsyncIterator[InferenceRequest]
    ) -> AsyncIterator[InferenceResponse]:
        """Answer a request with any number of responses."""
        async for payload in payloads:
            yield await self.predict(payload)

    async def unload(self) -> bool:
        """Free what `load` has taken."""
        return True

    def decode(self, request_input: RequestInput, default_codec: Any = None) -> Any:
        """The value of an input, by the content type that it names, else the settings, else by the default
        codec; else its data."""
        codec = self._codecs.inputs.get(_find_type(request_input, self.inputs), default_codec)
        return request_input.data if codec is None else codec.decode_input(request_input)

    def decode_request(self, inference_request: InferenceRequest, default_codec: Any = None) -> Any:
        """The value of a request, by the content type that it names, else the settings, else by the default
        codec; else the request."""
        for each in inference_request.inputs:
            content_type = _find_type(each, self.inputs)
            each.parameters = each.parameters or Parameters()
            each.parameters.content_type = content_type
        content_type = (
            getattr(inference_request.parameters, "content_type", None)
            or self.settings.parameters.content_type
        )
        codec, number = self._codecs.requests.get(content_type, default_codec), len(inference_request.inputs)
        if content_type == "pd" and number > max(MAX_COLUMNS, len(self.inputs)):
            raise InferenceError(
                f"the request has {number} columns: expected {MAX_COLUMNS} at most, as the settings do not "
                "declare them"
            )
        return inference_request if codec is None else codec.decode_request(inference_request)

    def encode(
        self, payload: Any, request_output: RequestOutput, default_codec: Any = None
    ) -> ResponseOutput:
        """A value as an output, by the content type that the request or the settings name, else by its type,
        else by the default codec."""
        named = self._codecs.inputs.get(_find_type(request_output, self.outputs))
        codec = named or _find_codec(self._codecs.inputs.values(), payload, default_codec)
        return cast(ResponseOutput, codec.encode_output(request_output.name, payload))

    def encode_response(self, payload: Any, default_codec: Any = None) -> InferenceResponse:
        """A value as a response, by its type, else by the default codec."""
        codec = _find_codec(self._codecs.requests.values(), payload, default_codec)
        return cast(InferenceResponse, codec.encode_response(self.name, payload, self.version))


def _find_type(message: Any, declared: Sequence[MetadataTensor]) -> Any:
    """The content type of an input or output: its own, else that of the tensor of its name that the model
    declares."""
    messages = [message, *(each for each in declared if each.name == message.name)]
    return next(filter(None, (getattr(each.parameters, "content_type", None) for each in messages)), None)


def _find_codec(codecs: Any, payload: Any, default_codec: Any) -> Any:
    codec = next((codec for codec in codecs if codec.can_encode(payload)), default_codec)
    if codec is None:
        raise CodecError(f"no codec for a {type(payload).__name__}")
    return codec
