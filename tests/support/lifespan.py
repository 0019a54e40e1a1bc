"""A server that starts and stops an ASGI application."""

from __future__ import annotations

import asyncio
from typing import Any


class Lifespan:
    """A server's side of the lifespan protocol."""

    def __init__(self, app: Any) -> None:
        self._to_app: asyncio.Queue[Any] = asyncio.Queue()
        self._from_app: asyncio.Queue[Any] = asyncio.Queue()
        self._app = app
        self.state: dict[str, Any] = {}
        """What the application's own lifespan gives to each request."""

    async def __aenter__(self) -> Lifespan:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        self.task = asyncio.create_task(self._app(scope, self._to_app.get, self._from_app.put))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def say(self, what: str) -> str:
        """Say "startup" or "shutdown". Returns the type of the answer."""
        await self._to_app.put({"type": f"lifespan.{what}"})
        answer = asyncio.create_task(self._from_app.get())
        await asyncio.wait([answer, self.task], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            answer.cancel()
            await self.task
            raise AssertionError("the application ended without an answer")
        return str(answer.result()["type"])


async def live_through(app: Any) -> list[str]:
    """Start and stop an application, and say what it answered."""
    async with Lifespan(app) as lifespan:
        said = [await lifespan.say("startup"), await lifespan.say("shutdown")]
        await lifespan.task
        return said
