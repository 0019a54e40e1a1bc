"""How a request of ASGI is read: its path below the mount, its body, the disconnect of its client; and what
websockets are answered. Knows scopes and messages.

The applications for REST and for gRPC both stand on it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ._hosts.frameworks import TAKEN_BY, find_reader
from ._http.events import Events
from ._http.messages import Response, path_under
from ._io import ClientGone, Fed
from ._protocol.datatypes import Buffer
from ._protocol.errors import Reader, TakenBy
from ._runtime.async_io import AsyncIO
from ._runtime.runtime import Runtime, send_pieces
from .server import InferenceServer

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

AnyASGIApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An application of any framework: each has its own types for the same three arguments."""


def find_path(scope: Scope) -> str:
    """Find the path below the mount.

    Most hosts keep the mount's prefix in `path` and name it in `root_path`; some cut it off. If a proxy has
    cut off the application's own root path, as FastAPI(root_path=...) expects, only the mount's part of
    `root_path` is in `path`.
    """
    path: str = scope["path"]
    mount: str = scope.get("root_path", "").rstrip("/")
    if not mount:
        return path
    application: str = scope.get("app_root_path", "").rstrip("/")
    for prefix in (mount, mount.removeprefix(application)):
        rest = path_under(path, prefix)
        if rest is not None:
            return rest
    return path


class Client(msgspec.Struct, eq=False):
    """The client of one request: it sends its body, and then the message that it has gone. It may get its
    answer in pieces."""

    scope: Scope
    receive: Receive
    send: Send
    runtime: Runtime
    first: Message | None = None  # which was received already
    # whether its body is still to be read: until then, each message may be a part of it
    is_unread: bool = False
    has_begun: bool = False
    is_stuck: bool = False  # whether a piece is being sent, or was given up in the middle

    async def read(self, body: Fed) -> Any:
        """Read the body, and return what `body.finish` returns."""
        message = await self.receive() if self.first is None else self.first
        self.is_unread = False
        chunk: bytes = message.get("body", b"")
        while message["type"] != "http.disconnect":
            if body.coding is not None:
                await self.runtime.here().begin(partial(body.feed, chunk), "conversion")
            else:
                body.feed(chunk)
            if not message.get("more_body", False):
                # servers tell a client that went in the middle: what is missing now, something of the
                # application has read
                taken_by: TakenBy | None = message.get(TAKEN_BY)
                return body.finish(cut_off=taken_by is not None, taken_by=taken_by or self._find_reader)
            message = await self.receive()
            chunk = message.get("body", b"")
        return body.finish(cut_off=True)

    def _find_reader(self) -> Reader:
        return find_reader(self.scope)

    async def is_gone(self) -> bool:
        """Wait for the next message. True if it says that the client has gone."""
        return not self.is_unread and bool((await self.receive())["type"] == "http.disconnect")

    async def _write(self, head: Events | Response, piece: Buffer) -> None:
        """Send a piece of an answer, and its head with the first."""
        if self.is_stuck:  # a part of the last piece may have been sent
            raise ClientGone
        self.is_stuck = True
        try:
            if not self.has_begun:
                self.has_begun = True
                await self.send(
                    {"type": "http.response.start", "status": head.status, "headers": [*head.headers]}
                )
            if piece:
                await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        except OSError:  # how servers say it
            raise ClientGone from None
        self.is_stuck = False

    async def push(self, beat: Response) -> None:
        """Send a sign of life, unless a piece is being sent."""
        with suppress(ClientGone):
            await self._write(beat, beat.parts[0])

    async def send_events(self, events: Events, io: AsyncIO) -> None:
        """Send an answer in pieces, its head with the first."""
        await send_pieces(
            io, self.runtime.here(), events.first or b"", events.items, partial(self._write, events)
        )
        self.is_stuck = True  # what comes now is the end
        with suppress(OSError):
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})


async def answer_other(
    server: InferenceServer, scope: Scope, receive: Receive, send: Send, reason: str
) -> None:
    """Answer what is not HTTP: refuse a websocket for a reason, or start and stop the server."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000, "reason": reason})
    else:
        await run_own_lifespan(server, receive, send)


async def run_own_lifespan(
    server: InferenceServer, receive: Receive, send: Send, *, received: bool = False
) -> None:
    if not received:
        await receive()
    async with server.lifespan():
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})
