"""gRPC calls as HTTP requests: a request's head and body -> `Answer`. Knows no ASGI and no protobuf, and neither sync nor async.

Specification: gRPC over HTTP2; gRPC-Web.
"""

from __future__ import annotations

import logging
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final, final

import msgspec

from .._http.request import Head, Incoming
from .._http.response import Response
from .._http.response import refuse as http_refuse
from .._protocol.datatypes import Buffer
from .._protocol.effects import Read, Steps
from .._protocol.errors import InferenceError, MethodNotAllowed, TimedOut, show
from .._serving.engine import Engine
from .._serving.faults import log_own_fault
from .exchange import respond
from .frames import FrameReader, encode_frame_head, encode_trailers
from .messages import Method, Reply, refuse
from .protocols import ACCEPTED, Fields, Protocol, UnknownCoding, encode_status, find_coding, find_protocol, read_timeout

_NO_TRAILERS: Final = (
    "the server of this application cannot send the HTTP/2 trailers that gRPC needs (ASGI's http.response.trailers): "
    "run it with one that can, such as pyvoy or hypercorn, or use gRPC-Web"
)

_logger: Final = logging.getLogger("oip_asgi")


@final
class Answer(msgspec.Struct, frozen=True):
    """A response, and the trailers after it; None if it has none."""

    response: Response
    trailers: Fields | None = None


CANCELLED: Final = Answer(Response(499, [(b"grpc-status", b"1")], [], 0))
"""Sent if the client has gone: hosts take an application that answers nothing for a broken one, and log that."""

_DONE: Final = Reply()

TOO_LATE: Final = Reply(b"", "DEADLINE_EXCEEDED", "the call did not end within its grpc-timeout")
"""How a stream ends at the deadline of its client."""


class NoTrailers(InferenceError):
    """The server in front cannot send the trailers that end every answer."""

    status = 501


class Call(Incoming, kw_only=True):
    """A gRPC call that came as an HTTP request, whose path names it, such as "/inference.GRPCInferenceService/ModelInfer"."""

    protocol: Protocol
    has_trailers: bool
    fields: Fields

    def get_header(self, name: bytes) -> bytes:
        """Return a header of the request; empty if it is absent."""
        return self.head.fields.get(name, b"")

    def reader(self, limit: int | None, most: float = math.inf) -> FrameReader:
        """Make the reader of the body. `FrameReader` explains `limit` and `most`."""
        if self.protocol.has_trailers and not self.has_trailers:
            raise NoTrailers(_NO_TRAILERS)
        named = self.head.fields.get(b"grpc-encoding")
        coding = None if named is None else find_coding(named)
        length = self.length()
        self.is_left = False
        return FrameReader(limit, coding, is_text=self.protocol.is_text, most=most, length=length)

    def encode_message(self, message: bytes) -> bytes:
        """Encode one message of several."""
        return b"".join(self._encode([encode_frame_head(len(message)), message]))

    def end(self, reply: Reply) -> Answer:
        """Make the end of an answer after several messages."""
        return self._finish([], [], 0, reply)

    def _encode(self, parts: list[Buffer]) -> list[Buffer]:
        """Encode parts of the body: as base64 if the protocol needs it."""
        return [b64encode(b"".join(parts))] if self.protocol.is_text else parts

    def answer(self, message: Sequence[Buffer]) -> Answer:
        """Make the answer with one message."""
        size = sum(map(len, message))
        head = encode_frame_head(size)
        return self._finish(self.fields, [head, *message], len(head) + size, _DONE)

    def refuse(self, error: InferenceError) -> Answer:
        """Make the answer for an error, if no message was sent."""
        fields = [*self.fields, ACCEPTED] if isinstance(error, UnknownCoding) else self.fields
        reply = refuse(error)
        if self.protocol.has_trailers and not self.has_trailers:
            # the client reads the status here, if this server ends the response with its head
            return Answer(Response(200, fields + encode_status(reply.code, reply.details), [], 0))
        return self._finish(fields, [], 0, reply)

    def _finish(self, fields: Fields, parts: list[Buffer], size: int, reply: Reply) -> Answer:
        """Make an answer of parts of `size` bytes, and the status of the call."""
        status = encode_status(reply.code, reply.details)
        if self.protocol.has_trailers:
            return Answer(Response(200, fields, parts, size), status)
        parts = self._encode([*parts, encode_trailers(status)])
        size = sum(map(len, parts))
        return Answer(Response(200, [*fields, (b"content-length", b"%d" % size)], parts, size))


def begin(head: Head, limit: int | None, *, has_trailers: bool) -> Call | Answer:
    """Begin a gRPC call from the head of a request. If it is no gRPC call, return the answer."""
    content_type = head.fields.get(b"content-type", b"")
    protocol = find_protocol(content_type)
    if head.method != "POST":
        return Answer(http_refuse(MethodNotAllowed(f"gRPC is asked by POST, not by {head.method}", headers={"Allow": "POST"})))
    if protocol is None:
        text = f"Content-Type is {show(content_type.decode('latin-1'))}: expected application/grpc or application/grpc-web, with protobuf"
        return Answer(http_refuse(InferenceError(text, status=415)))
    return Call(head, limit, protocol=protocol, has_trailers=has_trailers, fields=[(b"content-type", content_type)])


class Calls:
    """The methods that answer one message with one, over HTTP."""

    def __init__(self, engine: Engine, methods: Mapping[str, Method]) -> None:
        self._engine = engine
        self._methods = methods
        self._is_logged = False

    def answer(self, head: Head, *, has_trailers: bool) -> Steps[Answer]:
        """Answer one request, with the arguments of `begin`. Never raises `Exception`; cancellation passes through."""
        limit = self._engine.max_body_bytes
        call = begin(head, limit, has_trailers=has_trailers)
        if type(call) is Answer:
            yield from Incoming(head, limit).drop()
            return call
        try:
            reader = call.reader(limit, most=1)
            method = self._methods.get(head.path)
            if method is None:
                call.is_left = True
                raise InferenceError(f"unknown method {show(head.path)}", status=501)
            given = call.head.fields.get(b"grpc-timeout")
            timeout = math.inf if given is None else read_timeout(given)
            since = 0.0 if timeout == math.inf else self._engine.clock()
            messages: list[Buffer] = yield Read(reader)
            if not messages:
                raise InferenceError("the request has no message: expected one", status=501)
            if timeout != math.inf:
                timeout = _subtract(timeout, self._engine.clock() - since)
            message = yield from respond(self._engine, method, messages[0], head.transport, timeout, in_parts=True)
            answer = call.answer(message)
        except InferenceError as error:
            answer = self.refuse(call, error)
        except Exception as error:
            answer = call.refuse(log_own_fault(error))
        if call.is_left:
            yield from call.drop()
        return answer

    def refuse(self, call: Call, error: InferenceError) -> Answer:
        """`Call.refuse`, for calls of all methods. If the server in front cannot send trailers, log that once."""
        if isinstance(error, NoTrailers) and not self._is_logged:
            self._is_logged = True
            _logger.error("a gRPC call cannot be answered: %s", error)
        return call.refuse(error)


def _subtract(timeout: float, passed: float) -> float:
    """Return the seconds that are left of a timeout, rounded up to a millisecond, as error texts name them."""
    if passed >= timeout:
        raise TimedOut(TOO_LATE.details)
    return math.ceil((timeout - passed) * 1000) / 1000
