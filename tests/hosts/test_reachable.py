"""Routes of the host that would answer for the protocol, and a second install: what is said, and when."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route
from starlette.staticfiles import StaticFiles

from oip_asgi import InferenceServer, OIPApp
from tests.support.asking import exactly
from tests.support.client import Client

FIRST = (
    "comes first and answers everything under /v2 in the place of oip_asgi, health probes too: "
    "add it after the install or mount of oip_asgi"
)


def page(request: Any) -> PlainTextResponse:
    return PlainTextResponse("the host's page")


def fastapi_catch_all() -> FastAPI:
    app = FastAPI()

    @app.get("/{rest:path}")
    def rest(rest: str) -> str:
        return rest

    return app


def with_route(*routes: Any) -> Callable[[], Starlette]:
    return lambda: Starlette(routes=routes)


HIDING = {
    "/{rest:path}": fastapi_catch_all,
    "/{any:path}": with_route(Route("/{any:path}", page, methods=["POST"])),
    "/": with_route(Mount("/", StaticFiles(directory=str(Path(__file__).parent), html=True))),
    "/v2/{rest:path}": with_route(Route("/v2/{rest:path}", page)),
    "/{tenant}/{page}": with_route(Route("/{tenant}/{page}", page)),
}


@pytest.mark.parametrize("path", HIDING)
def test_a_route_that_answers_everything_is_refused_at_install(path: str) -> None:
    app = HIDING[path]()
    before = list(app.router.routes)
    with pytest.raises(ValueError, match=exactly(f"the route {path!r} {FIRST}")):
        OIPApp(InferenceServer()).install(app)
    assert app.router.routes == before


def test_a_router_that_answers_everything_is_refused_too() -> None:
    router, app = APIRouter(), FastAPI()
    router.add_api_route("/{rest:path}", lambda rest: rest)
    app.include_router(router)
    with pytest.raises(ValueError, match=rf"\A(an included router|the route '/\{{rest:path\}}') {re.escape(FIRST)}\Z"):
        OIPApp(InferenceServer()).install(app)


@pytest.mark.parametrize(
    "route",
    [
        Route("/", page),
        Route("/v2/health/ready", page),
        Route("/v2x/{rest:path}", page),
        Mount("/v", Starlette()),
        Host("a.example", Starlette()),
    ],
)
def test_other_routes_may_come_first(route: Any) -> None:
    app = Starlette(routes=[route])
    OIPApp(InferenceServer()).install(app)
    with Client(app) as client:
        assert client.get("/v2/models").json() == {"models": []}


@pytest.mark.parametrize("second", ["/v2", "/v2/", "/v2/more"])
def test_a_second_one_at_the_same_path_is_refused(second: str) -> None:
    app = Starlette()
    OIPApp(InferenceServer()).install(app, "/v2")
    with pytest.raises(
        ValueError, match=exactly(f"oip_asgi is there already, at /v2, and answers {second.rstrip('/')} too: leave one of the two out")
    ):
        OIPApp(InferenceServer()).install(app, second)


def test_a_route_that_came_before_it_later_is_refused_at_the_start() -> None:
    app = Starlette()
    OIPApp(InferenceServer()).install(app)
    app.router.routes.append(Route("/{rest:path}", page))  # behind it: fine
    with Client(app) as client:
        assert client.get("/v2/models").json() == {"models": []}
    app.router.routes.insert(0, Route("/{rest:path}", page))
    with pytest.raises(ValueError, match=exactly(f"the route '/{{rest:path}}' {FIRST}")), Client(app):
        pass


def test_a_mount_is_looked_at_when_the_servers_lifespan_is_the_hosts() -> None:
    server = InferenceServer()
    loaded: list[str] = []
    server.register("m", lambda x: x, load=lambda: loaded.append("m"))
    app = FastAPI(lifespan=server.lifespan)
    app.mount("/v2", OIPApp(server))
    with Client(app) as client:
        assert loaded == ["m"]
        assert client.get("/v2/models").json() == {"models": ["m"]}
    hidden = FastAPI(lifespan=server.lifespan, routes=[Route("/{rest:path}", page)])
    hidden.mount("/v2", OIPApp(server))
    with pytest.raises(ValueError, match=exactly(f"the route '/{{rest:path}}' {FIRST}")), Client(hidden):
        pass
