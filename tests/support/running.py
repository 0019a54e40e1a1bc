"""Requests to a model `m` over ASGI and WSGI: for tests of where models run and when they load."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oip_asgi import OIPApp, OIPWSGIApp
from tests.support.ways import Request, over_asgi, over_wsgi

INFER = Request("POST", "/models/m/infer", (), b'{"inputs":[]}')
READY = Request("GET", "/health/ready")


ways = pytest.mark.parametrize("way", [lambda s: over_asgi(OIPApp(s), ""), lambda s: over_wsgi(OIPWSGIApp(s), "")], ids=["ASGI", "WSGI"])


async def send(app: Any, request: Request) -> tuple[int, Any]:
    """One request over ASGI on the running event loop."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": request.body}]

    async def receive() -> Any:
        return messages.pop()

    async def record(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": request.method, "path": request.path, "headers": []}
    await app(scope, receive, record)
    return sent[0]["status"], json.loads(b"".join(message["body"] for message in sent[1:]) or b"null")
