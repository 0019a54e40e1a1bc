"""Dependencies before the protocol: that nothing gets past them, what they may do and refuse, where they cannot apply, and what `public=`
leaves open, also in Flask and Django.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client as DjangoClient
from django.test import override_settings
from django.urls import include, resolve
from django.urls import path as django_path
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Security
from fastapi.responses import PlainTextResponse
from fastapi.security import APIKeyHeader, HTTPBearer
from flask import Blueprint, Flask, abort, request
from starlette.applications import Starlette

from oip_asgi import InferenceContext, InferenceServer, OIPApp, OIPMiddleware
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.asking import exactly, logged
from tests.support.client import Client
from tests.support.host_ways import configure_django, flask_app
from tests.table.row import GOOD, inputs

KEY = {"x-api-key": "k"}
BODY = inputs(GOOD)
PROTOCOL_PATHS = [
    *("/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/models", "/v2/models/echo", "/v2/models/echo/infer", "/v2/nothing"),
    *("/v2//models", "/v2/models/echo%2Finfer", "/v2/repository/index"),
]
UNARY = "/inference.GRPCInferenceService/ServerLive"
GRPC_WEB = {"content-type": "application/grpc-web+proto"}


async def check_key(x_api_key: str | None = Header(None)) -> None:
    if x_api_key != "k":
        raise HTTPException(401, "send the header x-api-key", {"WWW-Authenticate": "ApiKey"})


def make_server() -> InferenceServer:
    server = InferenceServer()
    server.register("echo", lambda x: x)

    @server.model("count")
    def count(x: Any) -> Iterator[Any]:
        yield from x

    @server.model("user")
    def user(context: InferenceContext) -> Any:
        return np.array([str(context.transport["state"]["user"])])

    return server


def guarded(check: Any = check_key, *, of_app: bool = False, **options: Any) -> FastAPI:
    """An application with a dependency of its own or of the install, and a route of its own behind it."""
    app = FastAPI(dependencies=[Depends(check)] if of_app else [])

    @app.get("/own", dependencies=[Depends(check)], include_in_schema=False)
    def own() -> None: ...

    OIPApp(make_server()).install(app, dependencies=[] if of_app else [Depends(check)], **options)
    return app


@pytest.fixture(scope="module", params=["of the application", "of install"])
def client(request: pytest.FixtureRequest) -> Client:
    return Client(guarded(of_app=request.param == "of the application", grpc=True))


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "PROPFIND"])
def test_nothing_gets_past_a_dependency(client: Client, method: str) -> None:
    app = Starlette()
    OIPApp(make_server()).install(app)
    plain = Client(app)  # without dependencies
    for path in PROTOCOL_PATHS:
        refused = client.request(method, path, content=BODY)
        assert refused.status_code == 401, path
        assert refused.content == (b"" if method == "HEAD" else b'{"error":"send the header x-api-key"}')
        assert (refused.headers["content-type"], refused.headers["www-authenticate"]) == ("application/json", "ApiKey")
        allowed, expected = (each.request(method, path, content=BODY, headers=KEY) for each in (client, plain))
        assert (allowed.status_code, allowed.content, allowed.headers) == (expected.status_code, expected.content, expected.headers), path


def test_what_else_passes(client: Client) -> None:
    assert client.get("/v2x", headers=KEY).json() == {"detail": "Not Found"}  # a longer word is the host's
    answer = client.post("/v2/models/count/infer_stream", content=BODY, headers=KEY)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [json.loads(line[6:])["outputs"][0]["data"] for line in answer.text.split("\n\n") if line] == [[1.0], [2.0]]
    assert client.post(UNARY, content=bytes(5), headers=GRPC_WEB).status_code == 401
    answer = client.post(UNARY, content=bytes(5), headers=GRPC_WEB | KEY)
    assert (answer.status_code, answer.content[:7]) == (200, b"\0\0\0\0\2\x08\1")
    assert answer.content.endswith(b"grpc-status:0\r\n")
    # the document lists the paths of the protocol, and not the routes that they are behind
    assert set(client.get("/openapi.json").json()["paths"]) == set(make_server().openapi("/v2")["paths"])


def test_what_dependencies_may_do() -> None:
    """Read the body, as for a signature of it, leave something for the model, and end when the request has been answered."""
    seen: list[str] = []

    async def signed(request: Request) -> AsyncIterator[None]:
        seen.append(f"{len(await request.body())} bytes")
        request.state.user = "ann"
        yield
        seen.append("end")

    with Client(guarded(signed, of_app=True)) as client:
        answer = client.post("/v2/models/echo/infer", content=BODY)
        assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [1.0, 2.0])
        assert client.post("/v2/models/user/infer", content=b'{"inputs":[]}').json()["outputs"][0]["data"] == ["ann"]
    assert seen == [f"{len(BODY)} bytes", "end", "13 bytes", "end"]


def test_overrides_of_tests_and_a_proxys_root_path_apply() -> None:
    app = guarded(of_app=True)
    client = Client(app, root_path="/api")
    assert client.get("/v2/models", headers=KEY).json() == {"models": ["echo", "count", "user"]}
    text = "unknown path '/api/v2/nothing': expected /api/v2/health/live,"
    assert client.get("/v2/nothing", headers=KEY).json()["error"].startswith(text)
    app.dependency_overrides[check_key] = lambda: None
    assert Client(app).get("/v2/models").status_code == 200


# What they refuse: their status, their headers, and `{"error": text}`


@pytest.mark.parametrize(
    ("error", "status", "text", "more"),
    [
        (HTTPException(401, "no key", {"WWW-Authenticate": 'Basic realm="x"'}), 401, "no key", {"www-authenticate": 'Basic realm="x"'}),
        (HTTPException(429, headers={"Retry-After": "3"}), 429, "Too Many Requests", {"retry-after": "3"}),
        (HTTPException(403, {"code": 7}), 403, '{"code": 7}', {}),
    ],
)
def test_an_exception_of_http(error: HTTPException, status: int, text: str, more: dict[str, str]) -> None:
    def check() -> None:
        raise error

    app = guarded(check)

    @app.exception_handler(HTTPException)
    async def answer_as_the_host(request: Any, error: Any) -> PlainTextResponse:
        return PlainTextResponse("the host's own", error.status_code)

    client = Client(app)
    found = client.post("/v2/models/echo/infer")
    assert (found.status_code, found.json()) == (status, {"error": text})
    assert dict(found.headers) == {"content-type": "application/json", "content-length": str(len(found.content)), **more}
    assert (client.get("/own").status_code, client.get("/own").text) == (status, "the host's own")


def test_a_header_that_is_missing() -> None:
    def check(x_api_key: str = Header(), x_number: int = Header()) -> None: ...

    client = Client(guarded(check))
    found = client.get("/v2", headers={"x-number": "no"})
    text = "header x-api-key: Field required; header x-number: Input should be a valid integer, unable to parse string as an integer"
    assert (found.status_code, found.json()) == (422, {"error": text})
    assert client.get("/own").json()["detail"][0]["loc"] == ["header", "x-api-key"]


def test_a_redirect_and_an_exception_of_the_host_are_the_hosts() -> None:
    class Mine(Exception): ...

    def check(request: Request) -> None:
        if request.headers.get("mine"):
            raise Mine
        raise HTTPException(303, headers={"Location": "/login"})

    app = guarded(check)
    app.add_exception_handler(Mine, lambda *_: PlainTextResponse("mine", 418))
    client = Client(app)
    found = client.get("/v2")
    assert (found.status_code, found.headers["location"], found.json()) == (303, "/login", {"detail": "See Other"})
    assert client.get("/v2", headers={"mine": "1"}).text == "mine"


# The security that documents have of them


def check_security(key: str | None = Security(APIKeyHeader(name="x-api-key", auto_error=False))) -> None:
    if key != "k":
        raise HTTPException(401, "send the header x-api-key")


SCHEME = {"type": "apiKey", "in": "header", "name": "x-api-key"}


def test_the_documents_have_the_security_of_the_dependencies() -> None:
    client = Client(guarded(check_security, public=["health", "docs"]))
    for document, prefix in ((client.get("/openapi.json").json(), "/v2"), (client.get("/v2/openapi.json").json(), "")):
        assert document["components"]["securitySchemes"] == {"APIKeyHeader": SCHEME}
        asked = {path.removeprefix(prefix): next(iter(methods.values())).get("security") for path, methods in document["paths"].items()}
        public = {path for path, needed in asked.items() if needed is None}
        assert public == {"/health/live", "/health/ready", *(f"/models/{name}/ready" for name in ("echo", "count", "user"))}
        assert {json.dumps(needed) for path, needed in asked.items() if path not in public} == {'[{"APIKeyHeader": []}]'}
    one = client.get("/v2/models/echo/openapi.json", headers=KEY).json()
    assert one["components"]["securitySchemes"] == {"APIKeyHeader": SCHEME}


def test_the_security_of_the_application_and_of_install_together_and_none_of_other_dependencies() -> None:
    app, server = FastAPI(dependencies=[Depends(HTTPBearer())]), make_server()
    before = server.openapi()
    OIPApp(server).install(app, dependencies=[Depends(check_security)])
    document = server.openapi()
    assert document["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}, "APIKeyHeader": SCHEME}
    assert document["paths"]["/v2/models/echo/ready"]["get"]["security"] == [{"HTTPBearer": []}, {"APIKeyHeader": []}]
    assert "securitySchemes" not in before["components"]
    assert "security" not in Client(guarded(lambda: None)).get("/v2/openapi.json").text


# Where they cannot apply

MIDDLEWARE = (
    "OIPMiddleware answers before the dependencies of the FastAPI application run, so they would not protect the protocol: "
    'write OIPApp(server).install(app, "/v2"), to which they apply'
)
MOUNT = (
    "FastAPI runs no dependencies before what is mounted, so those of the application or router do not protect OIPApp: write "
    'OIPApp(server).install(app, "/v2"), to which the application\'s apply, and which takes dependencies=[Depends(...)]'
)


def test_middleware_refuses_what_it_would_get_around() -> None:
    app = FastAPI(dependencies=[Depends(check_key)])
    with pytest.raises(ValueError, match=exactly(MIDDLEWARE)):
        OIPMiddleware(app, make_server())
    app.add_middleware(OIPMiddleware, server=make_server())  # made when the first request comes
    with pytest.raises(ValueError, match=exactly(MIDDLEWARE)):
        Client(app).get("/v2/models")


def test_a_mount_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    open_app, app, both = FastAPI(), *(FastAPI(dependencies=[Depends(check_key)]) for _ in range(2))
    for each in (open_app, app):
        each.mount("/v2", OIPApp(make_server()))
    ours = OIPApp(make_server())
    ours.install(both, public=["health"])
    both.mount("/open", ours)
    assert [Client(open_app).get("/v2/models").status_code, Client(both).get("/v2/health/live").status_code] == [200, 200]
    assert not logged(caplog)
    assert [Client(app).get("/v2/models").status_code for _ in range(2)] == [200, 200]
    assert [record.getMessage() for record in logged(caplog)] == [MOUNT]
    assert Client(both).get("/open/models").status_code == 200
    assert [record.getMessage() for record in logged(caplog)] == [MOUNT] * 2


def test_a_mount_in_a_router_with_dependencies_warns_where_it_is_served(caplog: pytest.LogCaptureFixture) -> None:
    router, app = APIRouter(dependencies=[Depends(check_key)]), FastAPI()
    router.mount("/v2", OIPApp(make_server()))
    app.include_router(router)
    status = Client(app).get("/v2/models").status_code
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert (status, warned) in [(200, [MOUNT]), (404, [])]  # FastAPI before 0.165 leaves out what is mounted in a router


def test_only_fastapi_has_dependencies() -> None:
    for options, name in (({"dependencies": [Depends(check_key)]}, "dependencies="), ({"public": ["health"]}, "public=")):
        with pytest.raises(TypeError, match=exactly(f"{name} is for FastAPI applications: for Starlette, use middleware")):
            OIPApp(make_server()).install(Starlette(), **options)


configure_django()

HEALTH = ["/v2/health/live", "/v2/health/ready", "/v2/health/live/", "/v2/models/echo/ready", "/v2/models/org/echo/ready"]
HEALTH += ["/v2/models/echo/versions/1/ready", "/v2/models/org%2Fecho/versions/1/ready"]
DOCS = ["/v2/docs", "/v2/docs/", "/v2/docs/page.js", "/v2/docs/icon.svg", "/v2/openapi.json"]
CLOSED = ["/v2", "/v2/", "/v2/models", "/v2/models/echo", "/v2/models/stats", "/v2/models/echo/openapi.json", "/v2/docs/nothing"]
CLOSED += ["/v2/health", "/v2/health/live/x", "/v2//health/live", "/v2/repository/index", "/v2/docs/../models", "/v2/models/echo/infer"]
WORDS = ["health", "docs"]


def make_public_server() -> InferenceServer:
    server = InferenceServer()
    server.register("echo", lambda x: x, version="1")
    server.register("org/echo", lambda x: x, version="1")
    return server


def refuse() -> None:
    raise HTTPException(401, "no")


def of_install(public: list[str]) -> FastAPI:
    app = FastAPI()
    OIPApp(make_public_server()).install(app, dependencies=[Depends(refuse)], public=public, grpc=True)
    return app


def of_the_application(public: list[str]) -> FastAPI:
    app = FastAPI(dependencies=[Depends(refuse)])
    OIPApp(make_public_server()).install(app, public=public, grpc=True)
    return app


def of_the_blueprint(public: list[str]) -> Flask:
    served = blueprint(make_public_server(), public=public)
    served.before_request(lambda: abort(401, "no"))
    return flask_app(served)


def of_a_blueprint_around(public: list[str]) -> Flask:
    around = Blueprint("around", __name__)
    around.before_request(lambda: abort(401, "no"))
    around.register_blueprint(blueprint(make_public_server(), public=public))
    return flask_app(around)


def of_the_flask_application(public: list[str]) -> Flask:
    app = flask_app(blueprint(make_public_server(), public=public))
    app.before_request(lambda: None if request.blueprint == "oip_public" else abort(401, "no"))
    return app


def django_check(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        if getattr(resolve(request.path_info).func, "login_required", True):
            return HttpResponse('{"error":"no"}', status=401)
        return get_response(request)

    return middleware


def list_answers(make: Any, public: list[str], targets: list[str]) -> dict[str, tuple[int, bytes]]:
    if make is not urls:
        app = make(public)
        client: Any = app.test_client() if isinstance(app, Flask) else Client(app)
        found = {target: client.get(target) for target in targets}
        return {target: (answer.status_code, answer.data if isinstance(app, Flask) else answer.content) for target, answer in found.items()}
    patterns = (django_path("v2", include(urls(make_public_server(), public=public))),)
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
    OIPApp(make_public_server()).install(app, public=["health"])  # without dependencies, all is open
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
    server = make_public_server()
    takers: list[Callable[[], Any]] = [
        lambda: OIPApp(server).install(FastAPI(), public=public),
        lambda: blueprint(server, public=public),
        lambda: urls(server, public=public),
    ]
    for take in takers:
        with pytest.raises(ValueError, match=exactly(text)):
            take()
