"""Every example is run, as it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import ROOT


@pytest.mark.parametrize("name", ["quickstart.py", "flask_app.py"])
def test_an_example_answers_as_its_model(name: str) -> None:
    done = subprocess.run(
        [sys.executable, f"examples/{name}", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = {line[:10].strip(): line[10:].split() for line in done.stdout.splitlines()}
    assert rows["JSON"] == rows["binary"]
    right = sum(answer == truth for answer, truth in zip(rows["JSON"], rows["true digit"], strict=True))
    assert right >= 14
    assert done.stdout.endswith("The answers are the model's own.\n")


def test_every_example_is_a_script_that_is_run_by_a_test_or_its_part() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {
        *("digits.py", "quickstart.py", "flask_app.py", "grpc_server.py"),
        "stream_text.py",  # in test_stream_examples
        *("frame_app.py", "client_httpx.py", "client_requests.py", "image_codec.py"),  # in test_codec_examples
    }
