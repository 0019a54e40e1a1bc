"""The gRPC wire format: parses and decodes the message of an inference request, and encodes its response. Knows no gRPC library.

Specification: gRPC, ModelInfer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._models.model import Model
from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest
from .._protocol.headers import join_repeated
from .._protocol.limits import LOOP_BYTES
from .._protocol.tensors import REGION, InferenceRequest, InferenceResponse, Lend
from .messages import Method, decode_request, encode_response
from .wire import check_fields, encode_bytes_head, find_texts, split

_MODEL_NAME, _MODEL_VERSION, _RAW_INPUT_CONTENTS, _RAW_OUTPUT_CONTENTS = 1, 2, 7, 6


class GRPCFormat:
    """One `ModelInfer` call."""

    __slots__ = ("_in_parts", "_message", "_method", "_parsed", "_raw", "model_name", "model_version", "size", "timeout", "transport")

    def __init__(self, method: Method, body: Buffer, transport: Any, timeout: float, *, in_parts: bool = False) -> None:
        self.transport = transport
        self._in_parts = in_parts
        self.timeout = timeout
        self._method = method
        self.size = len(body)
        self._parsed = body
        self._raw: list[memoryview] = []
        if len(body) > LOOP_BYTES:
            self._parsed, self._raw = split(body, _RAW_INPUT_CONTENTS)
        self._message: Any = None
        if len(self._parsed) <= LOOP_BYTES:
            message = self._message = method.parse(self._parsed)
            self.model_name, self.model_version = message.model_name, message.model_version
        else:
            self.model_name, self.model_version = find_texts(self._parsed, (_MODEL_NAME, _MODEL_VERSION))

    @property
    def message(self) -> Any:
        """The request message; None for a long one that is not parsed yet."""
        return self._message

    def named_headers(self) -> Mapping[str, str]:
        return join_repeated(self._method.metadata(self.transport), ", ")

    def read(self) -> Buffer:
        return self._parsed

    def decode(self, body: Buffer, _: Model, lend: Lend) -> InferenceRequest:
        message = self._message
        if message is None:
            check_fields(body)
            message = self._message = self._method.parse(body)
            if (message.model_name, message.model_version) != (self.model_name, self.model_version):
                raise InvalidRequest("the request names its model more than once: expected one model_name and one model_version")
        return decode_request(message, self._raw or message.raw_input_contents, lend)

    def encode(self, request: InferenceRequest, response: InferenceResponse) -> list[Buffer]:
        message = self._method.response()
        elsewhere = (
            [output.name for output in request.outputs if output.parameters and REGION in output.parameters] if request.outputs else ()
        )
        contents = encode_response(response, message, elsewhere)
        # protobuf would copy them twice
        parts: list[Buffer] = [message.SerializeToString()]
        for content in contents:
            parts += encode_bytes_head(_RAW_OUTPUT_CONTENTS, len(content)), content
        return parts if self._in_parts else [b"".join(parts)]
