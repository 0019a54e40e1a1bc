"""Requests to a model `m` over ASGI and WSGI: for tests of where models run and when they load."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oip_asgi import OIPApp, OIPWSGIApp
from tests.support.ways import Request, over_asgi, over_wsgi, send_asgi

INFER = Request("POST", "/models/m/infer", (), b'{"inputs":[]}')
READY = Request("GET", "/health/ready")


ways = pytest.mark.parametrize("way", [lambda s: over_asgi(OIPApp(s), ""), lambda s: over_wsgi(OIPWSGIApp(s), "")], ids=["ASGI", "WSGI"])


async def send(app: Any, request: Request) -> tuple[int, Any]:
    """One request over ASGI on the running event loop: the status and the JSON."""
    answer = await send_asgi(app, request)
    return answer.status, json.loads(answer.body or b"null")
