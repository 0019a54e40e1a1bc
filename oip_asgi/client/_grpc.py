"""The same questions over gRPC, with grpcio.

Specification: gRPC; Triton's ModelStreamInfer.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from .._hosts.frameworks import make_import_error
from .._protocol.datatypes import Buffer
from .._protocol.errors import ErrorResponse, InvalidRequest, InvalidResponse, find_status, show
from .._protocol.tensor_bytes import view_bytes
from .._protocol.tensors import REGION, InferenceRequest, InferenceResponse, refuse_region
from ._questions import SECONDS, Inference, Question, check_timeout, make_writable, suggest_stream
from ._senders import ByLoop, ConnectionFailed, check_size, iterate, make_failure, to_limit, wait_for

try:
    import grpc
    import grpc.aio
except ImportError as error:
    raise make_import_error(error, "grpc", "grpcio protobuf") from error

# without protobuf they name another extra
from .._grpc.messages import decode_parameters, decode_tensor, encode_parameters
from .._grpc.protobuf import GetMessageClass, make_pool
from .._grpc.wire import encode_bytes_head, split_field

T = TypeVar("T")

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]

_URL: Final = re.compile(r"(grpcs?)://([^/?#@]+:\d+)/?")
_NO_HTTP_2: Final = (
    "the server does not speak HTTP/2, which gRPC needs: serve it with pyvoy or with gunicorn's asgi worker "
    "and HTTP/2, or ask an address "
    "that begins with http:// (gRPC says: {})"
)
_SERVICE: Final = "inference.GRPCInferenceService"
_RAW_INPUT_CONTENTS, _RAW_OUTPUT_CONTENTS = 7, 6

_FINAL: Final = "triton_final_response"
"""What Triton and this package say in each response of a stream: whether it is the last."""

_ENDS_AT_ERROR: Final = "triton_grpc_error"
"""With it, a call ends with the code of its first error. Triton sends the text alone for what it refuses
itself."""

_UNSENT: Final = ("failed to connect to all addresses", "errors resolving", "DNS resolution failed")
"""How the texts of errors begin if no connection could be opened."""

_OPTIONS: Final = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class GRPCLink:
    """A server that is asked over gRPC, on an event loop, or blocking: then its coroutines never wait, and
    `finish` runs them."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None,
        timeout: float | None,
        *,
        blocks: bool = False,
    ) -> None:
        self.url = url
        self.blocks = blocks
        address = _URL.fullmatch(url)
        if address is None:
            raise ValueError(
                f"the url is {show(url)}: expected one such as grpc://host:8001, or grpcs:// with TLS"
            )
        self.target = address[2]
        self.credentials = grpc.ssl_channel_credentials() if address[1] == "grpcs" else None
        self.metadata = [_make_pair(name.lower(), value) for name, value in (headers or {}).items()]
        self.timeout = SECONDS if timeout is None else check_timeout(timeout)
        self.channel: Any = None
        self.channels = ByLoop(self.make_channel, lambda channel: channel.close())
        pool, self.classes = make_pool()
        self.service = pool.FindServiceByName(_SERVICE)

    def seconds(self, timeout: float | None) -> float | None:
        return to_limit(self.timeout if timeout is None else check_timeout(timeout))

    def find_metadata(self, inference: Inference) -> Metadata:
        return [*self.metadata, *(_make_pair(name, value) for name, value in inference.headers)]

    def write(self, question: Question[Any]) -> bytes:
        fields = dict(question.fields)
        parameters = fields.pop("parameters", {})
        message: Any = GetMessageClass(self.service.methods_by_name[question.rpc].input_type)(**fields)
        for name, value in parameters.items():
            if isinstance(value, float):
                raise InvalidRequest(
                    f"the parameter {show(name)} is {value}: over gRPC, expected a str, int, bool or bytes"
                )
        if parameters:  # not every message has them
            encode_parameters(parameters, message.parameters)
        return bytes(message.SerializeToString())

    def write_inference(self, inference: Inference) -> bytes:
        request: InferenceRequest = inference.request
        message: Any = GetMessageClass(self.service.methods_by_name["ModelInfer"].input_type)()
        message.model_name, message.id = inference.model, request.id or ""
        message.model_version = "" if inference.version is None else str(inference.version)
        encode_parameters(request.parameters, message.parameters)
        for output in request.outputs:
            encode_parameters(output.parameters or {}, message.outputs.add(name=output.name).parameters)
        parts: list[Buffer] = [b""]
        for tensor in request.inputs:
            described = message.inputs.add(
                name=tensor.name, datatype=tensor.datatype, shape=tensor.array.shape
            )
            encode_parameters(tensor.parameters, described.parameters)
            content = view_bytes(tensor.array)
            parts += encode_bytes_head(_RAW_INPUT_CONTENTS, len(content)), content
        parts[0] = message.SerializeToString()  # what follows is its last field
        return b"".join(parts)

    def _read_response(self, inference: Inference, message: Any, cut: list[memoryview]) -> InferenceResponse:
        try:
            left = iter(cut or message.raw_output_contents)
            has_raw = bool(cut or message.raw_output_contents)
            outputs = [
                decode_tensor(
                    item,
                    index,
                    next(left, None) if has_raw and REGION not in item.parameters else None,
                    refuse_region,
                    "outputs",
                )
                for index, item in enumerate(message.outputs)
            ]
            # MLServer sets contents beside raw ones, without anything in them
            if next(left, None) is not None or (
                has_raw and any(item.contents.ListFields() for item in message.outputs)
            ):
                raise InvalidRequest(
                    "raw_output_contents has more than the outputs, or what their contents have too"
                )
            parameters = decode_parameters(message.parameters, "parameters")
        except InvalidRequest as error:
            raise InvalidResponse(f"the response is not one of inference: {error}") from None
        response = InferenceResponse(
            outputs, parameters, message.id or None, message.model_name, message.model_version or None
        )
        return make_writable(response) if inference.writable else response

    def _parse(self, rpc: str, content: bytes) -> Any:
        kind = GetMessageClass(self.service.methods_by_name[rpc].output_type)
        try:
            return kind.FromString(content)
        except Exception:  # DecodeError, and UnicodeDecodeError without protobuf's compiled part
            raise InvalidResponse(
                f"the response cannot be parsed: expected the bytes of {kind.DESCRIPTOR.full_name}"
            ) from None

    def make_channel(self) -> Any:
        library: Any = grpc if self.blocks else grpc.aio
        if self.credentials is None:
            return library.insecure_channel(self.target, _OPTIONS)
        return library.secure_channel(self.target, self.credentials, _OPTIONS)

    async def open(self) -> Any:
        """The channel of this event loop, or the only one of a client that blocks."""
        if self.blocks:
            self.channel = self.channel or self.make_channel()
            return self.channel
        return await self.channels.get()

    async def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        if not self.blocks:
            await self.channels.close()

    def fail(self, error: Any) -> ErrorResponse | ConnectionFailed:
        text, code = error.details() or error.code().name, error.code().name
        if code == "UNAVAILABLE" and text.startswith(_UNSENT):
            text = _NO_HTTP_2.format(text) if "http1.x server" in text else text
            return make_failure(self.url, text, is_unsent=True, is_timeout=False)
        refusal = ErrorResponse(text, find_status(code))
        suggest_stream(refusal)
        return refusal

    async def call(self, rpc: str, content: bytes, timeout: float | None, metadata: Metadata = ()) -> bytes:
        call = (await self.open()).unary_unary(f"/{_SERVICE}/{rpc}")
        try:
            answer: bytes = await wait_for(
                call(content, timeout=self.seconds(timeout), metadata=metadata or self.metadata)
            )
        except grpc.RpcError as error:
            raise self.fail(error) from error
        return answer

    async def ask(self, question: Question[T], timeout: float | None) -> T:
        try:
            content = await self.call(question.rpc, self.write(question), timeout)
        except ErrorResponse as error:
            if not question.is_probe or error.response_status not in (400, 404):
                raise
            return question.read({"ready": False})
        return question.read(_to_document(self._parse(question.rpc, content)))

    async def infer(self, inference: Inference, timeout: float | None) -> InferenceResponse:
        metadata = self.find_metadata(inference)
        content = await self.call("ModelInfer", self.write_inference(inference), timeout, metadata)
        check_size(len(content), inference.max_body_bytes, "response")
        rest, cut = split_field(content, _RAW_OUTPUT_CONTENTS)
        return self._read_response(inference, self._parse("ModelInfer", bytes(rest)), cut)

    async def stream(self, inference: Inference, timeout: float | None) -> AsyncGenerator[InferenceResponse]:
        stream = (await self.open()).stream_stream(f"/{_SERVICE}/ModelStreamInfer")
        metadata = [(_ENDS_AT_ERROR, "true"), *self.find_metadata(inference)]
        call = stream(
            iter([self.write_inference(inference)]), timeout=self.seconds(timeout), metadata=metadata
        )
        try:
            async for content in iterate(call):
                check_size(len(content), inference.max_body_bytes, "event of the stream")
                message = self._parse("ModelStreamInfer", content)
                if message.error_message:
                    raise ErrorResponse(message.error_message)
                response = self._read_response(inference, message.infer_response, [])
                response.parameters.pop(_FINAL, None)
                yield response
        except grpc.RpcError as error:
            raise self.fail(error) from error
        finally:
            call.cancel()


def _make_pair(name: str, value: str) -> tuple[str, str | bytes]:
    """A header as metadata. If its name ends with "-bin" it is bytes, and its text is base64, as on gRPC's
    wire."""
    if name.endswith("-bin"):
        try:
            return name, b64decode(value + "=" * (-len(value) % 4), validate=True)
        except ValueError:
            raise InvalidRequest(f"the header {name} cannot go over gRPC: expected base64") from None
    return name, value


def _to_document(message: Any) -> Any:
    """A message as JSON has it, without empty texts and objects."""
    values = {
        field.name: _to_value(field, getattr(message, field.name)) for field in message.DESCRIPTOR.fields
    }
    return {name: value for name, value in values.items() if value not in ("", {})}


def _to_value(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.name == "InferParameter":
        return getattr(value, value.WhichOneof("parameter_choice") or "string_param")
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {
            key: _to_value(field.message_type.fields_by_name["value"], each) for key, each in value.items()
        }
    if hasattr(value, "append"):
        return [_to_value(field, each) for each in value]
    if field.enum_type is not None:
        member = field.enum_type.values_by_number.get(value)
        return value if member is None else member.name
    return value if field.message_type is None else _to_document(value)
