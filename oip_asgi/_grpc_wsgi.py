"""gRPC-Web over WSGI: an application for the paths of the services. It translates `environ` and decides nothing.

gRPC itself ends each answer with trailers, which WSGI does not have. Knows protobuf's classes, and no gRPC library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, final

from werkzeug.exceptions import HTTPException

from ._checks import check_server
from ._core.effects import DeadlinePassed, Signal
from ._core.errors import InferenceError, InvalidRequest
from ._core.grpc.frames import FrameReader
from ._core.grpc.http import TOO_LATE, Call, begin
from ._core.grpc.method import Reply, refusal
from ._core.grpc.protocols import metadata, method_of, timeout_of
from ._core.grpc.stream import stream_exchange
from ._core.http.response import Response
from ._runtime import bridge
from ._runtime.drive import drive
from ._services import INFER_STREAM, Paths
from .server import InferenceServer
from .wsgi import Stream, begun, fields, head, next_chunk, read

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_STOPPED: Final = Reply(b"", "UNAVAILABLE", "the server is stopping")


class OIPGRPCWSGIApp:
    """A WSGI application that speaks the protocol over gRPC-Web, to be mounted at the path of each service.

    `OIPWSGIMiddleware(app, server, grpc=True)` answers at its `paths`; the first is "/inference.GRPCInferenceService". A call of gRPC
    itself is UNIMPLEMENTED.

    Args:
        server: The server whose models it serves.
        health: As in `OIPGRPCApp`.
        reflection: As in `OIPGRPCApp`.
        compress_responses: As in `OIPGRPCApp`.

    Raises:
        TypeError: `server` is no `InferenceServer`.
    """

    def __init__(self, server: InferenceServer, *, health: bool = True, reflection: bool = True, compress_responses: bool = False) -> None:
        check_server(server, "OIPGRPCWSGIApp", "OIPGRPCWSGIApp(server)")
        self._server = server
        self._compress = compress_responses
        self._methods = Paths(server._inside.engine, _metadata, health=health, reflection=reflection)
        self.paths = self._methods.of_services

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        described = head(environ, method_of(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")), environ)
        described.compress = self._compress
        engine, runtime = self._server._inside
        respond = self._methods.reflect.get(described.path)
        if respond is not None or described.path == INFER_STREAM:
            call = begin(described, engine.max_body_bytes, has_trailers=False)
            if isinstance(call, Call):
                return self._converse(call, respond, environ["wsgi.input"], start_response)
        steps = self._methods.calls.answer(described, has_trailers=False)
        return begun(drive(steps, runtime, partial(read, environ["wsgi.input"])).response, start_response)

    def _converse(
        self, call: Call, respond: Callable[[bytes], bytes] | None, stream: Stream, start_response: StartResponse
    ) -> Iterator[bytes]:
        """Answer a call of many messages: each by `respond`, or, where there is none, by models."""
        try:
            messages = _Messages(stream, call.reader(self._server._inside.engine.max_body_bytes, most=None))
            deadline = time.monotonic() + timeout_of(call.header(b"grpc-timeout"))
        except InferenceError as error:
            return begun(call.refused(error).response, start_response)
        begun(Response(200, call.fields, [], 0), start_response)
        return _body(call, _reflected(messages, respond) if respond is not None else self._inferred(call, messages, deadline))

    def _inferred(self, call: Call, messages: _Messages, deadline: float) -> Generator[bytes, None, Reply]:
        engine, runtime = self._server._inside
        requests, ended = bridge.Requests(iter(messages)), Signal()
        ended.then(requests.end)
        steps = stream_exchange(engine, self._methods.infer_stream, call.head.transport, requests.receive)
        try:
            reply = yield from bridge.pieces(steps, runtime, ended, deadline)
        except DeadlinePassed:
            return TOO_LATE
        finally:
            ended.set()
        return messages.refusal or reply or _STOPPED


def _reflected(messages: _Messages, respond: Callable[[bytes], bytes]) -> Generator[bytes, None, Reply]:
    try:
        yield from map(respond, messages)
    except InferenceError as error:
        return refusal(error)
    return messages.refusal or Reply(b"")


def _body(call: Call, messages: Generator[bytes, None, Reply]) -> Iterator[bytes]:
    """The body of a response: each message, and how the call ended."""
    try:
        while True:
            try:
                message = next(messages)
            except StopIteration as end:
                reply: Reply = end.value
                break
            yield b"".join(call.written(call.framed(message)))
    finally:
        messages.close()
    yield b"".join(call.written(call.ending(reply)[0]))


@final
class _Messages:
    """The messages of a request's body, each read when it is asked for.

    Args:
        stream: What the body is read from.
        reader: What takes the messages out of it.

    Attributes:
        refusal: Why they ended early; None where they did not.
    """

    def __init__(self, stream: Stream, reader: FrameReader) -> None:
        self.refusal: Reply | None = None
        self._stream = stream
        self._reader = reader

    def __iter__(self) -> Iterator[bytes]:
        try:
            while chunk := next_chunk(self._stream, self._reader):
                self._reader.feed(chunk)
                yield from map(bytes, self._reader.take())
            self._reader.finish(cut_off=chunk is None)
        except InferenceError as error:
            self.refusal = refusal(error)
        except HTTPException as error:  # what a framework's own stream says
            self.refusal = refusal(InvalidRequest(f"the body cannot be read: {error.name}"))


def _metadata(environ: WSGIEnvironment) -> Iterable[tuple[str, str]]:
    return metadata(fields(environ))
