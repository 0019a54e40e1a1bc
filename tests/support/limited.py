"""Models that block or wait until they are let go, and a server of one such model: for tests of limits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from oip_asgi import InferenceServer
from tests.support.talk import EMPTY
from tests.support.ways import Request

INFER = Request("POST", "/models/m/infer", (), EMPTY)


class Blocking:
    """A model that blocks until it is let go, and counts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started = self.running = self.most = self.ended = 0
        self.leave = threading.Event()
        self.pause = 0.0

    def __call__(self) -> int:
        with self.lock:
            self.started += 1
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.leave.wait(20)
        threading.Event().wait(self.pause)
        with self.lock:
            self.running -= 1
            self.ended += 1
        return 1


class Awaiting:
    """The same as a coroutine, which notes how it ends."""

    def __init__(self) -> None:
        self.started = 0
        self.events: list[str] = []
        self.leave = asyncio.Event()

    async def __call__(self) -> int:
        self.started += 1
        try:
            await self.leave.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)  # cleaning up awaits too, and is not cancelled a second time
            self.events.append("cleaned up")
            raise
        return 1


def serve(model: Any, **arguments: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", model, **arguments)
    return server
