"""Where the protocol may be mounted in Starlette, FastAPI, Litestar, Quart, Flask and Django, and what stays the host's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin

import pytest
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import include, path
from fastapi import FastAPI
from flask import Blueprint, Flask
from litestar import Litestar, Response, get
from quart import Quart
from starlette.applications import Starlette
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
    "dispatcher": (lambda: DispatcherMiddleware(Flask(__name__), {"/ml/v2": OIPWSGIApp(named("one"))}), "/ml/v2"),
    "middleware": (lambda: OIPWSGIMiddleware(Flask(__name__), named("one"), "/ml/v2"), "/ml/v2"),
    "middleware /v2/": (lambda: OIPWSGIMiddleware(Flask(__name__), named("one"), "/v2/"), "/v2"),
    "middleware /": (lambda: OIPWSGIMiddleware(Flask(__name__), named("one"), "/"), ""),
}


@pytest.mark.parametrize("name", [*ASGI_MOUNTS, *WSGI_MOUNTS])
def test_mounted_anywhere(name: str) -> None:
    if name in ASGI_MOUNTS:
        make_app, prefix, root_path = ASGI_MOUNTS[name]
        app = make_app()
        way, beside = (over_asgi(app, under, root_path=root_path) for under in (prefix, f"{prefix}x"))
    else:
        make_wsgi_app, prefix = WSGI_MOUNTS[name]
        app, root_path = make_wsgi_app(), ""
        way, beside = (over_wsgi(app, under) for under in (prefix, f"{prefix}x"))
    if prefix and prefix != "/ml/sub":  # Starlette redirects the bare path of a mount, as that one is
        assert is_server(way(Request("GET", "")), "one")
    assert is_server(way(Request("GET", "/")), "one")
    assert way(Request("GET", "/models/org%2Fmodel")).status == 200
    found = way(infer("echo", inputs(GOOD)))
    assert (found.status, found.body) == (200, answer("echo", ECHOED))
    assert way(Request("GET", "/health/ready/")).body == b'{"ready":true,"live":true}'
    assert way(Request("DELETE", "/models")).status == 405
    if prefix:
        found = beside(Request("GET", "/health/live"))
        assert (found.status, found.body != b'{"live":true}') == (404, True)
    if name == "FastAPI /":  # where `/docs` and `/openapi.json` are FastAPI's own, which is the host's right
        return
    in_front = "/api" if "cut off" in name else root_path
    for document in ("/openapi.json", "/openapi.json/", "/models/org%2Fmodel/openapi.json"):
        assert json.loads(way(Request("GET", document)).body)["servers"] == [{"url": in_front + prefix or "/"}]
    for page in ("/docs", "/docs/"):
        [script] = re.findall('<script type="module" src="([^"]+)">', way(Request("GET", page)).body.decode())
        assert urljoin(f"http://host/mount{page}", script) == "http://host/mount/docs/page.js"


def test_a_mount_needs_a_slash() -> None:
    for attempt in (
        lambda: OIPApp(named("one")).install(Starlette(), "v2"),
        lambda: OIPApp(named("one")).install(Starlette(), named("one")),  # type: ignore[arg-type]
        lambda: OIPMiddleware(Starlette(), named("one"), "v2"),
        lambda: OIPApp(named("one"), path="v2"),
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


@contextmanager
def several(kind: str) -> Iterator[dict[str, Way]]:
    names, app = ("one", "two"), Starlette()
    if kind == "middleware":
        around: Any = app
        for name in names:
            around = OIPMiddleware(around, named(name), f"/{name}/v2")
        yield {name: over_asgi(around, f"/{name}/v2") for name in names}
    elif kind == "Flask":
        flask = flask_app(*(blueprint(named(name), name, f"/{name}/v2") for name in names))
        yield {name: over_wsgi(flask, f"/{name}/v2") for name in names}
    elif kind == "Starlette":
        for name in names:
            OIPApp(named(name)).install(app, f"/{name}/v2")
        yield {name: over_asgi(app, f"/{name}/v2") for name in names}
    else:
        configure_django()
        with override_settings(ROOT_URLCONF=tuple(path(f"{name}/v2", include(urls(named(name)))) for name in names)):
            wsgi, asgi = get_wsgi_application(), staying(get_asgi_application())
            yield {name: over_wsgi(wsgi, f"/{name}/v2") if kind == "Django, WSGI" else over_asgi(asgi, f"/{name}/v2") for name in names}


@pytest.mark.parametrize("kind", ["Starlette", "middleware", "Flask", "Django, WSGI", "Django, ASGI"])
def test_several_servers_in_one_application(kind: str) -> None:
    with several(kind) as ways:
        for name, way in ways.items():
            assert is_server(way(Request("GET", "")), name)
            assert way(infer("echo", inputs(GOOD))).status == 200


HELLO, NOT_FOUND = "hello from /hello", "the host's own 404"


def starlette_host(kind: Any = Starlette) -> Way:
    async def hello(request: Any) -> PlainTextResponse:
        return PlainTextResponse(HELLO)

    async def not_found(request: Any, error: Exception) -> PlainTextResponse:
        return PlainTextResponse(NOT_FOUND, 404)

    app = kind(routes=[Route("/hello", hello)], exception_handlers={404: not_found})
    OIPApp(named("one")).install(app)
    return over_asgi(app, "")


def litestar_host() -> Way:
    @get("/hello", media_type="text/plain", sync_to_thread=False)
    def hello() -> str:
        return HELLO

    def not_found(request: Any, error: Exception) -> Any:
        return Response(NOT_FOUND, status_code=404, media_type="text/plain")

    return over_asgi(OIPMiddleware(Litestar([hello], logging_config=None, exception_handlers={404: not_found}), named("one")), "")


def quart_host() -> Way:
    async def hello() -> str:
        return HELLO

    async def not_found(error: Exception) -> tuple[str, int]:
        return NOT_FOUND, 404

    app = Quart(__name__)
    app.add_url_rule("/hello", view_func=hello)
    app.register_error_handler(404, not_found)
    app.asgi_app = OIPMiddleware(app.asgi_app, named("one"))  # type: ignore[assignment]
    return over_asgi(staying(app), "")


def flask_host(*, is_around: bool = False) -> Way:
    app = Flask(__name__)
    app.add_url_rule("/hello", view_func=lambda: HELLO)
    app.register_error_handler(404, lambda error: (NOT_FOUND, 404))
    if is_around:
        return over_wsgi(OIPWSGIMiddleware(app, named("one")), "")
    app.register_blueprint(blueprint(named("one")))
    return over_wsgi(app, "")


@pytest.mark.parametrize(
    "make",
    [starlette_host, lambda: starlette_host(FastAPI), litestar_host, quart_host, flask_host, lambda: flask_host(is_around=True)],
)
def test_the_host_keeps_its_own(make: Callable[[], Way]) -> None:
    way = make()
    assert way(Request("GET", "/hello")).body == HELLO.encode()
    for elsewhere in ("/nowhere", "/v2x", "/v"):
        found = way(Request("GET", elsewhere))
        assert (found.status, found.body) == (404, NOT_FOUND.encode())
    # ours are ours: a client of the protocol reads {"error": ...} only
    assert way(Request("GET", "/v2/models/nope")).body.startswith(b'{"error":"Request for unknown model: ')
    assert way(Request("GET", "/v2/nowhere")).body.startswith(b'{"error":"unknown path')
