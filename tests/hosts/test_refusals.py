"""What the host's own checks raise on the protocol's routes: their status, their headers, and `{"error": text}`; elsewhere as before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Security
from fastapi.responses import PlainTextResponse
from fastapi.security import APIKeyHeader, HTTPBearer
from flask import Flask, Response, abort, redirect, request
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Unauthorized

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.flask import blueprint
from tests.support.client import Client


def make_server(**options: Any) -> InferenceServer:
    server = InferenceServer(**options)
    server.register("echo", lambda x: x)
    return server


def fastapi_app(check: Any, **options: Any) -> FastAPI:
    app = FastAPI()

    @app.get("/own", dependencies=[Depends(check)])
    def own() -> None: ...

    OIPApp(make_server()).install(app, dependencies=[Depends(check)], **options)
    return app


@pytest.mark.parametrize(
    ("error", "status", "text", "more"),
    [
        (HTTPException(401, "no key", {"WWW-Authenticate": 'Basic realm="x"'}), 401, "no key", {"www-authenticate": 'Basic realm="x"'}),
        (HTTPException(429, headers={"Retry-After": "3"}), 429, "Too Many Requests", {"retry-after": "3"}),
        (HTTPException(403, {"code": 7}), 403, '{"code": 7}', {}),
    ],
)
def test_a_dependency_of_fastapi(error: HTTPException, status: int, text: str, more: dict[str, str]) -> None:
    def check() -> None:
        raise error

    app = fastapi_app(check)

    @app.exception_handler(HTTPException)
    async def answer_as_the_host(request: Any, error: Any) -> PlainTextResponse:
        return PlainTextResponse("the host's own", error.status_code)

    client = Client(app)
    found = client.post("/v2/models/echo/infer")
    assert (found.status_code, found.json()) == (status, {"error": text})
    assert dict(found.headers) == {"content-type": "application/json", "content-length": str(len(found.content)), **more}
    assert (client.get("/own").status_code, client.get("/own").text) == (status, "the host's own")


def test_a_dependency_of_fastapi_that_misses_a_header() -> None:
    def check(x_api_key: str = Header(), x_number: int = Header()) -> None: ...

    found = Client(fastapi_app(check)).get("/v2", headers={"x-number": "no"})
    text = "header x-api-key: Field required; header x-number: Input should be a valid integer, unable to parse string as an integer"
    assert (found.status_code, found.json()) == (422, {"error": text})
    assert Client(fastapi_app(check)).get("/own").json()["detail"][0]["loc"] == ["header", "x-api-key"]


def test_a_dependency_of_fastapi_that_redirects_or_raises_its_own_is_the_hosts() -> None:
    class Mine(Exception): ...

    def check(request: Request) -> None:
        if request.headers.get("mine"):
            raise Mine
        raise HTTPException(303, headers={"Location": "/login"})

    app = fastapi_app(check)
    app.add_exception_handler(Mine, lambda *_: PlainTextResponse("mine", 418))
    found = Client(app).get("/v2")
    assert (found.status_code, found.headers["location"]) == (303, "/login")
    assert Client(app).get("/v2", headers={"mine": "1"}).text == "mine"


def check_key(key: str | None = Security(APIKeyHeader(name="x-api-key", auto_error=False))) -> None:
    if key != "k":
        raise HTTPException(401, "send the header x-api-key")


SCHEME = {"type": "apiKey", "in": "header", "name": "x-api-key"}


def test_the_documents_have_the_security_of_the_dependencies() -> None:
    client = Client(fastapi_app(check_key, public=["health", "docs"]))
    for document, prefix in ((client.get("/openapi.json").json(), "/v2"), (client.get("/v2/openapi.json").json(), "")):
        assert document["components"]["securitySchemes"] == {"APIKeyHeader": SCHEME}
        asked = {path: next(iter(methods.values())).get("security") for path, methods in document["paths"].items() if path != "/own"}
        assert {path.removeprefix(prefix) for path, needed in asked.items() if needed is None} == {
            "/health/live",
            "/health/ready",
            "/models/echo/ready",
        }
        assert [needed for needed in asked.values() if needed is not None] == [[{"APIKeyHeader": []}]] * 9
    one = client.get("/v2/models/echo/openapi.json", headers={"x-api-key": "k"}).json()
    assert one["components"]["securitySchemes"] == {"APIKeyHeader": SCHEME}


def test_the_security_of_the_application_and_of_install_together() -> None:
    app, server = FastAPI(dependencies=[Depends(HTTPBearer())]), make_server()
    before = server.openapi()
    OIPApp(server).install(app, dependencies=[Depends(check_key)])
    document = server.openapi()
    assert document["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}, "APIKeyHeader": SCHEME}
    assert document["paths"]["/v2/models/echo/ready"]["get"]["security"] == [{"HTTPBearer": []}, {"APIKeyHeader": []}]
    assert "securitySchemes" not in before["components"]


def test_documents_of_other_dependencies_have_none() -> None:
    document = Client(fastapi_app(lambda: None)).get("/v2/openapi.json").json()
    assert "security" not in json.dumps(document)


@pytest.fixture
def flask_app() -> Flask:
    app = Flask(__name__)

    @app.before_request
    def check() -> Any:
        asked = request.headers.get("X-Ask", "")
        if asked == "key":
            raise Unauthorized("no key", www_authenticate=WWWAuthenticate("basic"))
        if asked == "login":
            abort(redirect("/login"))
        if asked == "response":
            abort(Response("the host's own", 403))
        if asked == "bug":
            raise RuntimeError("a bug of the host")
        if asked:
            abort(int(asked))

    @app.errorhandler(404)
    @app.errorhandler(401)
    def answer_as_the_host(error: Any) -> tuple[str, int]:
        return "the host's own", error.code

    app.register_blueprint(blueprint(make_server(), public=["health"]))
    return app


@pytest.mark.parametrize("path", ["/v2", "/v2/models/echo/infer", "/v2/health/live"])
def test_abort_in_flask(flask_app: Flask, path: str) -> None:
    client = flask_app.test_client()
    found = client.get(path, headers={"X-Ask": "key"})
    assert (found.status_code, found.data, found.content_type) == (401, b'{"error":"no key"}', "application/json")
    assert found.headers["WWW-Authenticate"].strip() == "Basic"  # werkzeug 3.1.6 ends it with a space
    found = client.get(path, headers={"X-Ask": "403"})
    text = "You don't have the permission to access the requested resource. It is either read-protected or not readable by the server."
    assert (found.status_code, found.json) == (403, {"error": text})
    found = client.get(path, headers={"X-Ask": "bug"})
    assert (found.status_code, list(found.json or {})) == (500, ["error"])


def test_what_flask_answers_elsewhere_and_by_a_response_of_its_own_stays(flask_app: Flask) -> None:
    client = flask_app.test_client()
    assert client.get("/own", headers={"X-Ask": "key"}).data == b"the host's own"
    assert client.get("/v2x").data == b"the host's own"
    assert client.get("/own", headers={"X-Ask": "403"}).content_type == "text/html; charset=utf-8"
    for path in ("/v2", "/own"):
        found = client.get(path, headers={"X-Ask": "login"})
        assert (found.status_code, found.headers["Location"]) == (302, "/login")
        assert client.get(path, headers={"X-Ask": "response"}).data == b"the host's own"
