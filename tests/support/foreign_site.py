"""An application for tests of pages of other sites in a browser. It counts what its model did, and keeps what browsers sent to `/v2`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from fastapi import FastAPI

from oip_asgi import InferenceServer, OIPApp, SharedMemory, TensorSpec

KEY = os.environ.get("FOREIGN_KEY", "oip_asgi_foreign_pages")
"""The key of the shared memory that clients may register: each run of the checks has its own."""

counts = {"calls": 0, "loads": 0}
received: list[dict[str, str]] = []


def load() -> None:
    counts["loads"] += 1


def kept(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    counts["calls"] += 1
    return x


def make_server() -> InferenceServer:
    trusted = [os.environ.get("TRUSTED_ORIGIN", "https://console.example")]
    server = InferenceServer("kept", model_control=True, shared_memory=SharedMemory(allow=[KEY]), trusted_origins=trusted)
    server.register("kept", kept, load=load, inputs=[TensorSpec("x", "FP32", [1])], outputs=[TensorSpec("y", "FP32", [1])])
    return server


class Site:
    """FastAPI with the models at `/v2`. What browsers sent, and what it was answered, is at `/received`, the counts at `/counts`."""

    def __init__(self) -> None:
        self._app = FastAPI()
        self._app.get("/counts")(lambda: counts)
        self._app.get("/received")(lambda: received)
        OIPApp(make_server()).install(self._app, "/v2")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def keep_and_send(message: Any) -> None:
            if message["type"] == "http.response.start" and scope["path"].startswith("/v2/"):
                sent = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
                received.append({**sent, "method": scope["method"], "path": scope["path"], "status": str(message["status"])})
            await send(message)

        await self._app(scope, receive, keep_and_send)


app = Site()
