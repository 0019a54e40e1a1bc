"""What is Flask's own about the blueprint: its hooks, its limit, its context, its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flask import Flask, abort, current_app, g, request
from flask.typing import ResponseReturnValue
from werkzeug.test import EnvironBuilder

from oip_asgi import InferenceContext, InferenceServer
from oip_asgi.flask import blueprint
from tests.table.row import ECHOED, GOOD, answer, inputs

BODY = inputs(GOOD)
INFER = "/v2/models/echo/infer"


def make_app(server: InferenceServer) -> Flask:
    app = Flask(__name__)
    app.register_blueprint(blueprint(server))
    return app


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


def test_before_request_decides_who_gets_in(server: InferenceServer, calls: list[str]) -> None:
    app = make_app(server)

    @app.before_request
    def authenticate() -> ResponseReturnValue | None:
        if request.blueprint != "oip" or request.headers.get("X-Key") == "open sesame":
            return None
        return {"error": "who is there?"}, 401

    client = app.test_client()
    assert client.post(INFER, data=BODY).status_code == 401
    assert client.get("/v2").status_code == 401
    assert calls == []
    found = client.post(INFER, data=BODY, headers={"X-Key": "open sesame"})
    assert (found.status_code, found.data) == (200, answer("echo", ECHOED))


def test_hooks_may_abort_and_see_our_answers(server: InferenceServer) -> None:
    app = make_app(server)
    seen: list[tuple[str, int]] = []

    @app.before_request
    def only_json() -> None:
        if request.headers.get("X-Forbidden"):
            abort(403)

    @app.after_request
    def note(response: Any) -> Any:
        seen.append((request.blueprint or "", response.status_code))
        response.headers["X-Seen"] = "yes"
        return response

    client = app.test_client()
    assert client.get("/v2", headers={"X-Forbidden": "1"}).status_code == 403
    assert client.get("/v2/models/nope").headers["X-Seen"] == "yes"
    assert seen == [("oip", 403), ("oip", 404)]


def test_both_limits_apply(server: InferenceServer, calls: list[str]) -> None:
    app = make_app(server)
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


@pytest.mark.parametrize("limit", [None, 1000])
def test_a_chunked_body_keeps_the_limits(server: InferenceServer, limit: int | None) -> None:
    app = make_app(server)
    app.config["MAX_CONTENT_LENGTH"] = limit

    def send(body: bytes, *, terminated: bool = True) -> tuple[int, bytes]:
        return post(app, body, {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": terminated})

    assert send(BODY) == (200, answer("echo", ECHOED))
    status, error = send(BODY.ljust(5001))
    assert (status, str(limit or 5000).encode() in error) == (413, True)
    assert send(BODY, terminated=False)[0] == 411


def post(app: Flask, body: bytes, more: dict[str, Any]) -> tuple[int, bytes]:
    """What a server does, where the test client would add a length."""
    environ = EnvironBuilder(path=INFER, method="POST").get_environ()
    for name in ("CONTENT_LENGTH", "wsgi.input_terminated"):
        environ.pop(name, None)
    environ.update({"wsgi.input": BytesIO(body), **more})
    started: list[str] = []

    def start_response(status: str, headers: object, exc_info: object = None) -> Callable[[bytes], object]:
        started.append(status)
        return lambda data: None

    answered = b"".join(app(environ, start_response))
    return int(started[0].split()[0]), answered


def test_a_body_that_ends_early_is_no_error_of_ours(server: InferenceServer, calls: list[str]) -> None:
    status, error = post(make_app(server), BODY, {"CONTENT_LENGTH": str(len(BODY) + 1)})
    assert status == 400
    assert json.loads(error)["error"] == f"the body ended after {len(BODY)} bytes: expected {len(BODY) + 1}"
    assert calls == []


def test_a_model_is_inside_flasks_context() -> None:
    server = InferenceServer()

    @server.model("who")
    def who(context: InferenceContext) -> Any:
        asked = context.transport["werkzeug.request"]
        return np.array([g.user, current_app.name, asked.path, context.transport["REMOTE_ADDR"]])

    @server.model("async")
    async def from_afar(context: InferenceContext) -> Any:
        return np.array([context.transport["user"]])

    app = make_app(server)

    @app.before_request
    def authenticate() -> None:
        g.user = request.environ["user"] = "ada"

    client = app.test_client()
    found = client.post("/v2/models/who/infer", data=b'{"inputs":[]}').get_json()["outputs"][0]["data"]
    assert found == ["ada", app.name, "/v2/models/who/infer", "127.0.0.1"]
    assert client.post("/v2/models/async/infer", data=b'{"inputs":[]}').get_json()["outputs"][0]["data"] == ["ada"]
    server.stop()


def test_every_method_is_for_us_to_answer(server: InferenceServer) -> None:
    client = make_app(server).test_client()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "POST"):
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
    app = make_app(server)
    with pytest.raises(ValueError, match="'oip' is already registered"):
        app.register_blueprint(blueprint(server, url_prefix="/other"))


@pytest.mark.parametrize("read", [lambda: request.get_data(), lambda: request.get_json(force=True)])
def test_a_body_that_before_request_has_read(read: Callable[[], object]) -> None:
    server = InferenceServer()
    server.register("m", lambda x: x)
    app = Flask(__name__)
    app.register_blueprint(blueprint(server))

    @app.before_request
    def log() -> None:
        read()

    body = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'
    answer = app.test_client().post("/v2/models/m/infer", data=body)
    assert (answer.status_code, b'"data":[1.0]' in answer.data) == (200, True)


def test_a_prefix_with_a_variable() -> None:
    app = Flask(__name__)
    app.register_blueprint(blueprint(InferenceServer("tenants", "1"), url_prefix="/<tenant>/v2"))
    assert app.test_client().get("/anybody/v2/health/live").json == {"live": True}


def test_a_prefix_with_a_variable_of_our_own_name() -> None:
    app, server = Flask(__name__), InferenceServer("tenants", "1")
    server.register("m", lambda x: x, version="2")
    app.register_blueprint(blueprint(server, url_prefix="/<name>/<int:version>/<path>/v2", public=["health"]))
    client, prefix = app.test_client(), "/ann/3/x/v2"
    found = [client.get(f"{prefix}{path}").status_code for path in ("/models/m/versions/2", "/models/m/versions/3", "/health/live/", "/no")]
    assert found == [200, 404, 200, 404]
