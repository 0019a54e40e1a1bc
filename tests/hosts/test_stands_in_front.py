"""Which middleware of an application `OIPMiddleware` stands in front of: it is said once, with what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.test import override_settings
from fastapi import FastAPI
from flask import Flask
from litestar import Litestar
from litestar.middleware import DefineMiddleware
from quart import Quart
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from oip_asgi import InferenceServer, OIPMiddleware, OIPWSGIMiddleware
from tests.support.client import Client
from tests.support.host_ways import configure_django
from tests.support.ways import Request, other_wsgi_app, over_wsgi

configure_django()

QUART: Any = Quart("x").asgi_app
GZIP: Any = GZipMiddleware
INSTALL = 'write OIPApp(server).install(app, "/v2")'


def fastapi() -> Any:
    app = FastAPI()
    app.add_middleware(CORSMiddleware)

    @app.middleware("http")
    async def check_key(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    return app


def added_last() -> Any:
    app = fastapi()
    app.add_middleware(OIPMiddleware, server=InferenceServer())
    return app


def added_first() -> Any:
    app = Starlette()
    app.add_middleware(OIPMiddleware, server=InferenceServer())
    app.add_middleware(CORSMiddleware)
    return app


CASES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "FastAPI": (lambda: OIPMiddleware(fastapi(), InferenceServer()), "check_key, CORSMiddleware", INSTALL),
    "FastAPI, added last": (added_last, "check_key, CORSMiddleware", INSTALL),
    "Starlette, added first": (added_first, "", ""),
    "Starlette": (lambda: OIPMiddleware(Starlette(), InferenceServer()), "", ""),
    "Quart": (lambda: OIPMiddleware(QUART, InferenceServer()), "", ""),
    "around Quart": (lambda: OIPMiddleware(GZipMiddleware(QUART), InferenceServer()), "GZipMiddleware", "put it around OIPMiddleware"),
    "Litestar": (
        lambda: OIPMiddleware(Litestar([], middleware=[DefineMiddleware(GZIP)], logging_config=None), InferenceServer()),
        "GZipMiddleware",
        'mount OIPApp(server) with @asgi("/v2", is_mount=True, copy_scope=False)',
    ),
    "Django": (
        lambda: OIPMiddleware(ASGIHandler(), InferenceServer()),
        "django.middleware.common.CommonMiddleware",
        'write path("v2", include(oip_asgi.django.urls(server)))',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_once(case: str, caplog: pytest.LogCaptureFixture) -> None:
    make, named, advice = CASES[case]
    with override_settings(MIDDLEWARE=["django.middleware.common.CommonMiddleware"]):
        client = Client(make())
        assert [client.get("/v2").status_code, client.get("/v2/health/live").status_code] == [200, 200]
    expected = f"OIPMiddleware answers /v2 before this middleware, which does not see it: {named}. If it should, {advice}"
    assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == ([expected] if named else [])


def test_functions_of_flask_are_named_too(caplog: pytest.LogCaptureFixture) -> None:
    app = Flask("x")
    served = OIPWSGIMiddleware(ProxyFix(app.wsgi_app), InferenceServer(), "/api/v2")

    @app.before_request
    def check_key() -> None:
        raise AssertionError("nobody calls it")

    ask = over_wsgi(served, "/api/v2")
    assert [ask(Request("GET", path)).status for path in ("", "/health/live")] == [200, 200]
    assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == [
        "OIPWSGIMiddleware answers /api/v2 before these functions of before_request, which do not see it: check_key. If they should, write "
        'app.register_blueprint(oip_asgi.flask.blueprint(server, url_prefix="/api/v2"))'
    ]


@pytest.mark.parametrize("app", [Flask("x").wsgi_app, Flask("x"), other_wsgi_app])
def test_without_functions_nothing_is_said(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert over_wsgi(OIPWSGIMiddleware(app, InferenceServer()), "/v2")(Request("GET", "")).status == 200
    assert caplog.records == []
