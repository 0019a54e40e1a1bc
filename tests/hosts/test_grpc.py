"""gRPC and gRPC-Web in Litestar and Quart, behind their middleware: asked through a real server, by grpcio and over HTTP/1.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import httpx2
import numpy as np
import pytest
from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult
from litestar.middleware.session.server_side import ServerSideSessionConfig
from quart import Quart
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import PlainTextResponse

from oip_asgi import InferenceContext, InferenceServer, OIPMiddleware
from tests.support.grpc_asgi import WEB, frame, frames_of
from tests.support.grpc_ways import MESSAGES, SERVICE, Client, wire_request
from tests.support.host_ways import litestar_with_grpc
from tests.support.threads import behind_hypercorn

INFER = f"/{SERVICE}/ModelInfer"
FOUR_FLOATS = np.arange(4, dtype="<f4").tobytes()
ECHO = wire_request("echo", [{"name": "x", "datatype": "FP32", "shape": [4]}], [FOUR_FLOATS])
PLEASE = ("authorization", "please")
PAGE = "https://page.example"

Make = Callable[[InferenceServer], Any]
"""From a server to the application of a host around it."""


def quart(server: InferenceServer) -> Quart:
    app = Quart(__name__)
    app.asgi_app = OIPMiddleware(app.asgi_app, server, grpc=True)  # type: ignore[assignment]  # as Quart's documentation has it
    return app


def is_refused(header: str | None) -> bool:
    return header != PLEASE[1]


class Authentication(AbstractAuthenticationMiddleware):
    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        if is_refused(connection.headers.get(PLEASE[0])):
            raise NotAuthorizedException("say please")
        return AuthenticationResult(user="ada", auth=None)


def litestar_middleware(server: InferenceServer) -> Any:
    return litestar_with_grpc(server, middleware=[Authentication])


def litestar_guard(server: InferenceServer) -> Any:
    def refuse(connection: Any, handler: Any) -> None:
        if is_refused(connection.headers.get(PLEASE[0])):
            raise NotAuthorizedException("say please")

    return litestar_with_grpc(server, guards=[refuse])


def litestar_middleware_inside(server: InferenceServer) -> Any:
    return OIPMiddleware(Litestar([], logging_config=None, middleware=[Authentication]), server, grpc=True)


def quart_middleware(server: InferenceServer) -> Any:
    app: Any = quart(server)
    inner = app.asgi_app

    async def authenticate(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and is_refused(dict(scope["headers"]).get(b"authorization", b"").decode()):
            await PlainTextResponse("say please", 401)(scope, receive, send)
        else:
            await inner(scope, receive, send)

    app.asgi_app = authenticate
    return app


def quart_before_request(server: InferenceServer) -> Any:
    app = quart(server)

    @app.before_request
    async def refuse() -> tuple[str, int]:
        return "say please", 401

    return app


def ask_web(address: str, *headers: tuple[str, str]) -> httpx2.Response:
    body = frame(ECHO.SerializeToString())
    return httpx2.post(f"http://{address}{INFER}", content=body, headers=[("content-type", WEB), *headers], verify=False)


def contents(message: bytes) -> list[bytes]:
    return list(MESSAGES["ModelInferResponse"].FromString(message).raw_output_contents)


def assert_answered(web: httpx2.Response) -> None:
    [(_, message), trailers] = frames_of(web.content)
    assert (web.status_code, contents(message), trailers) == (200, [FOUR_FLOATS], (0x80, b"grpc-status:0\r\n"))


@pytest.mark.parametrize(
    ("make", "covers"),
    [
        (litestar_middleware, True),
        (litestar_guard, True),
        (litestar_middleware_inside, False),
        (quart_middleware, True),
        (quart_before_request, False),
    ],
)
def test_what_covers_grpc(make: Make, covers: bool) -> None:
    calls, server = list[str](), InferenceServer()

    @server.model("echo")
    def echo(x: np.ndarray) -> np.ndarray:
        calls.append("echo")
        return x

    with behind_hypercorn(make(server)) as address:
        client = Client(address)
        with client.channel:
            if covers:
                assert client.refusal("ModelInfer", ECHO)[0] == "UNAUTHENTICATED"
                assert ask_web(address).status_code == 401
            else:
                assert list(client.ask("ModelInfer", ECHO).raw_output_contents) == [FOUR_FLOATS]
                assert_answered(ask_web(address))
            assert calls == ([] if covers else ["echo"] * 2)
            assert list(client.ask("ModelInfer", ECHO, metadata=[PLEASE]).raw_output_contents) == [FOUR_FLOATS]
            assert_answered(ask_web(address, PLEASE))
            assert client.refusal("ModelInfer", wire_request("nope"), metadata=[PLEASE])[0] == "NOT_FOUND"


def around_quart(server: InferenceServer, middleware: Any, **options: Any) -> Any:
    app: Any = quart(server)
    app.asgi_app = middleware(app.asgi_app, **options)
    return app


FOR_PAGES: Any = {"allow_origins": [PAGE], "allow_methods": ["POST"]}
WITH_CORS: list[Make] = [
    lambda server: litestar_with_grpc(server, cors_config=CORSConfig(**FOR_PAGES)),
    lambda server: around_quart(server, CORSMiddleware, allow_headers=["x-grpc-web"], **FOR_PAGES),
]
WITH_SESSIONS: list[Make] = [
    lambda server: litestar_with_grpc(server, middleware=[ServerSideSessionConfig().middleware]),
    lambda server: around_quart(server, SessionMiddleware, secret_key="tests"),
]


@pytest.mark.parametrize("make", WITH_CORS, ids=["Litestar", "Quart"])
def test_cors_for_pages_that_ask_over_grpc_web(make: Make) -> None:
    server = InferenceServer()
    server.register("echo", lambda x: x)
    with behind_hypercorn(make(server)) as address:
        asks = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "content-type,x-grpc-web"}
        preflight = httpx2.options(f"http://{address}{INFER}", headers=asks, verify=False)
        assert preflight.is_success
        assert preflight.headers["access-control-allow-origin"] == PAGE
        assert "POST" in preflight.headers["access-control-allow-methods"]
        web = ask_web(address, ("origin", PAGE), ("x-grpc-web", "1"))
        assert web.headers["access-control-allow-origin"] == PAGE
        assert_answered(web)
        assert "access-control-allow-origin" not in ask_web(address, ("origin", "https://other.example")).headers
        client = Client(address)
        with client.channel:
            assert list(client.ask("ModelInfer", ECHO).raw_output_contents) == [FOUR_FLOATS]


@pytest.mark.parametrize("make", WITH_SESSIONS, ids=["Litestar", "Quart"])
def test_a_model_has_the_session_of_its_client(make: Make) -> None:
    server = InferenceServer()

    @server.model("visits")
    def visits(context: InferenceContext) -> int:
        session = context.transport["session"]
        session["visits"] = session.get("visits", 0) + 1
        return int(session["visits"])

    def ask(channel: grpc.Channel, cookie: str) -> tuple[int, str]:
        """How many visits there were, and the cookie that names the session."""
        message = wire_request("visits").SerializeToString()
        method: Any = channel.unary_unary(INFER)
        answer, call = method.with_call(message, metadata=[("cookie", cookie)], timeout=30)
        [number] = contents(answer)
        cookies = dict(call.initial_metadata()).get("set-cookie", cookie)
        return int.from_bytes(number, "little"), cookies.partition(";")[0]

    with behind_hypercorn(make(server)) as address, grpc.insecure_channel(address) as channel:
        first, cookie = ask(channel, "")
        second, cookie = ask(channel, cookie)
        assert (first, second, ask(channel, "")[0], ask(channel, cookie)[0]) == (1, 2, 1, 3)
