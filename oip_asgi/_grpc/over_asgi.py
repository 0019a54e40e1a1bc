"""gRPC and gRPC-Web over ASGI: an application for the paths of the services. It translates messages, and
decides only what HTTP/2 forces it to: frames, trailers, and the answer for what is no method.

Knows scopes, messages and protobuf's classes, and no gRPC library.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import unquote

from .._asgi_client import AnyASGIApp, Client, answer_other, find_path
from .._hosts.frameworks import TAKEN_BY, check_server, drops_trailers
from .._http.messages import Head, RestFormat, respond_error
from .._io import ClientGone, DeadlinePassed
from .._protocol.errors import InferenceError, TakenBy, TimedOut, logger, show
from .._runtime.async_io import AsyncIO, attend_watched
from .._runtime.waiting import wait_until_gone
from ..server import InferenceServer
from .methods import exchange, reply_error
from .over_http import (
    CANCELLED,
    RPC,
    Answer,
    Fields,
    FrameReader,
    begin_rpc,
    find_protocol,
    read_metadata,
)
from .services import Converse, Services

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


_EXTENSION: Final = "http.response.trailers"
_CARRIED: Final = "oip_asgi.trailers"
"""The key in a scope of the `_Carried` that `TrailersMiddleware` has put there."""

_Carried: TypeAlias = dict[Literal["fields"], Fields]
"""The trailers of a response of gRPC, which `TrailersMiddleware` sends; empty for any other."""

_PART: Final = 2**14
"""Bytes of a body that are read at once: their messages wait in memory, decompressed. The other bytes wait in
the server's chunk, or on the connection."""

_DROPPED: Final = (
    'clients of gRPC get no status: BaseHTTPMiddleware, which @app.middleware("http") makes, drops the '
    "HTTP/2 trailers: "
    "write OIPApp(server).install(app, grpc=True), or put oip_asgi.grpc.TrailersMiddleware around the "
    "application"
)
_TOO_LATE: Final = "the call did not end within its grpc-timeout"


class OIPGRPCApp:
    """An ASGI application that speaks the protocol over gRPC and gRPC-Web, to be mounted at the path of each
    service."""

    def __init__(self, server: InferenceServer, *, health: bool = True, reflection: bool = True) -> None:
        check_server(server, "OIPGRPCApp", "OIPGRPCApp(server)")
        self._server = server
        self._engine, self._runtime = server._inside
        self._services = Services(
            server, lambda scope: read_metadata(scope["headers"]), health=health, reflection=reflection
        )
        self.paths = [f"/{name}" for name in self._services.names]
        self.methods = [*self._services.methods, *self._services.conversations]
        """The paths of all methods, inference first."""
        self._host: object = None
        self._logged = set[str]()

    def _log_once(self, level: int, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            logger.log(level, text)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await answer_other(self._server, scope, receive, send, "OIPGRPCApp answers HTTP only")
            return
        head = Head(scope["method"], _find_method(scope, self.paths), list(scope["headers"]), True, scope)
        client = Client(scope, receive, send, self._runtime)
        carried: _Carried | None = scope.get(_CARRIED)
        can_send_trailers = carried is not None or _EXTENSION in (scope.get("extensions") or ())
        if (
            carried is None
            and can_send_trailers
            and scope.get("app") is not self._host
            and _is_grpc(scope["headers"])
        ):
            self._host = scope["app"]
            if drops_trailers(self._host):
                self._log_once(logging.WARNING, _DROPPED)
        try:
            rpc = begin_rpc(head, can_send_trailers=can_send_trailers)
        except InferenceError as error:
            await self._drop_body(head, client)
            answer = Answer(respond_error(error))
        else:
            converse = self._services.conversations.get(head.path)
            if converse is not None:
                await self._converse(rpc, converse, client, carried)
                return
            answer = await self._answer(rpc, client)
        await _send_end(answer, send, carried)

    def _refuse(self, rpc: RPC, error: InferenceError) -> Answer:
        """Refuse a remote call by its head."""
        if rpc.lacks_trailers:
            self._log_once(logging.ERROR, f"a gRPC call cannot be answered: {error}")
        return rpc.end(reply_error(error))

    async def _answer(self, rpc: RPC, client: Client) -> Answer:
        """Answer a call of one message."""
        clock = self._engine.clock
        try:
            reader = rpc.make_reader(self._engine.options, 1)
            method = self._services.methods.get(rpc.head.path)
            if method is None:
                raise InferenceError(f"unknown method {show(rpc.head.path)}", status=501)
        except InferenceError as error:
            await self._drop_body(rpc.head, client)
            return self._refuse(rpc, error)
        since, timeout, io = clock(), rpc.timeout, AsyncIO(self._runtime, None, client.is_gone)
        try:
            messages = await client.read(reader)
            if not messages:
                raise InferenceError("the request has no message: expected one", status=501)
            if timeout != math.inf:
                passed = clock() - since
                if passed >= timeout:
                    raise TimedOut(_TOO_LATE)
                # what is left of it, in milliseconds, as error texts name it
                timeout = math.ceil((timeout - passed) * 1000) / 1000
            return rpc.end(await exchange(self._engine, method, messages[0], rpc.head.transport, io, timeout))
        except ClientGone:
            return CANCELLED
        except Exception as error:
            return rpc.end(reply_error(error))
        finally:
            if io.here is not None:  # as in `OIPApp`
                await io.end()

    async def _drop_body(self, head: Head, client: Client) -> None:
        """Read the body of a request that was refused by its head."""
        await RestFormat(head, self._engine.options.max_body_bytes).drop(AsyncIO(self._runtime, client.read))

    async def _converse(self, rpc: RPC, converse: Converse, client: Client, carried: _Carried | None) -> None:
        """Answer a call of any number of messages."""
        try:
            reader = rpc.make_reader(self._engine.options)
        except InferenceError as error:
            await _send_end(self._refuse(rpc, error), client.send, carried)
            return
        deadline = time.monotonic() + rpc.timeout

        async def write(message: bytes) -> None:
            await client.send(
                {"type": "http.response.body", "body": rpc.encode_message(message), "more_body": True}
            )
            # a server may take all without waiting: this lets other tasks run after each message
            await asyncio.sleep(0)

        if carried is not None:
            carried["fields"] = []
        has_trailers = rpc.protocol.has_trailers and carried is None
        await client.send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [*rpc.headers],
                "trailers": has_trailers,
            }
        )
        requests = _Requests(client, reader)
        with suppress(ClientGone, OSError):  # servers raise it from `send` if the client has gone
            try:
                conversation = converse(rpc.head.transport, requests.await_next, write)
                reply = await attend_watched(conversation, deadline, requests.is_gone, self._runtime)
                if requests.error is not None and reply.code == "OK":
                    reply = reply_error(requests.error)
            except DeadlinePassed:
                reply = reply_error(TimedOut(_TOO_LATE))
            except ClientGone:
                requests.check()
                raise
            finally:
                await requests.end()
            await _send_end(rpc.end(reply), client.send, carried, has_begun=True)


async def _send_end(answer: Answer, send: Send, carried: _Carried | None, *, has_begun: bool = False) -> None:
    """Send the end of an answer: its head if that was not sent, the rest of its body, and its trailers."""
    response, trailers = answer.response, answer.trailers
    if carried is not None and trailers is not None:
        carried["fields"], trailers = trailers, None
    if not has_begun:
        headers = [*response.headers]  # a copy, as in `OIPApp`
        await send(
            {
                "type": "http.response.start",
                "status": response.status,
                "headers": headers,
                "trailers": trailers is not None,
            }
        )
    for body, more in response.messages():
        await send({"type": "http.response.body", "body": body, "more_body": more})
    if trailers is not None:
        await send({"type": _EXTENSION, "headers": trailers, "more_trailers": False})


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
    """Carries gRPC's trailers past middleware that drops them, as `BaseHTTPMiddleware` and
    `@app.middleware("http")` do."""

    def __init__(self, app: AnyASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_trailers = scope["type"] == "http" and _EXTENSION in (scope.get("extensions") or ())
        if not has_trailers or _CARRIED in scope or not _is_grpc(scope["headers"]):
            await self._app(scope, receive, send)
            return
        carried: _Carried = {}
        is_ours = False

        async def send_with_trailers(message: Message) -> None:
            nonlocal is_ours
            if message["type"] == "http.response.start":
                # if middleware answers instead, such as with 401, its content type differs, or it has a
                # grpc-status
                headers = message.get("headers", ())
                is_ours = (
                    "fields" in carried
                    and _is_grpc(headers)
                    and not any(name.lower() == b"grpc-status" for name, _ in headers)
                )
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


class _Requests:
    """Reads the messages that a client sends, and waits until it has gone."""

    def __init__(self, client: Client, reader: FrameReader) -> None:
        self.error: InferenceError | None = None
        self._client = client
        self._reader = reader
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._reading = asyncio.ensure_future(self._read_requests())

    async def await_next(self) -> bytes | None:
        """Return the next message; None if there are no more."""
        message = await self._messages.get()
        self._messages.task_done()
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
        # this also fetches its exception, which asyncio would log otherwise
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_requests(self) -> None:
        more = True
        while more and (message := await self._client.receive())["type"] != "http.disconnect":
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # and the server's `receive` has swallowed that
                return
            more = message.get("more_body", False)
            if self.error is None:
                await self._take_chunk(
                    message.get("body", b""), is_last=not more, taken_by=message.get(TAKEN_BY)
                )
        if not more:
            await wait_until_gone(self._client.is_gone)

    async def _take_chunk(self, chunk: bytes, *, is_last: bool, taken_by: TakenBy | None) -> None:
        """Read the messages in a chunk, part by part: each part after the messages of the last one were
        taken."""
        try:
            for start in range(0, len(chunk), _PART):
                await self._messages.join()
                feed = partial(self._reader.feed, chunk[start : start + _PART])
                try:
                    if self._reader.coding is not None:
                        await self._client.runtime.here().begin(feed, "conversion")
                    else:
                        feed()
                finally:  # there may be messages in front of a wrong frame
                    for each in self._reader.take():
                        self._messages.put_nowait(bytes(each))
            if is_last:
                self._reader.finish(cut_off=taken_by is not None, taken_by=taken_by)
                self._messages.put_nowait(None)
        except InferenceError as error:
            self.error = error
            self._messages.put_nowait(None)
