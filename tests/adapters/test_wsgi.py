"""What only WSGI has: bodies without a length, and paths that the server has decoded."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest
from flask import Flask, request
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client, EnvironBuilder

from oip_asgi import InferenceServer, OIPWSGIApp, OIPWSGIMiddleware
from oip_asgi.flask import blueprint
from tests.support.ways import Answer, Request, other_wsgi_app, over_wsgi

BODY = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer("wsgi", "1")
    server.register("m", lambda x: x)
    return server


def post(server: InferenceServer, **environ: Any) -> tuple[str, bytes]:
    made = EnvironBuilder("/models/m/infer", method="POST").get_environ()
    made.pop("CONTENT_LENGTH", None)
    made.update({"wsgi.input": BytesIO(BODY), **environ})
    statuses: list[str] = []
    body = b"".join(OIPWSGIApp(server)(made, lambda status, headers, exc_info=None: statuses.append(status)))  # type: ignore[arg-type]
    return statuses[0], body


def test_a_body_whose_end_nobody_vouches_for(server: InferenceServer) -> None:
    status, body = post(server)
    assert status == "411 Length Required"
    assert b"no Content-Length" in body
    assert post(server, HTTP_TRANSFER_ENCODING="chunked")[0] == "411 Length Required"
    assert post(server, CONTENT_LENGTH="")[0] == "411 Length Required"


def test_a_body_that_the_server_ends(server: InferenceServer) -> None:
    status, body = post(server, **{"wsgi.input_terminated": True})
    assert (status, b'"data":[1.0]' in body) == ("200 OK", True)


def test_a_body_is_read_to_its_length_and_no_further(server: InferenceServer) -> None:
    stream = BytesIO(BODY + b"the next request")
    assert post(server, CONTENT_LENGTH=str(len(BODY)), **{"wsgi.input": stream})[0] == "200 OK"
    assert stream.read() == b"the next request"


def test_a_client_that_goes_before_its_body_ends(server: InferenceServer) -> None:
    class Broken(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError

    status, body = post(server, CONTENT_LENGTH="10", **{"wsgi.input": Broken()})
    assert (status, body) == ("400 Bad Request", b'{"error":"the body ended after 0 bytes: expected 10"}')


def test_a_limit_by_count_for_a_body_without_length() -> None:
    server = InferenceServer(max_body_bytes=10)
    server.register("m", lambda x: x)
    assert post(server, **{"wsgi.input_terminated": True})[0] == "413 Request Entity Too Large"


def test_a_status_that_http_does_not_name() -> None:
    from oip_asgi import InferenceError

    server = InferenceServer()

    @server.model("m")
    def model(x: Any) -> Any:
        raise InferenceError("no", status=477)

    assert post(server, CONTENT_LENGTH=str(len(BODY)))[0] == "477 Error"


@pytest.mark.parametrize("path", ["/v2", "/ml/v2", "/v2/", "/"])
def test_middleware_at_any_path(server: InferenceServer, path: str) -> None:
    app = OIPWSGIMiddleware(other_wsgi_app, server, path)
    send = over_wsgi(app, path.rstrip("/"))
    assert send(Request("GET", "/health/live")).body == b'{"live":true}'
    assert send(Request("GET", "")).status == 200
    if path != "/":
        for other in ("/", "/v2x", "/v2x/health/live", "/ml"):
            assert over_wsgi(app, "")(Request("GET", other)) == Answer(418, {}, b"the host's own")


def test_under_a_dispatcher_an_encoded_slash_is_still_told(server: InferenceServer) -> None:
    server.register("org/m", lambda: 1)
    app = DispatcherMiddleware(other_wsgi_app, {"/ml/v2": OIPWSGIApp(server)})
    assert over_wsgi(app, "/ml/v2")(Request("GET", "/models/org%2Fm/ready")).body == b'{"name":"org/m","ready":true}'


def test_a_target_that_somebody_has_rewritten_is_left_aside(server: InferenceServer) -> None:
    environ = EnvironBuilder("/models/m").get_environ() | {"REQUEST_URI": "/other/%6D"}
    statuses: list[str] = []
    list(OIPWSGIApp(server)(environ, lambda status, headers, exc_info=None: statuses.append(status)))  # type: ignore[arg-type]
    assert statuses == ["200 OK"]


def test_flask_keeps_its_own_routes(server: InferenceServer) -> None:
    app = Flask(__name__)

    @app.post("/own")
    def own() -> str:
        return request.get_data(as_text=True)

    app.wsgi_app = OIPWSGIMiddleware(app.wsgi_app, server)  # type: ignore[method-assign]
    client = Client(app)
    assert client.post("/own", data="hello").text == "hello"
    assert client.get("/v2").json == {
        "name": "wsgi",
        "version": "1",
        "extensions": ["binary_tensor_data", "classification", "model_configuration", "parameters", "statistics"],
    }
    assert client.post("/v2/models/m/infer", data=BODY).status_code == 200


class Breaking(BytesIO):
    """A stream whose client goes away: servers raise some OSError or other."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise ConnectionResetError("the client is gone")
        return super().read(10)


def test_a_client_that_goes_away_is_no_error_of_ours(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    status, body = post(server, CONTENT_LENGTH=str(len(BODY)), **{"wsgi.input": Breaking(BODY)})
    assert status == "400 Bad Request"
    assert body == b'{"error":"the body ended after 10 bytes: expected %d"}' % len(BODY)
    assert caplog.records == []


class Refusing(BytesIO):
    """A stream of a server that cannot make sense of a chunk: gunicorn raises a class of its own, which is no OSError."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise LookupError("ChunkMissingTerminator")


@pytest.mark.parametrize("host", ["itself", "Flask"])
def test_a_body_that_the_server_in_front_cannot_read(server: InferenceServer, host: str, caplog: pytest.LogCaptureFixture) -> None:
    app: Any = OIPWSGIApp(server)
    if host == "Flask":
        app = Flask(__name__)
        app.register_blueprint(blueprint(server, url_prefix="/"))
    environ = EnvironBuilder("/models/m/infer", method="POST").get_environ()
    environ.pop("CONTENT_LENGTH", None)
    environ |= {"wsgi.input": Refusing(), "wsgi.input_terminated": True}
    statuses: list[str] = []
    body = b"".join(app(environ, lambda status, headers, exc_info=None: statuses.append(status)))
    assert [int(status.split()[0]) for status in statuses] == [400]
    assert json.loads(body) == {"error": "the body cannot be read: the server in front says LookupError"}
    assert caplog.records == []
