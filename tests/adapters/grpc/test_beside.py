"""gRPC in an application beside what else is there: middleware, routes, other applications that speak gRPC, and a second server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request, Response
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware
from oip_asgi.grpc import OIPGRPCApp, TrailersMiddleware
from tests.support.asking import exactly
from tests.support.client import Client
from tests.support.grpc_asgi import GRPC, INFER, REFLECTION, STREAM, WEB, Got, call, frame
from tests.support.grpc_ways import SERVICE, wire_request
from tests.support.running import send
from tests.support.ways import Request as AnyRequest


async def pass_on(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    return await call_next(request)


def covered(server: InferenceServer) -> FastAPI:
    """An application with the protocol behind middleware that drops trailers, and reads what comes after the body."""
    app = FastAPI()
    OIPApp(server).install(app, "/v2", grpc=True)
    app.middleware("http")(pass_on)
    return app


def asked(model: str) -> bytes:
    return frame(wire_request(model).SerializeToString())


def test_a_quick_stream_behind_middleware_ends() -> None:
    """The body is said to have ended when the answer is on its way: the middleware raises, and loses that it is cancelled."""
    server = InferenceServer()

    @server.model("quick")
    async def quick() -> int:
        return 1

    async def main() -> None:
        for path, body in ((STREAM, asked("quick")), (REFLECTION, frame(b"\x3a\x00"))):
            got = await asyncio.wait_for(call(covered(server), path, body, ends=10**4), 20)
            assert (got.refusal, len(got.messages)) == (("OK", ""), 1)

    asyncio.run(main())
    server.stop()


@pytest.mark.parametrize("turns", range(5))
async def test_a_call_behind_middleware_ends_while_it_asks_for_the_client(turns: int) -> None:
    server, asks, done = InferenceServer(), asyncio.Event(), asyncio.Event()

    @server.model("held")
    async def held() -> int:
        await done.wait()
        return 1

    async def asking(scope: Any, receive: Any, send: Any) -> None:
        count = 0

        async def counted() -> Any:
            nonlocal count
            count += 1
            if count == 3:
                asks.set()
            return await receive()

        await covered(server)(scope, counted, send)

    calling = asyncio.ensure_future(call(asking, INFER, asked("held"), ends=10**4))
    await asks.wait()
    for _ in range(turns):
        await asyncio.sleep(0)
    done.set()
    got = await asyncio.wait_for(calling, 20)
    assert got.refusal == ("OK", "")


@pytest.mark.parametrize(("path", "ends"), [(INFER, 1), (STREAM, 1), (INFER, 5), (STREAM, 5)])
async def test_a_client_that_goes_behind_middleware(path: str, ends: int) -> None:
    server, begun, gone, cancelled = InferenceServer(), asyncio.Event(), asyncio.Event(), list[str]()

    @server.model("held")
    async def held() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append("held")
            raise

    calling = asyncio.ensure_future(call(covered(server), path, asked("held"), gone=gone, ends=ends))
    await begun.wait()
    gone.set()
    await asyncio.wait([calling], timeout=20)
    assert cancelled == ["held"]
    await asyncio.gather(calling, return_exceptions=True)


def mounted_behind(server: InferenceServer) -> Any:
    app = Starlette(middleware=[Middleware(BaseHTTPMiddleware, dispatch=pass_on)])
    app.mount(f"/{SERVICE}", OIPGRPCApp(server))
    return app


def inside(server: InferenceServer) -> Any:
    return FastAPI(middleware=[Middleware(BaseHTTPMiddleware, dispatch=pass_on), Middleware(OIPMiddleware, server=server, grpc=True)])


def outside(server: InferenceServer) -> Any:
    return FastAPI(middleware=[Middleware(OIPMiddleware, server=server, grpc=True), Middleware(BaseHTTPMiddleware, dispatch=pass_on)])


def rest_inside(server: InferenceServer) -> Any:
    rest, dropping = Middleware(OIPMiddleware, server=server), Middleware(BaseHTTPMiddleware, dispatch=pass_on)
    app = FastAPI(middleware=[rest, dropping])
    app.mount(f"/{SERVICE}", OIPGRPCApp(server))
    return app


def carried(server: InferenceServer) -> Any:
    return TrailersMiddleware(mounted_behind(server))


@pytest.mark.parametrize(
    ("make", "drops"), [(mounted_behind, True), (inside, True), (rest_inside, True), (outside, False), (carried, False), (covered, False)]
)
def test_middleware_that_drops_trailers_is_told_once(
    make: Callable[[InferenceServer], Any], drops: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = make(InferenceServer())
    web = asyncio.run(call(app, f"/{SERVICE}/ServerLive", frame(b""), WEB))
    logged = [record.getMessage() for record in caplog.records]
    assert (web.refusal, [text for text in logged if "trailers" in text]) == (("OK", ""), [])
    caplog.clear()
    for _ in range(2):
        got = live(app)
        assert (got.sent[-1]["type"] == "http.response.trailers") is not drops
    assert len(caplog.records) == drops
    assert all("write OIPApp(server).install(app, grpc=True)" in record.getMessage() for record in caplog.records)


async def other_grpc_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers every call with one message, and one in two by its head alone."""
    message = await receive()
    if scope["path"].endswith("Refused"):
        head = [(b"content-type", b"application/grpc"), (b"grpc-status", b"16")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/grpc")], "trailers": True})
    await send({"type": "http.response.body", "body": message["body"]})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]})


def test_other_applications_keep_their_trailers() -> None:
    def answered(method: str, *, grpc: bool) -> list[Any]:
        app, server = Starlette(), InferenceServer()
        OIPApp(server).install(app, "/v2", grpc=grpc)
        app.mount("/my.Other", other_grpc_app)
        return asyncio.run(call(app, f"/my.Other/{method}", frame(b"x"))).sent

    for method in ("Answered", "Refused"):
        assert answered(method, grpc=True) == answered(method, grpc=False)


@pytest.mark.parametrize("own", [JSONResponse({"error": "say please"}, 401), Response(headers={"grpc-status": "16"}, media_type=GRPC)])
def test_what_middleware_answers_instead_is_left_alone(own: Response) -> None:
    async def instead(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        await call_next(request)
        return own

    app = Starlette(middleware=[Middleware(BaseHTTPMiddleware, dispatch=instead)])
    OIPApp(InferenceServer()).install(app, "/v2", grpc=True)
    start, *rest = live(app).sent
    assert (start["status"], start["headers"], start.get("trailers")) == (own.status_code, own.raw_headers, None)
    assert {message["type"] for message in rest} == {"http.response.body"}


@pytest.mark.parametrize("app", [Starlette(), FastAPI(dependencies=[Depends(lambda: None)])], ids=["Starlette", "behind dependencies"])
def test_a_second_server_in_one_application_is_refused(app: Any) -> None:
    OIPApp(InferenceServer()).install(app, "/one", grpc=True)
    before = list(app.router.routes)
    text = (
        f"oip_asgi is there already, at /{SERVICE}, and answers /{SERVICE} too: "
        "leave grpc=True out, as an application has one server for gRPC"
    )
    with pytest.raises(ValueError, match=exactly(text)):
        OIPApp(InferenceServer()).install(app, "/two", grpc=True)
    assert app.router.routes == before
    OIPApp(InferenceServer()).install(app, "/two")


def page(_: Any) -> JSONResponse:
    return JSONResponse("the host's page")


def test_a_route_that_answers_in_the_place_of_grpc_is_refused() -> None:
    def installed(path: str, method: str) -> Starlette:
        app = Starlette(routes=[Route(path, page, methods=[method])])
        OIPApp(InferenceServer("demo")).install(app, "/models/v2", grpc=True)
        return app

    text = (
        f"the route '/{{tenant}}/{{page}}' comes first and answers everything under /{SERVICE} in the place of oip_asgi: "
        "add it after the install or mount of oip_asgi"
    )
    with pytest.raises(ValueError, match=exactly(text)):
        installed("/{tenant}/{page}", "POST")
    app = installed("/{tenant}/{page}", "GET")  # calls are never asked by GET
    assert live(app).refusal == ("OK", "")
    app.router.routes.insert(0, Route("/{tenant}/{page}", page, methods=["POST"]))
    with pytest.raises(ValueError, match=exactly(text)), Client(app):
        pass
    assert live(installed("/{a}/{b}/{c}/{d}", "POST")).refusal == ("OK", "")  # which no call matches


def test_an_application_that_has_answered_before() -> None:
    app = Starlette(routes=[Route("/", page)], middleware=[Middleware(BaseHTTPMiddleware, dispatch=pass_on)])
    assert asyncio.run(send(app, AnyRequest("GET", "/")))[0] == 200
    OIPApp(InferenceServer()).install(app, "/v2", grpc=True)
    assert live(app).refusal == ("OK", "")


def live(app: Any) -> Got:
    return asyncio.run(call(app, f"/{SERVICE}/ServerLive", frame(b"")))
