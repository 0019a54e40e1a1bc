"""The server that every process of the matrix serves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from oip_asgi import InferenceServer

MAX_BODY_BYTES = 16 * 2**20
SLOW_SECONDS = 1.5


def make_server() -> InferenceServer:
    server = InferenceServer("matrix", "1", max_body_bytes=MAX_BODY_BYTES)

    @server.model("echo", load=lambda: None)
    def echo(**inputs: Any) -> Any:
        return inputs

    @server.model("slow")
    def slow(mark: Any) -> Any:
        """Say by a file that the request is in flight, then take a while."""
        Path(mark[0].decode()).touch()
        time.sleep(SLOW_SECONDS)
        return mark

    return server
