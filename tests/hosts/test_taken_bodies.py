"""Something of the application has read the body first: one answer, at once, in every host; and what looks at the body afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponseBase
from django.test import override_settings
from django.urls import include, path
from fastapi import Depends, FastAPI, Form, Request
from flask import Flask, request
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from werkzeug.test import EnvironBuilder, run_wsgi_app

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.host_ways import configure_django, staying
from tests.support.talk import Talk
from tests.support.ways import Request as Sent
from tests.support.ways import Way, over_asgi, over_wsgi, send_asgi
from tests.table.row import ECHOED, GOOD, Row, answer, infer, inputs, table_server
from tests.table.taken_rows import TAKEN, kept_rows, taken_rows

FORM = ("content-type", "application/x-www-form-urlencoded")
"""What `curl -d` sends."""
PARTS = ("content-type", "multipart/form-data; boundary=x")
BODY = inputs(GOOD)


async def read_stream(request: Request) -> None:
    async for _ in request.stream():
        pass


async def read_a_part(request: Request) -> None:
    async for _ in request.stream():
        break


async def drop_a_message(request: Request) -> None:
    await request.is_disconnected()


async def read_body(request: Request) -> None:
    await request.body()


async def read_form(request: Request) -> None:
    await request.form()


async def read_body_and_form(request: Request) -> None:
    await request.body()
    await request.form()


def take_form(token: str = Form("")) -> None: ...


def ask_in_time(app: Any) -> Way:
    """A request that waited for a body would wait for ever."""
    return lambda request: asyncio.run(asyncio.wait_for(send_asgi(app, request, "/v2"), 20))


def fastapi_dependency(read: Callable[..., Any], server: InferenceServer) -> Way:
    app = FastAPI()
    OIPApp(server).install(app, dependencies=[Depends(read)])
    return ask_in_time(app)


def with_middleware(kind: Callable[[], Any], read: Callable[[Request], Any], server: InferenceServer) -> Way:
    class Count(BaseHTTPMiddleware):
        async def dispatch(self, request: Any, call_next: Any) -> Any:
            await read(request)
            return await call_next(request)

    app = kind()
    app.add_middleware(Count)
    OIPApp(server).install(app)
    return ask_in_time(app)


def flask_before(read: Callable[[], object], server: InferenceServer) -> Way:
    app = Flask(__name__)
    app.register_blueprint(blueprint(server))

    def check_token() -> None:
        read()

    app.before_request(check_token)
    return over_wsgi(app, "/v2")


_django: dict[str, Callable[[HttpRequest], object]] = {}
"""What the middleware calls before the view and after it."""


def look(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        _django["before"](request)
        response = get_response(request)
        _django["after"](request)
        return response

    return middleware


@contextmanager
def django_ways(server: InferenceServer) -> Iterator[list[Way]]:
    """Django under both its handlers, with middleware that looks at each request."""
    configure_django()
    pattern: Any = path("v2", include(urls(server)))
    _django.update(before=lambda _: None, after=lambda _: None)
    middleware = [*settings.MIDDLEWARE, f"{__name__}.look"]
    with override_settings(ROOT_URLCONF=(pattern,), MIDDLEWARE=middleware):
        yield [over_wsgi(get_wsgi_application(), "/v2"), over_asgi(staying(get_asgi_application()), "/v2")]
    server.stop()


def write_log(name: str, instead: str) -> str:
    did = "has read the body of a request before oip_asgi could, so the answer is 500"
    return f"{name} {did}: write {instead} there first, which keeps the body"


IN_STARLETTE, IN_FLASK = "await request.body()", "request.get_data()"
CASES: dict[str, tuple[Callable[[InferenceServer], Way], tuple[str, str], str]] = {
    "FastAPI, stream()": (partial(fastapi_dependency, read_stream), FORM, write_log("the dependency read_stream", IN_STARLETTE)),
    "FastAPI, is_disconnected()": (
        partial(fastapi_dependency, drop_a_message),
        FORM,
        write_log("the dependency drop_a_message", IN_STARLETTE),
    ),
    "FastAPI, form()": (partial(fastapi_dependency, read_form), FORM, write_log("the dependency read_form", IN_STARLETTE)),
    "FastAPI, Form": (partial(fastapi_dependency, take_form), FORM, write_log("the dependency take_form", IN_STARLETTE)),
    "middleware of FastAPI, stream()": (
        partial(with_middleware, FastAPI, read_stream),
        FORM,
        write_log("the middleware Count", IN_STARLETTE),
    ),
    "middleware of Starlette, form()": (
        partial(with_middleware, Starlette, read_form),
        FORM,
        write_log("the middleware Count", IN_STARLETTE),
    ),
    **{
        f"Flask, {name}": (partial(flask_before, read), FORM, write_log("the function of before_request check_token", IN_FLASK))
        for name, read in {
            "form": lambda: request.form,
            "values": lambda: request.values,
            "stream": lambda: request.stream.read(),
            "get_data": lambda: request.get_data(cache=False),
        }.items()
    },
}
KEPT: dict[str, tuple[Callable[[InferenceServer], Way], tuple[str, str]]] = {
    "FastAPI, body()": (partial(fastapi_dependency, read_body), FORM),
    "FastAPI, body() and form()": (partial(fastapi_dependency, read_body_and_form), FORM),
    "middleware of Starlette, body()": (partial(with_middleware, Starlette, read_body), FORM),
    "middleware of Starlette, body() and form()": (partial(with_middleware, Starlette, read_body_and_form), FORM),
    "Flask, get_data()": (partial(flask_before, lambda: request.get_data()), FORM),
    "Flask, get_data() and form": (partial(flask_before, lambda: (request.get_data(), request.form)), FORM),
    "Flask, form of another type": (partial(flask_before, lambda: request.form), ("content-type", "application/json")),
}


def check(row: Row, way: Way) -> None:
    found = way(row.request)
    assert found.status == row.status, found.body
    if row.status == 200:
        assert found.body == row.body
    else:
        document = json.loads(found.body)
        assert list(document) == ["error"]
        assert all(part in document["error"] for part in row.text)


@pytest.mark.parametrize("name", CASES)
def test_a_body_that_is_read_first_is_500_at_once_and_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, content_type, text = CASES[name]
    calls: list[str] = []
    way = make(table_server(calls))
    for row in taken_rows(content_type):
        caplog.clear()
        check(row, way)
        assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == [text] * (row.status == 500)
    assert not calls


@pytest.mark.parametrize("name", KEPT)
def test_a_body_that_is_kept_is_read_again(name: str) -> None:
    make, content_type = KEPT[name]
    way = make(table_server([]))
    for row in kept_rows(content_type):
        check(row, way)


def short(rows: Iterator[Row]) -> Iterator[Row]:
    """Rows that Django itself does not refuse: what it parses as parts of a form has short heads."""
    return (row for row in rows if len(row.request.body) < 1000 or PARTS not in row.request.headers)


READ_IN_DJANGO: list[Any] = [
    (lambda request: request.POST, PARTS),
    (lambda request: request.FILES, PARTS),
    (lambda request: request.read(), FORM),
    (lambda request: request.read(5), FORM),
]


@pytest.mark.parametrize(("read", "content_type"), READ_IN_DJANGO, ids=["POST", "FILES", "read()", "read(5)"])
def test_middleware_of_django_that_reads_the_body_first(
    read: Callable[[HttpRequest], object], content_type: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    with django_ways(table_server(calls)) as ways:
        _django["before"] = read
        for way in ways:
            for row in short(taken_rows(content_type)):
                caplog.clear()
                check(row, way)
                text = write_log("middleware of the application", "request.body")
                assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == [text] * (row.status == 500)
    assert not calls


@pytest.mark.parametrize(
    ("read", "content_type"),
    [(lambda request: request.body, PARTS), (lambda request: (request.body, request.POST), PARTS), (lambda request: request.POST, FORM)],
    ids=["body", "body and POST", "POST of another type"],
)
def test_middleware_of_django_that_keeps_the_body(read: Callable[[HttpRequest], object], content_type: tuple[str, str]) -> None:
    with django_ways(table_server([])) as ways:
        _django["before"] = read
        for way in ways:
            for row in short(kept_rows(content_type)):
                check(row, way)


def test_a_chunked_body_that_a_dependency_has_read() -> None:
    app, server = FastAPI(), table_server([])
    OIPApp(server).install(app, dependencies=[Depends(read_stream)])
    for headers, status in (((b"transfer-encoding", b"chunked"), 500), ((b"x-none", b""), 200)):
        scope: Any = {"method": "POST", "headers": [headers], "query_string": b"", "http_version": "1.1"}

        async def ask(scope: Any = scope) -> int:
            return (await Talk(server, app=app, path="/v2/repository/index", body=b"", **scope).answer())[0]

        assert asyncio.run(ask()) == status


def test_a_chunked_body_of_which_a_dependency_has_read_a_part(caplog: pytest.LogCaptureFixture) -> None:
    """The rest is no JSON, which is not the client's fault."""
    app = FastAPI()
    OIPApp(table_server([])).install(app, dependencies=[Depends(read_a_part)])
    sent = Sent("POST", "/models/echo/infer", [("transfer-encoding", "chunked")], BODY)
    found = asyncio.run(asyncio.wait_for(send_asgi(app, sent, "/v2", chunk=20), 20))
    assert (found.status, json.loads(found.body)) == (500, {"error": TAKEN})
    assert caplog.messages == [write_log("the dependency read_a_part", IN_STARLETTE)]


def test_several_are_named_together(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI(dependencies=[Depends(read_stream)])
    OIPApp(table_server([])).install(app, dependencies=[Depends(take_form)])
    assert over_asgi(app, "/v2")(infer("echo", BODY)).status == 500
    assert caplog.messages == [write_log("one of the dependencies read_stream, take_form", IN_STARLETTE)]


def test_grpc_behind_a_dependency_that_reads() -> None:
    app = FastAPI()
    OIPApp(table_server([])).install(app, grpc=True, dependencies=[Depends(read_stream)])
    for method in ("ModelInfer", "ModelStreamInfer"):
        sent = Sent("POST", f"/inference.GRPCInferenceService/{method}", [("content-type", "application/grpc-web+proto")], bytes(5))
        found = asyncio.run(asyncio.wait_for(send_asgi(app, sent), 10))
        assert b"grpc-status:13\r\n" in found.body
        assert b"something of the application has read the body" in found.body


def test_a_client_of_flask_that_goes_is_not_taken_for_a_reader(caplog: pytest.LogCaptureFixture) -> None:
    """gunicorn ends the stream in order when the client has gone, and promises to end it, so that werkzeug does not count."""
    app = Flask(__name__)
    app.register_blueprint(blueprint(table_server([])))
    app.before_request(lambda: None)
    for length in (len(BODY) + 10, 17_000):
        environ = EnvironBuilder(path="/v2/models/echo/infer", method="POST", data=BODY).get_environ()
        body, status, _ = run_wsgi_app(app, {**environ, "CONTENT_LENGTH": str(length), "wsgi.input_terminated": True})
        assert status == "400 BAD REQUEST"
        assert json.loads(b"".join(body)) == {"error": f"the body ended after {len(BODY)} bytes: expected {length}"}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_after_request_of_flask_sees_the_body() -> None:
    app, seen = Flask(__name__), list[bytes]()
    app.register_blueprint(blueprint(table_server([])))

    @app.after_request
    def note(response: Any) -> Any:
        seen.append(request.get_data())
        return response

    way, long = over_wsgi(app, "/v2"), BODY.ljust(18_000)
    for body in (BODY, long):
        assert way(infer("echo", body)).body == answer("echo", ECHOED)
    assert way(infer("nobody", BODY)).status == 404
    assert seen == [BODY, long, BODY]


def test_middleware_of_django_sees_the_body_after_the_view() -> None:
    calls, seen = list[str](), list[bytes]()
    with django_ways(table_server(calls)) as ways:
        _django["after"] = lambda request: seen.append(request.body)
        for way in ways:
            for body in (BODY, BODY.ljust(18_000)):
                assert way(infer("echo", body)).body == answer("echo", ECHOED)
            assert way(infer("nobody", BODY)).status == 404
    assert seen == [BODY, BODY.ljust(18_000), BODY] * 2
    assert calls == ["echo"] * 4


def test_djangos_own_limit_is_for_the_body_that_it_keeps() -> None:
    """Middleware could not look at such a body before the view either."""
    with django_ways(table_server([])) as ways, override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10):
        for way in ways:
            assert way(infer("echo", BODY)).body == answer("echo", ECHOED)
