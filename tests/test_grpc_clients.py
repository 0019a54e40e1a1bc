"""tritonclient.grpc and kserve's InferenceGRPCClient, each in a process of its own: what their modules in `alone` hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = Path(__file__).parent / "alone"


@pytest.mark.parametrize("module", ["triton_grpc.py", "kserve_grpc.py"])
def test_a_client_is_served(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ALONE / module)],
        cwd=ALONE.parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[0-9]{2,} passed", done.stdout, re.MULTILINE)
