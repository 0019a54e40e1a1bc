"""gRPC and gRPC-Web over ASGI: an application for the paths of the services. It translates messages and decides nothing.

Knows scopes, messages and protobuf's classes, and no gRPC library.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final
from urllib.parse import unquote

from ._grpc.http import CANCELLED, Answer, Call, begin
from ._grpc.method import Reply
from ._grpc.protocols import Fields, metadata, protocol_of, timeout_of
from ._grpc_asgi_stream import Requests, ending, in_turns
from ._hosts import check_server, drops_trailers
from ._http.request import Head
from ._protocol.errors import InferenceError
from ._runtime.drive import advance_async, drive_async
from ._runtime.waiting import ClientGone
from ._services import Converse, MethodsByPath
from .asgi import AnyASGIApp, ClientOf, own_lifespan, path_of
from .server import InferenceServer

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

_logger: Final = logging.getLogger("oip_asgi")

_EXTENSION: Final = "http.response.trailers"
_CARRIED: Final = "oip_asgi.trailers"
"""The key in a scope of the `_Carried` that `TrailersMiddleware` has put there."""


class OIPGRPCApp:
    """An ASGI application that speaks the protocol over gRPC and gRPC-Web, to be mounted at the path of each service."""

    def __init__(self, server: InferenceServer, *, health: bool = True, reflection: bool = True) -> None:
        check_server(server, "OIPGRPCApp", "OIPGRPCApp(server)")
        self._server = server
        self._engine, self._runtime = server._inside
        self._methods = MethodsByPath(self._engine, _metadata, health=health, reflection=reflection)
        self.paths = self._methods.service_paths
        self._host: object = None
        self._is_told = False

    def _meet(self, scope: Scope) -> None:
        """Look at the application that a call over HTTP/2 comes through."""
        if not _is_grpc(scope["headers"]):
            return
        self._host = scope["app"]
        if drops_trailers(self._host) and not self._is_told:
            self._is_told = True
            _logger.warning(
                'clients of gRPC get no status: BaseHTTPMiddleware, which @app.middleware("http") makes, drops the HTTP/2 trailers: '
                "write OIPApp(server).install(app, grpc=True), or put oip_asgi.grpc.TrailersMiddleware around the application"
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._answer_other(scope, receive, send)
            return
        path = _method_of(scope, self.paths)
        head = Head(scope["method"], path, list(scope["headers"]), True, scope)
        carried: _Carried | None = scope.get(_CARRIED)
        has_trailers = carried is not None or _has_trailers(scope)
        if carried is None and has_trailers and scope.get("app") is not self._host:
            self._meet(scope)
        converse = self._methods.conversations.get(path)
        if converse is not None:
            call = begin(head, self._engine.max_body_bytes, has_trailers=has_trailers)
            if isinstance(call, Call):
                await self._stream(call, converse, receive, send, carried)
                return
        steps, client = self._methods.calls.answer(head, has_trailers=has_trailers), ClientOf(receive, self._runtime)
        try:
            answer = await advance_async(steps, self._runtime, client.read, client.is_gone)
        except ClientGone:
            answer = CANCELLED
        assert type(answer) is Answer  # one message is answered with one, and hands on no pieces
        await _send(answer, send, carried)

    async def _answer_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000, "reason": "OIPGRPCApp answers HTTP only"})
        else:
            await own_lifespan(self._server, receive, send)

    async def _stream(self, call: Call, converse: Converse, receive: Receive, send: Send, carried: _Carried | None) -> None:
        """Answer a call of any number of messages."""
        try:
            reader = call.reader(self._engine.max_body_bytes)
            deadline = time.monotonic() + timeout_of(call.header(b"grpc-timeout"))
        except InferenceError as error:
            await _send(self._methods.calls.refused(call, error), send, carried)
            return

        async def put(message: bytes) -> None:
            await send({"type": "http.response.body", "body": call.framed(message), "more_body": True})

        if carried is not None:
            carried.fields = []
        await send(_start(200, call.fields, call.protocol.has_trailers and carried is None))
        requests, write = Requests(receive, reader, self._runtime), in_turns(put)
        answering = drive_async(converse(call.head.transport, requests.next, write), self._runtime)
        with suppress(ClientGone, OSError):  # how servers say from `send` that the client has gone
            await _end(call, await ending(answering, requests, deadline), send, carried)


async def _send(answer: Answer, send: Send, carried: _Carried | None) -> None:
    response, trailers = answer.response, answer.trailers
    if carried is not None:
        carried.fields, trailers = trailers, None
    await send(_start(response.status, response.headers, trailers is not None))
    for body, more in response.messages():
        await send({"type": "http.response.body", "body": body, "more_body": more})
    if trailers is not None:
        await send({"type": _EXTENSION, "headers": trailers, "more_trailers": False})


async def _end(call: Call, reply: Reply, send: Send, carried: _Carried | None) -> None:
    """End a response whose messages have been sent."""
    last, trailers = call.ending(reply)
    if carried is not None:
        carried.fields, trailers = trailers, None
    await send({"type": "http.response.body", "body": last, "more_body": False})
    if trailers is not None:
        await send({"type": _EXTENSION, "headers": trailers, "more_trailers": False})


def _start(status: int, headers: Fields, has_trailers: bool) -> Message:
    # copies, as in `OIPApp`
    return {"type": "http.response.start", "status": status, "headers": [*headers], "trailers": has_trailers}


def _metadata(scope: Scope) -> Iterable[tuple[str, str]]:
    return metadata(scope["headers"])


def _has_trailers(scope: Scope) -> bool:
    return _EXTENSION in (scope.get("extensions") or ())


def _method_of(scope: Scope, services: Collection[str]) -> str:
    """Service and method, such as "/inference.GRPCInferenceService/ModelInfer": all of the path behind the mount."""
    sent = (scope.get("raw_path") or b"").decode("latin-1").partition("?")[0]
    if sent and scope["path"].endswith("/"):
        # Litestar has added the slash, and cut off its mount's part without a word
        scope = {**scope, "path": unquote(sent)}
    path, mount = path_of(scope), scope.get("root_path", "").rstrip("/")
    service = mount[mount.rfind("/") :]
    if service in services:
        path = service + path
    # another spelling of the same path may have passed a rule on the path that was sent
    return sent if "%" in sent and not sent.endswith(path) else path


@final
class _Carried:
    """The trailers of a response of gRPC that has begun, which `TrailersMiddleware` sends; None for any other."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: Fields | None = None


class TrailersMiddleware:
    """Carries gRPC's trailers past middleware that drops them, as `BaseHTTPMiddleware` and `@app.middleware("http")` do."""

    def __init__(self, app: AnyASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _CARRIED not in scope and _has_trailers(scope) and _is_grpc(scope["headers"]):
            carried = _Carried()
            await self._app({**scope, _CARRIED: carried}, receive, _Sender(send, carried))
        else:
            await self._app(scope, receive, send)


@final
class _Sender:
    """Adds the trailers to a response."""

    def __init__(self, send: Send, carried: _Carried) -> None:
        self._send = send
        self._carried = carried
        self._is_ours = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            # what middleware answers instead has another type, such as 401, or a status of its own
            headers = message.get("headers", ())
            has_status = any(name.lower() == b"grpc-status" for name, _ in headers)
            self._is_ours = self._carried.fields is not None and _is_grpc(headers) and not has_status
            if self._is_ours:
                message = {**message, "trailers": True}
        await self._send(message)
        if self._is_ours and message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._send({"type": _EXTENSION, "headers": self._carried.fields, "more_trailers": False})


def _is_grpc(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the content type among headers is that of gRPC, whose status is in trailers."""
    for name, value in headers:
        if name.lower() == b"content-type":
            protocol = protocol_of(value)
            return protocol is not None and protocol.has_trailers
    return False
