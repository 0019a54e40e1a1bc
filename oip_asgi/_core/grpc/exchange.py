"""One remote call: method and request message -> `Reply`. Knows no gRPC, no protobuf, and neither sync nor async.

Which method asks what, the codes and the texts of errors exist here, once, for servers of grpc and of grpc.aio.

Specification: gRPC, API Definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from ..body import keep_at_hand
from ..datatypes import Buffer, DType, datatype_of
from ..effects import LARGE, Call, Steps
from ..errors import InferenceError, InvalidRequest, NotFound, shown
from ..models.model import Model
from ..outlines import REMEMBERED, SHORT, Outline, Received
from ..raw import from_raw, view_raw
from ..serving.engine import Server, own_fault
from ..tensors import InferenceResponse, joined
from .messages import (
    check_message,
    decode_request,
    decoding_effort,
    encode_metadata,
    encode_response,
    encoding_effort,
    is_typed,
    outline_of,
)
from .wire import apart, bytes_head, ending, split

SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
METHODS: Final = {
    SERVICE: ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"),
    HEALTH: ("Check",),
}
"""What is answered of each service. Health has streams too, of changes that nobody announces here: readiness is asked."""

_SERVING, _NOT_SERVING = 1, 2
_ID, _RAW_INPUT_CONTENTS, _RAW_OUTPUT_CONTENTS = 3, 7, 6

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
    asked = _recognized(method, body) or _parsed(method, body)
    model = _find(server, asked.model_name, asked.model_version)
    if not server.is_open(model):
        yield from server.admit(model)
    place = server.enter(model)
    try:
        received = asked.received
        if received is None and asked.effort() > LARGE:
            received = yield Call(asked.decode, "conversion", for_client=True)
        elif received is None:
            received = asked.decode()
        response = yield from server.infer(model, place, received, _Caller(method, transport))
    finally:
        place.give_up()
    typed = asked.is_typed()
    if model.run != "thread" and encoding_effort(response, typed=typed) > LARGE:
        encoded: bytes = yield Call(_encode, "conversion", (response, method.response, typed), for_client=True)
        return encoded
    return _encode(response, method.response, typed)


class _Asked(msgspec.Struct, frozen=True, eq=False):
    """A `ModelInferRequest`: read already, where that was by way of its outline, else as its message.

    Args:
        model_name: The model that is asked for.
        model_version: Its version, "" for the default.
        received: The request; None where it is still to be decoded.
        message: The message; None where there is the request.
        raw: Its `raw_input_contents`.
        size: How many bytes it has.
        parsed: How many of them were parsed; the others are raw contents that were split off.
    """

    model_name: str
    model_version: str
    received: Received | None
    message: Any = None
    raw: Sequence[Buffer] = ()
    size: int = 0
    parsed: int = 0

    def effort(self) -> int:
        """How many bytes `decode` looks at one by one, where they may be many."""
        return decoding_effort(self.message, self.parsed, self.raw) if self.size > LARGE else 0

    def decode(self) -> Received:
        """The request.

        Raises:
            InvalidRequest: It is not what the specification describes.
        """
        return Received(decode_request(self.message, self.raw))

    def is_typed(self) -> bool:
        """Whether its inputs came in `contents`."""
        return self.received is None and not self.raw and is_typed(self.message)


def _parsed(method: Method, body: bytes) -> _Asked:
    rest, raw = body, list[memoryview]()
    if len(body) > _SPLIT_ABOVE:
        keep_at_hand()
        rest, raw = split(body, _RAW_INPUT_CONTENTS)
    message = method.parse(rest)
    raw_contents = raw or message.raw_input_contents
    check_message(message, raw_contents)
    return _Asked(message.model_name, message.model_version, None, message, raw_contents, len(body), len(rest))


def _recognized(method: Method, body: bytes) -> _Asked | None:
    """A message whose outline is remembered; None for any other, and where something is wrong, which the message as a whole tells."""
    if len(body) > _SPLIT_ABOVE:
        return None
    identifier = None
    identified = apart(body, _ID)
    try:
        if identified is not None:
            body, identifier = identified[0], identified[1].decode() or None
        ends = ending(body, _RAW_INPUT_CONTENTS)
        outlined = _outlined(method.parse, ends[0]) if ends is not None and len(ends[0]) <= SHORT else None
        if ends is None or outlined is None:
            return None
        model_name, model_version, outline = outlined
        item = outline.inputs[0]
        array = from_raw(body[ends[1] :], item.dtype, item.shape)
    except (InvalidRequest, UnicodeDecodeError):
        return None
    return _Asked(model_name, model_version, Received(outline.filled([array], identifier), outline))


@lru_cache(REMEMBERED)
def _outlined(parse: Callable[[bytes], Any], head: bytes) -> tuple[str, str, Outline] | None:
    """What is before the only raw contents of a message: which model and version are asked for, and the outline."""
    try:
        message = parse(head)
        outline = outline_of(message)
    except InvalidRequest:
        return None
    # what is written in another way than usual may say a thing twice, such as the id
    is_usual = message.ByteSize() == len(head) and not message.id
    return (message.model_name, message.model_version, outline) if is_usual and outline is not None else None


class _Caller(msgspec.Struct, frozen=True, eq=False):
    """Who calls a method."""

    method: Method
    transport: Any

    def named_headers(self) -> Mapping[str, str]:
        """The call's metadata."""
        return joined(self.method.metadata(self.transport), ", ")


def _encode(response: InferenceResponse, make: Callable[[], Any], typed: bool) -> bytes:
    if len(response.outputs) == 1 and not typed and not response.parameters:
        tensor = response.outputs[0]
        array = tensor.array
        if not tensor.parameters and not array.dtype.hasobject and len(tensor.name) <= SHORT:
            name, head = _around(make, response.model_name, response.model_version, tensor.name, array.dtype, array.shape, array.nbytes)
            identifier = b"" if response.id is None else response.id.encode()
            given = bytes_head(_ID, len(identifier)) if identifier else b""
            return b"".join((name, given, identifier, head, view_raw(array)))
    message = make()
    contents = encode_response(response, message, typed=typed)
    parts: list[Buffer] = [message.SerializeToString()]
    for content in contents:
        parts += bytes_head(_RAW_OUTPUT_CONTENTS, len(content)), content
    return b"".join(parts)


@lru_cache(REMEMBERED)
def _around(
    make: Callable[[], Any], model_name: str, model_version: str | None, name: str, dtype: DType, shape: tuple[int, ...], size: int
) -> tuple[bytes, bytes]:
    """What is before the id of a response that says nothing else but its only output, and what is between that and its raw contents."""
    named = make()
    named.model_name = model_name
    if model_version is not None:
        named.model_version = model_version
    described = make()
    described.outputs.add(name=name, datatype=datatype_of(dtype), shape=shape)
    return named.SerializeToString(), described.SerializeToString() + bytes_head(_RAW_OUTPUT_CONTENTS, size)


def _find(server: Server, name: str, version: str) -> Model:
    return server.models.find(name, version or None)


def _refusal(error: InferenceError) -> Reply:
    # a lone surrogate, which only a model's own message can hold, is no UTF-8
    text = str(error).encode(errors="replace")[:_MAX_DETAILS].decode(errors="ignore")
    return Reply(b"", error.grpc_code, text)
