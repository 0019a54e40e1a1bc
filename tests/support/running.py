"""Requests to a model `m` over ASGI and WSGI: for tests of where models run and when they load."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oip_asgi import OIPApp, OIPWSGIApp
from tests.support.ways import Request, over_asgi, over_wsgi, send_asgi

INFER = Request("POST", "/models/m/infer", (), b'{"inputs":[]}')
READY = Request("GET", "/health/ready")


ways = pytest.mark.parametrize("way", [lambda s: over_asgi(OIPApp(s), ""), lambda s: over_wsgi(OIPWSGIApp(s), "")], ids=["ASGI", "WSGI"])


class Gate:
    """A function that sets `entered` when it is called, and returns its result once `leave` is set."""

    def __init__(self, result: Any = None) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.result = result

    def __call__(self) -> Any:
        self.entered.set()
        assert self.leave.wait(20)
        return self.result


def as_async(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """An `async def` that calls the function in a thread."""

    async def call(*args: Any) -> Any:
        return await asyncio.to_thread(function, *args)

    return call


async def send(app: Any, request: Request) -> tuple[int, Any]:
    """One request over ASGI on the running event loop: the status and the JSON."""
    answer = await send_asgi(app, request)
    return answer.status, json.loads(answer.body or b"null")
