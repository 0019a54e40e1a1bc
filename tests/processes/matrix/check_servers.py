"""The servers that people run, each as a real process: what their own HTTP does to ours.

Not collected by itself: `tox -e matrix`, which installs them all, names this file.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from tests.support.processes import Served, serving
from tests.support.talk import block_until
from tests.support.ways import EXTENSIONS

from .models import MAX_BODY_BYTES

ASGI, WSGI = "tests.processes.matrix.asgi_site:app", "tests.processes.matrix.wsgi_site:app"


class Kind(NamedTuple):
    """A server: how it is started, and what is its own doing."""

    command: str
    chunked: int = 200
    """What a chunked upload is answered: 411 where the server does not say that it ends the body."""
    keeps_alive: bool = True
    finishes: bool = True
    """Whether a request in flight is always answered when the server is asked to end; others cut it, or not, as it happens."""


KINDS = {
    "uvicorn h11": Kind(f"uvicorn --port PORT --http h11 {ASGI}"),
    "uvicorn httptools": Kind(f"uvicorn --port PORT --http httptools {ASGI}"),
    "uvicorn zttp": Kind(f"uvicorn --port PORT --http zttp {ASGI}"),
    "uvicorn, Django": Kind("uvicorn --port PORT --lifespan off tests.processes.matrix.django_site:asgi_application"),
    "hypercorn": Kind(f"hypercorn --bind 127.0.0.1:PORT {ASGI}"),
    "granian asgi": Kind(f"granian --port PORT --interface asgi {ASGI}"),
    "granian wsgi": Kind(f"granian --port PORT --interface wsgi {WSGI}"),
    "daphne": Kind(f"daphne --port PORT {ASGI}", finishes=False),
    "daphne, Django": Kind("daphne --port PORT tests.processes.matrix.django_site:asgi_application", finishes=False),
    "gunicorn sync": Kind(f"gunicorn --bind 127.0.0.1:PORT {WSGI}", keeps_alive=False),
    "gunicorn gthread": Kind(f"gunicorn --bind 127.0.0.1:PORT --threads 4 {WSGI}"),
    "gunicorn gthread, Django": Kind("gunicorn --bind 127.0.0.1:PORT --threads 4 tests.processes.matrix.django_site:application"),
    "gunicorn asgi": Kind(f"gunicorn --bind 127.0.0.1:PORT --worker-class asgi {ASGI}"),
    "waitress": Kind(f"waitress-serve --listen 127.0.0.1:PORT {WSGI}", finishes=False),
    "werkzeug": Kind("flask --app tests.processes.matrix.wsgi_site run --port PORT", keeps_alive=False, finishes=False),
    "runserver": Kind("python -m tests.processes.matrix.django_site runserver PORT --noreload", chunked=411, finishes=False),
}


@pytest.fixture(scope="module", params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Other modules have other kinds, and ask them by the tests of this one."""
    return cast(Kind, request.param)


def start(kind: Kind, place: Path) -> Any:
    return serving(kind.command.split(), place / "log")


@pytest.fixture(scope="module")
def served(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with start(kind, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def connection(served: Served) -> Iterator[HTTPConnection]:
    opened = HTTPConnection("127.0.0.1", served.port, timeout=30)
    yield opened
    opened.close()


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    closes: bool

    @classmethod
    def of(cls, response: HTTPResponse) -> Got:
        body = response.read()
        return cls(response.status, {name.lower(): value for name, value in response.getheaders()}, body, response.will_close)


def ask(connection: HTTPConnection, method: str, path: str, body: Any = None, **headers: str) -> Got:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named, encode_chunked=named.get("transfer-encoding") == "chunked")
    return Got.of(connection.getresponse())


SMALL = json.dumps({"inputs": [{"name": "x", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}]})
ECHOED = b'{"model_name":"echo","outputs":[{"name":"x","shape":[3],"datatype":"INT32","data":[1,2,3]}]}'
INFER = "/v2/models/echo/infer"


def large(megabytes: int) -> tuple[bytes, bytes, int]:
    """A binary request: its tensor, its body, and how much of that is JSON."""
    data = np.random.default_rng(1).bytes(megabytes * 2**20)
    parameters = {"binary_data_size": len(data)}
    document = {
        "parameters": {"binary_data_output": True},
        "inputs": [{"name": "x", "datatype": "UINT8", "shape": [len(data)], "parameters": parameters}],
    }
    head = json.dumps(document).encode()
    return data, head + data, len(head)


def is_echo(got: Got, data: bytes) -> bool:
    assert got.status == 200, got.body[:200]
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-length"] == str(len(got.body))
    return got.body[int(got.headers["inference-header-content-length"]) :] == data


def is_usable(served: Served) -> bool:
    fresh = HTTPConnection("127.0.0.1", served.port, timeout=30)
    try:
        return ask(fresh, "POST", INFER, SMALL).body == ECHOED
    finally:
        fresh.close()


def test_metadata(connection: HTTPConnection) -> None:
    expected = f'{{"name":"matrix","version":"1","extensions":{EXTENSIONS}}}'.encode()
    for path in ("/v2", "/v2/"):
        got = ask(connection, "GET", path)
        assert (got.status, got.headers["content-type"], got.body) == (200, "application/json", expected)
    assert ask(connection, "GET", "/v2/models/echo/ready").body == b'{"name":"echo","ready":true}'


@pytest.mark.ci
def test_json(connection: HTTPConnection) -> None:
    got = ask(connection, "POST", INFER, SMALL, content_type="application/x-www-form-urlencoded")
    assert (got.status, got.headers["content-type"], got.body) == (200, "application/json", ECHOED)


def test_8_mb_binary(connection: HTTPConnection) -> None:
    data, body, head = large(8)
    assert is_echo(ask(connection, "POST", INFER, body, inference_header_content_length=str(head)), data)


def test_chunked_upload(connection: HTTPConnection, kind: Kind, served: Served) -> None:
    data, body, head = large(8)
    chunks = [body[start : start + 65_536] for start in range(0, len(body), 65_536)]
    if kind.chunked == 200:
        got = ask(connection, "POST", INFER, iter(chunks), transfer_encoding="chunked", inference_header_content_length=str(head))
        assert is_echo(got, data)
    else:
        got = ask(connection, "POST", INFER, iter([SMALL.encode()]), transfer_encoding="chunked")
        assert got.status == kind.chunked
        assert "Content-Length" in json.loads(got.body)["error"]
    assert is_usable(served)


def test_head(connection: HTTPConnection) -> None:
    for path, status in (("/v2", 200), ("/v2/models", 200), ("/v2/models/nope", 404), (INFER, 405)):
        if status != 405:
            length = ask(connection, "GET", path).headers["content-length"]
            got = ask(connection, "HEAD", path)
            assert got.headers["content-length"] == length
        else:
            got = ask(connection, "HEAD", path)
            assert got.headers["allow"] == "POST"
        assert (got.status, got.body) == (status, b"")
    assert ask(connection, "GET", "/v2/health/live").body == b'{"live":true}'


def test_keep_alive_after_an_error(connection: HTTPConnection, kind: Kind) -> None:
    assert ask(connection, "POST", INFER, SMALL).closes != kind.keeps_alive
    _, unread, _ = large(8)
    for method, path, body, status in (
        ("POST", INFER, "{", 400),
        ("GET", "/v2/nowhere", None, 404),
        ("POST", "/v2/models", "not read by anybody", 405),
        ("POST", "/v2/models/nope/infer", SMALL, 404),
        ("POST", "/v2/models/nope/infer", unread, 404),
        ("POST", "/v2/models/nope/infer", iter([unread]), 404 if kind.chunked == 200 else None),
    ):
        if status is None:
            continue
        before = connection.sock
        chunked = {} if isinstance(body, str | bytes | None) else {"transfer_encoding": "chunked"}
        got = ask(connection, method, path, body, **chunked)
        assert (got.status, list(json.loads(got.body))) == (status, ["error"])
        assert got.headers["content-type"] == "application/json"
        if kind.keeps_alive:
            assert not got.closes
            assert connection.sock is before
        assert ask(connection, "POST", INFER, SMALL).body == ECHOED


def test_413_in_the_middle_of_a_body(served: Served) -> None:
    """Announced or not, a body above the limit is refused while it is sent, and the server goes on."""
    size = MAX_BODY_BYTES + 4 * 2**20
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as sock:
        sock.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (INFER.encode(), size))
        sender = Thread(target=send_body, args=(sock, size))
        sender.start()
        response = HTTPResponse(sock)
        try:
            response.begin()
            got = Got.of(response)
        finally:
            with suppress(OSError):  # the server may have closed it
                sock.shutdown(socket.SHUT_RDWR)
            sender.join()
    assert got.status == 413
    assert str(MAX_BODY_BYTES) in json.loads(got.body)["error"]
    assert is_usable(served)


def send_body(sock: socket.socket, size: int) -> None:
    """Send slowly enough that an answer overtakes the rest: after it, servers close what they do not want to read."""
    sent = 0
    with suppress(OSError):
        while sent < size:
            sent += sock.send(b" " * min(65_536, size - sent))
            time.sleep(0.001)


def test_shutdown_with_a_request_in_flight(kind: Kind, tmp_path: Path) -> None:
    mark = tmp_path / "in flight"
    body = json.dumps({"inputs": [{"name": "mark", "datatype": "BYTES", "shape": [1], "data": [str(mark)]}]})
    found: list[Got | Exception] = []
    with start(kind, tmp_path) as served:

        def request() -> None:
            connection = HTTPConnection("127.0.0.1", served.port, timeout=30)
            try:
                found.append(ask(connection, "POST", "/v2/models/slow/infer", body))
            except (OSError, HTTPException) as error:
                found.append(error)
            finally:
                connection.close()

        asking = Thread(target=request)
        asking.start()
        block_until(mark.exists)
        served.ask_to_end()
        try:
            served.process.wait(20)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the server did not end: {served.log.read_text()}")
        finally:
            asking.join()
    [got] = found
    if kind.finishes or not isinstance(got, (ConnectionError, HTTPException)):
        assert isinstance(got, Got), got
        assert got.status == 200
        assert json.loads(got.body)["outputs"][0]["data"] == [str(mark)]


ROOT_PATHS = {
    "uvicorn": (f"uvicorn --port PORT --root-path /api {ASGI}", ""),
    "hypercorn": (f"hypercorn --bind 127.0.0.1:PORT --root-path /api {ASGI}", ""),
    "granian": (f"granian --port PORT --interface asgi --url-path-prefix /api {ASGI}", "/api"),
    "gunicorn": (f"gunicorn --bind 127.0.0.1:PORT --env SCRIPT_NAME=/api {WSGI}", "/api"),
}
"""Servers that are told of a proxy's path, and what of it they want to see in requests."""


@pytest.mark.parametrize("name", ROOT_PATHS)
def test_behind_a_proxy_at_a_path(name: str, tmp_path: Path) -> None:
    command, prefix = ROOT_PATHS[name]
    with serving(command.split(), tmp_path / "log", ready=f"{prefix}/v2/health/ready") as served:
        connection = HTTPConnection("127.0.0.1", served.port, timeout=30)
        assert ask(connection, "POST", prefix + INFER, SMALL).body == ECHOED
        for path in ("/v2", "/v2/", "/v2/models"):
            assert ask(connection, "GET", prefix + path).status == 200
        connection.close()
