"""Where the protocol may be mounted in Starlette, FastAPI, Litestar, Quart, Flask and Django, and what stays the host's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urljoin

import numpy as np
import pytest
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path
from fastapi import FastAPI, HTTPException
from flask import Blueprint, Flask
from litestar import Litestar, get
from quart import Quart
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware, OIPWSGIApp, OIPWSGIMiddleware
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.host_ways import configure_django, flask_app, litestar_mounted, quart_app, staying
from tests.support.ways import EXTENSIONS, Answer, Request, Way, over_asgi, over_wsgi
from tests.table.row import ECHOED, GOOD, answer, infer, inputs


def named(name: str) -> InferenceServer:
    server = InferenceServer(name, "1")
    server.register("echo", lambda x: {"x": x})
    server.register("org/model", lambda x: {"x": x})
    return server


def is_server(found: Answer, name: str) -> bool:
    return found.status == 200 and found.body == f'{{"name":"{name}","version":"1","extensions":{EXTENSIONS}}}'.encode()


def installed(make_app: Callable[[], Any], mount: str) -> Any:
    app = make_app()
    OIPApp(named("one")).install(app, mount)
    return app


def nested(inner: str, outer: str) -> Starlette:
    """An application in an application in an application."""
    app = installed(Starlette, inner)
    return Starlette(routes=[Mount(outer, Starlette(routes=[Mount("/sub", app)]))])


def cut_off(app: Any) -> Any:
    """A server that is told of a root path which its proxy has taken out of the path already, as Hypercorn's --root-path."""

    async def with_root_path(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": "/api"}, receive, send)

    return with_root_path


ASGI_MOUNTS: dict[str, tuple[Callable[[], Any], str, str]] = {
    # application, prefix of the requests, root path of the server
    "Starlette /v2": (lambda: installed(Starlette, "/v2"), "/v2", ""),
    "Starlette /v2/": (lambda: installed(Starlette, "/v2/"), "/v2", ""),
    "Starlette /": (lambda: installed(Starlette, "/"), "", ""),
    "Starlette /ml/v2": (lambda: installed(Starlette, "/ml/v2"), "/ml/v2", ""),
    "Starlette nested": (lambda: nested("/v2", "/ml"), "/ml/sub/v2", ""),
    "Starlette nested /": (lambda: nested("/", "/ml"), "/ml/sub", ""),
    "Starlette behind a root path": (lambda: installed(Starlette, "/v2"), "/v2", "/api"),
    "Starlette nested behind a root path": (lambda: nested("/v2", "/v2"), "/v2/sub/v2", "/v2"),
    "FastAPI /v2": (lambda: installed(FastAPI, "/v2"), "/v2", ""),
    "FastAPI /": (lambda: installed(FastAPI, "/"), "", ""),
    "FastAPI /ml/v2": (lambda: installed(FastAPI, "/ml/v2"), "/ml/v2", ""),
    "FastAPI behind a root path": (lambda: installed(FastAPI, "/v2"), "/v2", "/api"),
    "FastAPI behind a root path that a proxy cut off": (lambda: cut_off(installed(FastAPI, "/v2")), "/v2", ""),
    "middleware /ml/v2": (lambda: OIPMiddleware(FastAPI(), named("one"), "/ml/v2"), "/ml/v2", ""),
    "middleware /": (lambda: OIPMiddleware(FastAPI(), named("one"), "/"), "", ""),
    "middleware behind a root path": (lambda: OIPMiddleware(FastAPI(), named("one")), "/v2", "/api"),
    "Litestar mount": (lambda: litestar_mounted(named("one")), "/v2", ""),
    "Litestar middleware": (lambda: OIPMiddleware(Litestar([], logging_config=None), named("one"), "/ml/v2"), "/ml/v2", ""),
    "Quart": (lambda: quart_app(named("one")), "/v2", ""),
}


def dispatched(mount: str) -> Any:
    return DispatcherMiddleware(Flask(__name__), {mount: OIPWSGIApp(named("one"))})


def nested_blueprint() -> Flask:
    parent = Blueprint("ml", __name__, url_prefix="/ml")
    parent.register_blueprint(blueprint(named("one")))
    return flask_app(parent)


WSGI_MOUNTS: dict[str, tuple[Callable[[], Any], str]] = {
    "Flask /v2": (lambda: flask_app(blueprint(named("one"))), "/v2"),
    "Flask /v2/": (lambda: flask_app(blueprint(named("one"), url_prefix="/v2/")), "/v2"),
    "Flask /": (lambda: flask_app(blueprint(named("one"), url_prefix="/")), ""),
    "Flask /ml/v2": (lambda: flask_app(blueprint(named("one"), url_prefix="/ml/v2")), "/ml/v2"),
    "Flask nested": (nested_blueprint, "/ml/v2"),
    "Flask in a dispatcher": (lambda: DispatcherMiddleware(Flask(__name__), {"/api": flask_app(blueprint(named("one")))}), "/api/v2"),
    "dispatcher": (lambda: dispatched("/ml/v2"), "/ml/v2"),
    "middleware": (lambda: OIPWSGIMiddleware(Flask(__name__), named("one"), "/ml/v2"), "/ml/v2"),
}


def asgi_mount(name: str) -> tuple[Way, str]:
    make_app, prefix, root_path = ASGI_MOUNTS[name]
    return over_asgi(make_app(), prefix, root_path=root_path), prefix


def wsgi_mount(name: str) -> tuple[Way, str]:
    make_app, prefix = WSGI_MOUNTS[name]
    return over_wsgi(make_app(), prefix), prefix


MOUNTS: dict[str, Callable[[], tuple[Way, str]]] = {
    **{name: partial(asgi_mount, name) for name in ASGI_MOUNTS},
    **{name: partial(wsgi_mount, name) for name in WSGI_MOUNTS},
}


@pytest.mark.parametrize("make", MOUNTS.values(), ids=MOUNTS)
def test_mounted_anywhere(make: Callable[[], tuple[Way, str]]) -> None:
    way, prefix = make()
    if prefix and prefix != "/ml/sub":  # Starlette redirects the bare path of a mount, as that one is
        assert is_server(way(Request("GET", "")), "one")
    assert is_server(way(Request("GET", "/")), "one")
    assert way(Request("GET", "/models/org%2Fmodel")).status == 200
    found = way(infer("echo", inputs(GOOD)))
    assert (found.status, found.body) == (200, answer("echo", ECHOED))
    assert way(Request("GET", "/health/ready/")).body == b'{"ready":true,"live":true}'
    assert way(Request("DELETE", "/models")).status == 405


FASTAPI_S_OWN = {"FastAPI /"}
"""Where `/docs` and `/openapi.json` are FastAPI's own, which is the host's right."""


@pytest.mark.parametrize("name", sorted(MOUNTS.keys() - FASTAPI_S_OWN))
def test_documents_name_the_mount_as_clients_see_it(name: str) -> None:
    way, prefix = MOUNTS[name]()
    root_path = ASGI_MOUNTS[name][2] if name in ASGI_MOUNTS else ""
    in_front = "/api" if "cut off" in name else root_path
    for document in ("/openapi.json", "/openapi.json/", "/models/org%2Fmodel/openapi.json"):
        assert json.loads(way(Request("GET", document)).body)["servers"] == [{"url": in_front + prefix or "/"}]


@pytest.mark.parametrize("name", sorted(MOUNTS.keys() - FASTAPI_S_OWN))
def test_the_page_finds_its_files_anywhere(name: str) -> None:
    way, _ = MOUNTS[name]()
    for page in ("/docs", "/docs/"):
        text = way(Request("GET", page)).body.decode()
        [script] = re.findall('<script type="module" src="([^"]+)">', text)
        assert urljoin(f"http://host/mount{page}", script) == "http://host/mount/docs/page.js"


@pytest.mark.parametrize("name", [name for name, (_, prefix, _) in ASGI_MOUNTS.items() if prefix])
def test_a_longer_word_is_not_under_the_mount(name: str) -> None:
    make_app, prefix, root_path = ASGI_MOUNTS[name]
    found = over_asgi(make_app(), f"{prefix}x", root_path=root_path)(Request("GET", "/health/live"))
    assert found.status == 404
    assert found.body != b'{"live":true}'


@pytest.mark.parametrize("name", [name for name, (_, prefix) in WSGI_MOUNTS.items() if prefix])
def test_a_longer_word_is_not_under_the_mount_of_wsgi(name: str) -> None:
    make_app, prefix = WSGI_MOUNTS[name]
    assert over_wsgi(make_app(), f"{prefix}x")(Request("GET", "/health/live")).status == 404


def test_a_mount_needs_a_slash() -> None:
    for attempt in (
        lambda: OIPApp(named("one")).install(Starlette(), "v2"),
        lambda: OIPApp(named("one")).install(Starlette(), named("one")),  # type: ignore[arg-type]
        lambda: OIPMiddleware(Starlette(), named("one"), "v2"),
        lambda: OIPWSGIMiddleware(Flask(__name__), named("one"), "v2"),
        lambda: flask_app(blueprint(named("one"), url_prefix="v2")),
    ):
        with pytest.raises(ValueError, match='must begin with a slash, such as "/v2"'):
            attempt()


@pytest.mark.parametrize(("proxied", "root"), [(lambda app: app, ""), (cut_off, "/api")])
@pytest.mark.parametrize(("mount", "path"), [("/v2", "/v2"), ("/ml", "/ml/v2")])
@pytest.mark.parametrize("make", [Starlette, FastAPI])
def test_a_mount_of_an_application_with_a_path(make: Any, mount: str, path: str, proxied: Callable[[Any], Any], root: str) -> None:
    app = make()
    app.mount(mount, OIPApp(named("one"), path=path))
    way = over_asgi(proxied(app), "")
    assert is_server(way(Request("GET", mount + path)), "one")
    why = f"as OIPApp(server, path='{path}') is mounted at {mount}: path= is for an OIPApp that nothing mounts"
    found = way(Request("GET", f"{mount}/models"))
    assert (found.status, json.loads(found.body)) == (
        404,
        {"error": f"unknown path '{root}{mount}/models': everything is under {root}{mount}{path}, {why}"},
    )


def test_the_root_path_of_a_proxy_is_no_mount() -> None:
    found = over_asgi(cut_off(OIPApp(named("one"), path="/api")), "")(Request("GET", "/models"))
    assert json.loads(found.body) == {"error": "unknown path '/api/models': everything is under /api/api"}


def two_starlette() -> dict[str, Way]:
    app = Starlette()
    for name in ("one", "two"):
        OIPApp(named(name)).install(app, f"/{name}/v2")
    return {name: over_asgi(app, f"/{name}/v2") for name in ("one", "two")}


def two_middlewares() -> dict[str, Way]:
    app: Any = Starlette()
    for name in ("one", "two"):
        app = OIPMiddleware(app, named(name), f"/{name}/v2")
    return {name: over_asgi(app, f"/{name}/v2") for name in ("one", "two")}


def two_flask() -> dict[str, Way]:
    app = flask_app(*(blueprint(named(name), name, f"/{name}/v2") for name in ("one", "two")))
    return {name: over_wsgi(app, f"/{name}/v2") for name in ("one", "two")}


@pytest.mark.parametrize("make", [two_starlette, two_middlewares, two_flask])
def test_several_servers_in_one_application(make: Callable[[], dict[str, Way]]) -> None:
    for name, way in make().items():
        assert is_server(way(Request("GET", "")), name)
        assert way(infer("echo", inputs(GOOD))).status == 200


def test_several_servers_in_one_django_project() -> None:
    configure_django()
    patterns: Any = [path(f"{name}/v2", include(urls(named(name)))) for name in ("one", "two")]
    with override_settings(ROOT_URLCONF=tuple(patterns)):
        for name in ("one", "two"):
            assert is_server(over_wsgi(get_wsgi_application(), f"/{name}/v2")(Request("GET", "")), name)
            assert is_server(over_asgi(staying(get_asgi_application()), f"/{name}/v2")(Request("GET", "/")), name)


def starlette_host() -> Way:
    async def hello(request: StarletteRequest) -> PlainTextResponse:
        return PlainTextResponse(f"hello from {request.url.path}")

    async def not_found(request: StarletteRequest, error: Exception) -> PlainTextResponse:
        return PlainTextResponse("the host's own 404", 404)

    app = Starlette(routes=[Route("/hello", hello)], exception_handlers={404: not_found})
    OIPApp(named("one")).install(app)
    return over_asgi(app, "")


def fastapi_host() -> Way:
    app = FastAPI()

    @app.get("/hello")
    async def hello() -> Any:
        return PlainTextResponse("hello from /hello")

    @app.exception_handler(404)
    async def not_found(request: StarletteRequest, error: HTTPException) -> PlainTextResponse:
        return PlainTextResponse("the host's own 404", 404)

    OIPApp(named("one")).install(app)
    assert list(app.openapi()["paths"])[:2] == ["/hello", "/v2"]
    return over_asgi(app, "")


def litestar_host() -> Way:
    @get("/hello", media_type="text/plain", sync_to_thread=False)
    def hello() -> str:
        return "hello from /hello"

    def not_found(request: Any, error: Exception) -> Any:
        from litestar import Response

        return Response("the host's own 404", status_code=404, media_type="text/plain")

    return over_asgi(OIPMiddleware(Litestar([hello], logging_config=None, exception_handlers={404: not_found}), named("one")), "")


def quart_host() -> Way:
    app = Quart(__name__)

    @app.get("/hello")
    async def hello() -> str:
        return "hello from /hello"

    @app.errorhandler(404)
    async def not_found(error: Exception) -> tuple[str, int]:
        return "the host's own 404", 404

    app.asgi_app = OIPMiddleware(app.asgi_app, named("one"))  # type: ignore[assignment]
    return over_asgi(staying(app), "")


def flask_host() -> Way:
    app = Flask(__name__)

    @app.get("/hello")
    def hello() -> str:
        return "hello from /hello"

    @app.errorhandler(404)
    def not_found(error: Exception) -> tuple[str, int]:
        return "the host's own 404", 404

    app.register_blueprint(blueprint(named("one")))
    return over_wsgi(app, "")


@pytest.mark.parametrize("make", [starlette_host, fastapi_host, litestar_host, quart_host, flask_host])
def test_the_host_keeps_its_own(make: Callable[[], Way]) -> None:
    way = make()
    assert way(Request("GET", "/hello")).body == b"hello from /hello"
    for elsewhere in ("/nowhere", "/v2x", "/v"):
        found = way(Request("GET", elsewhere))
        assert (found.status, found.body) == (404, b"the host's own 404")
    # ours are ours: a client of the protocol reads {"error": ...} only
    assert way(Request("GET", "/v2/models/nope")).body.startswith(b'{"error":"Request for unknown model: ')
    assert way(Request("GET", "/v2/nowhere")).body.startswith(b'{"error":"unknown path')


def test_django_keeps_its_own() -> None:
    configure_django()

    def hello(request: HttpRequest) -> HttpResponse:
        return HttpResponse(f"hello from {request.path}", content_type="text/plain")

    patterns: Any = [path("hello", hello), path("v2", include(urls(named("one")))), path("v2x", hello)]
    with override_settings(ROOT_URLCONF=tuple(patterns)):
        for way in (over_wsgi(get_wsgi_application(), ""), over_asgi(staying(get_asgi_application()), "")):
            assert way(Request("GET", "/hello")).body == b"hello from /hello"
            assert way(Request("GET", "/v2x")).body == b"hello from /v2x"
            found = way(Request("GET", "/v"))
            assert (found.status, found.headers["content-type"]) == (404, "text/html; charset=utf-8")
            assert way(Request("GET", "/v2/models/nope")).body.startswith(b'{"error":"Request for unknown model: ')
            over_post = way(Request("POST", "/hello", body=b"x"))
            assert over_post.status == 403  # CSRF protection is off for our view only


def test_arrays_of_one_request_do_not_reach_the_other() -> None:
    app = Starlette()
    servers = {name: InferenceServer(name) for name in ("one", "two")}
    for factor, (name, server) in enumerate(servers.items(), 2):
        server.register("times", lambda x, factor=np.float32(factor): x * factor)
        OIPApp(server).install(app, f"/{name}")
    for factor, name in enumerate(servers, 2):
        found = over_asgi(app, f"/{name}")(infer("times", inputs(GOOD)))
        assert f'"data":[{factor}.0,{2 * factor}.0]'.encode() in found.body
