"""Routes: what middleware of the host finds at the paths of the protocol, what would answer in their place, what stands in front."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.test import override_settings
from django.urls import include, resolve
from django.urls import path as django_path
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi.openapi.utils import get_openapi
from flask import Flask
from flask import request as flask_request
from litestar import Litestar
from litestar.middleware import DefineMiddleware
from quart import Quart
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Host, Match, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from werkzeug.middleware.proxy_fix import ProxyFix

from oip_asgi import InferenceContext, InferenceServer, OIPApp, OIPMiddleware, OIPWSGIMiddleware
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.asking import exactly
from tests.support.client import Client
from tests.support.host_ways import configure_django
from tests.support.ways import Request, other_wsgi_app, over_wsgi
from tests.table.row import ECHOED, GOOD, answer, inputs

FOUND = {
    "/v2": ("/v2", "server"),
    "/v2/health/live": ("/v2/health/live", "health_live"),
    "/v2/health/ready": ("/v2/health/ready", "health_ready"),
    "/v2/models": ("/v2/models", "models"),
    "/v2/models/echo": ("/v2/models/{name}", "model"),
    "/v2/models/echo/versions/1": ("/v2/models/{name}/versions/{version}", "model"),
    "/v2/models/echo/versions/1/infer": ("/v2/models/{name}/versions/{version}/infer", "model_infer"),
    **{
        f"/v2/models/echo/{action}": (f"/v2/models/{{name}}/{action}", f"model_{action.replace('.', '_')}")
        for action in ("ready", "infer", "infer_stream", "generate", "stats", "config", "openapi.json")
    },
    "/v2/repository/index": ("/v2/repository/index", "repository_index"),
    "/v2/repository/models/echo/load": ("/v2/repository/models/{name}/load", "repository_model_load"),
    "/v2/systemsharedmemory/region/r/status": ("/v2/systemsharedmemory/region/{name}/status", "systemsharedmemory_region_status"),
    "/v2/docs": ("/v2/docs", "docs"),
    # what no template takes
    **{
        f"/v2{path}": ("/v2/{oip_path:path}", "other")
        for path in ("/docs/page.js", "/", "/nothing", "/models/echo/infer/", "/models/org/echo/infer")
    },
}
GRPC_FOUND = {
    "/inference.GRPCInferenceService/ModelInfer": ("/inference.GRPCInferenceService/ModelInfer", "ModelInfer"),
    "/inference.GRPCInferenceService/ModelStreamInfer": ("/inference.GRPCInferenceService/ModelStreamInfer", "ModelStreamInfer"),
    "/grpc.health.v1.Health/Check": ("/grpc.health.v1.Health/Check", "Check"),
    "/grpc.health.v1.Health/Chec": ("/grpc.health.v1.Health/{oip_path:path}", "other"),
    "/grpc.health.v1.Health": ("/grpc.health.v1.Health", "other"),
}


def make_server() -> InferenceServer:
    server = InferenceServer()
    server.register("echo", lambda x: {"x": x})

    @server.model("scope")
    def scope(context: InferenceContext) -> list[str]:
        scope = context.transport
        return [scope["endpoint"].__name__, scope["root_path"], str(StarletteRequest(scope).url_for("page"))]

    return server


def page(request: Any) -> PlainTextResponse:
    return PlainTextResponse("the host's page")


def install(app: Any, **options: Any) -> Any:
    app.add_route("/page", page)
    OIPApp(make_server()).install(app, **options)
    return app


def list_matching(app: Any, path: str) -> list[Any]:
    scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "headers": [], "app": app}
    return [route for route in app.routes if route.matches(scope)[0] is Match.FULL]


HOSTS: dict[str, Callable[[], Any]] = {
    "Starlette": lambda: install(Starlette(), grpc=True),
    "FastAPI": lambda: install(FastAPI(), grpc=True),
    "FastAPI with dependencies": lambda: install(FastAPI(dependencies=[Depends(lambda: None)]), grpc=True, public=["health"]),
}


@pytest.mark.parametrize("make", HOSTS.values(), ids=HOSTS)
def test_each_endpoint_has_a_template_and_a_function_with_a_name(make: Callable[[], Any]) -> None:
    app = make()
    found = {path: [(route.path, route.endpoint.__name__) for route in list_matching(app, path)] for path in FOUND | GRPC_FOUND}
    # slowapi counts for the last route that matches, others name a request by the first
    assert found == {path: [expected] for path, expected in (FOUND | GRPC_FOUND).items()}
    [route] = list_matching(app, "/v2/models/echo/infer")
    assert (route.endpoint.__module__, route.name) == ("oip_asgi", "oip:model_infer")
    # inference is asked first
    ours = [route.path for route in app.routes if getattr(getattr(route, "endpoint", None), "__module__", "") == "oip_asgi"]
    assert ours[:2] == ["/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"]
    assert ours[2] == "/inference.GRPCInferenceService/ModelInfer"


@pytest.mark.parametrize("make", [HOSTS["Starlette"], HOSTS["FastAPI"]])
def test_a_router_may_make_routes_anew_from_their_endpoints(make: Callable[[], Any]) -> None:
    """As FastAPI does where an application's router is included in another's."""
    routes = [route for route in make().routes if type(route) is Route]
    again = Starlette(routes=[Route(route.path, route.endpoint, methods=list(route.methods or ())) for route in routes])
    client = Client(again)
    found = client.post("/v2/models/echo/infer", content=inputs(GOOD))
    assert (found.status_code, found.content) == (200, answer("echo", ECHOED))
    assert [client.get(path).status_code for path in ("/v2", "/v2/health/live/", "/v2/nothing")] == [200, 200, 404]


@pytest.mark.parametrize("make", HOSTS.values(), ids=HOSTS)
def test_what_a_model_finds_in_the_scope_and_what_the_host_finds_afterwards(make: Callable[[], Any]) -> None:
    app, seen = make(), list[Any]()

    async def around(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        seen.append((scope["route"].path, scope["endpoint"].__name__, scope.get("root_path"), scope["path_params"]))

    found = Client(around).post("/v2/models/scope/infer", content=b'{"inputs":[]}')
    assert found.json()["outputs"][0]["data"] == ["model_infer", "/v2", "http://testserver/page"]
    assert seen == [("/v2/models/{name}/infer", "model_infer", "", {"name": "scope"})]


def test_flask_has_a_rule_and_a_view_with_a_name_for_each_endpoint() -> None:
    app = Flask(__name__)
    app.register_blueprint(blueprint(make_server(), public=["health"]))
    found = {}
    for path in FOUND:
        with app.test_request_context(path, method="POST"):
            assert flask_request.url_rule is not None
            assert flask_request.endpoint is not None
            found[path] = flask_request.url_rule.rule, flask_request.endpoint
            view = app.view_functions[flask_request.endpoint]
            assert f"{view.__module__}.{view.__name__}" == f"oip_asgi.{FOUND[path][1]}"
    assert found == {
        path: (
            template.replace("{oip_path:path}", "<oip_anything:oip_path>").replace("{", "<").replace("}", ">"),
            f"{'oip_public' if '/health/' in path or path.endswith('/ready') else 'oip'}.{name}",
        )
        for path, (template, name) in FOUND.items()
    }


@pytest.mark.parametrize("prefix", ["v2", "v2/", "<slug:tenant>/v2"])
@pytest.mark.parametrize("is_async", [False, True])
def test_django_has_a_route_and_a_view_with_a_name_for_each_endpoint(prefix: str, is_async: bool) -> None:
    configure_django()
    patterns = (django_path(prefix, include(urls(make_server(), public=["health"]))),)
    asked = {
        f"/ann{path}" if "tenant" in prefix else path: path
        for path in FOUND
        if prefix != "v2/" or path not in ("/v2", "/v2/", "/v2/nothing")
    }

    def find() -> dict[str, tuple[str, str]]:
        return {path: (match.route, f"{match.func.__module__}.{match.func.__name__}") for path in asked for match in [resolve(path)]}

    async def find_on_loop() -> dict[str, tuple[str, str]]:
        return find()

    with override_settings(ROOT_URLCONF=patterns):
        found = asyncio.run(find_on_loop()) if is_async else find()
    assert found == {
        path: (
            FOUND[of][0]
            .replace("/v2", prefix.removesuffix("/"), 1)
            .replace("{oip_path:path}", "<path:path>")
            .replace("{", "<")
            .replace("}", ">"),
            f"oip_asgi.{FOUND[of][1]}",
        )
        for path, of in asked.items()
    }


def test_the_hosts_routes_may_come_later_and_a_server_without_pages_has_none_for_them() -> None:
    app = Starlette()
    OIPApp(InferenceServer(docs=False)).install(app)
    app.add_route("/page", page)
    with Client(app) as client:
        assert app.routes[0].path == "/page"  # type: ignore[attr-defined]  # it does not wait for ours
        assert client.get("/v2/models").status_code == 200
    assert {route.path for path in ("/v2/docs", "/v2/openapi.json") for route in list_matching(app, path)} == {"/v2/{oip_path:path}"}
    app.add_route("/{rest:path}", page)  # it stays after ours
    with Client(app) as client:
        assert (client.get("/any").text, client.get("/v2/models").status_code) == ("the host's page", 200)


@pytest.mark.parametrize("dependencies", [[], [Depends(lambda: None)]])
@pytest.mark.parametrize("prefix", ["/{version}/v2", "/{name:int}/{version}/{path}/v2"])
def test_a_path_with_parameters_even_of_our_own_names(prefix: str, dependencies: list[Any]) -> None:
    app, server = FastAPI(), InferenceServer()
    server.register("m", lambda x: x, version="2")
    OIPApp(server).install(app, prefix, dependencies=dependencies)
    client, mount = Client(app), "/3/9/x/v2" if "name" in prefix else "/9/v2"
    paths = ("", "/", "/models/m/versions/2", "/models/m/versions/9", "/models/m/", "/no")
    assert [client.get(f"{mount}{path}").status_code for path in paths] == [200, 200, 200, 404, 200, 404]
    assert client.get(f"{mount}/no").json()["error"].startswith(f"unknown path '{mount}/no': expected {mount}/health/live, ")


class Forgetful(Router):
    """A router whose list of routes is another one each time, as that of Cadwyn was."""

    @property
    def routes(self) -> list[BaseRoute]:
        return list(self._kept)

    @routes.setter
    def routes(self, routes: Sequence[BaseRoute]) -> None:
        self._kept = list(routes)


def test_routes_that_are_not_kept_are_refused_at_the_install_or_at_the_start() -> None:
    app = Starlette()
    app.router = Forgetful()
    text = "a Forgetful does not keep the route '/v2/models/{name}/infer': put OIPMiddleware around the application"
    with pytest.raises(ValueError, match=exactly(text)):
        OIPApp(InferenceServer()).install(app)
    app = Starlette()
    OIPApp(InferenceServer()).install(app)
    app.router.routes = [route for route in app.router.routes if getattr(route, "path", "") != "/v2/health/ready"]
    text = "the route '/v2/health/ready' of oip_asgi is no longer there: install it after what makes the list of routes anew"
    with pytest.raises(ValueError, match=exactly(text)), Client(app):
        pass


def test_the_document_comes_from_what_the_application_has_when_it_starts() -> None:
    app = FastAPI()
    for mount in ("/v2", "/more/v2"):
        OIPApp(make_server()).install(app, mount)
    for _ in range(2):
        app.openapi = lambda: get_openapi(title="custom", version="1", routes=app.routes)  # type: ignore[method-assign]
        with Client(app) as client:
            document = client.get("/openapi.json").json()
        assert document["info"]["title"] == "custom"
        assert {"/v2/models/echo/infer", "/more/v2/models/echo/infer"} <= document["paths"].keys()


@pytest.mark.parametrize("middleware", ["SlowAPIMiddleware", "SlowAPIASGIMiddleware"])
@pytest.mark.parametrize("kind", [Starlette, FastAPI])
def test_the_limits_of_slowapi(kind: Any, middleware: str) -> None:
    slowapi, with_limits = pytest.importorskip("slowapi"), pytest.importorskip("slowapi.middleware")
    app = kind()
    app.state.limiter = slowapi.Limiter(key_func=lambda: "anybody", default_limits=["2/minute"])
    app.add_middleware(getattr(with_limits, middleware))
    OIPApp(make_server()).install(app, grpc=True)
    client = Client(app)
    # another spelling is no way around it
    for path, status in (("/v2/models/echo/infer", 200), ("/v2", 405), ("/v2/models/echo/infer/", 200)):
        assert [client.post(path, content=inputs(GOOD)).status_code for _ in range(3)] == [status, status, 429], path


def test_the_names_of_spans_and_metrics() -> None:
    otel = pytest.importorskip("opentelemetry.instrumentation.fastapi")
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider, app = InMemorySpanExporter(), trace.TracerProvider(), FastAPI()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    OIPApp(make_server()).install(app)
    otel.FastAPIInstrumentor.instrument_app(app, tracer_provider=provider, exclude_spans=["receive", "send"])
    client = Client(app)
    for path in ("/v2/health/ready", "/v2/models/echo", "/v2/nothing"):
        client.get(path)
    client.post("/v2/models/echo/infer", content=inputs(GOOD))
    names = {"GET /v2/health/ready", "GET /v2/models/{name}", "GET /v2/{oip_path:path}", "POST /v2/models/{name}/infer"}
    assert {span.name for span in exporter.get_finished_spans()} >= names


def refuse() -> None:
    raise HTTPException(401, "no")


@pytest.mark.parametrize("options", [{}, {"dependencies": [Depends(refuse)], "public": ["health"], "grpc": True}], ids=["plain", "guarded"])
def test_cadwyn(options: dict[str, Any]) -> None:
    cadwyn = pytest.importorskip("cadwyn")
    app = cadwyn.Cadwyn(versions=cadwyn.VersionBundle(cadwyn.Version("2026-01-01")))
    OIPApp(make_server()).install(app, **options)
    live = ("/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerMetadata")
    headers = {"content-type": "application/grpc-web+proto"}
    with Client(app) as client:
        found = [client.get(path).status_code for path in ("/v2/health/ready", "/v2", "/v2/nothing")]
        found += [client.post(path, content=bytes(5), headers=headers).status_code for path in live]
    assert found == ([200, 401, 401, 200, 401] if options else [200, 200, 404, 404, 404])


FIRST = (
    "comes first and answers everything under /v2 in the place of oip_asgi, health probes too: "
    "add it after the install or mount of oip_asgi"
)


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
    app.router.routes.append(Route("/{rest:path}", page))  # after it: fine
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


configure_django()

QUART: Any = Quart("x").asgi_app
GZIP: Any = GZipMiddleware
INSTALL = 'write OIPApp(server).install(app, "/v2")'


def fastapi() -> Any:
    app = FastAPI()
    app.add_middleware(CORSMiddleware)

    @app.middleware("http")
    async def check_key(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    return app


def added_last() -> Any:
    app = fastapi()
    app.add_middleware(OIPMiddleware, server=InferenceServer())
    return app


def added_first() -> Any:
    app = Starlette()
    app.add_middleware(OIPMiddleware, server=InferenceServer())
    app.add_middleware(CORSMiddleware)
    return app


CASES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "FastAPI": (lambda: OIPMiddleware(fastapi(), InferenceServer()), "check_key, CORSMiddleware", INSTALL),
    "FastAPI, added last": (added_last, "check_key, CORSMiddleware", INSTALL),
    "Starlette, added first": (added_first, "", ""),
    "Starlette": (lambda: OIPMiddleware(Starlette(), InferenceServer()), "", ""),
    "Quart": (lambda: OIPMiddleware(QUART, InferenceServer()), "", ""),
    "around Quart": (lambda: OIPMiddleware(GZipMiddleware(QUART), InferenceServer()), "GZipMiddleware", "put it around OIPMiddleware"),
    "Litestar": (
        lambda: OIPMiddleware(Litestar([], middleware=[DefineMiddleware(GZIP)], logging_config=None), InferenceServer()),
        "GZipMiddleware",
        'mount OIPApp(server) with @asgi("/v2", is_mount=True, copy_scope=False)',
    ),
    "Django": (
        lambda: OIPMiddleware(ASGIHandler(), InferenceServer()),
        "django.middleware.common.CommonMiddleware",
        'write path("v2", include(oip_asgi.django.urls(server)))',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_once(case: str, caplog: pytest.LogCaptureFixture) -> None:
    make, named, advice = CASES[case]
    with override_settings(MIDDLEWARE=["django.middleware.common.CommonMiddleware"]):
        client = Client(make())
        assert [client.get("/v2").status_code, client.get("/v2/health/live").status_code] == [200, 200]
    expected = f"OIPMiddleware answers /v2 before this middleware, which does not see it: {named}. If it should, {advice}"
    assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == ([expected] if named else [])


def test_functions_of_flask_are_named_too(caplog: pytest.LogCaptureFixture) -> None:
    app = Flask("x")
    served = OIPWSGIMiddleware(ProxyFix(app.wsgi_app), InferenceServer(), "/api/v2")

    @app.before_request
    def check_key() -> None:
        raise AssertionError("nobody calls it")

    ask = over_wsgi(served, "/api/v2")
    assert [ask(Request("GET", path)).status for path in ("", "/health/live")] == [200, 200]
    assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == [
        "OIPWSGIMiddleware answers /api/v2 before these functions of before_request, which do not see it: check_key. If they should, write "
        'app.register_blueprint(oip_asgi.flask.blueprint(server, url_prefix="/api/v2"))'
    ]


@pytest.mark.parametrize("app", [Flask("x").wsgi_app, Flask("x"), other_wsgi_app])
def test_without_functions_nothing_is_said(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert over_wsgi(OIPWSGIMiddleware(app, InferenceServer()), "/v2")(Request("GET", "")).status == 200
    assert caplog.records == []
