"""A client of an ASGI application in this process. Starlette's own warns, in its newest version, of the httpx that is installed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import httpx

from tests.support.loops import Loops


class Client:
    """Asks an application of Starlette or FastAPI; as a context manager, within its lifespan.

    Args:
        app: The application.
        root_path: What a proxy in front of it has cut off.
    """

    def __init__(self, app: Any, root_path: str = "") -> None:
        self.app = app
        self._root_path = root_path
        self._run: Callable[..., Any] = Loops().run
        self._stack = AsyncExitStack()

    def __enter__(self) -> Client:
        self._runner = asyncio.Runner()
        self._run = self._runner.run
        try:
            self._run(self._stack.enter_async_context(self.app.router.lifespan_context(self.app)))
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._run(self._stack.aclose())

    def request(self, method: str, path: str, content: bytes = b"", headers: Mapping[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, root_path=self._root_path)
            async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
                return await client.request(method, path, content=content, headers=headers)

        answer: httpx.Response = self._run(ask())
        return answer

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, content: bytes = b"", headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("POST", path, content, headers)
