"""Both clients, and the command that checks a server, against ours in every host."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import include, path
from litestar import Litestar
from werkzeug.serving import make_server

from oip_asgi import InferenceServer, OIPMiddleware, OIPWSGIMiddleware, TensorSpec
from oip_asgi.client import AsyncClient, Client
from oip_asgi.client.__main__ import main
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.host_ways import (
    configure_django,
    fastapi_installed,
    fastapi_mounted,
    flask_app,
    litestar_mounted,
    quart_app,
)
from tests.support.threads import serving
from tests.support.ways import other_wsgi_app

configure_django()


def demo() -> InferenceServer:
    server = InferenceServer("demo", "1.0")

    @server.model("double", inputs=[TensorSpec("x", "INT32", [-1, 2])], outputs=[TensorSpec("y", "INT32", [-1, 2])])
    async def double(x: Any) -> Any:
        return x * np.int32(2)

    return server


@contextmanager
def serving_wsgi(app: Any) -> Iterator[int]:
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()


HOSTS: dict[str, tuple[Callable[[InferenceServer], Any], Callable[[Any], AbstractContextManager[int]]]] = {
    "FastAPI mount": (fastapi_mounted, serving),
    "FastAPI install": (fastapi_installed, serving),
    "Litestar mount": (litestar_mounted, serving),
    "Litestar middleware": (lambda server: OIPMiddleware(Litestar([], logging_config=None), server), serving),
    "Quart middleware": (quart_app, serving),
    "Flask blueprint": (lambda server: flask_app(blueprint(server)), serving_wsgi),
    "WSGI middleware": (lambda server: OIPWSGIMiddleware(other_wsgi_app, server), serving_wsgi),
    "Django, ASGI": (lambda server: get_asgi_application(), serving),
    "Django, WSGI": (lambda server: get_wsgi_application(), serving_wsgi),
}


@pytest.mark.ci
@pytest.mark.parametrize("host", HOSTS)
def test_over_a_socket_and_clean_by_our_own_check(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, serve = HOSTS[host]
    server = demo()
    array = np.ones((100_000, 2), np.int32)

    async def ask(url: str) -> Any:
        async with AsyncClient(url) as client:
            return (await client.infer("double", {"x": array}))["y"]

    with override_settings(ROOT_URLCONF=(path("v2", include(urls(server))),)), serve(make(server)) as port:
        url = f"http://127.0.0.1:{port}/v2"
        with Client(url) as client:
            assert np.array_equal(client.infer("double", {"x": array})["y"], array * 2)
        assert np.array_equal(asyncio.run(ask(url)), array * 2)
        ended = main(["check", url, "--model", "double", "--strain"])
        found = capsys.readouterr().out
    server.stop()
    if host == "FastAPI mount":
        assert ended == 1
        assert "metadata has name, version and extensions: answered 307 'http://" in found
        assert "None None, model double: 1 of " in found
    else:
        assert ended == 0, found
