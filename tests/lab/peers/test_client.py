"""Both clients, over HTTP and gRPC, against Triton, MLServer and KServe with identity models, and what the check of a server says of them.

Each server is in an environment of its own: `tox -e peers` installs them and names their Pythons in TRITON_PYTHON, MLSERVER_PYTHON and
KSERVE_PYTHON. One that cannot be installed is left out.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from oip_asgi import ErrorResponse, InferenceServer, OIPApp, TensorSpec
from oip_asgi.client import AsyncClient, Client, remote
from oip_asgi.client.__main__ import main
from tests.support.processes import free_port, running
from tests.support.threads import serving

MODULES = {"triton": "pytriton", "mlserver": "mlserver", "kserve": "kserve"}


class Peer(NamedTuple):
    name: str
    url: str
    grpc_url: str


def _has(python: str | None, module: str) -> bool:
    if python is None or not Path(python).exists():
        return False
    return subprocess.run([python, "-W", "ignore", "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module", params=list(MODULES))
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    name = request.param
    python = os.environ.get(f"{name.upper()}_PYTHON")
    if not _has(python, MODULES[name]):
        pytest.skip(f"{name.upper()}_PYTHON does not name the Python of an environment with {MODULES[name]}: tox -e peers")
    grpc_port = free_port()
    command = [str(python), "-m", f"tests.lab.bench.peers.serve_{name}", "PORT", str(grpc_port)]
    with running(command, tmp_path_factory.mktemp("peers") / f"{name}.log") as served:
        served.wait_until_ready()
        yield Peer(name, f"{served.url}/v2", f"grpc://127.0.0.1:{grpc_port}")


ARRAY = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_arrays_and_texts_come_back(peer: Peer) -> None:
    has_binary = peer.name != "mlserver"
    for url in (peer.url, peer.grpc_url):
        with Client(url) as client:
            response = client.infer("identity", {"x": ARRAY}, id="7", binary=has_binary)
            assert (response.id, response.model_name) == ("7", "identity")
            assert np.array_equal(response["y"], ARRAY)
            assert np.array_equal(client.infer("identity", {"x": ARRAY}, outputs=["y"], binary=False)["y"], ARRAY)
            assert client.infer("strings", {"x": ["a", "é"]}, binary=False).as_("y", list[str]) == ["a", "é"]
            large = np.ones((1, 150_528), np.float32)
            assert np.array_equal(client.infer("identity", {"x": large}, binary=has_binary)["y"], large)


def test_awaited(peer: Peer) -> None:
    async def ask(url: str) -> Any:
        async with AsyncClient(url) as client:
            asked = [client.infer("identity", {"x": ARRAY + number}, binary=peer.name != "mlserver") for number in range(8)]
            return [response["y"] for response in await asyncio.gather(*asked)]

    for url in (peer.url, peer.grpc_url):
        assert [np.array_equal(array, ARRAY + number) for number, array in enumerate(asyncio.run(ask(url)))] == [True] * 8


def test_state_and_metadata(peer: Peer) -> None:
    for url in (peer.url, peer.grpc_url):
        with Client(url) as client:
            assert (client.is_live(), client.is_ready(), client.is_model_ready("identity")) == (True, True, True)
            assert client.metadata()["name"] == peer.name
            assert client.model_metadata("identity")["name"] == "identity"
    with Client(peer.url) as client:
        assert client.is_model_ready("nobody") is False


def test_a_refusal_has_its_text(peer: Peer) -> None:
    for url in (peer.url, peer.grpc_url):
        with Client(url) as client:
            with pytest.raises(ErrorResponse, match="nobody") as caught:
                client.infer("nobody", {"x": ARRAY}, binary=False)
            assert caught.value.response_status == 404
            assert client.is_live()


def test_after_a_500_the_next_request_is_answered(peer: Peer) -> None:
    """MLServer and KServe close the connection behind it without saying so."""
    with Client(peer.url) as client:
        for _ in range(3):
            with pytest.raises(ErrorResponse) as caught:
                client.infer("identity", {"x": ["no", "number"]} if peer.name == "triton" else {"x": np.array([b"\xff\xfe"], object)})
            assert caught.value.response_status is not None
            assert np.array_equal(client.infer("identity", {"x": ARRAY}, binary=False)["y"], ARRAY)
    if peer.name == "mlserver":
        assert "write binary=False" in caught.value.text


@pytest.fixture
def request_file(tmp_path: Path) -> str:
    request = tmp_path / "request.json"
    request.write_text('{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.5, 2.5, 3.5, 4.5]}]}')
    return str(request)


def test_what_the_check_finds(peer: Peer, request_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", peer.url, "--model", "identity", "--request", request_file]) == 1
    found = capsys.readouterr().out
    expected = {
        "triton": "  a body that is no JSON: answered 500",
        "mlserver": "  no id, so none comes back: the id is ",
        "kserve": "  no id, so none comes back: the id is ",
    }
    assert expected[peer.name] in found
    with Client(peer.url) as client:
        assert client.is_live()


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_behind_remote_nothing_wrong_is_accepted_and_the_server_lives(
    peer: Peer, scheme: str, request_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    near = InferenceServer()
    # MLServer and KServe declare nothing of these models
    for model, spec in (("identity", TensorSpec("x", "FP32", [-1, -1])), ("strings", TensorSpec("x", "BYTES", [-1]))):
        load = remote(peer.url if scheme == "http" else peer.grpc_url, model)
        near.register(model, load=load, inputs=[spec], outputs=[replace(spec, name="y")], timeout=30)
    with serving(OIPApp(near, path="/v2")) as port:
        url = f"http://127.0.0.1:{port}/v2"
        if (peer.name, scheme) != ("mlserver", "grpc"):  # which is INTERNAL for an id that is not ASCII
            assert main(["check", url, "--model", "identity", "--request", request_file, "--strain"]) == 0, capsys.readouterr().out
        with Client(url) as client:
            assert client.infer("strings", {"x": ["a", "é"]}).as_("y", list[str]) == ["a", "é"]
            large = np.ones((1, 150_528), np.float32)
            assert np.array_equal(client.infer("identity", {"x": large})["y"], large)
            assert client.is_ready()
    with Client(peer.url) as client:
        assert client.is_live()
