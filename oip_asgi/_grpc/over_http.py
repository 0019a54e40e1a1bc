"""A gRPC call as an HTTP request: its head -> `RPC`, and how it ends -> `Answer`, for gRPC and gRPC-Web. Knows no ASGI and no protobuf.

Specification: gRPC over HTTP2; gRPC-Web.
"""

from __future__ import annotations

import math
from base64 import b64encode
from typing import Final

import msgspec

from .._http.browsers import refuse_foreign
from .._http.request import Head
from .._http.response import JSON, Response, encode_json, respond, respond_error
from .._protocol.datatypes import Buffer
from .._protocol.errors import InferenceError, client_text, show
from .._serving.server_options import ServerOptions
from .frames import FrameReader, encode_frame_head, encode_trailers
from .headers import ACCEPTED, OK, PROTOCOLS, Fields, Protocol, encode_status, find_coding, find_protocol, read_timeout
from .messages import Reply
from .methods import ACTIONS

_NO_TRAILERS: Final = (
    "the server of this application cannot send the HTTP/2 trailers that gRPC needs (ASGI's http.response.trailers): "
    "run it with one that can, such as pyvoy or gunicorn's asgi worker with HTTP/2, or use gRPC-Web"
)


_EXPECTED: Final = "application/grpc or application/grpc-web, with protobuf, which clients of the Connect protocol can send too"


class Answer(msgspec.Struct, frozen=True):
    """A response, and the trailers after it; None if it has none."""

    response: Response
    trailers: Fields | None = None


CANCELLED: Final = Answer(Response(499, [(b"grpc-status", b"1")], [], 0))
"""Sent if the client has gone: hosts take an application that answers nothing for a broken one, and log that."""


class RPC(msgspec.Struct, eq=False):
    """A remote call of gRPC that came as an HTTP request."""

    protocol: Protocol  # gRPC or gRPC-Web
    head: Head
    lacks_trailers: bool  # whether it needs trailers that the server in front cannot send
    headers: Fields  # those of the answer
    timeout: float = math.inf  # its `grpc-timeout` in seconds, once its reader is made; infinity if it has none

    def make_reader(self, options: ServerOptions, most: float = math.inf) -> FrameReader:
        """Check the head, and make the reader of a body with so many messages at most."""
        if self.lacks_trailers:
            raise InferenceError(_NO_TRAILERS, status=501)
        headers = self.head.fields
        if b"origin" in headers or b"sec-fetch-site" in headers:
            refuse_foreign(headers, ACTIONS.get(self.head.path.rpartition("/")[2]), options.trusted_origins)
        coding = find_coding(headers[b"grpc-encoding"]) if b"grpc-encoding" in headers else None
        if b"grpc-timeout" in headers:
            self.timeout = read_timeout(headers[b"grpc-timeout"])
        return FrameReader(options.max_body_bytes, coding, self.protocol.is_text, most)

    def encode_message(self, message: bytes) -> bytes:
        """Encode one message of several."""
        return b"".join(self._encode([encode_frame_head(len(message)), message]))

    def end(self, reply: Reply) -> Answer:
        """Make the answer, or after several messages its end. The status is in the trailers, or over gRPC-Web in the last frame."""
        is_ok = reply.code == "OK"
        status = [OK] if is_ok else encode_status(reply.code, reply.details)
        fields, parts, size = [*self.headers], reply.parts, 0
        if reply.metadata:
            fields += [(name.encode(), value.encode()) for name, value in reply.metadata]
        if not is_ok and b"grpc-encoding" in self.head.fields:
            fields.append(ACCEPTED)
        if self.lacks_trailers:
            return Answer(Response(200, fields + status, [], 0))
        if parts:
            size = sum(map(len, parts))
            head = encode_frame_head(size)
            parts, size = [head, *parts], size + len(head)
        if self.protocol.has_trailers:
            return Answer(Response(200, fields, parts, size), status)
        parts = self._encode([*parts, encode_trailers(status)])
        size = sum(map(len, parts))
        return Answer(Response(200, [*fields, (b"content-length", b"%d" % size)], parts, size))

    def _encode(self, parts: list[Buffer]) -> list[Buffer]:
        """Encode parts of the body: as base64 if the protocol needs it."""
        return [b64encode(b"".join(parts))] if self.protocol.is_text else parts


def begin_rpc(head: Head, *, can_send_trailers: bool) -> RPC:
    """Begin a remote call from the head of a request. If the request is not gRPC, it gets an HTTP error, which this raises."""
    content_type = head.fields.get(b"content-type", b"")
    protocol = PROTOCOLS.get(content_type) or find_protocol(content_type)
    if head.method != "POST":
        raise InferenceError(f"gRPC is asked by POST, not by {head.method}", status=405, headers={"Allow": "POST"})
    if protocol is None:
        text = f"Content-Type is {show(content_type.decode('latin-1'))}: expected {_EXPECTED}"
        raise InferenceError(text, status=415)
    return RPC(protocol, head, protocol.has_trailers and not can_send_trailers, [(b"content-type", content_type)])


def respond_refusal(head: Head, error: InferenceError) -> Response:
    """Make the HTTP response for a request that is no gRPC: in the Connect protocol's own form of errors if its client speaks that."""
    if b"connect-protocol-version" not in head.fields and not head.fields.get(b"content-type", b"").startswith(b"application/connect+"):
        return respond_error(error)
    return respond(error.status, [JSON], [encode_json({"code": "unimplemented", "message": client_text(error)})])
