"""A refusal that a server sends before it has read a large body reaches the client, with its status and text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oip_asgi import ErrorResponse, InferenceError, InferenceServer
from oip_asgi.client import AsyncClient, Client, remote
from tests.support.processes import serving

_METADATA = {"name": "m", "extensions": ["binary_tensor_data"], "inputs": [], "outputs": []}
_SERVERS = {
    "uvicorn": "python -m uvicorn tests.processes.clients.test_early_answers:app --port PORT",
    "hypercorn": "python -m hypercorn tests.processes.clients.test_early_answers:app -b 127.0.0.1:PORT",
    "granian": "python -m granian --interface asgi tests.processes.clients.test_early_answers:app --port PORT",
    "gunicorn": "python -m gunicorn tests.processes.clients.test_early_answers:wsgi -b 127.0.0.1:PORT",
    "gunicorn gthread": "python -m gunicorn tests.processes.clients.test_early_answers:wsgi -b 127.0.0.1:PORT -k gthread --threads 4",
}


def answer(method: str) -> tuple[str, bytes]:
    return ("200 OK", json.dumps(_METADATA).encode()) if method == "GET" else ("401 Unauthorized", b'{"error":"who are you"}')


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Refuses without reading."""
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
    status, body = answer(scope["method"])
    await send({"type": "http.response.start", "status": int(status[:3]), "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def wsgi(environ: Any, start_response: Any) -> list[bytes]:
    status, body = answer(environ["REQUEST_METHOD"])
    start_response(status, [("Content-Length", str(len(body)))])
    return [body]


@pytest.fixture(scope="module", params=_SERVERS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = _SERVERS[request.param].split()
    if find_spec(command[2]) is None:
        pytest.skip(f"{command[2]} is not installed")
    with serving(command, Path(tmp_path_factory.mktemp("early"), "log"), ready="/") as served:
        yield f"{served.url}/v2"


@pytest.mark.slow
@pytest.mark.parametrize("size", [30_000, 250_000, 2_000_000])
def test_a_refusal_before_the_body_was_read_has_its_status_and_text(url: str, size: int) -> None:
    inputs = {"x": np.zeros(size, np.float32)}

    async def ask() -> None:
        server = InferenceServer(max_body_bytes=None)
        server.register("m", load=remote(url, "m"))
        async with AsyncClient(url) as client, server.lifespan():
            for _ in range(5):
                with pytest.raises(ErrorResponse, match="status 401: who are you"):
                    await client.infer("m", inputs)
                with pytest.raises(InferenceError, match=r"^who are you$") as caught:
                    await server.infer("m", inputs)
                assert caught.value.status == 401

    asyncio.run(ask())
    with Client(url) as client:
        for _ in range(5):
            with pytest.raises(ErrorResponse, match="status 401: who are you"):
                client.infer("m", inputs)
