"""The ways in of `ways`, for the hosts: every framework's application around one server, as a function from a request to an answer."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import include, path
from fastapi import Depends, FastAPI
from flask import Blueprint, Flask
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send
from quart import Quart

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from oip_asgi.grpc import OIPGRPCApp
from tests.support.inside import with_plain_view
from tests.support.ways import Way, over_asgi, over_wsgi


def configure_django() -> None:
    """Django's settings, once a process: what `startproject` writes, without a site's own apps."""
    if settings.configured:
        return
    place = TemporaryDirectory()
    atexit.register(place.cleanup)
    settings.configure(
        SECRET_KEY="tests",
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{place.name}/tests.sqlite3"}},
        MIDDLEWARE=[
            "django.middleware.security.SecurityMiddleware",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
        ],
        USE_TZ=True,
    )
    django.setup()


def fastapi_mounted(server: InferenceServer) -> FastAPI:
    app = FastAPI()
    app.mount("/v2", OIPApp(server))
    return app


def fastapi_installed(server: InferenceServer) -> FastAPI:
    app = FastAPI()
    OIPApp(server).install(app)
    return app


def fastapi_guarded(server: InferenceServer) -> FastAPI:
    """With dependencies before all but health."""
    app = FastAPI(dependencies=[Depends(lambda: None)])
    OIPApp(server).install(app, public=["health"])
    return app


def flask_app(*blueprints: Blueprint) -> Flask:
    app = Flask(__name__)
    for each in blueprints:
        app.register_blueprint(each)
    return app


def litestar_mounted(server: InferenceServer, **options: Any) -> Litestar:
    oip_app = OIPApp(server)

    @asgi("/v2", is_mount=True, copy_scope=False)
    async def v2(scope: Scope, receive: Receive, send: Send) -> None:
        await oip_app(scope, receive, send)  # type: ignore[arg-type]  # Litestar has ASGI types of its own

    # by default it lets a thread write what is logged, for all tests that follow, also when their output is closed
    return Litestar([v2], logging_config=None, **options)


def litestar_with_grpc(server: InferenceServer, **options: Any) -> Litestar:
    grpc_app = OIPGRPCApp(server)

    @asgi(grpc_app.paths, is_mount=True, copy_scope=False)
    async def services(scope: Scope, receive: Receive, send: Send) -> None:
        await grpc_app(scope, receive, send)  # type: ignore[arg-type]  # as above

    return Litestar([services], logging_config=None, **options)


def quart_app(server: InferenceServer) -> Quart:
    app = Quart(__name__)
    app.asgi_app = OIPMiddleware(app.asgi_app, server)  # type: ignore[assignment]  # as Quart's documentation has it
    return app


def staying(app: Any) -> Any:
    """An application whose client stays for its answer: Django and Quart listen for one that goes, and then do not answer.

    A body that is cut off is one that ends.
    """

    async def staying_app(scope: Any, receive: Any, send: Any) -> None:
        answered, has_more = asyncio.Event(), False

        async def receive_until_answered() -> Any:
            nonlocal has_more
            message = await receive()
            if message["type"] == "http.disconnect" and has_more:
                message = {"type": "http.request"}
            elif message["type"] == "http.disconnect":
                await answered.wait()
            has_more = message.get("more_body", False)
            return message

        async def send_and_note(message: Any) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered.set()

        await app(scope, receive_until_answered, send_and_note)

    return staying_app


@contextmanager
def host_ways(server: InferenceServer) -> Iterator[dict[str, Way]]:
    """All hosts around one server, which has an async model."""
    with django_ways(server) as over_django:
        yield {
            "FastAPI mount": over_asgi(fastapi_mounted(server), "/v2"),
            "FastAPI install": over_asgi(fastapi_installed(server), "/v2"),
            "FastAPI install, dependencies": over_asgi(fastapi_guarded(server), "/v2"),
            "Flask blueprint": over_wsgi(flask_app(blueprint(server)), "/v2"),
            **over_django,
            "Litestar mount": over_asgi(litestar_mounted(server), "/v2"),
            "Litestar middleware": over_asgi(OIPMiddleware(Litestar([], logging_config=None), server), "/v2"),
            "Quart middleware": over_asgi(quart_app(server), "/v2"),
        }
    server.stop()


@contextmanager
def django_ways(server: InferenceServer) -> Iterator[dict[str, Way]]:
    """Django under both its handlers, with either of its views."""
    configure_django()
    plain: Any = path("v2", include(with_plain_view(urls(server))))
    asynchronous: Any = path("async/v2", include(urls(server)))
    with override_settings(ROOT_URLCONF=(plain, asynchronous)):
        wsgi_handler, asgi_handler = get_wsgi_application(), staying(get_asgi_application())
        yield {
            "Django, WSGI": over_wsgi(wsgi_handler, "/v2"),
            "Django, WSGI, async view": over_wsgi(wsgi_handler, "/async/v2"),
            "Django, ASGI": over_asgi(asgi_handler, "/v2"),
            "Django, ASGI, async view": over_asgi(asgi_handler, "/async/v2"),
        }
