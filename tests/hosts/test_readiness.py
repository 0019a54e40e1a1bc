"""Where a request holds a thread of its host, a readiness probe begins to load the models, and does not wait for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import include, path

from oip_asgi import InferenceServer, OIPWSGIApp, OIPWSGIMiddleware
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.host_ways import configure_django, flask_app
from tests.support.ways import Request, Way, other_wsgi_app, over_wsgi
from tests.table.row import GOOD, infer, inputs

configure_django()


@contextmanager
def wsgi(server: InferenceServer) -> Iterator[Way]:
    yield over_wsgi(OIPWSGIApp(server), "")


@contextmanager
def middleware(server: InferenceServer) -> Iterator[Way]:
    yield over_wsgi(OIPWSGIMiddleware(other_wsgi_app, server), "/v2")


@contextmanager
def flask(server: InferenceServer) -> Iterator[Way]:
    yield over_wsgi(flask_app(blueprint(server, public=["health"])), "/v2")


@contextmanager
def django(server: InferenceServer) -> Iterator[Way]:
    with override_settings(ROOT_URLCONF=(path("v2", include(urls(server))),)):
        yield over_wsgi(get_wsgi_application(), "/v2")


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("host", [wsgi, middleware, flask, django])
def test_a_probe_begins_to_load_and_answers_at_once(host: Callable[[InferenceServer], Iterator[Way]], is_async: bool) -> None:
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
    with host(server) as send, ThreadPoolExecutor() as pool:  # type: ignore[attr-defined]
        for target, document in (("/health/ready", not_ready), ("/models/m/ready", (503, b'{"name":"m","ready":false}'))) * 2:
            found = send(Request("GET", target))  # were it to wait, it would do so for ever
            assert (found.status, found.body) == document
        until(lambda: len(loads) == 2)
        waiting = pool.submit(send, infer("m", inputs(GOOD)))
        release.set()
        assert waiting.result(20).status == 200
        until(lambda: send(Request("GET", "/health/ready")).status == 200)
    assert loads == ["loaded"] * 2
    server.stop()


def test_a_load_that_fails_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """It is not tried again, and the log says by what it is."""
    server, raised = InferenceServer(), [OSError("the disk is not there yet")]

    def load() -> None:
        if raised:
            raise raised.pop()

    server.register("m", lambda x: x, load=load)
    send = over_wsgi(OIPWSGIApp(server), "")
    until(lambda: send(Request("GET", "/health/ready")).status == 503 and "load= raised" in caplog.text)
    assert send(Request("GET", "/models/m/ready")).status == 503
    assert "load= raised, so it is not ready; only server.load(...), server.load_sync(...), or a client" in caplog.text
    server.load_sync("m")
    assert send(Request("GET", "/models/m/ready")).status == 200
    server.stop()


def until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")
