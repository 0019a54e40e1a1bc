"""An application whose models note what becomes of their calls, for clients that read slowly or go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import numpy as np
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from oip_asgi import InferenceServer, OIPApp

MEBIBYTE = 2**20

noted: Counter[str] = Counter()
server = InferenceServer(max_body_bytes=80 * MEBIBYTE)


@server.model("echo", run="inline")
def echo(x: np.ndarray) -> np.ndarray:
    return x


@server.model("large")
def large(n: np.ndarray) -> np.ndarray:
    """As many mebibytes as asked for."""
    return np.ones(int(n[0]) * MEBIBYTE, np.uint8)


@server.model("items")
async def items(n: np.ndarray) -> AsyncIterator[np.ndarray]:
    """As many items of a mebibyte as asked for."""
    try:
        for _ in range(int(n[0])):
            noted["made"] += 1
            yield np.ones(MEBIBYTE, np.uint8)
    finally:
        noted["ended"] += 1


@server.model("waits", max_concurrency=1, max_queue=0)
async def waits(n: np.ndarray) -> np.ndarray:
    """Wait as many seconds as asked for, in the only slot."""
    noted["begun"] += 1
    try:
        await asyncio.sleep(int(n[0]))
    except asyncio.CancelledError:
        noted["cancelled"] += 1
        raise
    return n


@server.model("ticks", max_concurrency=1, max_queue=0)
async def ticks(n: np.ndarray) -> AsyncIterator[np.ndarray]:
    """One item, and another after as many seconds as asked for, in the only slot."""
    yield n
    noted["begun"] += 1  # not before the item: if the client goes while that is sent, this generator is closed, and nothing is cancelled
    try:
        await asyncio.sleep(int(n[0]))
    except asyncio.CancelledError:
        noted["cancelled"] += 1
        raise
    yield n


async def seen(_: Request) -> JSONResponse:
    return JSONResponse(noted)


async def pass_on(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    return await call_next(request)


def make_app() -> Starlette:
    made = Starlette()
    made.add_route("/noted", seen)
    OIPApp(server).install(made, grpc=True)
    return made


app, covered = make_app(), make_app()
covered.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
