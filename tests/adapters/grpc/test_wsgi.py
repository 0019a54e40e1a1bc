"""gRPC-Web in the WSGI application, by WSGI's calls: beside its paths, calls of many messages, clients that go, bodies without an end."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

import pytest
from werkzeug.test import Client, EnvironBuilder, run_wsgi_app
from werkzeug.wrappers import Response
from werkzeug.wsgi import LimitedStream

from oip_asgi import InferenceContext, InferenceServer, OIPWSGIMiddleware
from oip_asgi.grpc import OIPGRPCWSGIApp
from tests.support.grpc_asgi import GRPC, REFLECTION, WEB, WEB_TEXT, ASGIClient, Got, call_wsgi, frame
from tests.support.grpc_demo import TWO_FLOATS, fp32
from tests.support.grpc_ways import MESSAGES, SERVICE, made, wire_request
from tests.support.inside import is_idle
from tests.support.streaming import Noted
from tests.support.talk import block_until

INFER = f"/{SERVICE}/ModelInfer"
STREAM = f"/{SERVICE}/ModelStreamInfer"
OF_WEB: Final = [("content-type", WEB)]
ECHO = wire_request("echo", [fp32()], [TWO_FLOATS]).SerializeToString()


def asked(model: str, n: int, request_id: str = "") -> bytes:
    numbers = {"name": "n", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [n]}}
    return frame(wire_request(model, [numbers], id=request_id).SerializeToString())


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def server(noted: Noted) -> Iterator[InferenceServer]:
    server = InferenceServer("demo")
    server.register("echo", lambda x: x)
    server.register("stream", noted.awaiting)
    server.register("blocking", noted.blocking)
    yield server
    assert is_idle(server)
    server.stop()


def outputs(got: Got) -> list[bytes]:
    assert got.refusal == ("OK", "")
    [message] = got.messages
    return list(MESSAGES["ModelInferResponse"].FromString(message).raw_output_contents)


def ids(got: Got) -> list[str]:
    return [MESSAGES["ModelStreamInfer.response"].FromString(message).infer_response.id for message in got.messages]


def test_an_application_serves_its_own_path_rest_and_grpc_web_on_one_port(server: InferenceServer) -> None:
    app = OIPWSGIMiddleware(Response("own"), server, grpc=True)
    client = Client(app)
    assert client.get("/own").text == "own"
    assert client.get("/v2/models/echo/ready").json == {"name": "echo", "ready": True}
    assert client.get("/inference").text == "own"
    assert outputs(call_wsgi(app, INFER, frame(ECHO))) == [TWO_FLOATS]


def test_without_grpc_the_host_has_those_paths(server: InferenceServer) -> None:
    host = Response("the host's own", content_type="text/plain")
    pieces, _, _ = run_wsgi_app(OIPWSGIMiddleware(host, server), EnvironBuilder(INFER, method="POST").get_environ())
    assert b"".join(pieces) == b"the host's own"


def test_a_model_gets_the_environ_and_the_metadata(server: InferenceServer) -> None:
    seen: list[InferenceContext] = []

    @server.model("context")
    def context(x: Any, context: InferenceContext) -> Any:
        seen.append(context)
        return x

    message = wire_request("context", [fp32()], [TWO_FLOATS]).SerializeToString()
    call_wsgi(OIPGRPCWSGIApp(server), INFER, frame(message), WEB, [("x-tenant", "a"), ("key-bin", "AAE")])
    [found] = seen
    assert found.transport["PATH_INFO"] == INFER
    assert (found.headers["x-tenant"], found.headers["key-bin"]) == ("a", "AAE=")


def test_mounted_by_a_dispatcher_that_cuts_the_path(server: InferenceServer) -> None:
    environ = EnvironBuilder("/ModelInfer", f"http://localhost/{SERVICE}", method="POST", headers=OF_WEB, data=frame(ECHO)).get_environ()
    pieces, status, _ = run_wsgi_app(OIPGRPCWSGIApp(server), environ)
    assert status == "200 OK"
    assert TWO_FLOATS in b"".join(pieces)


@pytest.mark.parametrize("path", [INFER, STREAM])
def test_grpc_itself_is_told_what_it_needs(server: InferenceServer, path: str) -> None:
    got = call_wsgi(OIPGRPCWSGIApp(server), path, frame(ECHO), GRPC)
    assert (got.status, got.body, got.headers["grpc-status"]) == (200, b"", "12")
    assert "HTTP/2%20trailers" in got.headers["grpc-message"] or "HTTP/2 trailers" in got.headers["grpc-message"]


@pytest.mark.parametrize("content_type", [WEB, WEB_TEXT])
@pytest.mark.parametrize("model", ["stream", "blocking"])
def test_a_call_of_many_messages_both_ways(server: InferenceServer, content_type: str, model: str) -> None:
    body = asked(model, 2, "a") + asked("echo", 1, "b") + asked("echo", 1, "c")
    got = call_wsgi(OIPGRPCWSGIApp(server), STREAM, b64encode(body) if content_type == WEB_TEXT else body, content_type)
    assert got.refusal == ("OK", "")
    assert sorted(ids(got)) == ["a", "a", "b", "c"]


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"", "OK", ""),
        (b"\x07\0\0\0\0", "INVALID_ARGUMENT", "a frame begins with the byte 7: expected 0, or 1 for a compressed message"),
        (asked("echo", 1)[:-1], "INVALID_ARGUMENT", "the body ended within a message, or before its end: expected more"),
    ],
)
@pytest.mark.parametrize("path", [STREAM, REFLECTION])
def test_how_a_call_of_many_messages_ends(server: InferenceServer, path: str, body: bytes, code: str, text: str) -> None:
    assert call_wsgi(OIPGRPCWSGIApp(server), path, body).refusal == (code, text)


def test_headers_that_are_wrong_are_answered_before_any_message(server: InferenceServer) -> None:
    app = OIPGRPCWSGIApp(server)
    got = call_wsgi(app, STREAM, asked("echo", 1), headers=[("grpc-encoding", "br")])
    assert got.refusal == ("UNIMPLEMENTED", "grpc-encoding 'br' is not supported: expected identity, gzip or deflate")
    assert call_wsgi(app, STREAM, asked("echo", 1), headers=[("grpc-timeout", "soon")]).refusal[0] == "INVALID_ARGUMENT"


def test_the_time_of_a_call_is_its_grpc_timeout(server: InferenceServer) -> None:
    silent = Noted(silent_after=0)
    server.register("silent", silent.awaiting)
    got = call_wsgi(OIPGRPCWSGIApp(server), STREAM, asked("silent", 2), headers=[("grpc-timeout", "200m")])
    assert got.refusal == ("DEADLINE_EXCEEDED", "the call did not end within its grpc-timeout")
    assert silent.ended == ["cancelled", "finally"]


@pytest.mark.parametrize("model", ["stream", "blocking"])
def test_a_client_that_goes_ends_the_generator(server: InferenceServer, noted: Noted, model: str) -> None:
    environ = EnvironBuilder(STREAM, method="POST", headers=OF_WEB, data=asked(model, 1000)).get_environ()
    pieces: Any = OIPGRPCWSGIApp(server)(environ, lambda *_: lambda _: None)
    assert len(next(pieces)) > 5
    pieces.close()  # as servers do
    block_until(lambda: "finally" in noted.ended)
    block_until(lambda: is_idle(server))  # its thread lets the slot go behind that
    assert noted.made < 10


def test_reflection_names_the_services(server: InferenceServer) -> None:
    # field 7 of a question asks for the list
    got = call_wsgi(OIPGRPCWSGIApp(server), REFLECTION, frame(b"\x3a\x01*") * 2)
    assert got.refusal == ("OK", "")
    assert [SERVICE.encode() in message for message in got.messages] == [True, True]


@pytest.mark.parametrize("path", [INFER, STREAM])
def test_a_body_without_an_end_is_not_read(server: InferenceServer, path: str) -> None:
    class Endless(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise AssertionError("a server may wait for ever here")

    environ = EnvironBuilder(path, method="POST", headers=OF_WEB).get_environ()
    environ.update({"CONTENT_LENGTH": "", "wsgi.input": Endless()})
    pieces, _, _ = run_wsgi_app(OIPGRPCWSGIApp(server), environ)
    body = b"".join(pieces)
    assert b"grpc-status:3" in body
    assert b"send a length" in body


def test_a_body_ends_at_its_length_where_the_stream_does_not(server: InferenceServer) -> None:
    for path, message in ((INFER, frame(ECHO)), (STREAM, asked("echo", 1))):
        environ = EnvironBuilder(path, method="POST", headers=OF_WEB).get_environ()
        environ.update({"CONTENT_LENGTH": str(len(message)), "wsgi.input": BytesIO(message + b"the next request")})
        pieces, _, _ = run_wsgi_app(OIPGRPCWSGIApp(server), environ)
        assert b"grpc-status:0" in b"".join(pieces)


@pytest.mark.parametrize("path", [STREAM, REFLECTION])
def test_a_stream_of_the_host_that_says_that_the_client_has_gone(server: InferenceServer, path: str) -> None:
    environ = EnvironBuilder(path, method="POST", headers=OF_WEB).get_environ()
    environ.update({"CONTENT_LENGTH": "100", "wsgi.input": LimitedStream(BytesIO(b""), 100)})
    pieces, _, _ = run_wsgi_app(OIPGRPCWSGIApp(server), environ)
    assert b"grpc-status:3\r\ngrpc-message:the body cannot be read: Bad Request" in b"".join(pieces)


def test_other_methods_and_types(server: InferenceServer) -> None:
    app = OIPGRPCWSGIApp(server)
    assert call_wsgi(app, INFER, frame(ECHO), "application/json").status == 415
    assert ASGIClient(app, WEB, is_wsgi=True).refusal("Unknown", b"") == ("UNIMPLEMENTED", f"unknown method '/{SERVICE}/Unknown'")
    assert ASGIClient(app, WEB, is_wsgi=True).ask("ServerLive", made("ServerLiveRequest")).live


def test_it_takes_an_inference_server() -> None:
    with pytest.raises(TypeError, match="OIPGRPCWSGIApp"):
        OIPGRPCWSGIApp("server")  # type: ignore[arg-type]
