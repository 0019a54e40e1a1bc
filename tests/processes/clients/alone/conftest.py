"""The server that these tests ask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.processes import ROOT, ready_url


@pytest.fixture(scope="module", params=["grpc", "grpc.aio"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """ "127.0.0.1:port" of a server process."""
    command = [sys.executable, "-m", "tests.support.served_grpc", request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield ready_url(process)
        finally:
            process.terminate()
