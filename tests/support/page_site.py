"""An application for tests of the page in a browser: FastAPI with the models at `/v2`, and all of it once more at `/shop`, behind what
cuts that off without telling, as a proxy does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from fastapi import FastAPI

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.described import described_server

MARKUP = "<img src=x onerror=alert(1)>"
"""The name of a model that must be shown as it is."""


def make_server() -> InferenceServer:
    server = described_server()
    server.register(MARKUP, lambda x: x)
    server.register("exact", lambda x: x, inputs=[TensorSpec("x", "INT64", [1])], outputs=[TensorSpec("y", "INT64", [1])])

    @server.model("raises", inputs=[TensorSpec("x", "FP32", [1])])
    def raises(x: Any) -> Any:
        raise RuntimeError("a secret")

    @server.model("not loaded", load=fail, inputs=[TensorSpec("x", "FP32", [1])])
    def not_loaded(x: Any) -> Any:
        return x

    @server.model("slow stream", inputs=[TensorSpec("prompt", "BYTES", [1])])
    async def slow_stream(prompt: list[str]) -> AsyncIterator[Any]:
        for place in range(4):
            yield np.array([place])
            await asyncio.sleep(0.3)

    return server


def fail() -> None:
    raise OSError("its file is not there")


class Site:
    """The application, and the same behind a proxy at `/shop`."""

    def __init__(self) -> None:
        self._app = FastAPI()
        OIPApp(make_server()).install(self._app, "/v2")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/shop/"):
            scope = {**scope, "path": scope["path"].removeprefix("/shop"), "raw_path": scope["raw_path"].removeprefix(b"/shop")}
        await self._app(scope, receive, send)


app = Site()
