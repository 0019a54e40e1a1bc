"""When models are loaded and let go: with the host's lifespan, without one, under many first requests, on one loop after another, and by
probes, which do not wait where a request holds a thread of its host.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import numpy as np
import pytest
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import include, path
from fastapi import FastAPI
from litestar import Litestar
from quart import Quart
from starlette.applications import Starlette
from starlette.middleware import Middleware

from oip_asgi import InferenceContext, InferenceServer, OIPApp, OIPMiddleware, OIPWSGIApp, OIPWSGIMiddleware
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.asking import logged
from tests.support.host_ways import configure_django, flask_app
from tests.support.lifespan import Lifespan, live_through
from tests.support.talk import block_until
from tests.support.ways import Request, Way, other_asgi_app, other_wsgi_app, over_wsgi, send_asgi
from tests.table.row import GOOD, infer, inputs

Events: TypeAlias = list[str]


def noting(events: Events) -> InferenceServer:
    server = InferenceServer()
    server.register("echo", lambda x: {"x": x}, load=lambda: events.append("load"))
    return server


def states(server: InferenceServer) -> list[str]:
    return [model.state for model in server.models()]


async def ask(app: Any, path: str = "/v2/health/ready") -> int:
    return (await send_asgi(app, Request("GET", path))).status


def lifespan_of(events: Events) -> Any:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
        events.append("host starts")
        yield {"pool": "the host's"}
        events.append("host stops")

    return lifespan


def installed(kind: Any, server: InferenceServer, events: Events) -> Any:
    app = kind(lifespan=lifespan_of(events))
    OIPApp(server).install(app)
    return app


def installed_starlette(server: InferenceServer, events: Events) -> Any:
    return installed(Starlette, server, events)


def installed_fastapi(server: InferenceServer, events: Events) -> Any:
    return installed(FastAPI, server, events)


def middleware_in_starlette(server: InferenceServer, events: Events) -> Any:
    return Starlette(lifespan=lifespan_of(events), middleware=[Middleware(OIPMiddleware, server=server)])


def around_litestar(server: InferenceServer, events: Events) -> Any:
    hooks: Any = {"on_startup": [lambda: events.append("host starts")], "on_shutdown": [lambda: events.append("host stops")]}
    return OIPMiddleware(Litestar([], logging_config=None, **hooks), server)


def around_quart(server: InferenceServer, events: Events) -> Any:
    app = Quart(__name__)

    @app.before_serving
    async def start() -> None:
        events.append("host starts")

    @app.after_serving
    async def stop() -> None:
        events.append("host stops")

    app.asgi_app = OIPMiddleware(app.asgi_app, server)  # type: ignore[assignment]
    return app


def around_django(server: InferenceServer, events: Events) -> Any:
    configure_django()
    return OIPMiddleware(get_asgi_application(), server)


def around_one_that_listens_first(server: InferenceServer, events: Events) -> Any:
    async def listening_app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise RuntimeError(f"{scope['type']} is nothing that this application knows")

    return OIPMiddleware(listening_app, server)


def around_one_that_returns(server: InferenceServer, events: Events) -> Any:
    async def returning_app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await other_asgi_app(scope, receive, send)

    return OIPMiddleware(returning_app, server)


def alone(server: InferenceServer, events: Events) -> Any:
    return OIPApp(server, path="/v2")


WITH_LIFESPAN = [installed_starlette, middleware_in_starlette, installed_fastapi, around_litestar, around_quart]
WITHOUT = [around_django, around_one_that_listens_first, around_one_that_returns, alone]


@pytest.mark.parametrize("make", [*WITH_LIFESPAN, *WITHOUT])
def test_models_start_and_stop_with_the_host(make: Callable[[InferenceServer, Events], Any]) -> None:
    events: Events = []
    server = noting(events)
    app = make(server, events)
    before, after = (["host starts"], ["host stops"]) if make in WITH_LIFESPAN else ([], [])

    async def live() -> None:
        async with Lifespan(app) as lifespan:
            assert await lifespan.say("startup") == "lifespan.startup.complete"
            assert events == [*before, "load"]
            assert await ask(app) == 200
            assert await lifespan.say("shutdown") == "lifespan.shutdown.complete"
            await lifespan.task

    asyncio.run(asyncio.wait_for(live(), 20))
    assert events == [*before, "load", *after]
    assert states(server) == ["registered"]  # loaded again at the next start
    if make is installed_starlette:
        asyncio.run(live_through(app))
        assert events == [*before, "load", *after] * 2


@pytest.mark.parametrize("make", [installed_starlette, around_litestar])
def test_a_load_that_fails_leaves_the_host_up(make: Callable[[InferenceServer, Events], Any], caplog: pytest.LogCaptureFixture) -> None:
    def load() -> None:
        raise OSError("no such weights")

    server = InferenceServer()
    server.register("broken", lambda x: x, load=load)
    server.register("fine", lambda x: x)
    app = make(server, [])

    async def live() -> None:
        async with Lifespan(app) as lifespan:
            assert await lifespan.say("startup") == "lifespan.startup.complete"
            paths = ("health/ready", "health/live", "models/broken/ready", "models/fine/ready")
            assert [await ask(app, f"/v2/{path}") for path in paths] == [503, 200, 503, 200]
            assert await lifespan.say("shutdown") == "lifespan.shutdown.complete"

    asyncio.run(live())
    [record] = logged(caplog)
    assert record.exc_info
    assert "no such weights" in str(record.exc_info[1])


@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize("fails", ["startup", "shutdown"])
def test_a_host_that_fails_to_start_never_loads_and_one_that_fails_to_stop_has_let_the_models_go(fails: str, around: bool) -> None:
    events: Events = []

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        if fails == "startup":
            raise RuntimeError("no database")
        yield
        raise RuntimeError("no database")

    server = noting(events)
    app: Any = Starlette(lifespan=lifespan)
    if around:
        app = OIPMiddleware(app, server)
    else:
        OIPApp(server).install(app)

    async def live() -> None:
        async with Lifespan(app) as running:
            if fails == "shutdown":
                assert await running.say("startup") == "lifespan.startup.complete"
            assert await running.say(fails) == f"lifespan.{fails}.failed"
            with pytest.raises(RuntimeError, match="no database"):
                await running.task

    asyncio.run(live())
    assert events == (["load"] if fails == "shutdown" else [])
    assert states(server) == ["registered"]


def test_state_of_the_hosts_lifespan_reaches_the_model() -> None:
    server = InferenceServer()

    @server.model("pool")
    def pool(context: InferenceContext) -> Any:
        return np.array([context.transport["state"]["pool"]])

    app = installed_starlette(server, [])

    async def live() -> bytes:
        async with Lifespan(app) as lifespan:
            assert await lifespan.say("startup") == "lifespan.startup.complete"

            async def with_state(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "state": dict(lifespan.state)}, receive, send)

            found = await send_asgi(with_state, infer("pool", inputs()), "/v2")
            assert await lifespan.say("shutdown") == "lifespan.shutdown.complete"
            return found.body

    assert b'"data":["the host\'s"]' in asyncio.run(live())


def test_a_server_in_two_hosts_is_let_go_by_the_last() -> None:
    events: Events = []
    server = noting(events)
    one, two = installed_starlette(server, []), installed_starlette(server, [])

    async def live() -> None:
        async with Lifespan(one) as first, Lifespan(two) as second:
            await first.say("startup")
            await second.say("startup")
            await first.say("shutdown")
            assert states(server) == ["ready"]
            assert await ask(two) == 200
            await second.say("shutdown")
            assert states(server) == ["registered"]

    asyncio.run(live())
    assert events == ["load"]


configure_django()


@contextmanager
def over_threads(host: str, server: InferenceServer) -> Iterator[Way]:
    """A way in where a request holds a thread of its host."""
    with override_settings(ROOT_URLCONF=(path("v2", include(urls(server))),)):
        yield {
            "WSGI": over_wsgi(OIPWSGIApp(server), ""),
            "middleware": over_wsgi(OIPWSGIMiddleware(other_wsgi_app, server), "/v2"),
            "Flask": over_wsgi(flask_app(blueprint(server, public=["health"])), "/v2"),
            "Django": over_wsgi(get_wsgi_application(), "/v2"),
        }[host]


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("host", ["WSGI", "middleware", "Flask", "Django"])
def test_a_probe_begins_to_load_and_answers_at_once(host: str, is_async: bool) -> None:
    server, release, loads = InferenceServer(), threading.Event(), list[str]()

    def load() -> None:
        loads.append("loaded")
        assert release.wait(20)

    async def load_async() -> None:
        load()

    for name in ("m", "n"):
        server.register(name, lambda x: x, load=load_async if is_async and name == "m" else load)
    loading = b'{"name":"m","state":"LOADING"},{"name":"n","state":"LOADING"}'
    not_ready = (503, b'{"ready":false,"live":true,"models":[%b]}' % loading)
    with over_threads(host, server) as send, ThreadPoolExecutor() as pool:
        for target, document in (("/health/ready", not_ready), ("/models/m/ready", (503, b'{"name":"m","ready":false}'))) * 2:
            found = send(Request("GET", target))  # were it to wait, it would do so for ever
            assert (found.status, found.body) == document
        block_until(lambda: len(loads) == 2)
        waiting = pool.submit(send, infer("m", inputs(GOOD)))
        release.set()
        assert waiting.result(20).status == 200
        block_until(lambda: send(Request("GET", "/health/ready")).status == 200)
    assert loads == ["loaded"] * 2
    server.stop()
