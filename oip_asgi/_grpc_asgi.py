"""gRPC and gRPC-Web over ASGI: an application for the paths of the services. It translates messages and decides nothing.

Knows scopes, messages and protobuf's classes, and no gRPC library.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final
from urllib.parse import unquote

from ._grpc.frames import FrameReader
from ._grpc.http import CANCELLED, TOO_LATE, Answer, Call, Calls, begin
from ._grpc.messages import refuse
from ._grpc.protocols import Fields, find_protocol, read_metadata, read_timeout
from ._hosts import check_server, drops_trailers
from ._http.request import Head, join_headers
from ._protocol.effects import DeadlinePassed, Run
from ._protocol.errors import InferenceError
from ._runtime.drive import advance_async, drive_async
from ._runtime.waiting import ClientGone, attend, until_gone
from ._services import Converse, Services
from .asgi import AnyASGIApp, Client, answer_other, find_path
from .server import InferenceServer

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

_logger: Final = logging.getLogger("oip_asgi")

_EXTENSION: Final = "http.response.trailers"
_CARRIED: Final = "oip_asgi.trailers"
"""The key in a scope of the `_Carried` that `TrailersMiddleware` has put there."""

_Carried: TypeAlias = dict[Literal["fields"], Fields]
"""The trailers of a response of gRPC, which `TrailersMiddleware` sends; empty for any other."""

_PART: Final = 2**14
"""Bytes of a body that are read at once: their messages wait in memory, decompressed. The other bytes wait in the server's chunk, or on the
connection."""


class OIPGRPCApp:
    """An ASGI application that speaks the protocol over gRPC and gRPC-Web, to be mounted at the path of each service."""

    def __init__(self, server: InferenceServer, *, health: bool = True, reflection: bool = True) -> None:
        check_server(server, "OIPGRPCApp", "OIPGRPCApp(server)")
        self._server = server
        self._engine, self._runtime = server._inside
        services = Services(_read_metadata, health=health, reflection=reflection)
        self.paths = [f"/{name}" for name in services.names]
        self._calls = Calls(
            self._engine, {f"/{name}/{method.name}": method for name in services.names for method in services.find_methods(name)}
        )
        self._conversations = {
            f"/{name}/{method}": converse
            for name in services.names
            for method, converse in services.find_conversations(self._engine, name).items()
        }
        self._host: object = None
        self._is_logged = False

    def _check_host(self, scope: Scope) -> None:
        """Check the application through which a call over HTTP/2 comes."""
        if not _is_grpc(scope["headers"]):
            return
        self._host = scope["app"]
        if drops_trailers(self._host) and not self._is_logged:
            self._is_logged = True
            _logger.warning(
                'clients of gRPC get no status: BaseHTTPMiddleware, which @app.middleware("http") makes, drops the HTTP/2 trailers: '
                "write OIPApp(server).install(app, grpc=True), or put oip_asgi.grpc.TrailersMiddleware around the application"
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await answer_other(self._server, scope, receive, send, "OIPGRPCApp answers HTTP only")
            return
        path = _find_method(scope, self.paths)
        headers = list(scope["headers"])
        head = Head(scope["method"], path, headers, join_headers(headers), True, scope)
        carried: _Carried | None = scope.get(_CARRIED)
        has_trailers = carried is not None or _has_trailers(scope)
        if carried is None and has_trailers and scope.get("app") is not self._host:
            self._check_host(scope)
        converse = self._conversations.get(path)
        if converse is not None:
            call = begin(head, self._engine.max_body_bytes, has_trailers=has_trailers)
            if isinstance(call, Call):
                await self._stream(call, converse, receive, send, carried)
                return
        steps, client = self._calls.answer(head, has_trailers=has_trailers), Client(receive, send, self._runtime)
        try:
            answer = await advance_async(steps, self._runtime, client.read, client.is_gone)
        except ClientGone:
            answer = CANCELLED
        assert type(answer) is Answer  # these methods answer one message with one, without pieces
        await _send(answer, send, carried)

    async def _stream(self, call: Call, converse: Converse, receive: Receive, send: Send, carried: _Carried | None) -> None:
        """Answer a call of any number of messages."""
        try:
            reader = call.reader(self._engine.max_body_bytes)
            deadline = time.monotonic() + read_timeout(call.get_header(b"grpc-timeout"))
        except InferenceError as error:
            await _send(self._calls.refuse(call, error), send, carried)
            return

        async def write(message: bytes) -> None:
            await send({"type": "http.response.body", "body": call.encode_message(message), "more_body": True})
            await asyncio.sleep(0)  # a server may take all without waiting: this lets other tasks run after each message

        if carried is not None:
            carried["fields"] = []
        await send(_make_start(200, call.fields, call.protocol.has_trailers and carried is None))
        requests = _Requests(Client(receive, send, self._runtime), reader)
        with suppress(ClientGone, OSError):  # servers raise it from `send` if the client has gone
            try:
                answering = drive_async(converse(call.head.transport, requests.next, write), self._runtime)
                reply = await attend(answering, deadline, requests.is_gone)
                if requests.error is not None and reply.code == "OK":
                    reply = refuse(requests.error)
            except DeadlinePassed:
                reply = TOO_LATE
            except ClientGone:
                requests.check()
                raise
            finally:
                await requests.end()
            await _send(call.end(reply), send, carried, has_begun=True)


async def _send(answer: Answer, send: Send, carried: _Carried | None, *, has_begun: bool = False) -> None:
    response, trailers = answer.response, answer.trailers
    if carried is not None and trailers is not None:
        carried["fields"], trailers = trailers, None
    if not has_begun:
        await send(_make_start(response.status, response.headers, trailers is not None))
    for body, more in response.messages():
        await send({"type": "http.response.body", "body": body, "more_body": more})
    if trailers is not None:
        await send({"type": _EXTENSION, "headers": trailers, "more_trailers": False})


def _make_start(status: int, headers: Fields, has_trailers: bool) -> Message:
    # copies, as in `OIPApp`
    return {"type": "http.response.start", "status": status, "headers": [*headers], "trailers": has_trailers}


def _read_metadata(scope: Scope) -> Iterable[tuple[str, str]]:
    return read_metadata(scope["headers"])


def _has_trailers(scope: Scope) -> bool:
    return _EXTENSION in (scope.get("extensions") or ())


def _find_method(scope: Scope, services: Collection[str]) -> str:
    """Find service and method, such as "/inference.GRPCInferenceService/ModelInfer"."""
    sent = (scope.get("raw_path") or b"").decode("latin-1").partition("?")[0]
    if sent and scope["path"].endswith("/"):
        # Litestar has added the slash, and cut off its mount's part without saying so
        scope = {**scope, "path": unquote(sent)}
    path, mount = find_path(scope), scope.get("root_path", "").rstrip("/")
    service = mount[mount.rfind("/") :]
    if service in services:
        path = service + path
    # another spelling of the same path may have passed a rule on the path that was sent
    return sent if "%" in sent and not sent.endswith(path) else path


class TrailersMiddleware:
    """Carries gRPC's trailers past middleware that drops them, as `BaseHTTPMiddleware` and `@app.middleware("http")` do."""

    def __init__(self, app: AnyASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _CARRIED in scope or not _has_trailers(scope) or not _is_grpc(scope["headers"]):
            await self._app(scope, receive, send)
            return
        carried: _Carried = {}
        is_ours = False

        async def send_with_trailers(message: Message) -> None:
            nonlocal is_ours
            if message["type"] == "http.response.start":
                # if middleware answers instead, such as with 401, its content type differs, or it has a grpc-status
                headers = message.get("headers", ())
                is_ours = "fields" in carried and _is_grpc(headers) and not any(name.lower() == b"grpc-status" for name, _ in headers)
                if is_ours:
                    message = {**message, "trailers": True}
            await send(message)
            if is_ours and message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({"type": _EXTENSION, "headers": carried["fields"], "more_trailers": False})

        await self._app({**scope, _CARRIED: carried}, receive, send_with_trailers)


def _is_grpc(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """True if the headers have the content type of gRPC, which needs trailers."""
    for name, value in headers:
        if name.lower() == b"content-type":
            protocol = find_protocol(value)
            return protocol is not None and protocol.has_trailers
    return False


@final
class _Requests:
    """Reads the messages that a client sends, and waits until it has gone."""

    def __init__(self, client: Client, reader: FrameReader) -> None:
        self.error: InferenceError | None = None
        self._client = client
        self._reader = reader
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._is_taken = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def next(self) -> bytes | None:
        """Return the next message; None if there are no more."""
        message = await self._messages.get()
        self._is_taken.set()
        return message

    async def is_gone(self) -> bool:
        """Wait until the client has gone, or cannot be read."""
        await asyncio.wait([self._reading])
        return True

    def check(self) -> None:
        """If `receive` raised, raise that."""
        self._reading.result()

    async def end(self) -> None:
        """Read no more."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)  # this also fetches its exception, which asyncio would log otherwise

    async def _read(self) -> None:
        more = True
        while more and (message := await self._client.receive())["type"] != "http.disconnect":
            more = message.get("more_body", False)
            if self.error is None:
                await self._take(message.get("body", b""), is_last=not more)
        if not more:
            await until_gone(self._client.is_gone)

    async def _take(self, chunk: bytes, *, is_last: bool) -> None:
        """Read the messages in a chunk, part by part: each part after the messages of the last one were taken."""
        try:
            for start in range(0, len(chunk), _PART):
                while not self._messages.empty():
                    self._is_taken.clear()
                    await self._is_taken.wait()
                try:
                    await self._feed(chunk[start : start + _PART])
                finally:  # there may be messages in front of a wrong frame
                    for each in self._reader.take():
                        self._messages.put_nowait(bytes(each))
            if is_last:
                self._reader.finish()
                self._messages.put_nowait(None)
        except InferenceError as error:
            self.error = error
            self._messages.put_nowait(None)

    async def _feed(self, part: bytes) -> None:
        if self._reader.is_compressed:
            await self._client.runtime.run(Run(partial(self._reader.feed, part), "conversion"))
        else:
            self._reader.feed(part)
