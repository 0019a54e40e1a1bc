"""What is said over gRPC only: urls, errors on the way, and answers of other servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from oip_asgi import ErrorResponse, InferenceError, InferenceServer, InvalidResponse
from oip_asgi.client import AsyncClient, Client, ConnectionFailed

grpc = pytest.importorskip("grpc")
from tests.support.grpc_ways import blocking  # noqa: E402


@contextmanager
def answering(**methods: Any) -> Iterator[str]:
    """A server of some methods, each with the bytes that it answers, or the function that does; gives its URL."""

    def make(name: str, answer: Any) -> Any:
        if name == "ModelStreamInfer":
            return grpc.stream_stream_rpc_method_handler(lambda requests, context: iter([answer]))
        return grpc.unary_unary_rpc_method_handler(answer if callable(answer) else lambda request, context: answer)

    handlers = {name: make(name, answer) for name, answer in methods.items()}
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait(10)


def test_headers_are_metadata_and_errors_have_the_status_of_http() -> None:
    seen: list[Any] = []

    def refuse(request: bytes, context: Any) -> bytes:
        seen.extend(map(tuple, context.invocation_metadata()))
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")
        raise AssertionError

    with answering(ModelInfer=refuse) as url, Client(url, headers={"X-Key": "k", "x-bin": "/w"}) as client:
        for ask, status in (
            (lambda: client.infer("m", {"x": [1]}), 403),
            (client.metadata, 501),
            (client.is_ready, 501),
            (lambda: list(client.stream("m", {})), 501),
        ):
            with pytest.raises(ErrorResponse) as caught:
                ask()
            assert caught.value.response_status == status
            assert status == 501 or caught.value.text == "not you"
    assert {("x-key", "k"), ("x-bin", b"\xff")} <= set(seen)
    with pytest.raises(ValueError, match="the header 'x-name' is 'é': expected a name of HTTP, and printable ASCII"):
        Client(url, headers={"x-name": "é"})
    with pytest.raises(InferenceError, match="the header x-bin cannot go over gRPC: expected base64"):
        Client(url, headers={"x-bin": "!"})


def test_a_server_that_is_not_there_cannot_be_reached_and_one_that_is_late_is_504(connect: Any) -> None:
    with connect("grpc://127.0.0.1:1") as client, pytest.raises(ConnectionFailed, match=r"^grpc://127.0.0.1:1 cannot be reached: ") as away:
        client.is_live()
    assert (away.value.is_unsent, away.value.is_timeout) == (True, False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with connect(f"grpc://127.0.0.1:{port}", timeout=0.1) as client, pytest.raises(ErrorResponse) as late:
            client.is_live()
    assert late.value.response_status == 504


class OnlyHTTP1(BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")


def test_a_server_without_http_2_is_named() -> None:
    text = "cannot be reached: the server does not speak HTTP/2, which gRPC needs: serve it with pyvoy or with gunicorn's asgi worker"
    with ThreadingTCPServer(("127.0.0.1", 0), OnlyHTTP1) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            with Client(f"grpc://127.0.0.1:{server.server_address[1]}") as client, pytest.raises(ConnectionFailed, match=text):
                client.infer("m", {"x": [1]})
        finally:
            server.shutdown()
            serving.join()


def test_contents_as_mlserver_sends_them() -> None:
    # name m, one output y of INT64 and shape [2] with int64_contents 5, 6
    typed = bytes.fromhex("0a016d" + "2a13" + "0a0179" + "1205494e543634" + "1a0102" + "2a04" + "1a020506")
    raw_beside_empty = bytes.fromhex("2a0e0a01791204494e54381a01012a00" + "320105")
    for answer, values in ((typed, [5, 6]), (raw_beside_empty, [5])):
        with answering(ModelInfer=answer) as url, Client(url) as client:
            assert client.infer("m", {})["y"].tolist() == values


# bytes that are no message; an output of an unknown datatype; more raw contents than outputs; raw contents beside typed ones
def test_what_is_no_response() -> None:
    for answer in (
        "ff",  # bytes that are no message
        "2a0c0a017912044e4f50451a0101",  # an output of an unknown datatype
        "2a0c0a01791204494e54381a0101" + "320105" + "320106",  # more raw contents than outputs
        "2a0c0a01791204494e54381a0101" + "320105" + "3200",
        "2a110a01791204494e54381a0101" + "2a03120105" + "320105",  # raw contents beside typed ones
    ):
        with answering(ModelInfer=bytes.fromhex(answer)) as url, Client(url) as client, pytest.raises(InvalidResponse):
            client.infer("m", {})


def test_parameters_of_a_load_go_as_what_they_are() -> None:
    asked: list[bytes] = []

    def load(request: bytes, context: Any) -> bytes:
        asked.append(request)
        return b""

    with answering(RepositoryModelLoad=load) as url, Client(url) as client:
        client.load("m", {"file:1/m": b"\xff", "config": "{}", "n": 1, "ok": True})
        [message] = asked
        written = (b"file:1/m\x12\x03\x22\x01\xff", b"config\x12\x04\x1a\x02{}", b"n\x12\x02\x10\x01", b"ok\x12\x02\x08\x01")
        assert all(part in message for part in written)
        for wrong, text in {1.5: "over gRPC, expected a str, int, bool or bytes", None: "expected a str, int, float or bool"}.items():
            with pytest.raises(InferenceError, match=text):
                client.load("m", {"p": wrong})


def test_tls_that_a_server_does_not_have(connect: Any) -> None:
    with answering(ModelInfer=b"") as url, connect(url.replace("grpc:", "grpcs:")) as client:
        for ask in (client.is_live, lambda: list(client.stream("m", {}))):
            with pytest.raises(ConnectionFailed, match="cannot be reached"):
                ask()


def test_a_client_has_a_channel_for_each_event_loop() -> None:
    server = InferenceServer()
    server.register("double", lambda x: x * 2)
    with blocking(server) as address:
        client = AsyncClient(f"grpc://{address}")

        async def ask() -> Any:
            return (await client.infer("double", {"x": [1]}))["output_0"].tolist()

        for _ in range(3):
            assert asyncio.run(ask()) == [2]


def test_a_number_that_has_no_name_yet_is_the_number() -> None:
    of_input = b"\x0a\x01x\x10\x63"  # name x, data_type 99
    config = b"\x2a%c" % len(of_input) + of_input
    with answering(ModelConfig=b"\x0a%c" % len(config) + config) as url, Client(url) as client:
        [described] = client.config("m")["input"]
    assert (described["name"], described["data_type"]) == ("x", 99)


def test_an_answer_above_the_limit_is_none() -> None:
    server = InferenceServer()
    server.register("echo", lambda x: x)
    with blocking(server) as address, Client(f"grpc://{address}", max_body_bytes=1000) as client:
        assert len(client.infer("echo", {"x": np.zeros(10)})["output_0"]) == 10
        for read in (lambda: client.infer("echo", {"x": np.zeros(200)}), lambda: list(client.stream("echo", {"x": np.zeros(200)}))):
            with pytest.raises(InvalidResponse, match="is larger than 1000 bytes"):
                read()
