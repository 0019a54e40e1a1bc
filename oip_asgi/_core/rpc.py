"""One remote call: method and request message -> `Reply`. Knows no gRPC, no protobuf, and neither sync nor async.

Which method asks what, the codes and the texts of errors exist here, once, for servers of grpc and of grpc.aio.

Specification: gRPC, API Definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from .bodies import keep_at_hand
from .contents import check_message, decode_request, decoding_effort, encode_metadata, encode_response, encoding_effort, is_typed
from .datatypes import Buffer
from .errors import InferenceError, NotFound, shown
from .models import Model
from .server import Server, own_fault
from .steps import LARGE, Call, Steps
from .tensors import InferenceResponse, joined
from .wire import bytes_field, split

SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
METHODS: Final = {
    SERVICE: ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"),
    HEALTH: ("Check",),
}
"""What is answered of each service. Health has streams too, of changes that nobody announces here: readiness is asked."""

_SERVING, _NOT_SERVING = 1, 2
_RAW_INPUT_CONTENTS, _RAW_OUTPUT_CONTENTS = 7, 6

_SPLIT_ABOVE: Final = 65_536
"""Bytes of a request above which copying its raw contents costs more than finding them."""

_MAX_DETAILS: Final = 2000
"""Bytes of an error's text. It travels among headers, threefold where it must be percent-encoded, and 8 KiB is what peers take there."""


class Method(msgspec.Struct, frozen=True, eq=False):
    """A method and its messages.

    Args:
        name: One of `METHODS`.
        parse: Makes the request message of its bytes, or raises InvalidRequest.
        response: Makes an empty response message.
        metadata: Gives a call's metadata, of the way in's own object: names in lower case, values as text.
    """

    name: str
    parse: Callable[[bytes], Any]
    response: Callable[[], Any]
    metadata: Callable[[Any], Iterable[tuple[str, str]]]


class Reply(msgspec.Struct, frozen=True):
    """An answer: the response message, or the name of an error's code and its text."""

    message: bytes
    code: str = "OK"
    details: str = ""


def exchange(server: Server, method: Method, body: bytes, transport: Any) -> Steps[Reply]:
    """Answer one call. Raises nothing but what is not an `Exception`.

    Args:
        server: What is asked.
        method: Which method.
        body: The serialized request message.
        transport: The way in's own object, for `InferenceContext.transport`.
    """
    try:
        if method.name == "ModelInfer":
            return Reply((yield from _infer(server, method, body, transport)))
        response = method.response()
        yield from _tell(server, method.name, method.parse(body), response)
        return Reply(response.SerializeToString())
    except InferenceError as error:
        return _refusal(error)
    except Exception as error:
        return _refusal(own_fault(error))


def _tell(server: Server, method: str, request: Any, response: Any) -> Steps[None]:
    match method:
        case "ServerLive":
            response.live = True
        case "ServerReady":
            response.ready = yield from server.is_ready()
        case "ModelReady":
            response.ready = yield from server.is_model_ready(_find(server, request.name, request.version))
        case "ServerMetadata":
            document = server.metadata()
            response.name, response.version = document.name, document.version
            response.extensions.extend(document.extensions)
        case "ModelMetadata":
            encode_metadata(server.models.metadata(_find(server, request.name, request.version)), response)
        case _:  # Check
            if request.service not in ("", SERVICE):
                raise NotFound(f"unknown service {shown(request.service)}: expected {SERVICE}, or nothing for the server")
            response.status = _SERVING if (yield from server.is_ready()) else _NOT_SERVING


def _infer(server: Server, method: Method, body: bytes, transport: Any) -> Steps[bytes]:
    rest, raw = body, None
    if len(body) > _SPLIT_ABOVE:
        keep_at_hand()
        rest, raw = split(body, _RAW_INPUT_CONTENTS)
    message = method.parse(rest)
    model = _find(server, message.model_name, message.model_version)
    if not server.is_open(model):
        yield from server.admit(model)
    place = server.enter(model)
    try:
        raw = raw or message.raw_input_contents
        check_message(message, raw)
        if len(body) > LARGE and decoding_effort(message, len(rest), raw) > LARGE:
            request = yield Call(decode_request, "conversion", (message, raw), for_client=True)
        else:
            request = decode_request(message, raw)
        response = yield from server.infer(model, place, request, _Caller(method, transport))
    finally:
        place.give_up()
    typed = not raw and is_typed(message)
    if model.run != "thread" and encoding_effort(response, typed=typed) > LARGE:
        encoded: bytes = yield Call(_encode, "conversion", (response, method.response(), typed), for_client=True)
        return encoded
    return _encode(response, method.response(), typed)


class _Caller(msgspec.Struct, frozen=True, eq=False):
    """Who calls a method."""

    method: Method
    transport: Any

    def named_headers(self) -> Mapping[str, str]:
        """The call's metadata."""
        return joined(self.method.metadata(self.transport), ", ")


def _encode(response: InferenceResponse, message: Any, typed: bool) -> bytes:
    contents = encode_response(response, message, typed=typed)
    parts: list[Buffer] = [message.SerializeToString()]
    for content in contents:
        parts += bytes_field(_RAW_OUTPUT_CONTENTS, content)
    return b"".join(parts)


def _find(server: Server, name: str, version: str) -> Model:
    return server.models.find(name, version or None)


def _refusal(error: InferenceError) -> Reply:
    # a lone surrogate, which only a model's own message can hold, is no UTF-8
    text = str(error).encode(errors="replace")[:_MAX_DETAILS].decode(errors="ignore")
    return Reply(b"", error.grpc_code, text)
