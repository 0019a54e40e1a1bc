"""Clients that go away from a real server, behind the middleware that hosts have: models are cancelled, and nothing is an error."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.prometheus import instrument
from tests.support.talk import block_until
from tests.support.threads import serving

REQUEST = b'POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"inputs":[]}'


async def passes_on(request: Any, call_next: Any) -> Any:
    return await call_next(request)


GZIP, BASE = Middleware(GZipMiddleware, minimum_size=0), Middleware(BaseHTTPMiddleware, dispatch=passes_on)


@pytest.mark.parametrize("stack", [[], [BASE], [GZIP, BASE]], ids=["bare", "BaseHTTPMiddleware", "both"])
def test_a_client_that_goes(stack: list[Middleware], caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()
    entered, ended, leave = threading.Event(), threading.Event(), threading.Event()
    queued_ran: list[int] = []

    @server.model("awaits")
    async def awaits() -> int:
        entered.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return 1

    @server.model("blocks", max_concurrency=1)
    def blocks() -> int:
        queued_ran.append(1)
        entered.set()
        assert leave.wait(30)
        return 1

    registry = CollectorRegistry()
    instrument(server, registry)
    labels = {"server": "oip_asgi", "model": "blocks", "version": "", "state": "waiting"}

    def waiting() -> float | None:
        return registry.get_sample_value("oip_requests_in_progress", labels)

    app = Starlette(middleware=stack)
    OIPApp(server).install(app)
    with caplog.at_level(logging.INFO), serving(app) as port:
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(REQUEST % b"awaits")
            assert entered.wait(30)
        assert ended.wait(30)
        entered.clear()
        with socket.create_connection(("127.0.0.1", port), 30) as first, socket.create_connection(("127.0.0.1", port), 30) as second:
            first.sendall(REQUEST % b"blocks")
            assert entered.wait(30)
            second.sendall(REQUEST % b"blocks")
            block_until(lambda: waiting() == 1)
        block_until(lambda: waiting() == 0)
        leave.set()
    server.stop()
    assert queued_ran == [1]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
