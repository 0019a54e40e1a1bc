"""examples/grpc_mounted.py: REST, gRPC and gRPC-Web on one port, asked by tritonclient and by Node's fetch."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.support.processes import ROOT


def test_the_example_answers_in_each_way_alike() -> None:
    command = [sys.executable, "examples/grpc_mounted.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line[:10].strip(): line[10:].split() for line in done.stdout.splitlines()}
    assert len(rows["gRPC"]) == 16
    assert rows["REST"] == rows["gRPC"]
    assert sum(answer == truth for answer, truth in zip(rows["gRPC"], rows["true digit"], strict=True)) >= 14
    assert rows["gRPC-Web"] == ["live"]
    assert rows["no token"] == ["StatusCode.UNAUTHENTICATED"]


# In its own process: the example imports tritonclient's protocol buffers, which cannot stand beside those of kserve.
SERVES = """
import digits, grpc_mounted, sys
classifier, images, _ = digits.train()
with grpc_mounted.serving("grpc_mounted:make_app()") as address:
    print(address, classifier.predict(images[:1] * 0)[0], flush=True)
    sys.stdin.read()
"""


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_fetch_on_node_asks_over_grpc_web() -> None:
    serving = [sys.executable, "-c", SERVES]
    with subprocess.Popen(serving, cwd=ROOT / "examples", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        address, digit = server.stdout.readline().split()
        command = ["node", str(ROOT / "examples/clients/grpc_web.mjs"), f"http://{address}"]
        answered = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        refused = subprocess.run([*command, "wrong"], capture_output=True, text=True, timeout=60, check=False)
        server.stdin.close()
    assert answered.stdout.split() == [digit]
    assert refused.returncode != 0
    assert "HTTP 401" in refused.stderr
