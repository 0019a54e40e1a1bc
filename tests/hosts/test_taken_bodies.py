"""Something of the application has read the body first: one answer, at once, in every host; and what looks at the body afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponseBase
from django.test import override_settings
from django.urls import include, path
from fastapi import Depends, FastAPI, Form, Request
from flask import request
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from werkzeug.test import EnvironBuilder, run_wsgi_app

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.host_ways import configure_django, flask_app, staying
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
    app = flask_app(blueprint(server))

    def check_token() -> None:
        read()

    app.before_request(check_token)
    return over_wsgi(app, "/v2")


_django: dict[str, Callable[[HttpRequest], object]] = {}
"""What the middleware calls before the view and after it."""


def look(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
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


def write_log(name: str, instead: str = "await request.body()") -> str:
    did = "has read the body of a request before oip_asgi could, so the answer is 500"
    return f"{name} {did}: write {instead} there first, which keeps the body"


def check(way: Way, rows: Iterator[Row], caplog: pytest.LogCaptureFixture, log: str = "") -> None:
    for row in rows:
        # what Django parses as parts of a form, it refuses with long heads
        if PARTS in row.request.headers and len(row.request.body) > 1000:
            continue
        caplog.clear()
        found = way(row.request)
        assert found.status == row.status, found.body
        if row.status == 200:
            assert found.body == row.body
        else:
            document = json.loads(found.body)
            assert list(document) == ["error"]
            assert all(part in document["error"] for part in row.text)
        assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == [log] * (row.status == 500)


Make: TypeAlias = Callable[[InferenceServer], Way]
IN_FLASK = write_log("the function of before_request check_token", "request.get_data()")
TAKEN_FIRST: dict[str, tuple[Make, str]] = {
    "FastAPI, stream()": (partial(fastapi_dependency, read_stream), write_log("the dependency read_stream")),
    "FastAPI, is_disconnected()": (partial(fastapi_dependency, drop_a_message), write_log("the dependency drop_a_message")),
    "FastAPI, Form": (partial(fastapi_dependency, take_form), write_log("the dependency take_form")),
    "middleware of FastAPI, stream()": (partial(with_middleware, FastAPI, read_stream), write_log("the middleware Count")),
    "middleware of Starlette, form()": (partial(with_middleware, Starlette, Request.form), write_log("the middleware Count")),
    "Flask, form": (partial(flask_before, lambda: request.form), IN_FLASK),
    "Flask, values": (partial(flask_before, lambda: request.values), IN_FLASK),
    "Flask, stream": (partial(flask_before, lambda: request.stream.read()), IN_FLASK),
    "Flask, get_data": (partial(flask_before, lambda: request.get_data(cache=False)), IN_FLASK),
}
KEPT: dict[str, Make] = {
    "FastAPI, body() and form()": partial(fastapi_dependency, read_body_and_form),
    "middleware of Starlette, body()": partial(with_middleware, Starlette, Request.body),
    "middleware of Starlette, body() and form()": partial(with_middleware, Starlette, read_body_and_form),
    "Flask, get_data()": partial(flask_before, lambda: request.get_data()),
    "Flask, get_data() and form": partial(flask_before, lambda: (request.get_data(), request.form)),
}


@pytest.mark.parametrize("name", TAKEN_FIRST)
def test_a_body_that_is_read_first_is_500_at_once_and_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, log = TAKEN_FIRST[name]
    calls: list[str] = []
    check(make(table_server(calls)), taken_rows(FORM), caplog, log)
    assert not calls


@pytest.mark.parametrize("name", KEPT)
def test_a_body_that_is_kept_is_read_again(name: str, caplog: pytest.LogCaptureFixture) -> None:
    check(KEPT[name](table_server([])), kept_rows(FORM), caplog)


def test_flask_reads_no_form_of_another_type(caplog: pytest.LogCaptureFixture) -> None:
    check(flask_before(lambda: request.form, table_server([])), kept_rows(("content-type", "application/json")), caplog)


@pytest.mark.parametrize(
    ("read", "rows"),
    [
        pytest.param(lambda request: request.POST, taken_rows(PARTS), id="POST"),
        pytest.param(lambda request: request.FILES, taken_rows(PARTS), id="FILES"),
        pytest.param(lambda request: request.read(5), taken_rows(FORM), id="read(5)"),
        pytest.param(lambda request: request.body, kept_rows(PARTS), id="body"),
        pytest.param(lambda request: (request.body, request.POST), kept_rows(PARTS), id="body and POST"),
        pytest.param(lambda request: request.POST, kept_rows(FORM), id="POST of another type"),
    ],
)
def test_middleware_of_django_that_reads_the_body_first(
    read: Callable[[HttpRequest], object], rows: Iterator[Row], caplog: pytest.LogCaptureFixture
) -> None:
    made = list(rows)
    with django_ways(table_server([])) as ways:
        _django["before"] = read
        for way in ways:
            check(way, iter(made), caplog, write_log("middleware of the application", "request.body"))


@pytest.mark.parametrize("host", ["Flask", "Django"])
def test_what_runs_after_the_view_sees_the_body(host: str) -> None:
    seen: list[bytes] = []
    with django_ways(table_server([])) as ways:
        _django["after"] = lambda request: seen.append(request.body)
        if host == "Flask":
            app = flask_app(blueprint(table_server([])))

            @app.after_request
            def note(response: Any) -> Any:
                seen.append(request.get_data())
                return response

            ways = [over_wsgi(app, "/v2")]
        for way in ways:
            for body in (BODY, BODY.ljust(18_000)):
                assert way(infer("echo", body)).body == answer("echo", ECHOED)
            assert way(infer("nobody", BODY)).status == 404
    assert seen == [BODY, BODY.ljust(18_000), BODY] * len(ways)


def test_a_part_of_a_chunked_body_and_which_of_several_dependencies_it_was(caplog: pytest.LogCaptureFixture) -> None:
    """The rest is no JSON, which is not the client's fault."""
    app = FastAPI(dependencies=[Depends(read_a_part)])
    OIPApp(table_server([])).install(app, dependencies=[Depends(take_form)])
    sent = Sent("POST", "/models/echo/infer", [("transfer-encoding", "chunked")], BODY)
    found = asyncio.run(asyncio.wait_for(send_asgi(app, sent, "/v2", chunk=20), 20))
    assert (found.status, json.loads(found.body)) == (500, {"error": TAKEN})
    assert caplog.messages == [write_log("one of the dependencies read_a_part, take_form")]


def test_a_chunked_body_that_a_dependency_has_read() -> None:
    app, server = FastAPI(), table_server([])
    OIPApp(server).install(app, dependencies=[Depends(read_stream)])
    for headers, status in (((b"transfer-encoding", b"chunked"), 500), ((b"x-none", b""), 200)):
        scope: Any = {"method": "POST", "headers": [headers], "query_string": b"", "http_version": "1.1"}

        async def ask(scope: Any = scope) -> int:
            return (await Talk(server, app=app, path="/v2/repository/index", body=b"", **scope).answer())[0]

        assert asyncio.run(ask()) == status


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
    app = flask_app(blueprint(table_server([])))
    app.before_request(lambda: None)
    for length in (len(BODY) + 10, 17_000):
        environ = EnvironBuilder(path="/v2/models/echo/infer", method="POST", data=BODY).get_environ()
        body, status, _ = run_wsgi_app(app, {**environ, "CONTENT_LENGTH": str(length), "wsgi.input_terminated": True})
        assert status == "400 BAD REQUEST"
        assert json.loads(b"".join(body)) == {"error": f"the body ended after {len(BODY)} bytes: expected {length}"}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
