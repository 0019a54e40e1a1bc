"""What is Flask's own about the blueprint: its hooks, its limit, its context, its prefixes, its errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from flask import Flask, Response, abort, current_app, g, redirect, request
from flask.typing import ResponseReturnValue
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Unauthorized

from oip_asgi import InferenceContext, InferenceServer
from oip_asgi.flask import blueprint
from tests.support.host_ways import flask_app
from tests.table.row import ECHOED, GOOD, answer, inputs

BODY = inputs(GOOD)
INFER = "/v2/models/echo/infer"


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def server(calls: list[str]) -> InferenceServer:
    server = InferenceServer(max_body_bytes=5000)

    @server.model("echo")
    def echo(**inputs: Any) -> Any:
        calls.append("echo")
        return inputs

    return server


def test_hooks_decide_who_gets_in_and_see_our_answers(server: InferenceServer, calls: list[str]) -> None:
    app, seen = flask_app(blueprint(server)), list[tuple[str, int]]()

    @app.before_request
    def authenticate() -> ResponseReturnValue | None:
        if request.headers.get("X-Forbidden"):
            abort(403)
        if request.blueprint != "oip" or request.headers.get("X-Key") == "open sesame":
            return None
        return {"error": "who is there?"}, 401

    @app.after_request
    def note(response: Any) -> Any:
        seen.append((request.blueprint or "", response.status_code))
        response.headers["X-Seen"] = "yes"
        return response

    client = app.test_client()
    assert [client.post(INFER, data=BODY).status_code, client.get("/v2").status_code] == [401, 401]
    assert client.get("/v2", headers={"X-Forbidden": "1"}).status_code == 403
    assert calls == []
    found = client.post(INFER, data=BODY, headers={"X-Key": "open sesame"})
    assert (found.status_code, found.data, found.headers["X-Seen"]) == (200, answer("echo", ECHOED), "yes")
    assert seen == [("oip", 401), ("oip", 401), ("oip", 403), ("oip", 200)]


def test_both_limits_apply(server: InferenceServer, calls: list[str]) -> None:
    app = flask_app(blueprint(server))
    client = app.test_client()

    def refused(size: int) -> tuple[int, str]:
        found = client.post(INFER, data=BODY.ljust(size))
        return found.status_code, found.get_json()["error"]

    assert refused(5001) == (413, "the body is larger than 5000 bytes, the most that this server takes (max_body_bytes)")
    assert client.post(INFER, data=BODY.ljust(5000)).status_code == 200
    app.config["MAX_CONTENT_LENGTH"] = 1000
    assert refused(1001) == (413, "the body is larger than 1000 bytes, Flask's MAX_CONTENT_LENGTH")
    assert client.post(INFER, data=BODY.ljust(1000)).status_code == 200
    assert calls == ["echo", "echo"]


def test_a_model_is_inside_flasks_context() -> None:
    server = InferenceServer()

    @server.model("who")
    def who(context: InferenceContext) -> Any:
        asked = context.transport["werkzeug.request"]
        return np.array([g.user, current_app.name, asked.path, context.transport["REMOTE_ADDR"]])

    @server.model("async")
    async def from_afar(context: InferenceContext) -> Any:
        return np.array([context.transport["user"]])

    app = flask_app(blueprint(server))

    @app.before_request
    def authenticate() -> None:
        g.user = request.environ["user"] = "ada"

    client = app.test_client()
    found = client.post("/v2/models/who/infer", data=b'{"inputs":[]}').get_json()["outputs"][0]["data"]
    assert found == ["ada", app.name, "/v2/models/who/infer", "127.0.0.1"]
    assert client.post("/v2/models/async/infer", data=b'{"inputs":[]}').get_json()["outputs"][0]["data"] == ["ada"]
    server.stop()


def test_every_method_is_for_us_to_answer(server: InferenceServer) -> None:
    client = flask_app(blueprint(server)).test_client()
    for method in ("PATCH", "OPTIONS", "TRACE", "BREW"):
        found = client.open("/v2", method=method)
        assert (found.status_code, found.headers["Allow"], found.content_type) == (405, "GET, HEAD", "application/json")
        assert json.loads(found.data)["error"].startswith(f"method '{method}'")


def test_subdomains_are_flasks_too(server: InferenceServer) -> None:
    app = Flask(__name__, subdomain_matching=True)
    app.config["SERVER_NAME"] = "example.org"
    app.register_blueprint(blueprint(server), subdomain="models")
    client = app.test_client()
    assert client.get("/v2/models", base_url="http://models.example.org").get_json() == {"models": ["echo"]}
    assert client.get("/v2/models", base_url="http://example.org").status_code == 404


def test_two_blueprints_need_two_names(server: InferenceServer) -> None:
    with pytest.raises(ValueError, match="'oip' is already registered"):
        flask_app(blueprint(server), blueprint(server, url_prefix="/other"))


def test_a_prefix_with_a_variable_even_of_our_own_name() -> None:
    server = InferenceServer("tenants", "1")
    server.register("m", lambda x: x, version="2")
    client = flask_app(blueprint(server, url_prefix="/<name>/<int:version>/<path>/v2", public=["health"])).test_client()
    paths = ("/models/m/versions/2", "/models/m/versions/3", "/health/live/", "/no")
    assert [client.get(f"/ann/3/x/v2{path}").status_code for path in paths] == [200, 404, 200, 404]


# What its own checks raise on the protocol's routes: their status, their headers, and `{"error": text}`; elsewhere as before


@pytest.fixture
def checking(server: InferenceServer) -> Any:
    app = flask_app(blueprint(server, public=["health"]))

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

    return app.test_client()


@pytest.mark.parametrize("path", ["/v2", "/v2/models/echo/infer", "/v2/health/live"])
def test_abort_in_flask(checking: Any, path: str) -> None:
    found = checking.get(path, headers={"X-Ask": "key"})
    assert (found.status_code, found.data, found.content_type) == (401, b'{"error":"no key"}', "application/json")
    assert found.headers["WWW-Authenticate"].strip() == "Basic"  # werkzeug 3.1.6 ends it with a space
    found = checking.get(path, headers={"X-Ask": "403"})
    text = "You don't have the permission to access the requested resource. It is either read-protected or not readable by the server."
    assert (found.status_code, found.json) == (403, {"error": text})
    found = checking.get(path, headers={"X-Ask": "bug"})
    assert (found.status_code, list(found.json or {})) == (500, ["error"])


def test_what_flask_answers_elsewhere_and_by_a_response_of_its_own_stays(checking: Any) -> None:
    assert checking.get("/own", headers={"X-Ask": "key"}).data == b"the host's own"
    assert checking.get("/v2x").data == b"the host's own"
    assert checking.get("/own", headers={"X-Ask": "403"}).content_type == "text/html; charset=utf-8"
    for path in ("/v2", "/own"):
        found = checking.get(path, headers={"X-Ask": "login"})
        assert (found.status_code, found.headers["Location"]) == (302, "/login")
        assert checking.get(path, headers={"X-Ask": "response"}).data == b"the host's own"
