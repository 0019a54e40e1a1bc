"""The matrix's application with gRPC beside REST, behind middleware that drops trailers: for servers with HTTP/2."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from oip_asgi import OIPApp

from .models import make_server

app = FastAPI()
OIPApp(make_server()).install(app, "/v2", grpc=True)


@app.middleware("http")
async def authenticate(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    is_probe = request.scope["path"] == "/v2/health/ready"
    if not is_probe and request.headers.get("authorization") != "please":
        return JSONResponse({"error": "say please"}, 401)
    return await call_next(request)
