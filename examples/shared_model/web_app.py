"""The web workers: your application, your authentication, and the protocol. The model is in the other process.

MODEL_SOCKET=/tmp/model.sock uvicorn web_app:app --workers 4    or gunicorn, or by start.py
"""

from __future__ import annotations

import os

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.client import remote

server = InferenceServer("web worker")
server.register("embed", load=remote(f"http+unix://{os.environ['MODEL_SOCKET']}/v2", "embed"), max_concurrency=64, timeout=5)


async def similarity(request: Request) -> JSONResponse:
    """A route of your own: how alike two words are."""
    words = np.array([int(request.query_params[name]) for name in ("a", "b")])
    response = await server.infer("embed", {"word": words})
    first, second = response["embedding"]
    return JSONResponse({"similarity": float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))})


app = Starlette(routes=[Route("/similarity", similarity)])
OIPApp(server).install(app, "/v2")
