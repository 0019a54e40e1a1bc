"""A real Prometheus scrapes examples/metrics.py, and answers what the rules and the dashboard ask.

Run by `tox -e prometheus`, which has Debian's package in the folder PROMETHEUS.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT, Served, free_port, get, post, serving

PROGRAMS = Path(os.environ["PROMETHEUS"]).resolve() / "usr" / "bin"
GRAFANA = ROOT / "examples" / "grafana"
SECONDS = 10
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
VARIABLES = {"$__rate_interval": "5s", "$job": ".*", "$model": ".*"}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Prometheus, after ten seconds of requests: five in six good, one in six wrong."""
    place = tmp_path_factory.mktemp("prometheus")
    port = free_port()
    config = (GRAFANA / "prometheus.yml").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    (place / "prometheus.yml").write_text(config.replace("rules.yml", str(GRAFANA / "rules.yml")))
    script = "import sys; sys.path.insert(0, 'examples'); import metrics, uvicorn; uvicorn.run(metrics.make_app(), port=PORT)"
    command = [
        str(PROGRAMS / "prometheus"), f"--config.file={place / 'prometheus.yml'}", f"--storage.tsdb.path={place / 'data'}",
        "--web.listen-address=127.0.0.1:PORT",
    ]  # fmt: skip
    with (
        serving(["python", "-c", script], place / "example.log", port=port) as served,
        serving(command, place / "prometheus.log", ready="/-/ready") as running,
        ThreadPoolExecutor(6) as threads,
    ):
        end = time.monotonic() + SECONDS

        def send(number: int) -> None:
            while time.monotonic() < end:
                post(f"{served.url}/v2/models/double/infer", json=BODY if number else {}, timeout=30)
                time.sleep(0.01)

        list(threads.map(send, range(6)))
        time.sleep(2)  # the last scrape, and the rules behind it
        yield running


def query(prometheus: Served, expression: str) -> list[dict[str, Any]]:
    answer = get(f"{prometheus.url}/api/v1/query", params={"query": expression}, timeout=30).json()
    assert answer["status"] == "success", (expression, answer)
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


@pytest.mark.parametrize("command", [["rules", "rules.yml"], ["config", "prometheus.yml"]], ids=lambda command: command[0])
def test_promtool_finds_nothing(command: list[str]) -> None:
    done = subprocess.run([PROGRAMS / "promtool", "check", *command], cwd=GRAFANA, capture_output=True, text=True, check=False)
    assert (done.returncode, "FAILED" in done.stdout + done.stderr) == (0, False), done.stderr


def test_a_query_answers_what_was_sent(prometheus: Served) -> None:
    by_outcome = {found["metric"]["outcome"]: float(found["value"][1]) for found in query(prometheus, 'oip_requests_total{model="double"}')}
    assert by_outcome["ok"] > 10
    assert by_outcome["invalid"] > 2
    assert by_outcome["failed"] == 0
    [p99] = query(prometheus, "histogram_quantile(0.99, sum by (le) (rate(oip_execution_duration_seconds_bucket[10s])))")
    assert 0.0025 <= float(p99["value"][1]) < 5


def test_the_rules_give_tritons_names(prometheus: Served) -> None:
    rules = get(f"{prometheus.url}/api/v1/rules", timeout=30).json()["data"]["groups"]
    assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}
    names = {rule["name"] for group in rules for rule in group["rules"] if rule["type"] == "recording"}
    assert names >= {"nv_inference_request_success", "nv_inference_queue_duration_us"}
    for name in names:
        assert query(prometheus, name), name
    [success] = query(prometheus, "nv_inference_request_success")
    assert float(success["value"][1]) > 10


def test_every_panel_of_the_dashboard_shows_something(prometheus: Served) -> None:
    panels = json.loads((GRAFANA / "dashboard.json").read_text())["panels"]
    assert len(panels) == 9
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            found = query(prometheus, expression)
            assert found, expression
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend - {"version"} <= set(found[0]["metric"]), (panel["title"], found[0]["metric"])
