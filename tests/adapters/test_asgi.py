"""What only ASGI has: root paths, websockets, messages that arrive in pieces, and middleware that changes them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware, OIPWSGIApp
from tests.support.sockets import read_answer
from tests.support.talk import Talk
from tests.support.threads import serving
from tests.support.ways import Request, Way, over_asgi, over_wsgi
from tests.table.body_rows import UPGRADE
from tests.table.row import GOOD, inputs


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer("asgi", "1")
    server.register("m", lambda x: x)
    return server


@pytest.mark.parametrize(
    ("path", "root_path", "status"),
    [
        ("/health/live", "", 200),
        ("/v2/health/live", "/v2", 200),
        ("/v2/health/live", "/v2/", 200),
        ("/health/live", "/v2", 200),  # a host that has cut the prefix off
        ("/v2x/health/live", "/v2", 404),
        ("/v2", "/v2", 200),
        ("/v2/", "/v2", 200),
        ("*", "", 404),  # OPTIONS *
    ],
)
def test_the_path_behind_root_path(server: InferenceServer, path: str, root_path: str, status: int) -> None:
    async def main() -> int:
        return (await Talk(server, path=path, root_path=root_path).answer())[0]

    assert asyncio.run(main()) == status


def test_a_websocket_is_closed(server: InferenceServer) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(OIPApp(server)({"type": "websocket", "path": "/"}, None, send))  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_a_websocket_under_the_middleware_is_the_hosts(server: InferenceServer) -> None:
    scopes: list[str] = []

    async def host(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope["type"])

    asyncio.run(OIPMiddleware(host, server)({"type": "websocket", "path": "/v2/x"}, None, None))  # type: ignore[arg-type]
    assert scopes == ["websocket"]


def send_in_pieces(server: InferenceServer, *pieces: bytes, ends: bool = True, **headers: bytes) -> tuple[int, bytes, int]:
    """Status, body, and how many messages were left unread. A client that does not end its body goes."""

    async def ask() -> tuple[int, bytes, int]:
        talk = Talk(server, body=None, headers=[(name.replace("_", "-").encode(), value) for name, value in headers.items()])
        for place, piece in enumerate(pieces, 1):
            talk.say(piece, ends=ends and place == len(pieces))
        if not ends:
            talk.go()
        await talk.task
        return talk.status, talk.body, talk.unread

    return asyncio.run(ask())


def test_a_body_above_the_limit_is_read_no_further() -> None:
    server = InferenceServer(max_body_bytes=10)
    server.register("m", lambda: 1)
    status, body, left = send_in_pieces(server, b"123456", b"123456", b"1", b"1")
    assert (status, left) == (413, 2)
    assert b"larger than 10 bytes" in body
    status, _, left = send_in_pieces(server, b"1", content_length=b"11")
    assert (status, left) == (413, 1)


def test_no_limit_at_all() -> None:
    server = InferenceServer(max_body_bytes=None)
    server.register("m", lambda x: x.size)
    text = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'
    status, body, _ = send_in_pieces(server, text, b" " * 1000, b"")
    assert (status, b'"data":[1]' in body) == (200, True)


def test_a_body_that_ends_too_late_or_not_at_all(server: InferenceServer) -> None:
    status, body, _ = send_in_pieces(server, b"1234567", content_length=b"3")
    assert (status, body) == (400, b'{"error":"the body ended after 7 bytes: expected 3"}')
    status, body, _ = send_in_pieces(server, b'{"inputs":[]}', ends=False)
    assert (status, body) == (400, b'{"error":"the body ended after 13 bytes: expected more"}')


def test_what_is_refused_by_its_head_is_refused_before_its_body(server: InferenceServer) -> None:
    assert send_in_pieces(server, b"", content_encoding=b"br")[2] == 1
    assert send_in_pieces(server, b"", inference_header_content_length=b"x")[2] == 1


def test_a_server_of_its_own_answers_under_its_path() -> None:
    server = InferenceServer()
    server.register("m", lambda: 1)
    send = over_asgi(OIPApp(server, path="/ml/v2"), "")
    assert send(Request("GET", "/ml/v2/health/live")).body == b'{"live":true}'
    assert send(Request("GET", "/ml/v2")).status == send(Request("GET", "/ml/v2/")).status == 200
    for path in ("/health/live", "/ml/v2x/health/live", "/", "/ml"):
        answer = send(Request("GET", path))
        assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
        assert answer.body == b'{"error":"unknown path \'%b\': everything is under /ml/v2"}' % path.encode()


@pytest.mark.parametrize("action", ["infer", "generate_stream"])
def test_what_middleware_adds_to_the_headers_of_one_response_is_in_no_other(server: InferenceServer, action: str) -> None:
    def middleware(value: bytes) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def add(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"].append((b"set-cookie", value))
                await send(message)

            await OIPApp(server)(scope, receive, add)

        return app

    async def cookies(app: Any) -> list[bytes]:
        talk = Talk(server, body=b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}', action=action, app=app)
        await asyncio.wait_for(talk.task, 20)
        assert talk.sent[0]["status"] == 200
        return [value for name, value in talk.sent[0]["headers"] if name == b"set-cookie"]

    assert asyncio.run(cookies(middleware(b"alice"))) == [b"alice"]
    assert asyncio.run(cookies(middleware(b"bob"))) == [b"bob"]
    assert asyncio.run(cookies(OIPApp(server))) == []


def test_a_body_that_uvicorn_drops_is_400_that_names_the_header_and_nothing_is_done() -> None:
    """As with httptools, where a request offers an upgrade, as those of Java's HttpClient do."""
    pytest.importorskip("httptools")
    dropped = b"no body came, and the request has the header Upgrade with 'h2c'"
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
        status, text = ask("POST", "/models/m/infer", inputs(GOOD), ("Content-Length", str(len(inputs(GOOD)))))
        assert (status, dropped in text, b"--http h11" in text) == (400, True, True)
        before = list(loaded)
        for path in ("/repository/index", "/repository/models/m/load", "/models/m/infer"):
            status, text = ask("POST", path, b"2\r\n{}\r\n0\r\n\r\n", ("Transfer-Encoding", "chunked"))
            assert (status, dropped in text) == (400, True), path
        assert loaded == before
        assert ask("GET", "/health/live", b"") == (200, b'{"live":true}')
        assert ask("POST", "/repository/index", b"", ("Content-Length", "0"))[0] == 200


@pytest.mark.parametrize(
    "way", [over_asgi(OIPApp(InferenceServer()), ""), over_wsgi(OIPWSGIApp(InferenceServer()), "")], ids=["ASGI", "WSGI"]
)
def test_who_asks_below_v2_what_is_not_mounted_there_is_told(way: Way) -> None:
    assert b"; the application is not at /v2 here: mount it there, or leave /v2 out" in way(Request("GET", "/v2/health/live")).body
    assert b"not at /v2" not in way(Request("GET", "/v3/health/live")).body
