"""gRPC and gRPC-Web in the ASGI application, by ASGI's messages: frames, headers, statuses, trailers, middleware, clients that go."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import zlib
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from oip_asgi import Access, InferenceContext, InferenceServer, OIPApp, OIPMiddleware, TensorSpec
from oip_asgi.grpc import OIPGRPCApp, TrailersMiddleware
from tests.support.grpc_asgi import GRPC, INFER, REFLECTION, STREAM, WEB, WEB_TEXT, ASGIClient, Got, call, frame, frames_of
from tests.support.grpc_demo import TWO_FLOATS, fp32
from tests.support.grpc_ways import MESSAGES, SERVICE, made, wire_request
from tests.support.http2 import Connection
from tests.support.running import send
from tests.support.threads import behind_hypercorn
from tests.support.ways import Request as AnyRequest
from tests.support.ways import other_asgi_app, over_asgi

ECHO = wire_request("echo", [fp32()], [TWO_FLOATS]).SerializeToString()


def make_server(**options: Any) -> InferenceServer:
    server = InferenceServer("demo", **options)
    server.register("echo", lambda x: x)
    return server


def ask(body: bytes | list[bytes], content_type: str | None = GRPC, *headers: tuple[str, str], path: str = INFER, **options: Any) -> Got:
    return asyncio.run(call(OIPGRPCApp(make_server()), path, body, content_type, headers, **options))


def outputs(got: Got) -> list[bytes]:
    assert got.refusal == ("OK", "")
    [message] = got.messages
    return list(MESSAGES["ModelInferResponse"].FromString(message).raw_output_contents)


def test_a_call_is_answered_in_the_content_type_of_its_request() -> None:
    got = ask(frame(ECHO))
    assert (got.status, got.headers, got.trailers) == (200, {"content-type": "application/grpc"}, {"grpc-status": "0"})
    body = frame(ECHO)
    for content_type in (GRPC, "application/grpc+proto", "application/grpc-web", WEB, WEB_TEXT, "application/grpc-web-text+proto"):
        got = ask(b64encode(body) if "text" in content_type else body, content_type)
        assert got.headers["content-type"] == content_type
        assert outputs(got) == [TWO_FLOATS]
    assert outputs(ask(b64encode(body[:4]) + b64encode(body[4:]), WEB_TEXT)) == [TWO_FLOATS]  # each piece is padded
    for text in (b"AAA", b"====", b"=AAA", b"A A A A ", b"AAAAA==="):
        assert ask(text, WEB_TEXT).refusal[0] == "INVALID_ARGUMENT"


def test_errors_are_trailers_and_percent_encoded() -> None:
    got = ask(frame(wire_request("é%\n").SerializeToString()))
    assert got.trailers["grpc-message"].isascii()
    assert (got.refusal[0], "'é%\\n'" in got.refusal[1]) == ("NOT_FOUND", True)
    got = ask(frame(b"\xff"), WEB, has_trailers=False)  # gRPC-Web has them in the body
    assert [message["type"] for message in got.sent] == ["http.response.start", "http.response.body"]
    assert got.headers["content-length"] == str(len(got.body))
    text = "the request cannot be parsed: expected the bytes of inference.ModelInferRequest"
    assert frames_of(got.body) == [(0x80, f"grpc-status:3\r\ngrpc-message:{text}\r\n".encode())]


ENDED = "the body ended within a message, or before its end: expected more"
TOO_LARGE = "the body is larger than 1000 bytes, the most that this server takes (max_body_bytes)"
GZIP = [("grpc-encoding", "gzip")]


@pytest.mark.parametrize(
    ("body", "headers", "code", "text"),
    [
        (b"", [], "UNIMPLEMENTED", "the request has no message: expected one"),
        (frame(ECHO) * 2, [], "UNIMPLEMENTED", "the request has more than one message: expected one"),
        (frame(ECHO)[:3], [], "INVALID_ARGUMENT", ENDED),
        (frame(ECHO)[:-1], [], "INVALID_ARGUMENT", ENDED),
        (frame(ECHO, 2), [], "INVALID_ARGUMENT", "a frame begins with the byte 2: expected 0, or 1 for a compressed message"),
        (frame(ECHO, 1), [], "INVALID_ARGUMENT", "a frame says that its message is compressed, but grpc-encoding does not say how"),
        (frame(b"nonsense", 1), GZIP, "INVALID_ARGUMENT", "the gzip body is corrupt: "),
        (frame(b"nonsense", 1), [("grpc-encoding", "deflate")], "INVALID_ARGUMENT", "the deflate body is corrupt: "),
        (frame(bytes(1001)), [], "RESOURCE_EXHAUSTED", TOO_LARGE),
        (frame(gzip.compress(bytes(10_000)), 1), GZIP, "RESOURCE_EXHAUSTED", TOO_LARGE),
    ],
)
def test_frames_that_are_wrong(body: bytes, headers: list[tuple[str, str]], code: str, text: str) -> None:
    app = OIPGRPCApp(make_server(max_body_bytes=1000))
    for size in (1, 5, 10**5):
        chunks = [body[start : start + size] for start in range(0, len(body), size)]
        found, told = asyncio.run(call(app, INFER, chunks, GRPC, headers)).refusal
        assert (found, told[: len(text)]) == (code, text)
    unlimited = OIPGRPCApp(make_server(max_body_bytes=None))
    assert asyncio.run(call(unlimited, INFER, b"\0\xff\xff\xff\xffabc")).refusal == ("INVALID_ARGUMENT", ENDED)  # no 4 GiB are taken


def test_a_compressed_message() -> None:
    for coding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        for body in (frame(compress(ECHO), 1), frame(ECHO)):  # a message may be left as it is
            assert outputs(ask(body, GRPC, ("grpc-encoding", coding))) == [TWO_FLOATS]
    got = ask(frame(ECHO, 1), GRPC, ("grpc-encoding", "zstd"))
    assert got.refusal == ("UNIMPLEMENTED", "grpc-encoding 'zstd' is not supported: expected identity, gzip or deflate")
    assert got.headers["grpc-accept-encoding"] == "gzip, deflate"


def test_what_is_no_call() -> None:
    got = ask(b"", GRPC, method="GET")
    assert (got.status, got.headers["allow"], got.body) == (405, "POST", b'{"error":"gRPC is asked by POST, not by GET"}')
    for content_type in ("application/json", "application/grpc+json", "application/grpcx", None):
        assert ask(b"{}", content_type).status == 415
    assert ask(b"{}", "application/json").body.startswith(b'{"error":"Content-Type is \'application/json\': expected application/grpc or ')
    assert ask(frame(b""), path=f"/{SERVICE}/Nope").refusal == ("UNIMPLEMENTED", f"unknown method '/{SERVICE}/Nope'")
    assert ask(frame(b""), path="/").refusal[0] == "UNIMPLEMENTED"
    got = ask(b"{}", "application/connect+json")
    said = "expected application/grpc or application/grpc-web, with protobuf, which clients of the Connect protocol can send too"
    assert (got.status, json.loads(got.body)) == (415, {"error": f"Content-Type is 'application/connect+json': {said}"})


def test_a_server_without_trailers_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for path in (INFER, STREAM, REFLECTION):
        caplog.clear()
        app = OIPGRPCApp(make_server())
        for _ in range(2):
            got = asyncio.run(call(app, path, frame(ECHO), has_trailers=False))
            assert got.headers["grpc-status"] == "12"
            advice = "run it with one that can, such as pyvoy or gunicorn's asgi worker with HTTP/2, or use gRPC-Web"
            assert advice in got.headers["grpc-message"].replace("%20", " ")
        [record] = caplog.records
        told = "a gRPC call cannot be answered: the server of this application cannot send the HTTP/2 trailers"
        assert record.getMessage().startswith(told)


def test_names_of_a_class_of_strings_leave_as_text() -> None:
    server = InferenceServer()
    server.register("echo", lambda x: x, version=np.str_("1"))
    for method in ("ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex"):
        asked = made(f"{method}Request") if method == "RepositoryIndex" else made(f"{method}Request", name="echo")
        assert '"echo"' in str(ASGIClient(OIPGRPCApp(server)).ask(method, asked))


def test_metadata_has_ranges() -> None:
    server = InferenceServer()
    server.register("ranged", lambda age: age, inputs=[TensorSpec("age", "UINT64", [-1], minimum=0.5, maximum=2**64 - 1)])
    ranged = ASGIClient(OIPGRPCApp(server)).ask("ModelMetadata", made("ModelMetadataRequest", name="ranged"))
    assert (ranged.inputs[0].parameters["minimum"].double_param, ranged.inputs[0].parameters["maximum"].uint64_param) == (0.5, 2**64 - 1)


def test_metadata_reaches_the_model_as_over_grpcio() -> None:
    server, seen = InferenceServer(), dict[str, Any]()

    @server.model("look")
    def look(context: InferenceContext) -> Any:
        seen.update(context.headers, path=context.transport["path"])
        return 1

    near = [("tenant-id", "acme"), ("content-type-x", "y")]
    headers = [("x-many", "1"), ("x-many", "2"), ("x-some-bin", "/wA"), ("grpc-timeout", "1H"), ("user-agent", "test"), *near]
    got = asyncio.run(call(OIPGRPCApp(server), INFER, frame(wire_request("look").SerializeToString()), GRPC, headers))
    assert got.refusal == ("OK", "")
    assert seen == {"x-many": "1, 2", "x-some-bin": "/wA=", "user-agent": "test", **dict(near), "path": INFER}


def test_what_a_timeout_may_be() -> None:
    for value in ("99999999H", "1H", "30S", "30000m", "30000000u"):
        assert outputs(ask(frame(ECHO), GRPC, ("grpc-timeout", value))) == [TWO_FLOATS]
    for value in ("1", "S", "1.5S", "-1S", "123456789S", "1s"):
        text = f"header grpc-timeout is '{value}': expected up to 8 digits and one of H, M, S, m, u, n"
        assert ask(frame(ECHO), GRPC, ("grpc-timeout", value)).refusal == ("INVALID_ARGUMENT", text)


def refuses(app: FastAPI) -> FastAPI:
    @app.middleware("http")
    async def authenticate(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.headers.get("authorization") != "please":
            return JSONResponse({"error": "say please"}, 401)
        return await call_next(request)

    return app


def installed(server: InferenceServer) -> Any:
    app = FastAPI()
    OIPApp(server).install(app, "/v2", grpc=True)
    refuses(app).add_middleware(GZipMiddleware)
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    return refuses(app)


def mounted(server: InferenceServer) -> Any:
    app = FastAPI()
    app.mount(f"/{SERVICE}", OIPGRPCApp(server))
    OIPApp(server).install(app, "/v2")
    return TrailersMiddleware(refuses(app))


def around(server: InferenceServer) -> Any:
    return TrailersMiddleware(refuses(FastAPI(middleware=[Middleware(OIPMiddleware, server=server, grpc=True)])))


@pytest.mark.parametrize("make", [installed, mounted, around])
@pytest.mark.parametrize("content_type", [GRPC, WEB])
def test_behind_a_hosts_authentication(make: Callable[[InferenceServer], Any], content_type: str) -> None:
    calls, server = list[str](), InferenceServer()

    @server.model("echo")
    def echo(x: np.ndarray) -> np.ndarray:
        calls.append("echo")
        return x

    client = ASGIClient(make(server), content_type)
    refused = client.got("ModelInfer", ECHO)
    assert (refused.status, refused.body, calls) == (401, b'{"error":"say please"}', [])  # which clients call UNAUTHENTICATED
    allowed = [("authorization", "please")]
    assert list(client.ask("ModelInfer", ECHO, headers=allowed).raw_output_contents) == [TWO_FLOATS]
    assert client.refusal("ModelMetadata", made("ModelMetadataRequest", name="nope"), headers=allowed)[0] == "NOT_FOUND"
    assert calls == ["echo"]
    rest = over_asgi(make(server), "/v2")
    assert rest(AnyRequest("GET", "/health/live", [("authorization", "please")])).status == 200
    assert rest(AnyRequest("GET", "/health/live")).status == 401


def test_middleware_hands_other_paths_on() -> None:
    app = OIPMiddleware(other_asgi_app, make_server(), grpc=True)
    assert asyncio.run(send(OIPMiddleware(other_asgi_app, make_server()), AnyRequest("GET", "/v2/health/live")))[0] == 200
    assert asyncio.run(call(app, "/other/Method", b"")).status == 418
    assert ASGIClient(app).ask("ServerLive").live is True


def test_health_and_reflection_are_served_unless_they_are_left_out() -> None:
    for wanted in (True, False):
        app = OIPGRPCApp(make_server(), health=wanted, reflection=wanted)
        check = asyncio.run(call(app, "/grpc.health.v1.Health/Check", frame(b"")))
        assert check.refusal[0] == ("OK" if wanted else "UNIMPLEMENTED")
        for version in ("v1", "v1alpha"):
            path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
            listing = asyncio.run(call(app, path, frame(b"\x3a\x00") + frame(b"\x22\x04nope")))
            assert listing.refusal[0] == ("OK" if wanted else "UNIMPLEMENTED")
            if wanted:
                services, unknown = listing.messages
                assert SERVICE.encode() in services
                assert b"not found" in unknown


class NotedInflate:
    make, threads = zlib.decompressobj, set[str]()

    def __init__(self, window: int) -> None:
        self._inflate = NotedInflate.make(window)

    def __getattr__(self, name: str) -> Any:
        self.threads.add(threading.current_thread().name)
        return getattr(self._inflate, name)


def test_only_a_worker_thread_decompresses_questions_of_reflection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zlib.decompressobj", NotedInflate)
    listing = ask(frame(gzip.compress(b"\x3a\x00"), True), GRPC, ("grpc-encoding", "gzip"), path=REFLECTION)
    [services] = listing.messages
    assert SERVICE.encode() in services
    assert NotedInflate.threads
    assert threading.current_thread().name not in NotedInflate.threads


MANY_FIELDS = {"of as many names": [(f"x-{number}", "1") for number in range(10_000)], "of one name": [("x-same", "1")] * 10_000}


@pytest.mark.parametrize("fields", MANY_FIELDS.values(), ids=MANY_FIELDS)
def test_ten_thousand_header_fields_are_refused_by_the_server_or_answered(fields: list[tuple[str, str]]) -> None:
    message = b"\0\0\0\0\0"  # without fields
    with behind_hypercorn(OIPGRPCApp(InferenceServer("kept"))) as address:
        port = int(address.rpartition(":")[2])
        with Connection(port) as connection, suppress(AssertionError, OSError):  # hypercorn closes the connection
            connection.read(connection.call(f"/{SERVICE}/ServerMetadata", message, fields=fields), 2**20)
        with Connection(port) as connection:  # the next call is answered
            assert connection.read(connection.call(f"/{SERVICE}/ServerMetadata", message), 2**20) > len(message)
    seen: list[int] = []

    def check(access: Access) -> bool:
        seen.append(sum(value.count("1") for name, value in access.headers.items() if name.startswith("x-")))
        return True

    server = InferenceServer(authorize=check)
    server.register("kept", lambda x: x)
    for content_type in (GRPC, WEB):
        asked = made("ModelReady.request", name="kept")
        assert ASGIClient(OIPGRPCApp(server), content_type).ask("ModelReady", asked, headers=fields).ready
    assert min(seen) >= 10_000
