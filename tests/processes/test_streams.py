"""Streams behind real servers: the first event comes while the model runs, and a reader that goes stops it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx2
import pytest

from tests.support.processes import Served, serving

SITE = "tests.support.streaming_site"
SERVERS = {
    "gunicorn, threads": f"gunicorn --worker-class gthread --threads 4 --bind 127.0.0.1:PORT {SITE}:wsgi_app",
    "uvicorn": f"uvicorn --port PORT {SITE}:asgi_app",
    "hypercorn": f"hypercorn --bind 127.0.0.1:PORT {SITE}:asgi_app",
}


def running(served: Served) -> int:
    answer = httpx2.post(f"{served.url}/models/running/infer", json={"inputs": []}, timeout=30)
    return int(answer.json()["outputs"][0]["data"][0])


@pytest.mark.ci
@pytest.mark.parametrize("name", SERVERS)
def test_a_stream(name: str, tmp_path: Path) -> None:
    with serving(["python", "-m", *SERVERS[name].split()], tmp_path / "log", ready="/health/ready") as served:
        url = f"{served.url}/models/slow/generate_stream"
        with httpx2.stream("POST", url, json={"n": 20}, timeout=30) as response:
            events = (json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line)
            assert next(events) == {"model_name": "slow", "output_0": 0}
            assert running(served) == 1
            assert [event["output_0"] for event in events] == list(range(1, 20))
        with httpx2.stream("POST", url, json={"n": 100_000}, timeout=30) as response:
            next(response.iter_lines())
        end = time.monotonic() + 20
        while running(served):
            assert time.monotonic() < end, "the model goes on, though its reader has gone"
            time.sleep(0.02)
    assert "Traceback" not in (tmp_path / "log").read_text()
