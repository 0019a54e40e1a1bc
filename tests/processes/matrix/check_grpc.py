"""Servers that send HTTP/2 trailers, each as a real process, asked by clients that nobody here wrote.

Not collected by itself: `tox -e grpc-asgi`, which installs them all, names this file.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.support.grpc_ways import SERVICE, wire_request
from tests.support.talk import block_until

from .grpc_servers import KINDS, make_certificate, started

APP = "tests.processes.matrix.grpc_site:app"
PLEASE = {"authorization": "please"}


@pytest.fixture(scope="module", params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(request.param, APP, tmp_path_factory.mktemp("server")) as served:
        served.wait_until_ready()
        yield f"127.0.0.1:{served.port}"


def tensor(array: Any) -> Any:
    return tritonclient.grpc.InferInput("x", array.shape, "FP32").set_data_from_numpy(array)


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with tritonclient.grpc.InferenceServerClient(address) as opened:
        yield opened


@pytest.mark.parametrize("shape", [[1, 4], [1, 150_528], [3, 1024, 1024]])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tritonclient_gets_back_what_it_sent(client: Any, shape: list[int], compression: str | None) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    answer = client.infer("echo", [tensor(array)], headers=PLEASE, compression_algorithm=compression)
    np.testing.assert_array_equal(answer.as_numpy("x"), array)


def test_many_calls_over_one_connection(client: Any) -> None:
    def ask(number: int) -> bool:
        array = np.full([1, 4], number, np.float32)
        return bool((client.infer("echo", [tensor(array)], headers=PLEASE).as_numpy("x") == array).all())

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(ask, range(1000)))


@pytest.mark.ci
def test_tritonclient_over_asyncio(address: str) -> None:
    async def ask() -> Any:
        async with tritonclient.grpc.aio.InferenceServerClient(address) as opened:
            array = np.ones([1, 4], np.float32)
            answers = await asyncio.gather(*(opened.infer("echo", [tensor(array)], headers=PLEASE) for _ in range(20)))
            return [answer.as_numpy("x").tolist() for answer in answers]

    assert asyncio.run(ask()) == [[[1, 1, 1, 1]]] * 20


ASK_AS_KSERVE = """
import asyncio, sys
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest

async def ask():
    client = InferenceGRPCClient(sys.argv[1])
    array = np.ones([1, 4], np.float32)
    request = InferRequest("echo", [InferInput("x", [1, 4], "FP32", array.tolist()[0])], request_id="7")
    response = await client.infer(request, headers=[("authorization", "please")])
    print(response.id, response.outputs[0].as_numpy().tolist())
    await client.close()

asyncio.run(ask())
"""


def test_kserves_client(address: str) -> None:
    # in a process of its own, as its messages collide with tritonclient's
    done = subprocess.run([sys.executable, "-c", ASK_AS_KSERVE, address], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1:] == ["7 [[1.0, 1.0, 1.0, 1.0]]"], done.stderr


def test_a_request_above_the_limit(client: Any) -> None:
    with pytest.raises(tritonclient.grpc.InferenceServerException, match="max_body_bytes") as refused:
        client.infer("echo", [tensor(np.zeros([5, 1024, 1024], np.float32))], headers=PLEASE)
    assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def test_refusals(client: Any) -> None:
    with pytest.raises(tritonclient.grpc.InferenceServerException, match="unknown model: 'nope'") as refused:
        client.get_model_metadata("nope", headers=PLEASE)
    assert refused.value.status() == "StatusCode.NOT_FOUND"
    with pytest.raises(tritonclient.grpc.InferenceServerException) as refused:
        client.is_server_live()
    assert refused.value.status() == "StatusCode.UNAUTHENTICATED"


def test_a_client_that_knows_no_messages_asks_for_them(address: str) -> None:
    class Please(grpc.StreamStreamClientInterceptor):
        def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
            return continuation(details._replace(metadata=[*PLEASE.items()]), requests)

    with grpc.intercept_channel(grpc.insecure_channel(address), Please()) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert SERVICE in database.get_services()
        assert SERVICE.partition(".")[0] == database.FindFileContainingSymbol(SERVICE).package


def test_rest_is_on_the_same_port(address: str) -> None:
    assert httpx2.get(f"http://{address}/v2", headers=PLEASE, verify=False).json()["name"]
    assert httpx2.get(f"http://{address}/v2", verify=False).status_code == 401


def test_rest_over_http2(address: str) -> None:
    body = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}]}
    with httpx2.Client(http1=False, http2=True, base_url=f"http://{address}", headers=PLEASE) as client:
        answered = client.post("/v2/models/echo/infer", json=body)
        assert (answered.http_version, answered.status_code, answered.json()["outputs"]) == ("HTTP/2", 200, body["inputs"])
        refused = client.post("/v2/models/nope/infer", json=body)
        assert (refused.status_code, [*refused.json()]) == (404, ["error"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_told_to_stop(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / "in flight"
    tensor = {"name": "mark", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [str(mark).encode()]}}
    message = wire_request("slow", [tensor]).SerializeToString()
    with started(kind, APP, tmp_path) as served:
        served.wait_until_ready()
        with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            infer: Any = channel.unary_unary(f"/{SERVICE}/ModelInfer")
            call = infer.future(message, metadata=[*PLEASE.items()], timeout=30)
            block_until(mark.exists)
            served.ask_to_end()
            if KINDS[kind].finishes:
                assert str(mark).encode() in call.result()
            else:
                assert call.code() is grpc.StatusCode.UNAVAILABLE
            served.process.wait(20)


@pytest.mark.parametrize("kind", KINDS)
def test_tls_with_alpn(kind: str, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with started(kind, APP, tmp_path, certificate) as served:
        address = f"localhost:{served.port}"
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(certificate.authority.read_bytes())) as channel:
            grpc.channel_ready_future(channel).result(60)
            check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert check(b"", metadata=[*PLEASE.items()]) == b"\x08\x01"  # SERVING
        assert [alpn(served.port, certificate.authority, *wanted) for wanted in (["h2"], ["h2", "http/1.1"])] == ["h2", "h2"]
        client = tritonclient.grpc.InferenceServerClient
        with client(address, ssl=True, root_certificates=str(certificate.authority)) as trusting:
            assert trusting.is_server_ready(headers=PLEASE)
            array = np.arange(150_528, dtype=np.float32).reshape(1, -1)
            np.testing.assert_array_equal(trusting.infer("echo", [tensor(array)], headers=PLEASE).as_numpy("x"), array)
        with client(address, ssl=True) as doubting, pytest.raises(tritonclient.grpc.InferenceServerException) as refused:
            doubting.is_server_ready(headers=PLEASE)
        assert refused.value.status() == "StatusCode.UNAVAILABLE"
        context = ssl.create_default_context(cafile=certificate.authority)
        assert httpx2.get(f"https://{address}/v2", headers=PLEASE, verify=context).json()["name"] == "matrix"


def alpn(port: int, authority: Path, *wanted: str) -> str | None:
    """Which of the protocols that a client offers the server takes."""
    context = ssl.create_default_context(cafile=authority)
    context.set_alpn_protocols(wanted)
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
        return secure.selected_alpn_protocol()
