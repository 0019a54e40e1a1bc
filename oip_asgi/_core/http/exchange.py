"""One HTTP exchange: method, path, headers and body -> `Response`. Knows no ASGI, WSGI or framework, and neither sync nor async.

Routing, method checks, limits, status codes and the texts of errors exist here, once, for every way in over HTTP.

Specification: HTTP/REST API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

import msgspec
from msgspec.structs import replace

from ..body import Body
from ..datatypes import Buffer
from ..effects import LARGE, Call, Exchange, Read, Response, Steps
from ..errors import InferenceError, InvalidRequest, LengthRequired, MethodNotAllowed, NotFound, shown
from ..models.model import Model
from ..outlines import Received
from ..rest import body as rest
from ..rest import schemas
from ..serving.engine import Server, own_fault
from ..tensors import InferenceRequest, joined
from .codings import Coding, coding_of, encode, preferred

HEADER_LENGTH: Final = rest.HEADER_LENGTH.lower().encode()

_JSON: Final = (b"content-type", b"application/json")
_BINARY: Final = (b"content-type", b"application/octet-stream")
_GET: Final = ("GET", "HEAD")

_SHORT: Final = 256
"""Characters of a path up to which it is remembered what it asks for. Longer ones would let clients fill the memory."""

_DECIMAL: Final = re.compile(rb"[0-9]+")
_MAX_DIGITS: Final = 18

CLIENT_GONE: Final = Response(499, [(b"content-length", b"0")], [b""], 0)
"""What is said where nobody hears it: hosts take an application that answers nothing for a broken one, and log that."""

_encode: Final = msgspec.json.Encoder().encode


class Head(msgspec.Struct):
    """A request without its body.

    Args:
        method: The HTTP method, in capitals.
        path: What is behind the mount, percent-encoded, without the query.
        headers: Names in lower case.
        body_is_bounded: Whether the body's end can be told: it has a length, or the server ends it.
        transport: The way in's own object, for `InferenceContext.transport`.
        compress: Whether the response may be compressed, where the request accepts that.
    """

    method: str
    path: str
    headers: Sequence[tuple[bytes, bytes]]
    body_is_bounded: bool
    transport: Any
    compress: bool = False

    def named_headers(self) -> Mapping[str, str]:
        """The headers as models get them."""
        return joined(((name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers), ", ")


def exchange(server: Server, head: Head) -> Exchange:
    """Answer one request. Raises nothing but what is not an `Exception`."""
    headers = dict(head.headers)
    if len(headers) != len(head.headers):
        headers = joined(head.headers, b",")
    incoming = _Incoming(headers, head.body_is_bounded, server.max_body_bytes)
    try:
        try:
            answer = _route(server, head, incoming)
            response = answer if type(answer) is Response else (yield from answer)
        except InferenceError as error:
            response = _refusal(error)
        if head.compress and response.status == 200:
            response = yield from _compressed(response, incoming.accepted())
    except Exception as error:
        response = _refusal(own_fault(error))
    if incoming.is_left:
        yield from incoming.drop()
    return replace(response, parts=[], size=0) if head.method == "HEAD" else response


class _Incoming(msgspec.Struct, eq=False):
    """A request's body, which is read once or not at all, and what the headers say of it and of the answer's.

    Args:
        headers: The request's headers by name, those that are repeated joined by a comma.
        is_bounded: Whether the body's end can be told.
        limit: The most bytes that are taken; None for no limit.
        is_left: Whether it has not been read.
    """

    headers: dict[bytes, bytes]
    is_bounded: bool
    limit: int | None
    is_left: bool = True

    def announced(self) -> tuple[Body, int | None]:
        """The body as the headers describe it, and how many of its bytes are JSON; None where they do not say.

        Raises:
            InvalidRequest: One that counts bytes is no plain number, or there are several.
            UnsupportedEncoding: It is compressed in a way that is not decoded here.
        """
        length, header_length = _length(self.headers, b"content-length"), _length(self.headers, HEADER_LENGTH)
        named = self.headers.get(b"content-encoding")
        coding = None if named is None else coding_of(named.decode("latin-1"))
        return Body(length, self.limit, coding, header_length or 0), header_length

    def accepted(self) -> str:
        """Which codings the answer's body may have."""
        return self.headers.get(b"accept-encoding", b"").decode("latin-1")

    def read(self, body: Body) -> Read:
        """The step that reads the whole body.

        Raises:
            InferenceError: It is too large, or its end cannot be told.
        """
        self.is_left = False
        if body.length is not None:
            body.check(body.length)
        elif not self.is_bounded:
            raise LengthRequired(
                "the request has no Content-Length, and the server in front does not tell where its body ends: send a length"
            )
        return Read(body)

    def drop(self) -> Steps[None]:
        """Take a body off the connection that no answer needed: half of all servers close the connection on a client still sending."""
        is_there = b"content-length" in self.headers or (b"transfer-encoding" in self.headers and self.is_bounded)
        if not is_there or b"expect" in self.headers:  # a client that expects 100 Continue sends nothing before somebody reads
            return
        try:
            body = Body(_length(self.headers, b"content-length"), self.limit, keep=False)
            if body.length != 0:
                body.check(body.length or 0)
                yield Read(body)
        except Exception:
            return  # the answer stands, whatever becomes of the rest


class _Asked(msgspec.Struct, frozen=True):
    """What a path asks for, whatever is registered.

    Args:
        what: Which endpoint.
        name: The model's name; None where the endpoint has none.
        version: Its version; None where the path has none.
        is_split: Whether the name is made of several segments, which only a name that is registered may be.
    """

    what: Literal["metadata", "live", "ready", "models", "infer"]
    name: str | None = None
    version: str | None = None
    is_split: bool = False


def _route(server: Server, head: Head, incoming: _Incoming) -> Response | Exchange:
    """The answer, or the steps to it."""
    path = head.path
    asked = _remembered(path) if len(path) <= _SHORT else _parsed(path)
    name, what = asked.name, asked.what
    if name is not None:
        if asked.is_split and name not in server.models:
            raise _unknown_path(path)
        model = server.models.find(name, asked.version)
        if what == "infer":
            if head.method != "POST":
                raise _not_allowed(head.method, "POST")
            return _infer(server, head, incoming, model)
    if head.method not in _GET:
        raise _not_allowed(head.method, *_GET)
    if name is not None:
        return _model_ready(server, model) if what == "ready" else _json(200, server.models.metadata(model))
    match what:
        case "live":
            return _json(200, schemas.ServerLive(True))
        case "ready":
            return _server_ready(server)
        case "models":
            return _json(200, schemas.ModelList(server.models.names()))
        case _:
            return _json(200, server.metadata())


def _parsed(path: str) -> _Asked:
    """What a path asks for.

    Raises:
        NotFound: Nothing that is here.
    """
    if not path.startswith("/") and path:
        raise _unknown_path(path)
    segments = path.removesuffix("/").split("/")[1:]
    match [unquote(segment) for segment in segments]:
        case ["models", *behind] if behind:
            return _parsed_model(behind)
        case []:
            return _Asked("metadata")
        case ["health", ("live" | "ready") as what]:
            return _Asked(what)
        case ["models"]:
            return _Asked("models")
        case _:
            raise _unknown_path(path)


def _parsed_model(segments: list[str]) -> _Asked:
    """What is asked of which model, by what is behind `/models`."""
    what: Literal["metadata", "ready", "infer"] = "metadata"
    behind = segments
    if len(segments) > 1 and segments[-1] in ("infer", "ready"):
        what = "infer" if segments[-1] == "infer" else "ready"
        behind = segments[:-1]
    version = None
    if len(behind) > 2 and behind[-2] == "versions":
        version = behind[-1]
        behind = behind[:-2]
    # Some hosts decode the encoded slash of a name before we see the path, so a name may come in several segments
    return _Asked(what, "/".join(behind), version, len(behind) > 1)


_remembered: Final = lru_cache(256)(_parsed)


def _server_ready(server: Server) -> Exchange:
    ready = yield from server.is_ready()
    return _json(200 if ready else 503, schemas.ServerReady(ready, True))


def _model_ready(server: Server, model: Model) -> Exchange:
    ready = yield from server.is_model_ready(model)
    return _json(200 if ready else 503, schemas.ModelReady(model.name, ready))


def _unknown_path(path: str) -> NotFound:
    return NotFound(
        f"unknown path {shown(unquote(path.removesuffix('/')))}: expected /health/live, /health/ready, /models, or /models/{{name}}, "
        "with /versions/{version} and /ready or /infer behind it"
    )


def _not_allowed(method: str, *methods: str) -> MethodNotAllowed:
    allowed = ", ".join(methods)
    return MethodNotAllowed(f"method {shown(method)} is not allowed here: expected {allowed}", headers={"Allow": allowed})


def _infer(server: Server, head: Head, incoming: _Incoming, model: Model) -> Exchange:
    announced, header_length = incoming.announced()
    if not server.is_open(model):
        yield from server.admit(model)
    body: Buffer = yield incoming.read(announced)
    place = server.enter(model)
    try:
        if len(body) > LARGE and rest.decoding_effort(body, header_length) > LARGE:
            received = yield Call(_decode, "conversion", (body, header_length, model), for_client=True)
        else:
            received = _decode(body, header_length, model)
        response = yield from server.infer(model, place, received, head)
    finally:
        place.give_up()
    request = received.request
    if model.run != "thread" and rest.encoding_effort(response, request) > LARGE:
        text, binary = yield Call(rest.encode_response, "conversion", (response, request), for_client=True)
    else:
        text, binary = rest.encode_response(response, request)
    if not binary:
        return _respond(200, [_JSON], [text])
    return _respond(200, [_BINARY, (HEADER_LENGTH, b"%d" % len(text))], [text, *binary])


def _decode(body: Buffer, header_length: int | None, model: Model) -> Received:
    return Received(_raw_request(body, model) if header_length == 0 else rest.decode_request(body, header_length))


def _raw_request(body: Buffer, model: Model) -> InferenceRequest:
    specs = model.binding.inputs
    if len(specs) != 1:
        raise InvalidRequest(
            f"Inference-Header-Content-Length: 0 makes the body the only input's bytes, but {model} does not declare exactly one input"
        )
    return rest.raw_request(body, specs[0].name, specs[0].datatype, tuple(specs[0].shape))


def _length(headers: Mapping[bytes, bytes], name: bytes) -> int | None:
    """A header that counts bytes, None where there is none. If repeated, it is joined by a comma, by us or by the server in front."""
    value = headers.get(name)
    if value is None:
        return None
    if value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    values = {part.strip() for part in value.split(b",")}
    called = name.decode().title()
    if len(values) > 1:
        raise InvalidRequest(f"header {called} is repeated with different values: expected one")
    value = values.pop()
    if not _DECIMAL.fullmatch(value):
        raise InvalidRequest(f"header {called} is {shown(value.decode('latin-1'))}: expected a plain decimal number of bytes")
    if len(value) > _MAX_DIGITS:
        raise InvalidRequest(f"header {called} has {len(value)} digits: no body is that long")
    return int(value)


def _compressed(response: Response, accepted: str) -> Exchange:
    """A successful response in the coding that `Accept-Encoding` prefers. `Inference-Header-Content-Length` still counts the plain JSON."""
    coding: Coding | None = preferred(accepted)
    headers = [*response.headers, (b"vary", b"Accept-Encoding")]
    if coding is None:
        return replace(response, headers=headers)
    if response.size > LARGE:
        body: bytes = yield Call(encode, "conversion", (response.parts, coding), for_client=True)
    else:
        body = encode(response.parts, coding)
    headers = [(name, value) for name, value in headers if name != b"content-length"]
    added = [(b"content-encoding", coding.encode()), (b"content-length", b"%d" % len(body))]
    return Response(response.status, [*headers, *added], [body], len(body))


def _refusal(error: InferenceError) -> Response:
    # a lone surrogate, which only a model's own message can hold, is no UTF-8
    response = _json(error.status, schemas.Error(str(error).encode(errors="replace").decode()))
    extra = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    return replace(response, headers=response.headers + extra)


def _json(status: int, document: msgspec.Struct) -> Response:
    return _respond(status, [_JSON], [_encode(document)])


def _respond(status: int, described: list[tuple[bytes, bytes]], parts: list[Buffer]) -> Response:
    size = 0
    for part in parts:
        size += len(part)
    return Response(status, [*described, (b"content-length", b"%d" % size)], parts, size)


def prefix(path: str) -> str:
    """A mount's path as it is compared, without a slash at its end.

    Raises:
        ValueError: It does not begin with a slash.
    """
    if not path.startswith("/"):
        raise ValueError(f'path={path!r} must begin with a slash, such as "/v2"')
    return path.rstrip("/")


def behind(path: str, mount: str) -> str | None:
    """What is behind a mount's path, such as "/health/live" or ""; None for a path that is not under it, as "/v2x" is not under "/v2"."""
    if not path.startswith(mount) or path[len(mount) : len(mount) + 1] not in ("", "/"):
        return None
    return path[len(mount) :]


def encoded(path: str, target: str | None) -> str:
    """The percent-encoded form of a path behind the mount.

    Args:
        path: It, decoded, as hosts hand it to a mounted application.
        target: What the request line asked for, as it was sent; None where the server does not say.

    Returns:
        The end of `target` that decodes to `path`, so that an encoded slash can be told from a plain one; else `path`, encoded again.
    """
    if target is not None and "%" not in target and "%" not in path:
        return path  # as nearly always
    raw = (target or "").partition("?")[0]
    left, place = len(path), len(raw)
    while left and (slash := raw.rfind("/", 0, place)) >= 0:
        segment = "/" + unquote(raw[slash + 1 : place])
        if not path.endswith(segment, 0, left):
            break
        left, place = left - len(segment), slash
    return quote(path) if left else raw[place:]
