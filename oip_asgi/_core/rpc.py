"""One remote call: method and request message -> `Reply`. Knows no gRPC, no protobuf, and neither sync nor async.

Which method asks what, the codes and the texts of errors exist here, once, for servers of grpc and of grpc.aio.

Specification: gRPC, API Definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from .contents import decode_request, encode_metadata, encode_response
from .datatypes import Buffer
from .errors import InferenceError, NotFound, shown
from .models import Model
from .server import Server, own_fault
from .steps import Steps
from .tensors import joined
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

_LARGE: Final = 65_536
"""Bytes above which copying a request's raw contents costs more than finding them."""

_MAX_DETAILS: Final = 2000
"""Bytes of an error's text. It travels among headers, threefold where it must be percent-encoded, and 8 KiB is what peers take there."""


class Call(NamedTuple):
    """A call as it came.

    Args:
        method: One of `METHODS`.
        body: The serialized request message.
        parse: Makes the message of it, or raises InvalidRequest.
        response: The empty response message.
        metadata: Gives the call's metadata: names in lower case, values as text.
        transport: The way in's own object, for `InferenceContext.transport`.
    """

    method: str
    body: bytes
    parse: Callable[[bytes], Any]
    response: Any
    metadata: Callable[[], Iterable[tuple[str, str]]]
    transport: Any


class Reply(NamedTuple):
    """An answer: the response message, or the name of an error's code and its text."""

    message: bytes
    code: str = "OK"
    details: str = ""


def exchange(server: Server, call: Call) -> Steps[Reply]:
    """Answer one call. Raises nothing but what is not an `Exception`."""
    try:
        contents = yield from (_infer(server, call) if call.method == "ModelInfer" else _tell(server, call))
        return Reply(b"".join([call.response.SerializeToString(), *contents]))
    except InferenceError as error:
        return _refusal(error)
    except Exception as error:
        return _refusal(own_fault(error))


def _tell(server: Server, call: Call) -> Steps[list[Buffer]]:
    request, response = call.parse(call.body), call.response
    match call.method:
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
    return []


def _infer(server: Server, call: Call) -> Steps[list[Buffer]]:
    body, raw = split(call.body, _RAW_INPUT_CONTENTS) if len(call.body) > _LARGE else (call.body, [])
    message = call.parse(body)
    model = _find(server, message.model_name, message.model_version)
    yield from server.admit(model)
    with server.enter(model) as place:
        request = decode_request(message, raw or message.raw_input_contents)
        response = yield from server.infer(model, place, request, lambda: joined(call.metadata()), call.transport)
    contents = encode_response(response, message, call.response)
    return [part for content in contents for part in bytes_field(_RAW_OUTPUT_CONTENTS, content)]


def _find(server: Server, name: str, version: str) -> Model:
    return server.models.find(name, version or None)


def _refusal(error: InferenceError) -> Reply:
    # a lone surrogate, which only a model's own message can hold, is no UTF-8
    text = str(error).encode(errors="replace")[:_MAX_DETAILS].decode(errors="ignore")
    return Reply(b"", error.grpc_code, text)
