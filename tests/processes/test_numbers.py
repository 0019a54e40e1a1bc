"""Numbers of real processes: gunicorn's workers add up on one page, and Triton's client reads statistics and configuration."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT, Served, get, post, serving, serving_module
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


HTTP = """
import numpy as np
import tritonclient.http as http
with http.InferenceServerClient({address!r}) as client:
    tensor = http.InferInput("x", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
    for _ in range(3):
        client.infer("declared", [tensor])
    [stats] = client.get_inference_statistics("declared")["model_stats"]
    counts = stats["inference_stats"]["success"]["count"], stats["inference_stats"]["queue"]["count"]
    assert (stats["name"], stats["version"], stats["inference_count"], counts) == ("declared", "1", 3, (3, 3)), stats
    assert {{each["name"] for each in client.get_inference_statistics()["model_stats"]}} >= {{"declared", "versioned", "org/model"}}
    assert [each["version"] for each in client.get_inference_statistics("versioned", "2")["model_stats"]] == ["2"]
    config = client.get_model_config("declared")
    assert (config["max_batch_size"], config["input"][0]["data_type"]) == (0, "TYPE_FP32"), config
"""

GRPC = """
import numpy as np
import tritonclient.grpc as grpc
client = grpc.InferenceServerClient({address!r})
tensor = grpc.InferInput("x", [1, 2], "FP32")
tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
for _ in range(3):
    client.infer("declared", [tensor])
[stats] = client.get_inference_statistics("declared").model_stats
assert (stats.name, stats.version, stats.inference_count, stats.inference_stats.queue.count) == ("declared", "1", 3, 3), stats
as_json = client.get_inference_statistics("declared", as_json=True)
assert as_json["model_stats"][0]["inference_count"] == "3", as_json
config = client.get_model_config("declared").config
assert (config.max_batch_size, config.input[0].name, list(config.input[0].dims)) == (0, "x", [-1, 2]), config
"""


@pytest.mark.clients
@pytest.mark.parametrize(
    ("serve", "script"),
    [
        (["tests.support.served", "install"], HTTP),
        (["tests.support.served_grpc", "grpc"], GRPC),
        (["tests.support.served_grpc", "grpc.aio"], GRPC),
    ],
    ids=["http", "grpc", "grpc.aio"],
)
def test_tritonclient_reads_statistics_and_configuration(serve: list[str], script: str) -> None:
    with serving_module(*serve) as (_, address):
        # in a process of its own: its messages have the names of others that tests import
        done = subprocess.run(
            [sys.executable, "-c", script.format(address=address)], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
