"""The storm itself runs, and tells what it has seen."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import ROOT


@pytest.mark.slow
def test_a_second_of_the_storm() -> None:
    command = [sys.executable, "-m", "tests.lab.storm", "--seconds", "1", "--seed", "4711"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "answered, each as without batches, by" in done.stdout.splitlines()[-1]
