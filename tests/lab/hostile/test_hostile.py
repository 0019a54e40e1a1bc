"""Hostile requests through real servers, uvicorn and gunicorn: each answered 4xx, in bounded memory, and the server goes on.

How long others wait is looked at by `python -m tests.lab.hostile`, which wants a machine that is not too busy.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.hostile.known import known
from tests.lab.hostile.measure import Measured, Outcome, faults, measured
from tests.lab.hostile.points import points
from tests.lab.hostile.rows import Hostile, all_rows, post

TELLING = (b"Traceback", b'File "', b"site-packages", str(Path(__file__).parents[3]).encode(), b"secret", b"passwd")
"""What no answer may hold: where the code is, and what a model's exception says."""

LINUX = Path("/proc/self/clear_refs").exists()
pytestmark = pytest.mark.skipif(not LINUX, reason="memory is read from Linux's /proc")


@pytest.fixture(scope="module", params=["uvicorn", "gunicorn"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Measured]]:
    """Which server it is, and what measures it."""
    with measured(request.param) as running:
        yield request.param, running


def check_outcome(name: str, row: Hostile, outcome: Outcome) -> None:
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


@pytest.mark.parametrize("row", [*all_rows(), *known(), *points()], ids=str)
def test_hostile(row: Hostile, server: tuple[str, Measured]) -> None:
    name, running = server
    cost = running.cost(row)
    for outcome in cost.outcomes:
        check_outcome(name, row, outcome)
    assert faults(row, cost) == []
    with urllib.request.urlopen(f"http://{running.address}/v2/health/live", timeout=30) as response:
        assert response.read() == b'{"live":true}'


def test_a_model_that_raises_tells_the_client_nothing(server: tuple[str, Measured]) -> None:
    row = Hostile("a model that raises", post("raises", b'{"inputs":[],"id":"a\\r\\nSet-Cookie: b"}'))
    [outcome] = server[1].cost(row).outcomes
    assert (outcome.status, outcome.next_status) == (500, 200)
    assert json.loads(outcome.body) == {"error": "model 'raises' failed: see the server's log"}
    assert "set-cookie" not in outcome.headers
