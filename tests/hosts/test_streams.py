"""Streams behind hosts: the table through each of them, middleware that must not hold them back, and clients that go away."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import django
import numpy as np
import pytest
from django.core.handlers.asgi import ASGIHandler
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import include, path
from fastapi import FastAPI
from flask import g
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from werkzeug.test import EnvironBuilder

from oip_asgi import InferenceServer, OIPApp, OIPWSGIApp
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from oip_asgi.prometheus import instrument
from tests.support.host_ways import configure_django, flask_app, host_ways
from tests.support.metrics import is_idle
from tests.support.streaming import KINDS, Noted, numbers, serve_stream
from tests.support.talk import Talk, block_until, until
from tests.support.threads import serving
from tests.support.ways import Way
from tests.table.stream_models import stream_server
from tests.table.stream_row import EVENTS, StreamRow
from tests.table.stream_rows import stream_rows

kinds = pytest.mark.parametrize("kind", KINDS)
NINE = b'{"n": 9}'


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Way]]:
    with host_ways(stream_server()) as ways:
        yield ways


@pytest.mark.ci
@pytest.mark.parametrize("row", stream_rows(), ids=str)
def test_every_host_answers_alike(row: StreamRow, hosts: dict[str, Way]) -> None:
    answers = {name: way(row.request) for name, way in hosts.items()}
    first = next(iter(answers.values()))
    # Django under ASGI with a plain view, which is for servers without streams, cannot stream, and gathers
    gathered = {"Django, ASGI"} if row.kind == EVENTS else set()
    assert {name: answer for name, answer in answers.items() if name not in gathered} == dict.fromkeys(answers.keys() - gathered, first)
    for answer in answers.values():
        assert (answer.status, answer.headers["content-type"], answer.body) == (row.status, row.kind, row.body)


def event(number: int) -> bytes:
    return b'data: {"model_name":"m","output_0":%d}\n\n' % number


def late(seconds: float) -> bytes:
    return b'data: {"error":"model \'m\' did not end its stream within %b seconds, its stream_timeout"}\n\n' % str(seconds).encode()


def ask_wsgi(app: Any, body: bytes, prefix: str = "", coding: str = "identity") -> Any:
    headers = [("accept-encoding", coding)]
    environ = EnvironBuilder(path=f"{prefix}/models/m/generate_stream", method="POST", data=body, headers=headers).get_environ()
    started: list[str] = []
    pieces = app(environ, lambda status, headers, exc_info=None: started.append(status))
    assert started == ["200 OK"]
    return pieces


@contextmanager
def in_django(server: InferenceServer, *middleware: str) -> Iterator[None]:
    configure_django()
    with override_settings(ROOT_URLCONF=(path("v2", include(urls(server))),), MIDDLEWARE=middleware):
        yield


def behind(app: Any, prefix: str = "/v2") -> Any:
    """An application whose requests come to a prefix, and say that they take gzip."""

    async def prefixed(scope: Any, receive: Any, send: Any) -> None:
        headers = [*scope["headers"], (b"accept-encoding", b"gzip"), (b"host", b"x")]
        await app({**scope, "path": prefix + scope["path"], "query_string": b"", "headers": headers}, receive, send)

    return prefixed


@kinds
def test_middleware_of_starlette_lets_each_item_through(kind: str) -> None:
    noted = Noted(silent_after=0)
    server = serve_stream(KINDS[kind](noted))
    app = FastAPI()
    options: dict[str, Any] = {"exclude_content_types": ()} if "exclude_content_types" in signature(GZipMiddleware).parameters else {}
    app.add_middleware(GZipMiddleware, minimum_size=1, **options)

    @app.middleware("http")
    async def stamp(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["x-stamp"] = "yes"
        return response

    OIPApp(server).install(app)

    async def main() -> None:
        talk = Talk(server, body=b'{"n": 3}', action="generate_stream", app=behind(app))
        await until(lambda: len(talk.sent) > 1 and numbers(talk) == [0])
        assert talk.header("x-stamp") == "yes"
        talk.go()
        await asyncio.wait_for(talk.task, 20)
        noted.go_on.set()
        await until(lambda: is_idle(server))

    asyncio.run(main())
    assert noted.ended[-1] == "finally"
    server.stop()


@kinds
def test_wsgi_makes_an_item_when_it_is_asked_for_and_close_ends_the_generator(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted), stream_timeout=60)
    app = OIPWSGIApp(server)
    pieces = ask_wsgi(app, NINE)
    assert noted.made == 1  # it is known before the head is sent
    iterator = iter(pieces)
    for number in range(3):
        assert next(iterator) == event(number)
        assert noted.made == number + 1
    assert not is_idle(server)
    pieces.close()
    assert (noted.ended, is_idle(server), list(iterator)) == (["closed", "finally"], True, [])
    pieces.close()
    ask_wsgi(app, NINE).close()  # and nobody has read it
    assert (noted.ended, is_idle(server)) == (["closed", "finally"] * 2, True)
    noted.ended.clear()
    pieces = ask_wsgi(app, b'{"n": 3}')
    assert list(pieces) == [event(number) for number in range(3)]
    pieces.close()
    assert (noted.ended, is_idle(server)) == (["finally"], True)
    server.stop()


@kinds
def test_the_timeouts_of_a_stream_hold_over_wsgi_also_while_the_server_waits_for_its_client(kind: str) -> None:
    silent, read_late = Noted(silent_after=1), Noted()
    server = serve_stream(KINDS[kind](silent), stream_timeout=0.3)
    pieces = ask_wsgi(OIPWSGIApp(server), NINE)
    assert list(pieces)[-1] == late(0.3)
    pieces.close()
    silent.go_on.set()
    block_until(lambda: is_idle(server))
    server.stop()
    server = serve_stream(KINDS[kind](read_late), max_concurrency=1, stream_timeout=0.3)
    pieces = ask_wsgi(OIPWSGIApp(server), NINE)
    iterator = iter(pieces)
    assert next(iterator) == event(0)
    block_until(lambda: is_idle(server))  # its slot is free
    assert read_late.ended == ["closed", "finally"]
    assert list(iterator) == [late(0.3)]
    pieces.close()
    server.stop()


@kinds
def test_flask_streams_within_its_context_and_a_client_that_goes_ends_the_generator(kind: str) -> None:
    noted, torn_down, server = Noted(), list[bool](), InferenceServer()

    def blocking(n: Any) -> Iterator[Any]:
        for number in noted.blocking(n):
            yield number + g.offset

    server.register("m", blocking if kind == "def" else noted.awaiting)
    app = flask_app(blueprint(server))

    @app.before_request
    def remember() -> None:
        g.offset = 0

    @app.teardown_request
    def tear_down(_: object) -> None:
        torn_down.append(True)

    response = app.test_client().post("/v2/models/m/generate_stream", data=b'{"n": 3}', buffered=False)
    assert response.headers["content-type"] == EVENTS
    chunks = response.iter_encoded()
    assert json.loads(next(iter(chunks)).removeprefix(b"data: ")) == {"model_name": "m", "output_0": 0}
    before = len(torn_down)
    assert len(list(chunks)) == 2
    response.close()
    assert (noted.ended, is_idle(server)) == (["finally"], True)
    assert len(torn_down) == before + 1  # the stream's own, after its end
    response = app.test_client().post("/v2/models/m/generate_stream", data=NINE, buffered=False)
    next(iter(response.iter_encoded()))
    response.close()
    block_until(lambda: noted.ended == ["finally", "closed", "finally"])
    assert is_idle(server)
    server.stop()


@kinds
def test_django_streams_under_wsgi(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted))
    with in_django(server, "django.middleware.gzip.GZipMiddleware"):
        response = ask_wsgi(get_wsgi_application(), b'{"n": 3}', "/v2", "gzip")
        assert next(iter(response)) == event(0)
        response.close()
    block_until(lambda: noted.ended[-1:] == ["finally"])
    block_until(lambda: is_idle(server))
    server.stop()


@pytest.mark.skipif(django.VERSION < (5, 0), reason="Django takes notice of a client that goes since 5.0")
@kinds
def test_django_streams_under_asgi_and_a_client_that_goes_ends_the_generator(kind: str) -> None:
    noted = Noted(silent_after=0)
    server = serve_stream(KINDS[kind](noted))

    async def main() -> None:
        talk = Talk(server, body=b'{"n": 3}', action="generate_stream", app=behind(ASGIHandler()))
        await until(lambda: len(talk.sent) > 1 and numbers(talk) == [0])
        talk.go()
        await asyncio.sleep(0)  # Django waits for a def that is under way before it lets the request go
        noted.go_on.set()
        await asyncio.wait_for(asyncio.wait([talk.task]), 20)
        await until(lambda: is_idle(server))

    with in_django(server, "django.middleware.gzip.GZipMiddleware"):
        asyncio.run(main())
    assert noted.ended[-1] == "finally"
    server.stop()


@kinds
def test_in_django_the_slot_is_free_while_the_server_waits_for_its_client(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted), max_concurrency=1, stream_timeout=0.5)

    async def main() -> None:
        talk = Talk(server, body=NINE, action="generate_stream", app=behind(ASGIHandler()))
        talk.takes.clear()
        await until(lambda: not is_idle(server))
        await until(lambda: is_idle(server))
        assert noted.ended == ["closed", "finally"]
        talk.takes.set()
        await asyncio.wait_for(talk.task, 20)
        assert b"".join(message.get("body", b"") for message in talk.sent[1:]) == late(0.5)

    with in_django(server):
        asyncio.run(main())
    server.stop()


@kinds
def test_sockets_that_do_not_read_do_not_take_a_model_away(kind: str) -> None:
    noted, body = Noted(), b'{"n": 100000}'
    request = b"POST /v2/models/m/generate_stream HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    def blocking(n: Any) -> Iterator[Any]:
        for _ in noted.blocking(n):
            yield np.zeros(50_000)  # no buffer of a connection takes all

    async def awaiting(n: Any) -> AsyncIterator[Any]:
        try:
            for _ in range(int(n[0])):
                yield np.zeros(50_000)
        finally:
            noted.ended.append("finally")

    server = serve_stream({"def": blocking, "async def": awaiting}[kind], max_concurrency=2, max_queue=0, stream_timeout=0.5)
    with serving(OIPApp(server, path="/v2")) as port, socket.socket() as one, socket.socket() as other:
        for client in (one, other):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            client.sendall(request)
        block_until(lambda: noted.ended.count("finally") == 2)
        block_until(lambda: is_idle(server))
        server.unload_sync("m")
    server.stop()


REQUEST = b'POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"inputs":[]}'


async def passes_on(request: Any, call_next: Any) -> Any:
    return await call_next(request)


GZIP, BASE = Middleware(GZipMiddleware, minimum_size=0), Middleware(BaseHTTPMiddleware, dispatch=passes_on)


@pytest.mark.parametrize("stack", [[], [BASE], [GZIP, BASE]], ids=["bare", "BaseHTTPMiddleware", "both"])
def test_a_client_that_goes(stack: list[Middleware], caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()
    entered, ended, leave = threading.Event(), threading.Event(), threading.Event()
    queued_ran: list[int] = []

    @server.model("awaits")
    async def awaits() -> int:
        entered.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()
        return 1

    @server.model("blocks", max_concurrency=1)
    def blocks() -> int:
        queued_ran.append(1)
        entered.set()
        assert leave.wait(30)
        return 1

    registry = CollectorRegistry()
    instrument(server, registry)
    labels = {"server": "oip_asgi", "model": "blocks", "version": "", "state": "waiting"}

    def waiting() -> float | None:
        return registry.get_sample_value("oip_requests_in_progress", labels)

    app = Starlette(middleware=stack)
    OIPApp(server).install(app)
    with caplog.at_level(logging.INFO), serving(app) as port:
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(REQUEST % b"awaits")
            assert entered.wait(30)
        assert ended.wait(30)
        entered.clear()
        with socket.create_connection(("127.0.0.1", port), 30) as first, socket.create_connection(("127.0.0.1", port), 30) as second:
            first.sendall(REQUEST % b"blocks")
            assert entered.wait(30)
            second.sendall(REQUEST % b"blocks")
            block_until(lambda: waiting() == 1)
        block_until(lambda: waiting() == 0)
        leave.set()
    server.stop()
    assert queued_ran == [1]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
