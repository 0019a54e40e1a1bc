"""Which of a host's means to keep people out covers /v2, and which does not: the README's table.

Dependencies of FastAPI are in test_dependencies.py, hooks around Flask's blueprint in test_flask.py, and gRPC in test_grpc.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi import FastAPI
from flask import Flask
from litestar.exceptions import NotAuthorizedException
from quart import Quart
from starlette.applications import Starlette
from starlette.authentication import AuthenticationBackend, AuthenticationError
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware, OIPWSGIMiddleware
from tests.support.host_ways import litestar_mounted
from tests.support.ways import Way, over_asgi, over_wsgi
from tests.table.row import GOOD, infer, inputs


class Nobody(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> None:
        raise AuthenticationError("nobody gets in")


def starlette_middleware(server: InferenceServer) -> Way:
    def refuse(conn: HTTPConnection, error: Exception) -> Response:
        return PlainTextResponse("nobody gets in", 401)

    app = Starlette(middleware=[Middleware(AuthenticationMiddleware, backend=Nobody(), on_error=refuse)])
    OIPApp(server).install(app)
    return over_asgi(app, "/v2")


def fastapi_middleware(server: InferenceServer) -> Way:
    app = FastAPI()
    OIPApp(server).install(app)

    @app.middleware("http")
    async def refuse(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Response:
        return PlainTextResponse("nobody gets in", 401)

    return over_asgi(app, "/v2")


def litestar_guard(server: InferenceServer) -> Way:
    def refuse(connection: Any, handler: Any) -> None:
        raise NotAuthorizedException("nobody gets in")

    return over_asgi(litestar_mounted(server, guards=[refuse]), "/v2")


def quart_before_request(server: InferenceServer) -> Way:
    app = Quart(__name__)

    @app.before_request
    async def refuse() -> tuple[str, int]:
        return "nobody gets in", 401

    app.asgi_app = OIPMiddleware(app.asgi_app, server)  # type: ignore[assignment]
    return over_asgi(app, "/v2")


def flask_before_request_and_middleware(server: InferenceServer) -> Way:
    app = Flask(__name__)

    @app.before_request
    def refuse() -> tuple[str, int]:
        return "nobody gets in", 401

    return over_wsgi(OIPWSGIMiddleware(app, server), "/v2")


@pytest.mark.parametrize(
    ("make", "covers"),
    [
        (starlette_middleware, True),
        (fastapi_middleware, True),
        (litestar_guard, True),
        (quart_before_request, False),
        (flask_before_request_and_middleware, False),
    ],
)
def test_what_covers_v2(make: Callable[[InferenceServer], Way], covers: bool) -> None:
    calls: list[str] = []
    server = InferenceServer()

    @server.model("echo")
    def echo(x: Any) -> Any:
        calls.append("echo")
        return x

    found = make(server)(infer("echo", inputs(GOOD)))
    assert found.status == (401 if covers else 200)
    assert calls == ([] if covers else ["echo"])
