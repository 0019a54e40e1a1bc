"""Objects that are swapped, or not what an adapter takes, and HTTP exceptions of hosts that a model raises: what is said, and to whom."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Annotated, Any

import grpc
import httpx2
import prometheus_client
import pytest
import werkzeug.exceptions
from asgiref.compatibility import is_double_callable
from django.core.exceptions import PermissionDenied
from django.core.wsgi import get_wsgi_application
from django.http import Http404
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query
from flask import Flask, Response, abort
from litestar import Litestar
from litestar.exceptions import NotAuthorizedException
from quart import Quart
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Router
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import create_environ, run_wsgi_app

import oip_asgi.grpc
import oip_asgi.prometheus
from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPMiddleware, OIPWSGIApp, OIPWSGIMiddleware
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.asking import ask, error, exactly
from tests.support.client import Client
from tests.support.host_ways import configure_django
from tests.support.ways import Request, other_asgi_app, other_wsgi_app, ways_into
from tests.table.row import GOOD, inputs

SERVER: Any = InferenceServer()
FASTAPI: Any = FastAPI()
FLASK: Any = Flask(__name__)

FIRST = "(app, server), the application first"
MOUNTED = 'an InferenceServer is no application: write app.mount("/v2", OIPApp(server)), or OIPWSGIApp(server) for WSGI'
AROUND_ASGI, AROUND_WSGI = 'OIPMiddleware(app, server, "/v2")', 'OIPWSGIMiddleware(application, server, "/v2")'
FOR_FLASK = "app.register_blueprint(oip_asgi.flask.blueprint(server))"
WHOLE = 'write OIPApp(server).install(app, "/api/v2"), with the application itself and the whole path'
ADD = "add_to_server(server, grpc_server), the InferenceServer first"
OF_WSGI = "OIPWSGIApp is a WSGI application, and an ASGI server or application called it: write OIPApp(server)"
OF_ASGI = (
    "OIPApp is an ASGI application, and a WSGI server or application called it: write OIPWSGIApp(server). "
    "__call__() missing 1 required positional argument: 'send'"
)


def no_server(taker: str, given: str, written: str) -> str:
    return f"{taker} takes an InferenceServer, not {given}: write {written}"


def no_asgi(given: str, written: str) -> str:
    return f"{given} is a WSGI application, but this is for ASGI: write {written}"


def any_of(value: Any) -> Any:
    """A value of a type that mypy does not know, as users without mypy give it."""
    return value


def install_in(app: Any) -> Callable[[], Any]:
    return lambda: OIPApp(SERVER).install(app)


def no_install(given: str, instead: str) -> str:
    return f"install is for applications of Starlette and FastAPI, but this is {given}: {instead}"


def grpc_server() -> Any:
    return grpc.server(futures.ThreadPoolExecutor(1))


FOR_APP = 'OIPApp(server).install(app, "/v2"), or app.mount("/v2", OIPApp(server))'


def asked_in_starlette(mounted: Any) -> object:
    app = Starlette()
    app.mount("/v2", mounted)
    return Client(app).get("/v2/models")


def asked_by_werkzeug(application: Any) -> object:
    return run_wsgi_app(application, create_environ("/v2/models"))


def in_a_dispatcher(mounted: Any) -> Any:
    return DispatcherMiddleware(FLASK, {"/v2": mounted})


def check() -> None: ...


def with_dependencies(given: Any) -> Callable[[], Any]:
    return lambda: OIPApp(SERVER).install(FastAPI(), dependencies=given)


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: OIPApp(FASTAPI), no_server("OIPApp", "a FastAPI", FOR_APP)),
    (lambda: OIPApp(any_of(InferenceServer)), no_server("OIPApp", "the class InferenceServer", FOR_APP)),
    (lambda: OIPMiddleware(SERVER, FASTAPI), no_server("OIPMiddleware", "a FastAPI", f"OIPMiddleware{FIRST}")),
    (lambda: OIPMiddleware(FLASK, SERVER), no_asgi("a Flask", f"{FOR_FLASK}, or app.wsgi_app = OIPWSGIMiddleware(app.wsgi_app, server)")),
    (lambda: OIPMiddleware(any_of(OIPWSGIApp(SERVER)), SERVER), no_asgi("an OIPWSGIApp", AROUND_WSGI)),
    (lambda: OIPMiddleware(any_of(None), SERVER), f"a NoneType is no ASGI application: write OIPMiddleware{FIRST}"),
    (lambda: OIPMiddleware(any_of(FastAPI), SERVER), f"the class FastAPI is no ASGI application: write OIPMiddleware{FIRST}"),
    (lambda: OIPWSGIApp(FLASK), no_server("OIPWSGIApp", "a Flask", "OIPWSGIApp(server)")),
    (lambda: OIPWSGIMiddleware(SERVER, FLASK), no_server("OIPWSGIMiddleware", "a Flask", f"OIPWSGIMiddleware{FIRST}")),
    (lambda: OIPWSGIMiddleware(FASTAPI, SERVER), f"a FastAPI is an ASGI application, but this is for WSGI: write {AROUND_ASGI}"),
    (lambda: OIPWSGIMiddleware(any_of("app"), SERVER), f"a str is no WSGI application: write OIPWSGIMiddleware{FIRST}"),
    (lambda: blueprint(FLASK), no_server("blueprint", "a Flask", "app.register_blueprint(blueprint(server))")),
    (lambda: urls(FLASK), no_server("urls", "a Flask", 'path("v2", include(urls(server)))')),
    (install_in(FLASK), no_install("a Flask", f"for Flask, write {FOR_FLASK}")),
    (
        install_in(Quart(__name__)),
        no_install("a Quart", 'for Quart, write app.asgi_app = OIPMiddleware(app.asgi_app, server, "/v2")'),
    ),
    (install_in(Litestar([], logging_config=None)), no_install("a Litestar", f"for other ASGI applications, write {AROUND_ASGI}")),
    (install_in(APIRouter()), no_install("an APIRouter", WHOLE)),
    (install_in(Router()), no_install("a Router", WHOLE)),
    (install_in(other_asgi_app), no_install("a function", f"for other ASGI applications, write {AROUND_ASGI}")),
    (install_in(other_wsgi_app), no_install("a function", f"for WSGI applications, write {AROUND_WSGI}")),
    (install_in("/v2"), no_install("a str", 'write OIPApp(server).install(app, "/v2"), with the application itself')),
    (lambda: oip_asgi.grpc.add_to_server(grpc_server(), SERVER), no_server("add_to_server", "a _Server", ADD)),
    (
        lambda: oip_asgi.grpc.add_to_server(SERVER, FASTAPI),
        "add_to_server takes a server of grpc or grpc.aio, not a FastAPI: write add_to_server(server, grpc.aio.server())",
    ),
    (lambda: oip_asgi.grpc.OIPGRPCApp(FASTAPI), no_server("OIPGRPCApp", "a FastAPI", "OIPGRPCApp(server)")),
    (
        lambda: oip_asgi.prometheus.instrument(any_of(prometheus_client.REGISTRY), SERVER),
        no_server("instrument", "a CollectorRegistry", "instrument(server, registry)"),
    ),
    (lambda: SERVER({}, None, None), MOUNTED),
    (lambda: FLASK.register_blueprint(blueprint), f"the function blueprint is no blueprint: write {FOR_FLASK}"),
    (lambda: FLASK.register_blueprint(SERVER), f"an InferenceServer is no blueprint: write {FOR_FLASK}"),
    (lambda: OIPMiddleware(any_of(get_wsgi_application()), SERVER), no_asgi("a WSGIHandler", AROUND_WSGI)),
    (lambda: asked_in_starlette(SERVER), MOUNTED),
    (lambda: asked_by_werkzeug(in_a_dispatcher(SERVER)), MOUNTED),
    (lambda: asked_in_starlette(OIPWSGIApp(SERVER)), OF_WSGI),
    (lambda: any_of(OIPWSGIApp(SERVER))({"type": "http"}), OF_WSGI),  # as uvicorn calls it
    (lambda: asked_by_werkzeug(OIPApp(SERVER)), OF_ASGI),
    (lambda: asked_by_werkzeug(in_a_dispatcher(OIPApp(SERVER))), OF_ASGI),
    (with_dependencies([check]), "dependencies= has a function: write dependencies=[Depends(check)]"),
    (with_dependencies(check), "dependencies= is a function: write dependencies=[Depends(check)]"),
    (with_dependencies(Depends(check)), "dependencies= is a Depends: write dependencies=[Depends(check)]"),
]
configure_django()


@pytest.mark.parametrize(("make", "text"), WRONG, ids=[str(place) for place in range(len(WRONG))])
def test_wrong_objects_are_refused_at_once(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError, match=exactly(text)):
        make()


def test_servers_see_that_it_is_an_asgi_application() -> None:
    app = OIPApp(SERVER)
    assert inspect.iscoroutinefunction(app.__call__)  # uvicorn and Hypercorn ask this
    assert not is_double_callable(app)  # type: ignore[no-untyped-call]


def test_fastapi_has_no_module_of_its_own() -> None:
    import oip_asgi.fastapi

    text = 'FastAPI and Starlette have no module of their own: write from oip_asgi import OIPApp, and OIPApp(server).install(app, "/v2")'
    with pytest.raises(ImportError, match=exactly(text)):
        _ = oip_asgi.fastapi.install


def test_right_objects_of_odd_kinds_are_taken() -> None:
    class Server(InferenceServer):
        pass

    async def asked() -> None:
        async with Server().lifespan():
            pass

    OIPApp(Server())
    OIPMiddleware(lambda scope, receive, send: other_asgi_app(scope, receive, send), SERVER)
    OIPWSGIMiddleware(FLASK.wsgi_app, SERVER)
    OIPWSGIMiddleware(FLASK, SERVER)
    asyncio.run(asked())


def test_an_application_with_a_path_of_its_own_is_not_installed() -> None:
    text = 'path= is for an OIPApp that nothing mounts: write OIPApp(server).install(app, "/api")'
    with pytest.raises(ValueError, match=exactly(text)):
        OIPApp(SERVER, path="/api").install(FastAPI())


@pytest.mark.parametrize("mark", [Depends(lambda: "admin"), Query("admin"), Header("admin")], ids=["Depends", "Query", "Header"])
def test_what_a_route_of_fastapi_resolves_is_no_input_of_a_model(mark: Any) -> None:
    def by_default(x: list[float], user: str = mark) -> None: ...

    def by_annotation(x: list[float], user: str) -> None: ...

    by_annotation.__annotations__["user"] = Annotated[str, mark]
    for function in (by_default, by_annotation):
        with pytest.raises(
            TypeError, match=rf"parameter 'user' has {type(mark).__name__} of FastAPI, .* write install\(\.\.\., dependencies="
        ):
            InferenceServer().register("m", function)


class OfOurOwn(HTTPException):
    """A subclass, as applications have them."""


TOLD: list[tuple[Callable[[], Any], int, str]] = [
    (lambda: HTTPException(418, "short and stout"), 418, "short and stout"),
    (lambda: HTTPException(422, {"field": "x", "why": ["small"]}), 422, '{"field":"x","why":["small"]}'),
    (lambda: HTTPException(429), 429, "Too Many Requests"),
    (lambda: HTTPException(400, object()), 400, "status 400"),
    (lambda: OfOurOwn(410, "gone"), 410, "gone"),
    (lambda: StarletteHTTPException(503, "in the evening"), 503, "in the evening"),
    (lambda: werkzeug.exceptions.NotFound("no such user"), 404, "no such user"),
    (lambda: werkzeug.exceptions.TooManyRequests(), 429, werkzeug.exceptions.TooManyRequests.description),
    (lambda: abort(409, "twice"), 409, "twice"),
    (lambda: Http404("no such row"), 404, "no such row"),
    (lambda: PermissionDenied("not yours"), 403, "not yours"),
    (lambda: PermissionDenied(), 403, "status 403"),
    (lambda: NotAuthorizedException("who?"), 401, "who?"),
]


@pytest.mark.parametrize(("make", "status", "text"), TOLD, ids=[str(place) for place in range(len(TOLD))])
def test_its_status_and_text_reach_the_client(make: Callable[[], Any], status: int, text: str, caplog: pytest.LogCaptureFixture) -> None:
    def plain(x: Any) -> Any:
        raise make()

    async def awaited(x: Any) -> Any:
        raise make()

    def generator(x: Any) -> Iterator[Any]:
        if x is not None:
            raise make()
        yield x

    server = InferenceServer()
    for action, function in (("infer", plain), ("infer", awaited), ("infer_stream", generator)):
        caplog.clear()
        server.register("m", function)
        assert error(ways_into(server)["OIPApp"](Request("POST", f"/models/m/{action}", (), inputs(GOOD)))) == (status, text)
        logged = [record.levelno for record in caplog.records if record.name == "oip_asgi" and record.levelno >= logging.ERROR]
        assert logged == ([logging.ERROR] if status >= 500 else [])  # what the client did is no failure of the model
        server.unregister_sync("m")
    server.stop()


def raising(make: Callable[[], Any]) -> InferenceServer:
    server = InferenceServer()

    @server.model("m")
    def m() -> Any:
        raise make()

    return server


def test_in_python_and_headers_that_fit_are_sent() -> None:
    with pytest.raises(InferenceError) as raised:
        raising(lambda: OfOurOwn(410, "gone")).infer_sync("m", {})
    assert (raised.value.status, str(raised.value), raised.value.grpc_code) == (410, "gone", "INVALID_ARGUMENT")
    answer = ask(raising(lambda: HTTPException(401, "who?", {"WWW-Authenticate": "Basic", "Retry-After": "5"})), "m")
    assert (answer.status, answer.headers["retry-after"]) == (401, "5")
    assert error(ask(raising(lambda: HTTPException(401, "who?", {"Content-Length": "5"})), "m")) == (401, "who?")


def redirect() -> Any:
    return HTTPException(307, "elsewhere", {"Location": "/"})


def whole_response() -> Any:
    return werkzeug.exceptions.Forbidden(response=Response("a page"))


def of_a_client() -> Any:
    return httpx2.HTTPStatusError("404 Not Found", request=httpx2.Request("GET", "http://a"), response=httpx2.Response(404))


HOW = ': to answer the client with a status, raise oip_asgi.InferenceError("what was wrong", status=404)'


@pytest.mark.parametrize("make", [redirect, whole_response, of_a_client])
def test_what_is_no_plain_error_is_logged_with_what_to_raise(make: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    assert error(ask(raising(make), "m")) == (500, "model 'm' failed: see the server's log")
    [record] = [record for record in caplog.records if record.name == "oip_asgi"]
    assert record.getMessage() == f"model 'm' failed on a request{HOW}"
