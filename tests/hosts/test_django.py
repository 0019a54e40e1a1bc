"""What is Django's own about the URL patterns: prefixes and checks, middleware and users, CSRF, limits, views, its database."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import numpy as np
import pytest
from asgiref.sync import sync_to_async
from django.core.checks import run_checks
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIHandler
from django.core.wsgi import get_wsgi_application
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import include, path, re_path

from oip_asgi import Access, InferenceContext, InferenceError, InferenceServer
from oip_asgi.django import urls
from tests.support.host_ways import configure_django, staying
from tests.support.talk import Talk
from tests.support.ways import Request, asked_together, over_asgi, over_wsgi
from tests.table.row import ECHOED, GOOD, answer, infer, inputs

BODY = inputs(GOOD)
INFER = "/v2/models/echo/infer"

configure_django()


def user_from_header(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A project's own middleware: who is there, and who may not come in."""

    def middleware(request: HttpRequest) -> HttpResponse:
        name = request.headers.get("X-User")
        if name is None:
            return HttpResponse("who is there?", status=401)
        request.user = name  # type: ignore[assignment]
        return get_response(request)

    return middleware


def notes_its_thread(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        noted.append(threading.get_ident())
        return get_response(request)

    return middleware


noted: list[int] = []


@contextmanager
def site(*patterns: Any, **settings: Any) -> Iterator[None]:
    with override_settings(ROOT_URLCONF=patterns, **settings):
        yield


def served(server: InferenceServer, **settings: Any) -> AbstractContextManager[None]:
    return site(path("v2", include(urls(server))), **settings)


@pytest.fixture
def calls() -> list[str]:
    return []


def make_server(calls: list[str], *, with_async: bool, **options: Any) -> InferenceServer:
    server = InferenceServer(max_body_bytes=20 * 2**20, **options)

    @server.model("echo")
    def echo(**inputs: Any) -> Any:
        calls.append("echo")
        return inputs

    @server.model("who")
    def who(context: InferenceContext) -> Any:
        calls.append("who")
        return np.array([str(context.transport.user)])

    if with_async:

        @server.model("awaits")
        async def awaits(context: InferenceContext) -> Any:
            calls.append("awaits")
            await asyncio.sleep(0)
            return np.array([str(context.transport.user)])

    return server


Asker: TypeAlias = Callable[..., Any]


def asker(is_async: bool) -> Asker:
    def ask(method: str, target: str, body: bytes = b"", **headers: str) -> Any:
        return Client(enforce_csrf_checks=True).generic(method, target, body, "application/json", headers=headers)

    async def ask_async(method: str, target: str, body: bytes = b"", **headers: str) -> Any:
        return await AsyncClient(enforce_csrf_checks=True).generic(method, target, body, "application/json", headers=headers)

    return (lambda *asked, **headers: asyncio.run(ask_async(*asked, **headers))) if is_async else ask


@pytest.fixture(params=[False, True], ids=["WSGI", "ASGI"])
def asking(request: pytest.FixtureRequest) -> Asker:
    return asker(request.param)


@pytest.fixture(params=[False, True], ids=["plain view", "async view"])
def server(request: pytest.FixtureRequest, calls: list[str]) -> Iterator[InferenceServer]:
    server = make_server(calls, with_async=request.param)
    yield server
    server.stop()


# Middleware, and what is not for the protocol


def test_middleware_decides_who_gets_in(asking: Asker, server: InferenceServer, calls: list[str]) -> None:
    with served(server, MIDDLEWARE=[f"{__name__}.user_from_header"]):
        for method, target in (("GET", "/v2"), ("GET", "/v2/models"), ("POST", "/v2/models/who/infer")):
            assert asking(method, target, b'{"inputs":[]}').status_code == 401
        assert calls == []
        models = [model.name for model in server.models() if model.name != "echo"]
        for model in models:
            found = asking("POST", f"/v2/models/{model}/infer", b'{"inputs":[]}', **{"X-User": "ada"})
            assert (found.status_code, found.json()["outputs"][0]["data"]) == (200, ["ada"])
        assert calls == models


def test_users_are_there_and_neither_csrf_protection_nor_slashes_apply(asking: Asker, server: InferenceServer) -> None:
    with served(server, APPEND_SLASH=True):
        found = asking("POST", "/v2/models/who/infer", b'{"inputs":[]}')
        assert found.json()["outputs"][0]["data"] == ["AnonymousUser"]
        found = asking("POST", INFER, BODY, **{"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example"})
        assert (found.status_code, found.content) == (200, answer("echo", ECHOED))
        for target in ("/v2", "/v2/", "/v2/models", "/v2/models/"):
            assert asking("GET", target).status_code == 200
        assert asking("GET", "/v2/nowhere").status_code == 404


def test_only_our_limit_applies_to_bodies(asking: Asker, server: InferenceServer, calls: list[str]) -> None:
    with served(server, DATA_UPLOAD_MAX_MEMORY_SIZE=1000):
        assert asking("POST", INFER, BODY.ljust(8 * 2**20)).content == answer("echo", ECHOED)
        found = asking("POST", INFER, BODY.ljust(20 * 2**20 + 1))
        assert found.status_code == 413
        assert found.json()["error"].startswith(f"the body is larger than {20 * 2**20} bytes")
        assert calls == ["echo"]


@pytest.mark.parametrize("with_async", [False, True])
def test_a_def_model_runs_in_the_thread_whose_connections_django_closes(with_async: bool) -> None:
    """Django closes old database connections in the request's own thread: a model's must be among them."""
    server = make_server([], with_async=with_async)
    threads: list[int] = []
    used: list[Any] = []

    @server.model("query")
    def query() -> Any:
        threads.append(threading.get_ident())
        used.append(connections["default"])
        with connection.cursor() as cursor:
            cursor.execute("select 40 + 2")
            return np.array(cursor.fetchone())

    asked = infer("query", b'{"inputs":[]}')
    expected = answer("query", '{"name":"output_0","shape":[1],"datatype":"INT64","data":[42]}')
    with served(server, MIDDLEWARE=[f"{__name__}.notes_its_thread"]):
        for way in (over_wsgi(get_wsgi_application(), "/v2"), over_asgi(staying(ASGIHandler()), "/v2")):
            noted.clear()
            threads.clear()
            assert way(asked).body == expected
            assert threads == noted
    under_wsgi, under_asgi = used
    assert under_asgi.connection is None
    under_wsgi.close()  # a server closes the answer, and Django then the connection
    server.stop()


def test_async_functions_that_read_the_database_are_told_of_awaiting_it(caplog: pytest.LogCaptureFixture) -> None:
    def authorize(access: Access) -> bool:
        if access.model == "m":
            connection.ensure_connection()
        return True

    async def reads() -> Any:
        connection.ensure_connection()

    server = InferenceServer(authorize=authorize)
    server.register("m", lambda: [1])
    server.register("reads", reads)
    with served(server):
        assert [asker(True)("POST", f"/v2/models/{name}/infer", b'{"inputs":[]}').status_code for name in ("reads", "m")] == [500, 500]
        assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == [
            "model 'reads' failed on a request: in an async def, write await context.transport.auser(), and the async methods of Django's "
            "models, such as aget",
            "authorize= failed, so the request is refused: make it an async def, and write user = await access.transport.auser(), and the "
            'async methods of Django, such as await user.ahas_perm("app.permission")',
        ]
        assert asker(False)("POST", "/v2/models/m/infer", b'{"inputs":[]}').status_code == 200
    server.stop()


@pytest.mark.parametrize("with_async", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_authorize_that_awaits_the_database(is_async: bool, with_async: bool) -> None:
    def connect() -> None:
        connection.ensure_connection()  # looked up here: what the event loop finds is a connection of its own, which nobody closes

    async def authorize(access: Access) -> bool:
        await sync_to_async(connect)()
        return access.model == "echo"

    server = make_server([], with_async=with_async, authorize=authorize)
    with served(server):
        statuses = [asker(is_async)("POST", f"/v2/models/{name}/infer", b'{"inputs":[]}').status_code for name in ("echo", "other")]
    assert statuses == [200, 403]
    server.stop()


def test_models_that_wait_run_many_at_once_beside_an_async_one() -> None:
    server = make_server([], with_async=True)
    meeting = threading.Barrier(8)
    server.register("waits", lambda: [meeting.wait(20) >= 0])  # for seven others
    with served(server):
        way = over_asgi(staying(ASGIHandler()), "/v2")
        assert asked_together(way, infer("waits", b'{"inputs":[]}')) == [200] * 8
    server.stop()


@pytest.mark.parametrize("action", ["infer", "generate_stream"])
def test_a_timeout_is_answered_while_the_function_still_runs(action: str) -> None:
    server = make_server([], with_async=True)
    leave, ended = threading.Event(), threading.Event()

    def waits() -> int:
        leave.wait(20)
        ended.set()
        return 1

    def items() -> Iterator[int]:
        yield waits()

    server.register("late", items if action == "generate_stream" else waits, timeout=0.1)
    with served(server):
        asked = Request("POST", f"/models/late/{action}", (), b'{"inputs":[]}')
        status = over_asgi(staying(ASGIHandler()), "/v2")(asked).status
        assert (status, ended.is_set()) == (504, False)
    leave.set()
    server.stop()


def test_a_plain_view_does_not_stop_probes_under_asgi() -> None:
    server = InferenceServer()
    entered, go_on = threading.Event(), threading.Event()

    @server.model("blocks")
    def blocks() -> Any:
        entered.set()
        assert go_on.wait(20)
        return np.array([1])

    async def ask() -> tuple[int, int]:
        app = staying(ASGIHandler())

        scope: Any = {"app": app, "query_string": b"", "scheme": "http"}
        blocked = Talk(server, path="/v2/models/blocks/infer", method="POST", **scope)
        assert await asyncio.to_thread(entered.wait, 20)
        live, _ = await Talk(server, path="/v2/health/live", body=b"", **scope).answer()
        go_on.set()
        return live, (await blocked.answer())[0]

    with served(server):
        assert asyncio.run(ask()) == (200, 200)


@pytest.mark.parametrize("with_async", [False, True])
def test_under_atomic_requests(calls: list[str], monkeypatch: pytest.MonkeyPatch, with_async: bool) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with served(make_server(calls, with_async=with_async)):
        found = Client().post(INFER, BODY, content_type="application/json")
    assert (found.status_code, found.content) == (200, answer("echo", ECHOED))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("raised", [ValueError("after the write"), InferenceError("no", status=422), PermissionDenied("no")])
def test_atomic_requests_undo_what_was_written_before_an_error(monkeypatch: pytest.MonkeyPatch, is_async: bool, raised: Exception) -> None:
    def write(*, fails: bool) -> Any:
        connection.cursor().execute("insert into written values (1)")
        if fails:
            raise raised
        return [1]

    def count() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from written")
            return [cursor.fetchone()[0]]

    with connection.cursor() as cursor:
        cursor.execute("drop table if exists written")
        cursor.execute("create table written (x)")
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    server = InferenceServer()
    server.register("fails", lambda: write(fails=True))
    server.register("writes", lambda: write(fails=False))
    server.register("count", count)
    with served(server):
        answers = [asker(is_async)("POST", f"/v2/models/{name}/generate", b"{}") for name in ("fails", "count", "writes", "count")]
    assert answers[0].status_code >= 400
    assert [json.loads(answer.content)["output_0"] for answer in answers[1:]] == [0, 1, 1]
    connection.close()
    server.stop()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_timeout_leaves_no_connection_open_and_no_broken_one_behind(is_async: bool) -> None:
    used: list[Any] = []

    def query(*, breaks: bool) -> Any:
        connection.ensure_connection()
        used.append(connection.connection)
        with connection.cursor() as cursor:
            cursor.execute("select 42")
            number = cursor.fetchone()[0]
        if breaks:
            connection.connection.close()  # as when the database starts again
        return [number]

    server = InferenceServer()
    server.register("breaks", lambda: query(breaks=True), timeout=20, max_concurrency=1)
    server.register("query", lambda: query(breaks=False), timeout=20, max_concurrency=1)
    with served(server):
        statuses = [asker(is_async)("POST", f"/v2/models/{name}/generate", b"{}").status_code for name in ("breaks", "query", "query")]
    assert statuses == [200, 200, 200]
    server.stop()  # and the threads, after what they do once they have answered
    for each in used:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            each.execute("select 1")


# Its URL patterns: prefixes, what `manage.py check` says, and which view answers when models come later


def make_models() -> InferenceServer:
    server = InferenceServer("s", "1")
    for name in ("echo", "org/model"):
        server.register(name, lambda x: {"x": x})
    return server


@pytest.mark.parametrize("prefix", ["v2", "v2/", "ml/v2/", "<slug:tenant>/v2/"])
def test_a_prefix_may_end_in_a_slash_and_have_variables(prefix: str, asking: Asker) -> None:
    server, under = make_models(), f"/{prefix.removesuffix('/').replace('<slug:tenant>', 'ann')}"
    with site(path(prefix, include(urls(server)))):
        for target in ("/", "/models", "/models/", "/models/echo/ready", "/models/org/model", "/health/live", "/health/ready"):
            assert asking("GET", f"{under}{target}").status_code == 200, target
        for name in ("echo", "org/model", "org%2Fmodel"):
            found = asking("POST", f"{under}/models/{name}/infer", BODY)
            assert (found.status_code, found.content) == (200, answer(name.replace("%2F", "/"), ECHOED))
        wrong = asking("POST", f"{under}/models/echo")
        text = f"method 'POST' is not allowed here: expected GET, HEAD; for inference, POST to '{under}/models/echo/infer'"
        assert (wrong.status_code, wrong.json()) == (405, {"error": text})
        unknown = asking("GET", f"{under}/models/echo/predict")
        assert unknown.json()["error"].startswith(f"unknown path '{under}/models/echo/predict': expected {under}/health/live, ")


def test_the_bare_path_and_what_only_begins_as_the_prefix() -> None:
    def page(request: HttpRequest, **_: object) -> HttpResponse:
        return HttpResponse(f"the page {request.path}")

    ask = asker(False)
    for prefix in ("v2", "v2/"):
        with site(path(prefix, include(urls(make_models()))), re_path("^(?P<rest>.*)$", page)):
            for target in ("/v2x", "/v2x/models", "/v", "/", "/v2-models"):
                assert ask("GET", target).content == f"the page {target}".encode()
            assert ask("POST", "/v").status_code == 403  # CSRF protection is off for our views only
    with served(make_models()):
        assert ask("GET", "/v2").json()["name"] == "s"
        found = ask("GET", "/v2models")
        assert (found.status_code, found.headers["content-type"].startswith("text/html")) == (404, True)
    with site(path("v2/", include(urls(make_models()))), APPEND_SLASH=True):
        found = ask("GET", "/v2")
        assert (found.status_code, found.headers["location"]) == (301, "/v2/")  # of which `manage.py check` warns


SLASH = (
    'The prefix "{0}/" of the URL patterns of oip_asgi ends in a slash, so Django itself answers "/{0}", by a redirect to "/{0}/" or with '
    "404. Clients such as tritonclient ask it for the server's metadata, and follow no redirects."
)
WITHOUT_SLASH = 'Write path("{0}", include(urls(server))), without the slash.'
ROOT = "The URL patterns of oip_asgi are included at the root, where they answer the project's home page."
NOT_AT_ROOT = 'Write path("v2", include(urls(server))), or put OIPMiddleware or OIPWSGIMiddleware around the application.'


@pytest.mark.parametrize(
    ("prefixes", "found"),
    [
        (["v2"], []),
        (["v2/"], [("oip_asgi.W001", SLASH.format("v2"), WITHOUT_SLASH.format("v2"))]),
        (["ml/", "v2/"], [("oip_asgi.W001", SLASH.format("ml/v2"), WITHOUT_SLASH.format("ml/v2"))]),
        (["ml/", "v2"], []),
        ([""], [("oip_asgi.W002", ROOT, NOT_AT_ROOT)]),
    ],
)
def test_what_manage_py_check_says(prefixes: list[str], found: list[tuple[str, str, str]]) -> None:
    patterns: Any = urls(make_models())
    for prefix in reversed(prefixes):
        patterns = [path(prefix, include(patterns))]
    with site(*patterns):
        messages = [message for message in run_checks() if str(message.id).startswith("oip_asgi")]
    assert [(message.id, message.msg, message.hint) for message in messages] == found
    assert {str(message).partition(": (oip_asgi")[0] for message in messages} <= {
        f'path("{prefix}", include(urls(server)))' for prefix in ("", "v2/", "ml/v2/")
    }


def test_models_that_come_later_decide_which_view_answers() -> None:
    server = make_models()
    loops: list[Any] = []
    steps: list[str] = []

    async def later(x: Any) -> Any:
        loops.append(asyncio.get_running_loop())
        return x

    def count(x: Any) -> Iterator[Any]:
        for place in range(3):
            steps.append(f"made {place}")
            yield np.array([place])

    async def ask() -> Any:
        found = await AsyncClient().generic("POST", "/v2/models/later/infer", BODY, "application/json")
        return found, asyncio.get_running_loop()

    app = staying(ASGIHandler())

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def send_and_note(message: Any) -> None:
            if message.get("body"):
                steps.append("sent")
            await send(message)

        await app(scope, receive, send_and_note)

    with served(server):
        assert asker(True)("POST", "/v2/models/echo/infer", BODY).status_code == 200
        server.register("later", later)
        found, loop = asyncio.run(ask())
        assert (found.status_code, loops) == (200, [loop])  # Django's own event loop, not one in the background
        loops.clear()
        assert [asker(False)("POST", "/v2/models/later/infer", BODY).status_code for _ in range(2)] == [200, 200]
        assert len(set(loops)) == 1  # under WSGI, all on the one background loop
        server.unregister_sync("later")
        assert asker(True)("POST", "/v2/models/echo/infer", BODY).status_code == 200
        server.register("count", count)
        streamed = over_asgi(noting, "/v2")(Request("POST", "/models/count/infer_stream", (), BODY))
    assert (streamed.status, streamed.body.count(b"data: ")) == (200, 3)
    assert steps == ["made 0", "sent", "made 1", "sent", "made 2", "sent"]
    server.stop()
