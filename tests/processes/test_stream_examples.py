"""The example of streams, and the clients of streams, are run as they are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.grpc_ways import SERVINGS
from tests.support.processes import ROOT
from tests.support.threads import serving

pytestmark = pytest.mark.clients

TEXT = "one two three"


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_streams_and_stops() -> None:
    lines = run(sys.executable, "examples/stream_text.py", "--check").splitlines()
    assert len(lines[0].removeprefix("SSE:  The value of").split()) >= 20
    assert lines[1:3] == ["the first word came while the model was running: True", "the model stopped when its reader went: True"]
    assert len(lines[3].removeprefix("gRPC: The value of").split()) >= 20


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer()

    def write(text_input: list[str], max_words: np.ndarray) -> Iterator[list[str]]:
        for number in range(int(max_words[0])):
            if text_input == ["fail"] and number == 1:
                raise ValueError("secret")
            yield [f" {number}"]

    inputs = [TensorSpec("text_input", "BYTES", [1]), TensorSpec("max_words", "INT64", [1])]
    server.register("writer", write, inputs=inputs, outputs=[TensorSpec("text_output", "BYTES", [1])])
    return server


NUMBERS = "".join(f" {number}" for number in range(20))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_fetch(server: InferenceServer) -> None:
    with serving(OIPApp(server, path="/v2")) as port:
        url = f"http://127.0.0.1:{port}"
        assert run("node", "examples/clients/stream.mjs", url, TEXT) == f"{TEXT}{NUMBERS}\n"
        failed = subprocess.run(
            ["node", "examples/clients/stream.mjs", url, "fail"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert failed.returncode != 0
        assert "model 'writer' failed: see the server's log" in failed.stderr
    server.stop()


@pytest.mark.parametrize("kind", SERVINGS)
def test_tritonclient(server: InferenceServer, kind: str) -> None:
    with SERVINGS[kind](server) as address:
        assert run(sys.executable, "examples/clients/stream_with_tritonclient.py", address, TEXT) == f"{TEXT}{NUMBERS}\n"
    server.stop()
