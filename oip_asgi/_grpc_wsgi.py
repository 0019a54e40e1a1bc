"""gRPC-Web over WSGI: an application for the paths of the services. It translates `environ` and decides nothing.

gRPC itself ends each answer with trailers, which WSGI does not have. Knows protobuf's classes, and no gRPC library.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from werkzeug.exceptions import HTTPException

from ._checks import check_server
from ._core.effects import DeadlinePassed, Fed, Signal
from ._core.errors import InferenceError, InvalidRequest, TooLarge
from ._core.grpc.frames import FrameReader
from ._core.grpc.http import TOO_LATE, Call, begin
from ._core.grpc.method import Reply, refusal
from ._core.grpc.protocols import metadata, method_of, timeout_of
from ._core.grpc.stream import stream_exchange
from ._core.http.response import Response
from ._runtime import bridge
from ._runtime.drive import drive
from ._services import INFER_STREAM, MethodsByPath
from .server import InferenceServer
from .wsgi import Stream, fields, head, next_chunk, path_of, read, respond

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_SLICE: Final = 2**14
"""Bytes of a body that are taken apart before the size of what came out is looked at: a compressed byte becomes 1,032 at most."""

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
        self._methods = MethodsByPath(server._inside.engine, _metadata, health=health, reflection=reflection)
        self.paths = self._methods.service_paths

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = path_of(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))
        described = head(environ, method_of(path), environ)
        described.compress = self._compress
        engine, runtime = self._server._inside
        read_here = partial(_read, environ["wsgi.input"])
        respond_to = self._methods.reflect.get(described.path)
        if respond_to is not None or described.path == INFER_STREAM:
            call = begin(described, engine.max_body_bytes, has_trailers=False)
            if isinstance(call, Call):
                try:
                    pieces = self._conversed(call, respond_to, environ["wsgi.input"])
                except InferenceError as error:
                    if call.is_left:
                        drive(call.drop(), runtime, read_here)
                    return respond(self._methods.calls.refused(call, error).response, start_response)
                respond(Response(200, call.fields, [], 0), start_response)
                return _body(call, pieces)
        answer = drive(self._methods.calls.answer(described, has_trailers=False), runtime, read_here)
        return respond(answer.response, start_response)

    def _conversed(self, call: Call, respond_to: Callable[[bytes], bytes] | None, stream: Stream) -> Generator[bytes, None, Reply]:
        """The answers to a call of many messages: to each one by `respond_to`, or, where there is none, by models.

        All of the body is read first: what read on while the answers leave would be left behind at their end, and take the bytes of the
        connection's next request.
        """
        limit = self._server._inside.engine.max_body_bytes
        seconds = timeout_of(call.header(b"grpc-timeout"))
        messages = _messages(stream, call.reader(limit), limit)
        if respond_to is not None:
            return _reflected(messages, respond_to)
        return self._inferred(call, messages, time.monotonic() + seconds)

    def _inferred(self, call: Call, messages: list[bytes], deadline: float) -> Generator[bytes, None, Reply]:
        engine, runtime = self._server._inside
        left, ended = deque(messages), Signal()

        async def receive() -> bytes | None:
            return left.popleft() if left else None

        begin = partial(stream_exchange, engine, self._methods.infer_stream, call.head.transport, receive)
        try:
            reply = yield from bridge.written(begin, runtime, ended, deadline)
        except DeadlinePassed:
            return TOO_LATE
        finally:
            ended.set()
        return reply or _STOPPED


def _reflected(messages: list[bytes], respond_to: Callable[[bytes], bytes]) -> Generator[bytes, None, Reply]:
    try:
        yield from map(respond_to, messages)
    except InferenceError as error:
        return refusal(error)
    return Reply()


def _body(call: Call, messages: Generator[bytes, None, Reply]) -> Iterator[bytes]:
    """The body of a response: each message, and how the call ended."""
    try:
        while True:
            try:
                message = next(messages)
            except StopIteration as end:
                reply: Reply = end.value
                break
            yield call.framed(message)
    finally:
        messages.close()
    yield call.ending(reply)[0]


def _messages(stream: Stream, reader: FrameReader, limit: int | None) -> list[bytes]:
    """All messages of a request's body, which have `limit` bytes at most, together, and decompressed.

    Raises:
        TooLarge: They have more.
        InvalidRequest: They are malformed, or cut off.
    """
    messages: list[bytes] = []
    size = 0
    with _told_as_ours():
        while chunk := next_chunk(stream, reader):
            for start in range(0, len(chunk), _SLICE):
                reader.feed(chunk[start : start + _SLICE])
                for message in reader.take():
                    messages.append(bytes(message))
                    size += len(message)
                if limit is not None and size > limit:
                    raise TooLarge(f"the messages have more than {limit} bytes together, the most that this server takes (max_body_bytes)")
    reader.finish(cut_off=chunk is None)
    return messages


def _read(stream: Stream, body: Fed) -> Any:
    with _told_as_ours():
        return read(stream, body)


@contextmanager
def _told_as_ours() -> Iterator[None]:
    """What a framework's own stream says by an HTTP exception, such as that the client has gone, as the error for that."""
    try:
        yield
    except HTTPException as error:
        raise InvalidRequest(f"the body cannot be read: {error.name}") from None


def _metadata(environ: WSGIEnvironment) -> Iterable[tuple[str, str]]:
    return metadata(fields(environ))
