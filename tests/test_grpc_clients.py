"""tritonclient.grpc and kserve's InferenceGRPCClient: what their modules in `alone` hold, and the example that one of them asks."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

from .grpc_ways import SERVE, run_alone

ROOT = Path(__file__).parents[1]
IMPORTS = ("import oip_asgi.grpc", "import tritonclient.grpc", "import tritonclient.grpc.aio")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["triton_grpc.py", "kserve_grpc.py"])
def test_a_client_is_served(module: str) -> None:
    output = run("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/alone/{module}")
    assert re.search(r"^[0-9]{2,} passed", output, re.MULTILINE)


@pytest.mark.parametrize("order", list(permutations(IMPORTS)), ids=str)
def test_tritonclient_and_the_server_share_a_process_in_any_order_of_import(order: tuple[str, ...]) -> None:
    run_alone("\n".join([*order, SERVE]))


def test_tritonclient_may_come_after_the_servers_messages() -> None:
    run_alone(SERVE + "import tritonclient.grpc")


def test_the_example_answers_over_rest_and_grpc_alike() -> None:
    rows = {line[:10].strip(): line[10:].split() for line in run("examples/grpc_server.py", "--check").splitlines()}
    assert len(rows["REST"]) == 16
    assert rows["REST"] == rows["gRPC"]
    assert sum(answer == truth for answer, truth in zip(rows["gRPC"], rows["true digit"], strict=True)) >= 14
