"""A client of an ASGI application whose every message is in the test's hands: bodies in pieces, and going away."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from typing import Any

from oip_asgi import InferenceServer, OIPApp

EMPTY = b'{"inputs":[]}'


class Talk:
    """One request, which begins as soon as it is made on a running event loop.

    Args:
        server: Whom to ask.
        model: Which of its models to infer.
        body: The first piece of the body; None for none yet.
        ends: Whether that is all of the body.
        path: Another path than the model's.
        action: What is asked of the model.
        app: Another application than `OIPApp(server)`.
        most: How many messages it takes. Then sending raises OSError, by which servers say that the client has gone.
        scope: More of ASGI's scope, such as `headers`.
    """

    def __init__(
        self,
        server: InferenceServer,
        model: str = "m",
        body: bytes | None = EMPTY,
        *,
        ends: bool = True,
        path: str | None = None,
        action: str = "infer",
        app: Any = None,
        most: float = math.inf,
        **scope: Any,
    ) -> None:
        self.asked = 0
        """How often the application has asked for a message."""
        self.sent: list[Any] = []
        self.takes = asyncio.Event()
        """Whether it takes what is sent; a slow reader does not for a while."""
        self.takes.set()
        self._most = most
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        if body is not None:
            self.say(body, ends=ends)
        method, path = ("POST", f"/models/{model}/{action}") if path is None else ("GET", path)
        whole: Any = {"type": "http", "method": method, "path": path, "headers": [], **scope}
        self.task = asyncio.ensure_future((app or OIPApp(server))(whole, self._receive, self._send))

    async def _receive(self) -> Any:
        self.asked += 1
        return await self._messages.get()

    async def _send(self, message: Any) -> None:
        await self.takes.wait()
        if len(self.sent) == self._most:
            raise OSError("the client has gone")
        self.sent.append(message)

    def say(self, body: bytes, *, ends: bool = True) -> None:
        """Send a piece of the body."""
        self._messages.put_nowait({"type": "http.request", "body": body, "more_body": not ends})

    def go(self) -> None:
        """Go away."""
        self._messages.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> tuple[int, Any]:
        """The status and the JSON, once they are there."""
        await asyncio.wait_for(self.task, 20)
        return self.status, json.loads(self.body or b"null")

    @property
    def unread(self) -> int:
        """How many messages the application has not received."""
        return self._messages.qsize()

    @property
    def body(self) -> bytes:
        """What is there of the answer's body."""
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def events(self) -> list[Any]:
        """The documents of the events that are there."""
        return [json.loads(event.removeprefix("data: ")) for event in self.body.decode().split("\n\n")[:-1]]

    @property
    def status(self) -> int:
        """The status of an answer that is there."""
        return int(self.sent[0]["status"])

    def header(self, name: str) -> str | None:
        """A header of an answer that is there."""
        found = [value.decode() for key, value in self.sent[0]["headers"] if key == name.encode()]
        return found[0] if found else None


def block_until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait until something has happened in another thread or process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds} seconds"
        time.sleep(0.005)


async def until(condition: Any) -> None:
    """Let the event loop go on until something has happened in another thread or task."""
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen within twenty seconds")
