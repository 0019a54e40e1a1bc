"""The server that hostile requests, the soak and the kill tests are run against: `python -m tests.support.stressed` prints its address.

`app` is its ASGI application, `wsgi_app` the same under WSGI, for gunicorn.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from fastapi import FastAPI
from numpy.lib.stride_tricks import as_strided
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from oip_asgi import InferenceServer, OIPApp, OIPWSGIMiddleware, TensorSpec
from tests.support.run_server import run_uvicorn

MAX_BODY_BYTES = int(os.environ.get("STRESSED_MEBIBYTES", "32")) * 2**20

SHARED = np.random.default_rng(0).normal(size=(8, 3))
"""The weights of the model `linear`, which clients compute for themselves."""


def make_server() -> InferenceServer:
    server = InferenceServer("stressed", "1", max_body_bytes=MAX_BODY_BYTES, shutdown_timeout=5)
    x = [TensorSpec("x", "FP64", [-1, 8])]

    @server.model("linear", inputs=x, outputs=[TensorSpec("y", "FP64", [-1, 3])])
    def linear(x: Any) -> Any:
        return x @ SHARED

    @server.model("awaits", inputs=x)
    async def awaits(x: Any) -> Any:
        await asyncio.sleep(0.005)
        return x @ SHARED

    @server.model("sleeps")
    async def sleeps() -> int:
        await asyncio.sleep(0.005)
        return 1

    @server.model("blocks", inputs=x, max_concurrency=2, max_queue=4)
    def blocks(x: Any) -> Any:
        time.sleep(0.05)
        return x @ SHARED

    @server.model("late", timeout=0.05)
    async def late() -> Any:
        await asyncio.sleep(30)

    @server.model("late in a thread", timeout=0.05, max_concurrency=4, max_queue=0)
    def late_in_a_thread() -> Any:
        time.sleep(0.5)  # so long that no busy machine wakes the caller behind it only
        return 1

    @server.model("raises")
    def raises() -> Any:
        raise RuntimeError("a secret in /etc/passwd")

    @server.model("slow")
    def slow() -> Any:
        time.sleep(0.5)
        return os.getpid()

    server.register("echo", lambda **inputs: inputs)
    server.register("one", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])])
    server.register("counts", lambda x: x.size, inputs=[TensorSpec("x", "FP32", [-1])])
    register_dear(server)
    return server


def register_dear(server: InferenceServer) -> None:
    """Models with which a little once cost a lot."""
    server.register("any", lambda x: x.size)
    server.register("records", lambda x: x, outputs=[TensorSpec("y", "BYTES", [-1], content_type="pd_json")])
    server.register("many", lambda **inputs: len(inputs))
    server.register("rows", lambda x: x, max_batch_size=4)

    @server.model("gated", max_concurrency=1, max_queue=0, timeout=1)
    async def gated(x: Any) -> int:
        return int(x.size)

    @server.model("unread", max_concurrency=4, max_queue=0, stream_timeout=1)
    def unread(n: Any) -> Iterator[Any]:
        for _ in range(int(n[0])):
            yield np.zeros(10_000)

    memory = np.zeros(2**19, "<f4")

    @server.model("reused", max_concurrency=1)
    def reused(x: Any) -> Any:
        memory[:] = x[0]
        return as_strided(memory, writeable=False)

    if find_spec("pandas") is not None:
        import pandas as pd

        def frame(df: Any) -> Any:
            return df

        frame.__annotations__ = dict.fromkeys(("df", "return"), pd.DataFrame)
        server.register("frame", frame)


async def tell_pid(request: Request) -> PlainTextResponse:
    """A function of the host's own: it reads the body, and says who serves."""
    await request.body()
    return PlainTextResponse(str(os.getpid()))


def make_app() -> FastAPI:
    app = FastAPI(routes=[Route("/pid", tell_pid, methods=["GET", "POST"])])
    OIPApp(make_server()).install(app)
    many = InferenceServer()
    for number in range(200):
        many.register(f"model {number}", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, 4])], outputs=[TensorSpec("y", "FP32", [-1, 4])])
    OIPApp(many).install(app, "/many/v2")
    return app


def other(environ: Any, start_response: Any) -> list[bytes]:
    """The WSGI twin of `tell_pid`."""
    while environ["wsgi.input"].read(2**20):
        pass
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d" % os.getpid()]


def freeze() -> None:
    """As the page of operations says: else each full collection looks through all that the libraries brought, for 50 ms and more."""
    gc.collect()
    gc.freeze()


def make_wsgi_app() -> OIPWSGIMiddleware:
    app = OIPWSGIMiddleware(other, make_server())
    freeze()
    return app


def main() -> None:
    logging.basicConfig(level=logging.CRITICAL)
    app = make_app()
    freeze()
    run_uvicorn(app, timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main()
