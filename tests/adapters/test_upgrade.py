"""Requests that offer an upgrade, as Java's HttpClient sends them, to uvicorn: with httptools it drops their bodies."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from oip_asgi import InferenceServer, OIPApp
from tests.support.sockets import read_answer
from tests.support.threads import serving
from tests.table.body_rows import UPGRADE
from tests.table.row import GOOD, inputs

pytest.importorskip("httptools")

BODY = inputs(GOOD)
DROPPED = b"no body came, and the request has the header Upgrade with 'h2c'"


def test_a_dropped_body_is_400_that_names_the_header_and_nothing_is_done() -> None:
    loaded: list[str] = []
    server = InferenceServer(model_control=True)

    @server.model("m", load=lambda: loaded.append("m"))
    def m(x: Any) -> Any:
        return x

    def ask(method: str, path: str, body: bytes, *headers: tuple[str, str]) -> tuple[int, bytes]:
        fields = [("Host", "127.0.0.1"), *UPGRADE, *headers]
        head = f"{method} /v2{path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(head.encode() + body)
            answer = read_answer(connection)
        return answer.status, answer.body

    with serving(OIPApp(server, path="/v2")) as port:
        status, text = ask("POST", "/models/m/infer", BODY, ("Content-Length", str(len(BODY))))
        assert (status, DROPPED in text, b"--http h11" in text) == (400, True, True)
        before = list(loaded)
        for path in ("/repository/index", "/repository/models/m/load", "/models/m/infer"):
            status, text = ask("POST", path, b"2\r\n{}\r\n0\r\n\r\n", ("Transfer-Encoding", "chunked"))
            assert (status, DROPPED in text) == (400, True), path
        assert loaded == before
        assert ask("GET", "/health/live", b"") == (200, b'{"live":true}')
        assert ask("POST", "/repository/index", b"", ("Content-Length", "0"))[0] == 200
