"""examples/grpc_mounted.py: REST, gRPC and gRPC-Web on one port, asked by tritonclient and by Node's fetch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module

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


def test_fetch_on_node_asks_over_grpc_web(monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no node here")
    monkeypatch.syspath_prepend(ROOT / "examples")
    example, digits = import_module("grpc_mounted"), import_module("digits")
    classifier, images, _ = digits.train()
    with example.serving(example.make_app(digits.make_server(classifier))) as address:
        command = ["node", str(ROOT / "examples/clients/grpc_web.mjs"), f"http://{address}"]
        answered = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        refused = subprocess.run([*command, "wrong"], capture_output=True, text=True, timeout=60, check=False)
    assert answered.stdout.split() == [str(classifier.predict(images[:1] * 0)[0])]
    assert refused.returncode != 0
    assert "HTTP 401" in refused.stderr
