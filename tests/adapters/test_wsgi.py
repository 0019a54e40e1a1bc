"""What only WSGI has: bodies without a length, by itself, in Flask and in Django, and paths that the server has decoded."""

from __future__ import annotations

from contextlib import nullcontext
from io import BytesIO
from typing import Any

import pytest
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import include, path
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import EnvironBuilder

from oip_asgi import InferenceError, InferenceServer, OIPWSGIApp
from oip_asgi.django import urls
from oip_asgi.flask import blueprint
from tests.support.host_ways import configure_django, flask_app
from tests.support.ways import Request, other_wsgi_app, over_wsgi
from tests.table.row import GOOD, inputs

BODY = inputs(GOOD)
TERMINATED: dict[str, Any] = {"wsgi.input_terminated": True}

hosts = pytest.mark.parametrize("host", ["itself", "Flask", "Django"])


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer("wsgi", "1", max_body_bytes=5000)
    server.register("m", lambda x: x)
    return server


def post(server: InferenceServer, host: str = "itself", stream: BytesIO | None = None, **environ: Any) -> tuple[int, bytes]:
    app: Any = OIPWSGIApp(server)
    if host == "Flask":
        app = flask_app(blueprint(server, url_prefix="/"))
        app.config["MAX_CONTENT_LENGTH"] = environ.pop("limit", None)
    if host == "Django":
        configure_django()
        app = get_wsgi_application()
    made = EnvironBuilder("/models/m/infer", method="POST").get_environ()
    for name in ("CONTENT_LENGTH", "wsgi.input_terminated"):
        made.pop(name, None)
    made.update({"wsgi.input": stream or BytesIO(BODY), **environ})
    statuses: list[str] = []
    with override_settings(ROOT_URLCONF=(path("", include(urls(server))),)) if host == "Django" else nullcontext():
        body = b"".join(app(made, lambda status, headers, exc_info=None: statuses.append(status)))
    [status] = statuses
    return int(status.split()[0]), body


@hosts
def test_a_body_whose_end_nobody_vouches_for(server: InferenceServer, host: str) -> None:
    status, body = post(server, host)
    assert (status, b"no Content-Length" in body) == (411, True)
    assert post(server, host, HTTP_TRANSFER_ENCODING="chunked")[0] == 411
    assert post(server, host, CONTENT_LENGTH="")[0] == 411


@hosts
def test_a_body_that_the_server_ends(server: InferenceServer, host: str) -> None:
    for environ in (TERMINATED, {**TERMINATED, "HTTP_TRANSFER_ENCODING": "chunked"}):
        status, body = post(server, host, **environ)
        assert (status, b'"data":[1.0,2.0]' in body) == (200, True)
    assert post(server, host, stream=BytesIO(BODY.ljust(5001)), **TERMINATED)[0] == 413


def test_such_a_body_has_the_limit_of_flask_too(server: InferenceServer) -> None:
    status, body = post(server, "Flask", limit=1000, stream=BytesIO(BODY.ljust(1001)), **TERMINATED)
    assert (status, b"1000" in body) == (413, True)


def test_a_body_is_read_to_its_length_and_no_further(server: InferenceServer) -> None:
    stream = BytesIO(BODY + b"the next request")
    assert post(server, CONTENT_LENGTH=str(len(BODY)), stream=stream)[0] == 200
    assert stream.read() == b"the next request"


@hosts
def test_a_body_that_ends_early(server: InferenceServer, host: str) -> None:
    expected = b'{"error":"the body ended after %d bytes: expected %d"}' % (len(BODY), len(BODY) + 1)
    assert post(server, host, CONTENT_LENGTH=str(len(BODY) + 1)) == (400, expected)


def test_a_status_that_http_does_not_name(server: InferenceServer) -> None:
    @server.model("names")
    def names() -> Any:
        raise InferenceError("no", status=477)

    environ, statuses = EnvironBuilder("/models/names/infer", method="POST", data=inputs()).get_environ(), list[str]()
    list(OIPWSGIApp(server)(environ, lambda status, headers, exc_info=None: statuses.append(status)))  # type: ignore[arg-type]
    assert statuses == ["477 Error"]


def test_under_a_dispatcher_an_encoded_slash_is_still_told(server: InferenceServer) -> None:
    server.register("org/m", lambda: 1)
    app = DispatcherMiddleware(other_wsgi_app, {"/ml/v2": OIPWSGIApp(server)})
    assert over_wsgi(app, "/ml/v2")(Request("GET", "/models/org%2Fm/ready")).body == b'{"name":"org/m","ready":true}'


def test_a_target_that_somebody_has_rewritten_is_left_aside(server: InferenceServer) -> None:
    assert post(server, CONTENT_LENGTH=str(len(BODY)), REQUEST_URI="/other/%6D")[0] == 200


class Breaking(BytesIO):
    """A stream whose client goes away: servers raise some OSError or other."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise ConnectionResetError("the client is gone")
        return super().read(10)


class Refusing(BytesIO):
    """A stream of a server that cannot make sense of a chunk: gunicorn raises a class of its own, which is no OSError."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise LookupError("ChunkMissingTerminator")


def test_a_client_that_goes_away_is_no_error_of_ours(server: InferenceServer, caplog: pytest.LogCaptureFixture) -> None:
    expected = b'{"error":"the body ended after 10 bytes: expected %d"}' % len(BODY)
    assert post(server, CONTENT_LENGTH=str(len(BODY)), stream=Breaking(BODY)) == (400, expected)
    assert caplog.records == []


@hosts
def test_a_body_that_the_server_in_front_cannot_read(server: InferenceServer, host: str, caplog: pytest.LogCaptureFixture) -> None:
    expected = b'{"error":"the body cannot be read: the server in front says LookupError"}'
    assert post(server, host, stream=Refusing(), **TERMINATED) == (400, expected)
    assert [record for record in caplog.records if record.name != "django.request"] == []
