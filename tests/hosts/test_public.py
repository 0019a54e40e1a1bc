"""`public=`: what a host's checks leave open, in each host that can leave it out of them; and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client as DjangoClient
from django.test import override_settings
from django.urls import include, path, resolve
from fastapi import Depends, FastAPI, HTTPException
from flask import Blueprint, Flask, abort, request

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.asking import exactly
from tests.support.client import Client
from tests.support.host_ways import configure_django, flask_app

configure_django()

HEALTH = ["/v2/health/live", "/v2/health/ready", "/v2/health/live/", "/v2/models/echo/ready", "/v2/models/org/echo/ready"]
HEALTH += ["/v2/models/echo/versions/1/ready", "/v2/models/org%2Fecho/versions/1/ready"]
DOCS = ["/v2/docs", "/v2/docs/", "/v2/docs/page.js", "/v2/docs/icon.svg", "/v2/openapi.json"]
CLOSED = ["/v2", "/v2/", "/v2/models", "/v2/models/echo", "/v2/models/stats", "/v2/models/echo/openapi.json", "/v2/docs/nothing"]
CLOSED += ["/v2/health", "/v2/health/live/x", "/v2//health/live", "/v2/repository/index", "/v2/docs/../models", "/v2/models/echo/infer"]
WORDS = ["health", "docs"]


def make_server() -> InferenceServer:
    server = InferenceServer()
    server.register("echo", lambda x: x, version="1")
    server.register("org/echo", lambda x: x, version="1")
    return server


def refuse() -> None:
    raise HTTPException(401, "no")


def of_install(public: list[str]) -> FastAPI:
    app = FastAPI()
    OIPApp(make_server()).install(app, dependencies=[Depends(refuse)], public=public, grpc=True)
    return app


def of_the_application(public: list[str]) -> FastAPI:
    app = FastAPI(dependencies=[Depends(refuse)])
    OIPApp(make_server()).install(app, public=public, grpc=True)
    return app


def of_the_blueprint(public: list[str]) -> Flask:
    served = blueprint(make_server(), public=public)
    served.before_request(lambda: abort(401, "no"))
    return flask_app(served)


def of_a_blueprint_around(public: list[str]) -> Flask:
    around = Blueprint("around", __name__)
    around.before_request(lambda: abort(401, "no"))
    around.register_blueprint(blueprint(make_server(), public=public))
    return flask_app(around)


def of_the_flask_application(public: list[str]) -> Flask:
    app = flask_app(blueprint(make_server(), public=public))
    app.before_request(lambda: None if request.blueprint == "oip_public" else abort(401, "no"))
    return app


def django_check(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        if getattr(resolve(request.path_info).func, "login_required", True):
            return HttpResponse('{"error":"no"}', status=401)
        return get_response(request)

    return middleware


def list_answers(make: Any, public: list[str], targets: list[str]) -> dict[str, tuple[int, bytes]]:
    """The status and the body of each."""
    if make is not urls:
        app = make(public)
        client: Any = app.test_client() if isinstance(app, Flask) else Client(app)
        found = {target: client.get(target) for target in targets}
        return {target: (answer.status_code, answer.data if isinstance(app, Flask) else answer.content) for target, answer in found.items()}
    patterns = (path("v2", include(urls(make_server(), public=public))),)
    with override_settings(ROOT_URLCONF=patterns, MIDDLEWARE=[f"{__name__}.django_check"]):
        found = {target: DjangoClient().get(target) for target in targets}
    return {target: (answer.status_code, answer.content) for target, answer in found.items()}


HOSTS = [of_install, of_the_application, of_the_blueprint, of_a_blueprint_around, of_the_flask_application, urls]


@pytest.mark.parametrize("public", [["health"], ["docs"]], ids=str)
@pytest.mark.parametrize("make", HOSTS)
def test_what_is_open_and_nothing_else(make: Any, public: list[str], caplog: pytest.LogCaptureFixture) -> None:
    is_open = [path for word, paths in (("health", HEALTH), ("docs", DOCS)) for path in paths if word in public]
    found = list_answers(make, public, [*HEALTH, *DOCS, *CLOSED])
    assert [target for target, (status, _) in found.items() if status == 200] == is_open
    assert {answer for target, answer in found.items() if target not in is_open} == {(401, b'{"error":"no"}')}
    assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi" and "protect" in record.getMessage()] == []


@pytest.mark.parametrize("make", [of_install, of_the_application])
def test_a_path_that_is_spelled_in_another_way_is_no_way_in(make: Callable[[list[str]], FastAPI]) -> None:
    client = Client(make(WORDS))
    for target in ("/v2/models/echo%2Fready", "/v2/models%2Fecho/ready", "/v2/health%2Flive", "/v2/models/x%2Fversions%2F1%2Fready"):
        assert client.get(target).status_code == 401


def test_other_methods_of_an_open_path_are_answered_as_anywhere() -> None:
    client = Client(of_install(["health"]))
    assert (client.request("HEAD", "/v2/health/live").status_code, client.post("/v2/health/live").status_code) == (200, 405)
    assert client.post("/v2/models/echo/infer").status_code == 401
    app = FastAPI()
    OIPApp(make_server()).install(app, public=["health"])  # without dependencies, all is open
    assert [Client(app).get(target).status_code for target in ("/v2", "/v2/health/live", "/v2/docs")] == [200, 200, 200]


def test_health_is_open_over_grpc_too() -> None:
    empty, headers = bytes(5), {"content-type": "application/grpc-web+proto"}
    open_methods = ["/grpc.health.v1.Health/Check", *(f"/inference.GRPCInferenceService/Server{name}" for name in ("Live", "Ready"))]
    for public, status in ((["health"], 200), (["docs"], 401)):
        client = Client(of_install(public))
        assert {client.post(method, content=empty, headers=headers).status_code for method in open_methods} == {status}
        for method in (
            "/inference.GRPCInferenceService/ServerMetadata",
            "/grpc.health.v1.Health/Check/x",
            "/grpc.health.v1.Health/Chec%6b/",
        ):
            assert client.post(method, content=empty, headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("public", "text"),
    [
        (["healt"], "public= takes a list of the words 'health', 'docs', but this is ['healt']"),
        ("health", "public= takes a list of the words 'health', 'docs', but this is 'health'"),
    ],
)
def test_an_unknown_word_is_refused_with_the_words(public: Any, text: str) -> None:
    server = make_server()
    takers: list[Callable[[], Any]] = [
        lambda: OIPApp(server).install(FastAPI(), public=public),
        lambda: blueprint(server, public=public),
        lambda: urls(server, public=public),
    ]
    for take in takers:
        with pytest.raises(ValueError, match=exactly(text)):
            take()
