"""A WSGI and an ASGI application with a stream, for real servers: the model `running` tells how many streams are being made."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from oip_asgi import InferenceServer, OIPApp, OIPWSGIApp

server = InferenceServer()
running: list[int] = []


@server.model("slow")
def slow(n: np.ndarray) -> Iterator[int]:
    running.append(1)
    try:
        for number in range(int(n[0])):
            yield number
            time.sleep(0.02)
    finally:
        running.pop()


@server.model("running")
def count() -> int:
    return len(running)


wsgi_app = OIPWSGIApp(server)
asgi_app = OIPApp(server)
