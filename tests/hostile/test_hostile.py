"""Hostile requests through real servers, uvicorn and gunicorn: each answered 4xx, in bounded time and memory, and the server goes on."""

from __future__ import annotations

import json
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.rows import MOST_SECONDS, Hostile, bound_of_memory, measured, post, rows, serving

TELLING = (b"Traceback", b'File "', b"site-packages", str(Path(__file__).parents[2]).encode(), b"secret", b"passwd")
"""What no answer may hold: where the code is, and what a model's exception says."""

LINUX = Path("/proc/self/clear_refs").exists()
pytestmark = pytest.mark.skipif(not LINUX, reason="memory is read from Linux's /proc")


def gunicorn() -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [sys.executable, "-m", "tests.support.gunicorned", str(port), "1"]


@pytest.fixture(scope="module", params=["uvicorn", "gunicorn"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, int]]:
    """Which server it is, its address, and the process that answers."""
    command = [sys.executable, "-m", "tests.support.stressed"] if request.param == "uvicorn" else gunicorn()
    process, address = serving(command)
    try:
        pid = process.pid
        if request.param == "gunicorn":
            with urllib.request.urlopen(f"http://{address}/pid", timeout=30) as response:
                pid = int(response.read())
        yield request.param, address, pid
    finally:
        process.terminate()
        assert process.wait(30) in (0, -signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize("row", rows(), ids=str)
def test_hostile(row: Hostile, server: tuple[str, str, int]) -> None:
    name, address, pid = server
    outcome, grown = measured(address, pid, row)
    # gunicorn closes while some are still being sent, and then systems may drop an answer that has not been read
    if row.statuses and not (name == "gunicorn" and not row.goes_on and outcome.status is None):
        assert outcome.status in row.statuses
    # what a server refuses by itself is its own affair: a status below 500, or a connection closed
    assert outcome.status is None or outcome.status < 500
    if outcome.headers.get("content-type") == "application/json" and outcome.status != 200:
        assert list(json.loads(outcome.body)) == ["error"]
        assert len(outcome.body) < 2000
        assert not any(part in outcome.body for part in TELLING)
    elif row.goes_on:
        assert outcome.status == 200
    if row.goes_on:
        assert outcome.next_status == 200
    assert "set-cookie" not in outcome.headers
    assert outcome.seconds < MOST_SECONDS
    assert grown < bound_of_memory(row)
    with urllib.request.urlopen(f"http://{address}/v2/health/live", timeout=30) as response:
        assert response.read() == b'{"live":true}'


def test_a_model_that_raises_tells_the_client_nothing(server: tuple[str, str, int]) -> None:
    _, address, pid = server
    row = Hostile("a model that raises", post("raises", b'{"inputs":[],"id":"a\\r\\nSet-Cookie: b"}'))
    outcome, _ = measured(address, pid, row)
    assert (outcome.status, outcome.next_status) == (500, 200)
    assert json.loads(outcome.body) == {"error": "model 'raises' failed: see the server's log"}
    assert "set-cookie" not in outcome.headers
