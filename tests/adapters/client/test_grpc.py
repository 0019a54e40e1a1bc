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


@contextmanager
def answering(method: str, *answers: bytes) -> Iterator[str]:
    """A server that answers one method with these messages; gives its URL."""

    def respond(request: bytes, context: Any) -> bytes:
        return answers[0]

    def respond_all(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield from answers

    streams = method == "ModelStreamInfer"
    handler = grpc.stream_stream_rpc_method_handler(respond_all) if streams else grpc.unary_unary_rpc_method_handler(respond)
    with serving(method, handler) as url:
        yield url


@contextmanager
def serving(method: str, handler: Any) -> Iterator[str]:
    """A server with one method; gives its URL."""
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {method: handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait(10)


@pytest.mark.parametrize("url", ["grpc://", "grpc://host", "grpc://user@host:1", "grpc://host:1/v2", "grpcs://host:1?a=b"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"the url is .*: expected one such as grpc://host:8001"):
        Client(url)
    with pytest.raises(ValueError, match="the url is"):
        AsyncClient(url)


def test_headers_are_metadata_and_errors_have_the_status_of_http() -> None:
    seen: list[Any] = []

    def refuse(request: bytes, context: Any) -> bytes:
        seen.extend(context.invocation_metadata())
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")
        raise AssertionError

    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(refuse)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Client(f"grpc://127.0.0.1:{port}", headers={"X-Key": "k"}) as client:
        with pytest.raises(ErrorResponse) as caught:
            client.infer("m", {"x": [1]})
        assert (caught.value.text, caught.value.response_status) == ("not you", 403)
        with pytest.raises(ErrorResponse) as caught:
            client.metadata()
        assert caught.value.response_status == 501
        with pytest.raises(ErrorResponse):
            client.is_ready()
    assert ("x-key", "k") in [tuple(pair) for pair in seen]
    server.stop(None).wait(10)


def test_a_server_that_is_not_there_cannot_be_reached_and_one_that_is_late_is_504() -> None:
    with Client("grpc://127.0.0.1:1") as client, pytest.raises(ConnectionFailed, match=r"^grpc://127.0.0.1:1 cannot be reached: ") as away:
        client.is_live()
    assert (away.value.is_unsent, away.value.is_timeout) == (True, False)

    async def ask(port: int) -> None:
        async with AsyncClient(f"grpc://127.0.0.1:{port}", timeout=0.1) as awaited:
            with pytest.raises(ErrorResponse) as late:
                await awaited.is_live()
            assert late.value.response_status == 504

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(ask(silent.getsockname()[1]))


class OnlyHTTP1(BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")


def test_a_server_without_http_2_is_named() -> None:
    with ThreadingTCPServer(("127.0.0.1", 0), OnlyHTTP1) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            text = (
                "cannot be reached: the server does not speak HTTP/2, which gRPC needs: serve it with pyvoy or with gunicorn's asgi worker"
            )
            with Client(f"grpc://127.0.0.1:{server.server_address[1]}") as client, pytest.raises(ConnectionFailed, match=text):
                client.infer("m", {"x": [1]})
        finally:
            server.shutdown()
            serving.join()


def test_typed_contents_are_read_too() -> None:
    # as MLServer sends them: name m, one output y of INT64 and shape [2] with int64_contents 5, 6
    answer = bytes.fromhex("0a016d" + "2a13" + "0a0179" + "1205494e543634" + "1a0102" + "2a04" + "1a020506")
    with answering("ModelInfer", answer) as url, Client(url) as client:
        assert client.infer("m", {})["y"].tolist() == [5, 6]


def test_raw_contents_beside_empty_ones_are_read_as_mlserver_sends_them() -> None:
    answer = bytes.fromhex("2a0e0a01791204494e54381a01012a00" + "320105")
    with answering("ModelInfer", answer) as url, Client(url) as client:
        assert client.infer("m", {})["y"].tolist() == [5]


# bytes that are no message; an output of an unknown datatype; more raw contents than outputs; raw contents beside typed ones
@pytest.mark.parametrize(
    "answer",
    [
        b"\xff",
        bytes.fromhex("2a0c0a017912044e4f50451a0101"),
        bytes.fromhex("2a0c0a01791204494e54381a0101" + "320105" + "320106"),
        bytes.fromhex("2a0c0a01791204494e54381a0101" + "320105" + "3200"),
        bytes.fromhex("2a110a01791204494e54381a0101" + "2a03120105" + "320105"),
    ],
)
def test_what_is_no_response(answer: bytes) -> None:
    with answering("ModelInfer", answer) as url, Client(url) as client, pytest.raises(InvalidResponse):
        client.infer("m", {})


def test_parameters_of_a_load_go_as_what_they_are() -> None:
    asked: list[bytes] = []

    def respond(request: bytes, context: Any) -> bytes:
        asked.append(request)
        return b""

    handler = grpc.unary_unary_rpc_method_handler(respond)
    with serving("RepositoryModelLoad", handler) as url, Client(url) as client:
        client.load("m", {"file:1/m": b"\xff", "config": "{}", "n": 1, "ok": True})
        [message] = asked
        written = (b"file:1/m\x12\x03\x22\x01\xff", b"config\x12\x04\x1a\x02{}", b"n\x12\x02\x10\x01", b"ok\x12\x02\x08\x01")
        assert all(part in message for part in written)
        for wrong, text in {1.5: "over gRPC, expected a str, int, bool or bytes", None: "expected a str, int, float or bool"}.items():
            with pytest.raises(InferenceError, match=text):
                client.load("m", {"p": wrong})


def test_a_header_whose_name_says_so_is_bytes_and_no_other_may_be_more_than_ascii() -> None:
    with answering("ModelInfer", b"") as url:
        with Client(url, headers={"x-bin": "\xff"}) as client:
            assert client.infer("m", {}).outputs == []
        with pytest.raises(InferenceError, match="the header x-name cannot go over gRPC: expected printable ASCII"):
            Client(url, headers={"x-name": "\xe9"})


def test_tls_and_streams_that_a_server_does_not_have() -> None:
    async def ask(url: str) -> None:
        async with AsyncClient(url) as client:
            with pytest.raises(ConnectionFailed):
                await client.is_live()
            with pytest.raises(ConnectionFailed):
                [response async for response in client.stream("m", {})]

    with answering("ModelInfer", b"") as url:
        secure = url.replace("grpc:", "grpcs:")
        with Client(secure) as client, pytest.raises(ConnectionFailed, match="cannot be reached"):
            client.is_live()
        asyncio.run(ask(secure))
        with Client(url) as client, pytest.raises(ErrorResponse) as caught:
            list(client.stream("m", {}))
        assert caught.value.response_status == 501


@pytest.mark.parametrize("missing", [np.nan, None], ids=str)
def test_a_column_of_objects_misses_nan_or_none_on_both_ways(missing: Any) -> None:
    pd = pytest.importorskip("pandas")
    from oip_asgi.codecs import PandasCodec
    from oip_asgi.specs import specs_of
    from tests.support.grpc_ways import blocking

    frame = pd.DataFrame({"city": ["Bonn", missing], "ok": [True, missing]}, dtype=object)
    server = InferenceServer()
    server.register("m", lambda df: df, content_type="pd", inputs=specs_of(frame))
    with blocking(server) as address, Client(f"grpc://{address}") as client:
        back = PandasCodec.decode_response(client.infer("m", frame.where(frame.notna(), np.nan if missing is None else None)))
    assert [type(each) for each in back.iloc[1]] == [type(missing)] * 2


def test_a_client_has_a_channel_for_each_event_loop() -> None:
    server = InferenceServer()
    server.register("double", lambda x: x * 2)
    from oip_asgi.grpc import add_to_server

    far = grpc.server(ThreadPoolExecutor(1))
    add_to_server(server, far)
    port = far.add_insecure_port("127.0.0.1:0")
    far.start()
    client = AsyncClient(f"grpc://127.0.0.1:{port}")

    async def ask() -> Any:
        return (await client.infer("double", {"x": [1]}))["output_0"].tolist()

    for _ in range(3):
        assert asyncio.run(ask()) == [2]
    far.stop(None).wait(10)


def test_a_number_that_has_no_name_yet_is_the_number() -> None:
    of_input = b"\x0a\x01x\x10\x63"  # name x, data_type 99
    config = b"\x2a%c" % len(of_input) + of_input
    with answering("ModelConfig", b"\x0a%c" % len(config) + config) as url, Client(url) as client:
        [described] = client.config("m")["input"]
    assert (described["name"], described["data_type"]) == ("x", 99)


def test_an_answer_above_the_limit_is_none() -> None:
    server = InferenceServer()
    server.register("echo", lambda x: x)
    from oip_asgi.grpc import add_to_server

    far = grpc.server(ThreadPoolExecutor(1))
    add_to_server(server, far)
    port = far.add_insecure_port("127.0.0.1:0")
    far.start()
    with Client(f"grpc://127.0.0.1:{port}", max_body_bytes=1000) as client:
        assert len(client.infer("echo", {"x": np.zeros(10)})["output_0"]) == 10
        for read in (lambda: client.infer("echo", {"x": np.zeros(200)}), lambda: list(client.stream("echo", {"x": np.zeros(200)}))):
            with pytest.raises(InvalidResponse, match="is larger than 1000 bytes"):
                read()
    far.stop(None).wait(10)
