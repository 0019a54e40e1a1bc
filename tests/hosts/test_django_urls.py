"""Django's URL patterns: the slash behind the prefix, what `manage.py check` says, and which view answers when models come later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from django.core.checks import run_checks
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import include, path, re_path

from oip_asgi import InferenceServer
from oip_asgi.django import urls
from tests.support.host_ways import configure_django, staying
from tests.support.ways import Request, over_asgi
from tests.table.row import ECHOED, GOOD, answer, inputs

BODY = inputs(GOOD)

configure_django()


def make_server() -> InferenceServer:
    server = InferenceServer("s", "1")
    server.register("echo", lambda x: {"x": x})
    server.register("org/model", lambda x: {"x": x})
    return server


def page(request: HttpRequest, **_: object) -> HttpResponse:
    return HttpResponse(f"the page {request.path}")


@contextmanager
def site(*patterns: Any) -> Iterator[None]:
    with override_settings(ROOT_URLCONF=patterns):
        yield


def asked(is_async: bool, method: str, target: str, body: bytes = b"") -> Any:
    if not is_async:
        return Client().generic(method, target, body, "application/json")

    async def ask() -> Any:
        return await AsyncClient().generic(method, target, body, "application/json")

    return asyncio.run(ask())


@pytest.mark.parametrize("prefix", ["v2", "v2/", "ml/v2", "ml/v2/"])
@pytest.mark.parametrize("is_async", [False, True], ids=["WSGI", "ASGI"])
def test_a_prefix_may_end_in_a_slash(prefix: str, is_async: bool) -> None:
    server, under = make_server(), f"/{prefix.removesuffix('/')}"
    with site(path(prefix, include(urls(server)))):
        for target in (
            "/",
            "/models",
            "/models/",
            "/models/echo",
            "/models/echo/ready",
            "/models/org/model",
            "/health/live",
            "/health/ready",
        ):
            assert asked(is_async, "GET", f"{under}{target}").status_code == 200, target
        for name in ("echo", "org/model", "org%2Fmodel"):
            found = asked(is_async, "POST", f"{under}/models/{name}/infer", BODY)
            assert (found.status_code, found.content) == (200, answer(name.replace("%2F", "/"), ECHOED))
        wrong = asked(is_async, "POST", f"{under}/models/echo")
        text = f"method 'POST' is not allowed here: expected GET, HEAD; for inference, POST to '{under}/models/echo/infer'"
        assert (wrong.status_code, wrong.json()) == (405, {"error": text})
        unknown = asked(is_async, "GET", f"{under}/models/echo/predict")
        assert unknown.json()["error"].startswith(f"unknown path '{under}/models/echo/predict': expected {under}/health/live, ")


def test_the_bare_path() -> None:
    with site(path("v2", include(urls(make_server())))):
        assert asked(False, "GET", "/v2").json()["name"] == "s"
    with site(path("v2/", include(urls(make_server())))), override_settings(APPEND_SLASH=True):
        found = asked(False, "GET", "/v2")
        assert (found.status_code, found.headers["location"]) == (301, "/v2/")  # of which `manage.py check` warns


@pytest.mark.parametrize("prefix", ["v2", "v2/"])
def test_other_paths_stay_the_projects(prefix: str) -> None:
    with site(path(prefix, include(urls(make_server()))), re_path("^(?P<rest>.*)$", page)):
        for target in ("/v2x", "/v2x/models", "/v", "/", "/v2-models"):
            assert asked(False, "GET", target).content == f"the page {target}".encode()


def test_what_only_begins_as_the_prefix_is_not_answered() -> None:
    with site(path("v2", include(urls(make_server())))):
        assert asked(False, "GET", "/v2models").status_code == 404
        assert asked(False, "GET", "/v2models").headers["content-type"].startswith("text/html")


def test_a_prefix_with_variables() -> None:
    with site(path("<slug:tenant>/v2/", include(urls(make_server())))):
        assert asked(False, "GET", "/ann/v2/models").json() == {"models": ["echo", "org/model"]}


W001 = (
    'The prefix "{0}/" of the URL patterns of oip_asgi ends in a slash, so Django itself answers "/{0}", by a redirect to "/{0}/" or with '
    "404. Clients such as tritonclient ask it for the server's metadata, and follow no redirects."
)
W002 = "The URL patterns of oip_asgi are included at the root, where they answer the project's home page."


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda patterns: [path("v2", include(patterns))], []),
        (
            lambda patterns: [path("v2/", include(patterns))],
            [("oip_asgi.W001", W001.format("v2"), 'Write path("v2", include(urls(server))), without the slash.')],
        ),
        (
            lambda patterns: [path("ml/", include([path("v2/", include(patterns))]))],
            [("oip_asgi.W001", W001.format("ml/v2"), 'Write path("ml/v2", include(urls(server))), without the slash.')],
        ),
        (lambda patterns: [path("ml/", include([path("v2", include(patterns))]))], []),
        (
            lambda patterns: [path("", include(patterns))],
            [
                (
                    "oip_asgi.W002",
                    W002,
                    'Write path("v2", include(urls(server))), or put OIPMiddleware or OIPWSGIMiddleware around the application.',
                )
            ],
        ),
    ],
)
def test_what_manage_py_check_says(make: Any, found: list[tuple[str, str, str]]) -> None:
    with site(*make(urls(make_server()))):
        messages = [message for message in run_checks() if str(message.id).startswith("oip_asgi")]
    assert [(message.id, message.msg, message.hint) for message in messages] == found
    assert {str(message).partition(": (oip_asgi")[0] for message in messages} <= {
        f'path("{prefix}", include(urls(server)))' for prefix in ("", "v2/", "ml/v2/")
    }


def test_models_that_come_later_decide_which_view_answers() -> None:
    server = make_server()
    loops: list[Any] = []
    with site(path("v2", include(urls(server)))):
        assert asked(True, "POST", "/v2/models/echo/infer", BODY).status_code == 200

        @server.model("later")
        async def later(x: Any) -> Any:
            loops.append(asyncio.get_running_loop())
            return x

        async def ask() -> Any:
            found = await AsyncClient().generic("POST", "/v2/models/later/infer", BODY, "application/json")
            return found, asyncio.get_running_loop()

        found, loop = asyncio.run(ask())
        assert (found.status_code, loops) == (200, [loop])  # Django's own event loop, not one in the background
        server.unregister_sync("later")
        assert asked(True, "POST", "/v2/models/echo/infer", BODY).status_code == 200
    server.stop()


def test_a_generator_that_is_registered_later_streams() -> None:
    server = make_server()
    steps: list[str] = []
    with site(path("v2", include(urls(server)))):
        assert asked(True, "GET", "/v2/models").status_code == 200

        @server.model("count")
        def count(x: Any) -> Iterator[Any]:
            for place in range(3):
                steps.append(f"made {place}")
                yield np.array([place])

        app = staying(ASGIHandler())

        async def noting(scope: Any, receive: Any, send: Any) -> None:
            async def send_and_note(message: Any) -> None:
                if message.get("body"):
                    steps.append("sent")
                await send(message)

            await app(scope, receive, send_and_note)

        found = over_asgi(noting, "/v2")(Request("POST", "/models/count/infer_stream", (), BODY))
    assert (found.status, found.body.count(b"data: ")) == (200, 3)
    assert steps == ["made 0", "sent", "made 1", "sent", "made 2", "sent"]
    server.stop()
