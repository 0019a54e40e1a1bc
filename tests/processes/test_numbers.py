"""Numbers of real processes: gunicorn's workers add up on one page."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT, Served, get, post, serving
from tests.support.talk import block_until

pytest.importorskip("prometheus_client", reason="needs the extra [prometheus]")
from prometheus_client.parser import text_string_to_metric_families as parse

GOOD = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
BAD: dict[str, Any] = {"inputs": []}
WORKERS = 4


def samples(served: Served, name: str, **labels: str) -> list[float]:
    # prometheus_client makes the file of a process empty, and fills it then: to read all files between the two is struct.error, a 500
    looks = (get(f"{served.url}/metrics", timeout=30) for _ in range(20))
    page = next(look for look in looks if look.status_code == 200)
    return [
        sample.value
        for family in parse(page.text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def test_the_numbers_of_four_workers_add_up(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    command = ["python", "-m", "tests.support.instrumented", "PORT", str(WORKERS)]
    env = {"PROMETHEUS_MULTIPROC_DIR": str(shared), "PYTHONPATH": str(ROOT)}
    with serving(command, tmp_path / "log", env) as served, ThreadPoolExecutor(8) as threads:

        def send(model: str, body: dict[str, Any]) -> Any:
            return post(f"{served.url}/v2/models/{model}/infer", json=body, timeout=30)

        answers = list(threads.map(lambda number: send("echo", GOOD if number % 4 else BAD).status_code, range(120)))
        assert [answers.count(status) for status in (200, 400)] == [90, 30]
        assert [send(f"unknown{number}", GOOD).status_code for number in range(5)] == [404] * 5
        assert send("loads", BAD).status_code == 200
        workers: set[int] = set()
        asked, end = 0, time.monotonic() + 60
        while len(workers) < 2 and time.monotonic() < end:
            pids = list(threads.map(lambda _: send("pid", BAD).json()["outputs"][0]["data"][0], range(8)))
            workers |= set(pids)
            asked += len(pids)
        assert len(workers) >= 2
        # each process writes its numbers every second
        block_until(lambda: samples(served, "oip_requests_total", model="echo", outcome="ok") == [90])
        block_until(lambda: samples(served, "oip_requests_total", model="echo", outcome="invalid") == [30])
        block_until(lambda: samples(served, "oip_requests_total", model="pid", outcome="ok") == [asked])
        block_until(lambda: samples(served, "oip_requests_total", model="", outcome="invalid") == [5])
        assert samples(served, "oip_requests_total", model="unknown0") == []
        assert samples(served, "oip_execution_duration_seconds_count", model="echo") == [90]
        assert samples(served, "oip_request_duration_seconds_bucket", model="echo", le="+Inf") == [90]
        assert samples(served, "oip_batch_rows_sum", model="echo") == [90]
        block_until(lambda: samples(served, "oip_requests_in_progress", model="echo", state="running") == [0])
        assert samples(served, "oip_model_ready", model="echo") == [1]
        assert samples(served, "oip_model_ready", model="loads") == [1]
