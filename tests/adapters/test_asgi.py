"""What only ASGI has: mounts and their paths, lifespans, messages that arrive in pieces or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware
from tests.support.lifespan import live_through
from tests.support.talk import Talk
from tests.support.ways import Answer, Request, other_asgi_app, over_asgi

LIVE, METADATA = Request("GET", "/health/live"), Request("GET", "")


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer("asgi", "1")
    server.register("m", lambda x: x)
    return server


@pytest.mark.parametrize("path", ["/v2", "/ml/v2", "/v2/", "/"])
def test_install_at_any_path(server: InferenceServer, path: str) -> None:
    app = Starlette()
    OIPApp(server).install(app, path)
    send = over_asgi(app, path.rstrip("/"))
    assert send(LIVE).body == b'{"live":true}'
    assert send(Request("GET", "/")).status == 200
    if path != "/":
        for method, status in (("GET", 200), ("HEAD", 200), ("POST", 405), ("DELETE", 405)):
            assert send(Request(method, "")).status == status
        assert send(Request("GET", "x")).status == 404


@pytest.mark.parametrize("path", ["/v2", "/ml/v2", "/"])
def test_middleware_at_any_path(server: InferenceServer, path: str) -> None:
    app = OIPMiddleware(other_asgi_app, server, path)
    send = over_asgi(app, path.rstrip("/"))
    assert send(LIVE).body == b'{"live":true}'
    assert send(METADATA).status == 200
    if path != "/":
        outside = over_asgi(app, "")
        for other in ("", "/", path + "x", path + "x/health/live", "/other"):
            assert outside(Request("GET", other)) == Answer(418, {}, b"the host's own")


def test_several_servers_in_nested_mounts(server: InferenceServer) -> None:
    other = InferenceServer("other", "2", ready_when_empty=True)
    app = Starlette(
        routes=[
            Mount("/deep", routes=[Mount("/er", routes=[Mount("/v2", OIPApp(server))])]),
            Mount("/v2", OIPApp(other)),
        ]
    )
    assert b'"asgi"' in over_asgi(app, "/deep/er/v2")(Request("GET", "/")).body
    assert b'"other"' in over_asgi(app, "/v2")(Request("GET", "/")).body
    assert b'"other"' in over_asgi(app, "/v2", root_path="/proxy")(Request("GET", "/")).body


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


def test_the_hosts_own_routes_stay(server: InferenceServer) -> None:
    async def home(request: Any) -> PlainTextResponse:
        return PlainTextResponse("home")

    app = Starlette(routes=[Route("/", home), Route("/v2x", home)])
    OIPApp(server).install(app)
    assert over_asgi(app, "")(Request("GET", "/")).body == b"home"
    assert over_asgi(app, "")(Request("GET", "/v2x")).body == b"home"
    assert over_asgi(app, "/v2")(METADATA).status == 200


def test_a_path_without_slash_is_refused(server: InferenceServer) -> None:
    with pytest.raises(ValueError, match="path='v2' must begin with a slash"):
        OIPMiddleware(other_asgi_app, server, "v2")
    with pytest.raises(ValueError, match="must begin with a slash"):
        OIPApp(server).install(Starlette(), "v2")


def lifespan_of(app: Any) -> list[str]:
    """Start and stop an application, and say what it answered."""
    return asyncio.run(live_through(app))


COMPLETE = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def loading(events: list[str]) -> InferenceServer:
    server = InferenceServer()

    async def load() -> None:
        events.append("load")

    server.register("m", lambda: 1, load=load)
    return server


def host_with_lifespan(events: list[str], **arguments: Any) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, int]]:
        events.append("host starts")
        yield {"pool": 1}
        events.append("host ends")

    return Starlette(lifespan=lifespan, **arguments)


def test_the_applications_own_lifespan(loading: InferenceServer, events: list[str]) -> None:
    assert lifespan_of(OIPApp(loading)) == COMPLETE
    assert events == ["load"]


def test_install_joins_the_hosts_lifespan(loading: InferenceServer, events: list[str]) -> None:
    app = host_with_lifespan(events)
    OIPApp(loading).install(app)
    assert lifespan_of(app) == COMPLETE
    assert events == ["host starts", "load", "host ends"]


def test_middleware_joins_the_hosts_lifespan(loading: InferenceServer, events: list[str]) -> None:
    assert lifespan_of(OIPMiddleware(host_with_lifespan(events), loading)) == COMPLETE
    assert events == ["host starts", "load", "host ends"]


@pytest.mark.parametrize("how", ["raises", "returns", "receives"])
def test_middleware_answers_for_a_host_without_lifespan(loading: InferenceServer, events: list[str], how: str) -> None:
    async def host(scope: Any, receive: Any, send: Any) -> None:
        if how == "receives":
            await receive()
        if how == "raises":
            raise ValueError("Django can only handle ASGI/HTTP connections, not lifespan.")

    assert lifespan_of(OIPMiddleware(host, loading)) == COMPLETE
    assert events == ["load"]


def test_a_host_that_fails_to_start_fails(loading: InferenceServer, events: list[str]) -> None:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        if events == []:
            raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        lifespan_of(OIPMiddleware(Starlette(lifespan=lifespan), loading))
    assert events == []


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


def test_a_client_that_goes_before_its_body_ends(server: InferenceServer) -> None:
    status, body, _ = send_in_pieces(server, b'{"inputs":[]}', ends=False)
    assert (status, body) == (400, b'{"error":"the body ended after 13 bytes: expected more"}')


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


def test_a_body_longer_than_announced(server: InferenceServer) -> None:
    status, body, _ = send_in_pieces(server, b"1234567", content_length=b"3")
    assert (status, body) == (400, b'{"error":"the body ended after 7 bytes: expected 3"}')


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


def test_a_path_without_a_slash_is_refused() -> None:
    with pytest.raises(ValueError, match="path='v2' must begin with a slash"):
        OIPApp(InferenceServer(), path="v2")


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
