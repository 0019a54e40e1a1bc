"""The exact requests that clients write, and how they read answers that are unusual, wrong, or of other servers."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import re
import socket
import threading
import tracemalloc
from pathlib import Path
from socketserver import BaseRequestHandler, UnixStreamServer
from typing import Any

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient

from oip_asgi import (
    ErrorResponse,
    InferenceError,
    InferenceServer,
    InvalidResponse,
    OIPApp,
    OIPWSGIApp,
    RequestOutput,
    Tensor,
    TensorSpec,
)
from oip_asgi.client import AsyncClient, Client, ConnectionFailed
from oip_asgi.codecs import Base64Codec
from tests.support.peer import CLOSE, Peer

GOOD = {"model_name": "m", "outputs": [{"name": "y", "shape": [1], "datatype": "FP32", "data": [1.5]}]}
HEADER = "inference-header-content-length"


class Recorded:
    """A client whose requests are kept, and answered alike."""

    def __init__(self, status: int = 200, *, headers: dict[str, str] | None = None, content: bytes = json.dumps(GOOD).encode()) -> None:
        self.requests: list[httpx2.Request] = []
        self.answer = (status, headers or {"content-type": "application/json"}, content)
        self.client = Client(
            "http://test:81/ml/v2/", http=httpx2.Client(transport=httpx2.MockTransport(self.respond)), headers={"x-key": "k"}
        )

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        self.requests.append(request)
        status, headers, content = self.answer
        return httpx2.Response(status, headers=headers, content=content)


def test_a_binary_request_and_one_of_json() -> None:
    recorded = Recorded()
    recorded.client.infer("a/b é", {"x": np.array([1, 2], np.float32)}, version=3, outputs=["y"], id="7", parameters={"p": True})
    [request] = recorded.requests
    text = (
        '{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}],"id":"7",'
        '"parameters":{"binary_data_output":true,"p":true},"outputs":[{"name":"y","parameters":{"binary_data":true}}]}'
    )
    assert (request.method, str(request.url)) == ("POST", "http://test:81/ml/v2/models/a%2Fb%20%C3%A9/versions/3/infer")
    assert request.content == text.encode() + np.array([1, 2], np.float32).tobytes()
    assert request.headers["content-type"] == "application/octet-stream"
    assert request.headers[HEADER] == str(len(text))
    assert request.headers["content-length"] == str(len(request.content))
    assert request.headers["x-key"] == "k"
    recorded.client.infer("m", {"x": [1]}, outputs=["y"], binary=False)
    request = recorded.requests[2]
    assert request.content == b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[1]}],"outputs":[{"name":"y"}]}'
    assert request.headers["content-type"] == "application/json"
    assert HEADER not in request.headers


def test_whole_numbers_are_never_rounded() -> None:
    """What is refused, as it would be: tests/table/values, and tests/core/serving/test_without_http.py for its text."""
    recorded = Recorded()
    recorded.client.infer("m", {"x": [2**63 + 1, 1]}, binary=False)
    assert recorded.requests[1].content == b'{"inputs":[{"name":"x","shape":[2],"datatype":"UINT64","data":[9223372036854775809,1]}]}'
    recorded.client.infer("m", {"x": [[2**63 + 1], [1]]}, binary=False)
    assert b'"shape":[2,1],"datatype":"UINT64","data":[9223372036854775809,1]' in recorded.requests[2].content
    with pytest.raises(InferenceError, match=r"^input 'x': an array of Python objects"):
        recorded.client.infer("m", {"x": object()})
    assert len(recorded.requests) == 3


@pytest.mark.parametrize("answer", [{}, {"inputs": 1}, {"inputs": ["x", {"name": 1, "parameters": {"content_type": "base64"}}]}])
def test_a_model_is_asked_once_what_it_declares_and_only_for_lists(answer: dict[str, Any]) -> None:
    recorded = Recorded(content=json.dumps({**GOOD, **answer}).encode())
    for values in (np.array([b"a"], object), Tensor("x", np.array([b"a"], object)), np.float32(1.5)):
        recorded.client.infer("m", {"x": values})
    assert [request.method for request in recorded.requests] == ["POST"] * 3
    recorded.requests.clear()
    for value in ([b"a"], "a", [["a"]], [1.5], []):
        recorded.client.infer("m", {"x": value}, binary=False)
    assert [request.method for request in recorded.requests] == ["GET", *["POST"] * 5]
    with pytest.raises(InferenceError, match="None"):
        recorded.client.infer("other", {"x": [None, "a"]}, binary=False)
    assert str(recorded.requests.pop(-1).url) == "http://test:81/ml/v2/models/other"
    assert str(recorded.requests[0].url) == "http://test:81/ml/v2/models/m"
    assert json.loads(recorded.requests[1].content)["inputs"] == [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]}]
    recorded.client.infer("m", {"x": ["a"]}, version="2")
    assert str(recorded.requests[6].url) == "http://test:81/ml/v2/models/m/versions/2"


@pytest.mark.parametrize("status", [401, 403, 404, 405, 501])
def test_lists_go_out_as_they_are_where_the_server_does_not_tell_what_is_declared(status: int) -> None:
    methods, answers = list[str](), [200, 200, 400, 200]

    def answer(request: httpx2.Request) -> httpx2.Response:
        methods.append(request.method)
        if request.method == "GET":
            return httpx2.Response(status, json={"error": "no"})
        return httpx2.Response(200, json=GOOD) if answers.pop(0) == 200 else httpx2.Response(400, json={"error": "no"})

    client = Client("http://test/v2", http=httpx2.Client(transport=httpx2.MockTransport(answer)))
    for _ in range(2):
        assert client.infer("m", {"x": [b"a"]})["y"].tolist() == [1.5]
    with pytest.raises(ErrorResponse):  # after which the model may have been registered anew
        client.infer("m", {"x": [b"a"]})
    client.infer("m", {"x": [b"a"]})
    assert methods == ["GET", "POST", "POST", "POST", "GET", "POST"]


def test_a_client_that_has_just_asked_what_a_model_declares_does_not_ask_again() -> None:
    methods = list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        methods.append(request.method)
        declared = {"name": "m", "platform": "p", "inputs": [{"name": "x", "datatype": "INT64", "shape": [-1]}], "outputs": []}
        return httpx2.Response(400, json={"error": "no"}) if request.method == "POST" else httpx2.Response(200, json=declared)

    client = Client("http://test/v2", http=httpx2.Client(transport=httpx2.MockTransport(answer)))
    for values in ([1], [2], [1.5], [1.5], [1]):
        with pytest.raises(InferenceError):
            client.infer("m", {"x": values})
    assert methods == ["GET", "POST", "POST", "GET", "GET", "POST"]  # 1.5 is not sent


@pytest.mark.parametrize("how", ["infer", "stream"])
def test_a_client_learns_that_a_model_was_registered_anew(how: str) -> None:
    server = InferenceServer()
    client = Client("http://test", http=httpx2.Client(transport=httpx2.WSGITransport(OIPWSGIApp(server))))

    def ask(value: float) -> str:
        answer = getattr(client, how)("m", {"x": [value]})
        return str((answer if how == "infer" else next(answer))["output_0"].dtype)

    for datatype in ("INT64", "FP64", "FP32"):  # of which the client refuses the second, and the server the third
        specs = [TensorSpec("x", datatype, [-1])]
        server.register("m", lambda x: x, inputs=specs, outputs=[TensorSpec("output_0", datatype, [-1])], replace=datatype != "INT64")
        if datatype != "INT64":
            with pytest.raises(InferenceError):
                ask(1.5)
        assert ask(1) == {"INT64": "int64", "FP64": "float64", "FP32": "float32"}[datatype]


def test_a_client_asks_again_what_a_model_declares_that_is_loading() -> None:
    methods = list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        methods.append(request.method)
        return httpx2.Response(200, json=GOOD) if request.method == "POST" else httpx2.Response(503, json={"error": "no"})

    client = Client("http://test/v2", http=httpx2.Client(transport=httpx2.MockTransport(answer)))
    for _ in range(2):
        client.infer("m", {"x": [1.5]})
    assert methods == ["GET", "POST"] * 2


def test_what_the_caller_says_of_outputs_is_kept() -> None:
    recorded = Recorded()
    asked = [RequestOutput("y", {"binary_data": False}), RequestOutput("z", {"shared_memory_region": "r", "shared_memory_byte_size": 4})]
    recorded.client.infer("m", {}, outputs=asked, parameters={"binary_data_output": False})
    sent = json.loads(recorded.requests[0].content)
    assert sent["parameters"] == {"binary_data_output": False}
    assert [output["parameters"] for output in sent["outputs"]] == [asked[0].parameters, asked[1].parameters]


LOAD = ("POST", "/repository/models/m/load")


@pytest.mark.parametrize(
    ("name", "arguments", "sent"),
    [
        ("metadata", (), ("GET", "", b"")),
        ("is_live", (), ("GET", "/health/live", b"")),
        ("is_ready", (), ("GET", "/health/ready", b"")),
        ("is_model_ready", ("a/b", "v 1"), ("GET", "/models/a%2Fb/versions/v%201/ready", b"")),
        ("model_metadata", ("m", 1), ("GET", "/models/m/versions/1", b"")),
        ("config", ("m",), ("GET", "/models/m/config", b"")),
        ("load", ("m", {"config": "{}"}), (*LOAD, b'{"parameters":{"config":"{}"}}')),
        ("load", ("m", {"file:1/m": b"\xff"}), (*LOAD, b'{"parameters":{"file:1/m":"/w=="}}')),
        ("load", ("m",), (*LOAD, b"{}")),
        ("unload", ("m",), ("POST", "/repository/models/m/unload", b"{}")),
    ],
)
def test_other_requests(name: str, arguments: tuple[Any, ...], sent: tuple[str, str, bytes]) -> None:
    recorded = Recorded(content=b"{}")
    getattr(recorded.client, name)(*arguments)
    [request] = recorded.requests
    assert (request.method, request.url.raw_path.decode().removeprefix("/ml/v2"), request.content) == sent


def test_the_index_and_statistics() -> None:
    recorded = Recorded(content=b'[{"name":"m"}]')
    assert recorded.client.index(ready=True) == recorded.client.index() == [{"name": "m"}]
    assert [request.content for request in recorded.requests] == [b'{"ready":true}', b"{}"]
    recorded = Recorded(content=b'{"model_stats":[{"name":"m"}]}')
    assert recorded.client.statistics() == recorded.client.statistics("m", 1) == [{"name": "m"}]
    assert [request.url.path for request in recorded.requests] == ["/ml/v2/models/stats", "/ml/v2/models/m/versions/1/stats"]


def test_probes_of_any_server() -> None:
    for status, body, is_yes in (
        (200, b"", True),
        (200, b'{"ready":false}', False),
        (200, b'{"status":"alive"}', True),
        (200, b'{"live":true}', True),
        (400, b"", False),
        (404, b"{}", False),
        (503, b'{"ready":false}', False),
    ):
        client = Recorded(status, content=body).client
        assert (client.is_live(), client.is_ready(), client.is_model_ready("m")) == (is_yes,) * 3
    with pytest.raises(ErrorResponse, match="status 401: who are you") as caught:
        Recorded(401, content=b'{"error":"who are you"}').client.is_ready()
    assert caught.value.response_status == 401


def test_what_is_no_answer_of_the_protocol() -> None:
    for name, body, text in (
        ("infer", b"<html>", "not one of inference"),
        ("infer", b"", "not one of inference"),
        ("metadata", b"<html>", "the response is no JSON: b'<html>'"),
        ("metadata", b"[]", r"the response is or has \[\]: expected a JSON object"),
        ("metadata", b"", "the response is or has None: expected a JSON object"),
        ("index", b'["m"]', "'m': expected a JSON object"),
        ("statistics", b"{}", "None: expected a list"),
    ):
        with pytest.raises(InvalidResponse, match=text):
            getattr(Recorded(content=body).client, name)(*(("m", {}) if name == "infer" else ()))
    with pytest.raises(ErrorResponse, match="went wrong"):
        Recorded(content=b'{"error":"went wrong"}').client.infer("m", {})


def test_redirects_are_not_followed() -> None:
    recorded = Recorded(307, headers={"location": "http://elsewhere/v2"}, content=b"")
    for ask in (lambda: recorded.client.infer("m", {}), recorded.client.metadata, recorded.client.is_live):
        with pytest.raises(ErrorResponse, match="a redirect to http://elsewhere/v2"):
            ask()
    assert len(recorded.requests) == 3


def test_a_server_without_binary_data_is_told_by_its_error() -> None:
    plain = Recorded(500, headers={"content-type": "text/plain"}, content=b"Internal Server Error").client
    with pytest.raises(ErrorResponse, match=r"Internal Server Error \(if this server has no binary data.*write binary=False\)") as caught:
        plain.infer("m", {"x": [1]})
    assert caught.value.response_status == 500
    with pytest.raises(ErrorResponse, match=r"Internal Server Error$"):
        plain.infer("m", {"x": [1]}, binary=False)


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EVENT = b"data: " + json.dumps(GOOD).encode() + b"\n\n"


def test_events_in_any_pieces(connect: Any) -> None:
    event = json.dumps(GOOD).encode()
    parts = [b"da", b"ta: ", event[:9], event[9:] + b"\n", b"\ndata:" + event + b"\r\n\r\n: a comment\n\nevent: x\ndata: ", event + b"\n\n"]
    with Peer([STREAM, *parts, CLOSE]).listening() as url, connect(url) as client:
        assert [response["y"].tolist() for response in client.stream("m", {})] == [[1.5]] * 3
    for end in (b": bye", b"id: 7", b"event: end\n", b"\r\n"):  # what is no data at the end is nothing
        with Peer([STREAM, EVENT + end, CLOSE]).listening() as url, connect(url) as client:
            assert [response["y"].tolist() for response in client.stream("m", {})] == [[1.5]]
    assert [response["y"].tolist() for response in Recorded().client.stream("m", {})] == [[1.5]]  # no stream, but a single response


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (b"data: {", "the stream ends within an event"),
        (b"data: {}\n", "the stream ends within an event"),
        (b"da", "the stream ends within an event"),
        (b'data: {"error":"no more"}\n\n', "no more"),
    ],
)
def test_an_error_at_the_end_of_a_stream_comes_after_its_responses(end: bytes, error: str) -> None:
    with Peer([STREAM, EVENT + end, CLOSE]).listening() as url, Client(url) as client:
        responses = client.stream("m", {})
        assert next(responses)["y"].tolist() == [1.5]
        with pytest.raises(InferenceError, match=error) as caught:
            next(responses)
        assert isinstance(caught.value, ErrorResponse if error == "no more" else InvalidResponse)


def test_a_compressed_answer_is_one_for_a_client_of_httpx2() -> None:
    head = STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    with Peer([head, gzip.compress(EVENT), CLOSE]).listening() as url, Client(url) as client:
        for ask in (client.metadata, lambda: next(client.stream("m", {}))):
            with pytest.raises(InvalidResponse, match="'gzip', which only a client of httpx2 reads"):
                ask()
        with httpx2.Client() as http:
            assert next(Client(url, http=http).stream("m", {}))["y"].tolist() == [1.5]
    refused = b"HTTP/1.1 %d No\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n{"  # which keeps its status
    with Peer(refused % 503).listening() as url, Client(url) as client:
        assert not client.is_ready()
    with Peer(refused % 401).listening() as url, Client(url) as client, pytest.raises(ErrorResponse) as caught:
        client.metadata()
    assert caught.value.response_status == 401


def test_what_a_server_says_of_a_length_takes_no_memory() -> None:
    peer = Peer([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{}" % 2**30, CLOSE])
    tracemalloc.start()
    try:
        with peer.listening() as url, Client(url) as client, pytest.raises(ConnectionFailed, match="gave no whole answer"):
            client.metadata()
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_headers_of_a_request_and_of_an_answer() -> None:
    peer = Peer(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nContent-Length: 0\r\nWWW-Authenticate: Basic\r\nwww-authenticate: Bearer\r\n\r\n")
    with peer.listening() as url, Client(url, headers={"host": "m.example.com"}) as client, pytest.raises(ErrorResponse) as caught:
        client.metadata()
    assert caught.value.response_headers["www-authenticate"] == "Basic, Bearer"  # it came twice
    # a host of the caller's goes before that of the url, as an ingress of KServe wants it
    assert [line for line in peer.requests[0].split(b"\r\n") if line.lower().startswith(b"host")] == [b"host: m.example.com"]


def test_what_goes_wrong_on_the_way_is_one_error(connect: Any) -> None:
    def fail(url: str, **options: Any) -> ConnectionFailed:
        with connect(url, **options) as client, pytest.raises(ConnectionFailed) as caught:
            client.metadata()
        return caught.value

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    away = fail(f"http://127.0.0.1:{port}/v2")
    assert re.match(rf"http://127.0.0.1:{port}/v2 cannot be reached: .*(refused|failed)", str(away))
    assert (away.is_unsent, away.is_timeout, isinstance(away.__cause__, OSError)) == (True, False, True)
    with Peer([]).listening() as url:
        late = fail(url, timeout=0.1)
        assert str(late).startswith(f"{url} took too long: ")
        assert (late.is_unsent, late.is_timeout) == (False, True)
        with connect(url) as client, pytest.raises(ConnectionFailed, match="took too long"):
            client.infer("m", {"x": [1]}, timeout=0.1)
    for head in (b"Content-Length: 10\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}"):
        with Peer([b"HTTP/1.1 200 OK\r\n" + head, CLOSE]).listening() as url:
            cut = fail(url, timeout=math.inf)
        assert re.search("gave no whole answer: .", str(cut))
        assert (cut.is_unsent, cut.is_timeout) == (False, False)


def test_a_stream_that_is_left_closes_its_connection(connect: Any) -> None:
    peer = Peer([STREAM, EVENT])
    with peer.listening() as url, connect(url) as client:
        with contextlib.closing(client.stream("m", {})) as responses:
            next(responses)
        peer.wait_for_open(0)


def test_a_server_on_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "a model.sock")

    class Answer(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(2**16)
            self.request.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"name":"m"}')

    with UnixStreamServer(path, Answer) as server, Client(f"http+unix://{path}/v2") as client:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        assert client.metadata() == {"name": "m"}
        serving.join(10)


def test_a_url_that_is_none() -> None:
    text = "http://host:8000/v2, http+unix:///run/model.sock/v2 or grpc://host:8001, without"
    urls = [
        "",
        "127.0.0.1:8000",
        "ftp://host/v2",
        "http://user:password@host/v2",
        "http://host/v2?a=b",
        "http+unix:///run/v2",
        "http://höst/v2",
    ]
    urls += ["http://host:x/v2", "http://host:65536/v2", "http://[::1/v2", "http://a host/v2"]
    of_grpc = ["grpc://", "grpc://host", "grpc://user@host:1", "grpc://host:1/v2", "grpcs://host:1?a=b"]
    for url, expected in {**dict.fromkeys(urls, text), **dict.fromkeys(of_grpc, "grpc://host:8001, or")}.items():
        for kind in (Client, AsyncClient):
            with pytest.raises(ValueError, match=rf"the url is .*: expected one such as {re.escape(expected)}"):
                kind(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v2", "grpc://127.0.0.1:1"])
def test_headers_that_are_none(url: str) -> None:
    with pytest.raises(TypeError, match="the header 'x-tenant' is 7: expected a string"):
        Client(url, headers={"x-tenant": 7})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"headers= is 'x': expected a mapping, such as {'Authorization': "):
        Client(url, headers="x")  # type: ignore[arg-type]


def test_bytes_that_json_cannot_hold_and_what_to_write_instead() -> None:
    recorded = Recorded()
    remedy = "leave out binary=False, or give Base64Codec.encode_input(name, [...]) of oip_asgi.codecs as its value"
    with pytest.raises(InferenceError) as raised:
        recorded.client.infer("m", {"x": np.array([b"\xff"], object)}, binary=False)
    assert str(raised.value) == f"input 'x': BYTES element 0 is b'\\xff', which is not UTF-8 and cannot be a JSON string: {remedy}"
    recorded.client.infer("m", {"x": Base64Codec.encode_input("x", [b"\xff"])}, binary=False)
    [request] = recorded.requests
    [sent] = json.loads(request.content)["inputs"]
    assert (sent["data"], sent["parameters"]) == (["/w=="], {"content_type": "base64"})


def test_the_traceback_of_a_404_has_the_url() -> None:
    """The text has none: it may go to clients of a model that asks another server."""
    client = Recorded(404, headers={"content-type": "text/plain"}, content=b"Not Found").client
    for ask, path in (
        (lambda: client.infer("m", {"x": [1]}), "POST http://test:81/ml/v2/models/m/infer"),
        (lambda: list(client.stream("m", {"x": [1]})), "POST http://test:81/ml/v2/models/m/infer_stream"),
        (client.metadata, "GET http://test:81/ml/v2"),
    ):
        with pytest.raises(ErrorResponse) as caught:
            ask()
        assert str(caught.value) == "the server answered with the status 404: Not Found"
        assert caught.value.__notes__ == [f"{path}: the client's url must end where the server's paths begin"]
    http = httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(404)))
    with Client("http://test", http=http) as bare, pytest.raises(ErrorResponse) as caught:
        bare.metadata()
    hint = "GET http://test: the client's url must end where the server's paths begin, such as http://test/v2"
    assert str(caught.value) == f"the server answered with the status 404 ({hint})"
    assert caught.value.text == ""


def test_the_url_that_a_model_asked_is_not_for_the_clients_of_its_server() -> None:
    server = InferenceServer()

    @server.model("asks")
    def ask(x: Any) -> Any:
        with httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(404))) as http:
            return Client("http://secret", http=http).infer("m", {"x": x})["y"]

    with TestClient(OIPApp(server)) as http, pytest.raises(ErrorResponse) as caught:
        Client("", http=http).infer("asks", {"x": [1]})
    assert (caught.value.response_status, caught.value.text) == (502, "the server answered with the status 404")
