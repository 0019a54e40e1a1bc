"""Triton's perf_analyzer measures a real server, over HTTP and gRPC. Run by `tox -e perf-analyzer`.

PERF_ANALYZER names the program, LIBRARIES the folders of its libraries. Its numbers are not looked at, as a shared machine makes them, but
that it finds all that it asks for: metadata, configuration, and statistics that grow.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.processes import environment, serving_module

SERVERS = {"http": ["tests.support.served", "install"], "grpc": ["tests.support.served_grpc", "grpc.aio"]}
QUICKLY = [
    *("--measurement-mode", "count_windows", "--measurement-request-count", "50", "--stability-percentage", "999"),
    *("--max-trials", "4", "--string-length", "8"),
]
LOADS = {
    "sync": ["--concurrency-range", "2"],
    "async": ["--concurrency-range", "2", "--async"],
    "rate": ["--request-rate-range", "50"],
    "async rate": ["--request-rate-range", "50", "--async"],
}
JSON = ["--input-tensor-format", "json", "--output-tensor-format", "json"]


@pytest.fixture(scope="module", params=SERVERS)
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with serving_module(*SERVERS[request.param]) as (_, address):
        yield request.param, address


def measure(address: tuple[str, str], *options: str) -> dict[str, int]:
    """The numbers of the server's part of the report."""
    protocol, url = address
    command = [os.environ["PERF_ANALYZER"], "-i", protocol, "-u", url, *QUICKLY, *options]
    env = environment({"LD_LIBRARY_PATH": os.environ["LIBRARIES"]})
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, report = done.stdout.partition("Server: ")
    return {name: int(number) for name, number in re.findall(r"([A-Z][a-z ]+count): (\d+)", report)}


@pytest.mark.parametrize("load", LOADS)
def test_it_measures(address: tuple[str, str], load: str) -> None:
    counts = measure(address, "-m", "declared", "--shape", "x:1,2", *LOADS[load])
    assert counts["Inference count"] == counts["Execution count"] == counts["Successful request count"] >= 50


def test_it_measures_json(address: tuple[str, str]) -> None:
    if address[0] == "grpc":
        pytest.skip("JSON is for HTTP")
    assert measure(address, "-m", "declared", "--shape", "x:1,2", *LOADS["sync"], *JSON)["Successful request count"] >= 50


def test_it_measures_a_version_of_a_model(address: tuple[str, str]) -> None:
    assert measure(address, "-m", "versioned", "-x", "1", "--shape", "x:4", *LOADS["sync"])["Successful request count"] >= 50
