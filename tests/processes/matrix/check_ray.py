"""Ray Serve for real: a cluster of this machine, and what its proxy, its health checks and its replicas do to the protocol.

Not collected by itself: `tox -e ray`, which installs Ray, names this file.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx2
import numpy as np
import pytest
import tritonclient.http

from tests.support.processes import ROOT, Served, environment, free_port, get, post, with_variable

from .check_servers import (  # noqa: F401  (the tests of all servers, asked of this one)
    Kind,
    ask,
    connection,
    test_8_mb_binary,
    test_413_in_the_middle_of_a_body,
    test_chunked_upload,
    test_head,
    test_json,
    test_keep_alive_after_an_error,
    test_metadata,
)

MAX_CONCURRENCY, MAX_QUEUE, REPLICAS = 2, 2, 2  # of ray_site, which needs Ray
CLIENTS = MAX_CONCURRENCY + MAX_QUEUE - 1
"""With one more that looks, as many as one replica takes: none is refused because the other is gone."""

WHO = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}


@pytest.fixture(scope="module")
def ray_environment() -> Iterator[dict[str, str]]:
    """Ray's own files in a directory of its own, whose path is short enough for a socket, and a token that no other cluster takes."""
    with TemporaryDirectory(prefix="ray", dir="/tmp") as directory:
        yield environment({"RAY_TMPDIR": directory, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)})


class Cluster(NamedTuple):
    """A running cluster, and the process that started it."""

    served: Served

    def say(self, command: str) -> str:
        """Its answer to a command of `ray_cluster`."""
        commands, answers = self.served.process.stdin, self.served.process.stdout
        assert commands is not None
        assert answers is not None
        commands.write(f"{command}\n".encode())
        commands.flush()
        answer = answers.readline().decode().strip()
        assert answer, self.served.log.read_text()
        return answer


@pytest.fixture(scope="module")
def cluster(ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    port, log = free_port(), tmp_path_factory.mktemp("ray") / "log"
    command = [sys.executable, "-m", "tests.processes.matrix.ray_cluster", str(port)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=ray_environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    running = Cluster(Served(process, port, log, "/v2/health/ready"))
    try:
        assert running.say("running") == str(REPLICAS)
        running.served.wait_until_ready()
        yield running
    finally:
        try:
            process.communicate(timeout=60)  # which closes its standard input
        except subprocess.TimeoutExpired:
            process.kill()  # the cluster ends with it
            raise
    assert process.returncode == 0, log.read_text()
    end = time.monotonic() + 30
    while left := with_variable(f"RAY_AUTH_TOKEN={ray_environment['RAY_AUTH_TOKEN']}"):
        assert time.monotonic() < end, left
        time.sleep(0.1)


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Served:
    return cluster.served


@pytest.fixture(scope="module")
def kind() -> Kind:
    return Kind("")


def test_tritonclient(served: Served) -> None:
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{served.port}") as client:
        assert client.is_server_ready()
        assert client.get_server_metadata()["name"] == "matrix"
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        tensor = tritonclient.http.InferInput("x", [2, 3], "FP32").set_data_from_numpy(array)
        assert (client.infer("echo", [tensor]).as_numpy("x") == array).all()


@dataclass
class Seen:
    """What one client was answered.

    Args:
        answers: The version and the process of each answer that was one.
        refused: The statuses and the bodies of the others.
    """

    answers: list[tuple[str, int]] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


async def under_load(url: str, clients: int, work: Callable[[], Awaitable[Any]]) -> tuple[Any, list[Seen]]:
    """What some work gives while clients ask one request after the other, and what they were answered."""
    seen = [Seen() for _ in range(clients)]
    is_over = False

    async def ask_on(of_one: Seen) -> None:
        while not is_over:
            answer = await client.post("/v2/models/who/infer", json=WHO)
            if answer.status_code == 200:
                version, process = (output["data"][0] for output in answer.json()["outputs"])
                of_one.answers.append((version, process))
            else:
                of_one.refused.append((answer.status_code, answer.text))
                await asyncio.sleep(0.1)

    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        asking = [asyncio.create_task(ask_on(of_one)) for of_one in seen]
        given = await work()
        is_over = True
        await asyncio.gather(*asking)  # a connection that breaks is an error
    return given, seen


def during(cluster: Cluster, command: str, after: Callable[[], bool]) -> tuple[str, list[Seen]]:
    """The answer to a command under load, which goes on until `after` holds, and what the clients were answered."""

    async def work() -> str:
        await asyncio.sleep(1)
        answer = await asyncio.to_thread(cluster.say, command)
        async with asyncio.timeout(120):
            while not await asyncio.to_thread(after):
                await asyncio.sleep(0.25)
        await asyncio.sleep(1)
        return answer

    return asyncio.run(under_load(cluster.served.url, CLIENTS, work))


def processes(seen: list[Seen]) -> set[int]:
    return {process for of_one in seen for _, process in of_one.answers}


def refused(seen: list[Seen]) -> list[tuple[int, str]]:
    return [answer for of_one in seen for answer in of_one.refused]


def test_what_is_above_the_limits_is_refused_by_the_model_and_told_through_the_proxy(cluster: Cluster) -> None:
    """Ray hands on more than the model takes: `max_ongoing_requests` is above its limits, so that clients see its answer."""
    _, seen = asyncio.run(under_load(cluster.served.url, 4 * REPLICAS * CLIENTS, lambda: asyncio.sleep(3)))
    assert len(processes(seen)) == REPLICAS
    text = '{"error":"model \'who\' is busy: 2 calls run and 2 wait, which is all it takes"}'
    found = refused(seen)
    assert (503, text) in found
    assert {status for status, _ in found} == {503}


def test_a_killed_replica_costs_what_it_was_answering_and_is_replaced(cluster: Cluster) -> None:
    before = processes(asyncio.run(under_load(cluster.served.url, CLIENTS, lambda: asyncio.sleep(2)))[1])
    assert len(before) == REPLICAS

    def is_replaced() -> bool:
        """Whether a process answers that did not before. Ray counts a replica that is killed as running for a while."""
        answer = post(f"{cluster.served.url}/v2/models/who/infer", json=WHO)
        return answer.status_code == 200 and answer.json()["outputs"][1]["data"][0] not in before

    killed, seen = during(cluster, "kill", is_replaced)
    after = processes(asyncio.run(under_load(cluster.served.url, CLIENTS, lambda: asyncio.sleep(2)))[1])
    lost = refused(seen)
    print(f"lost {len(lost)} of {sum(len(of_one.answers) for of_one in seen)} requests of {CLIENTS} clients: {lost}")
    assert killed == "killed"
    assert all(status >= 500 for status, _ in lost)
    assert all(len(of_one.refused) <= 1 for of_one in seen)  # each has one request under way
    assert (len(after), len(before & after)) == (REPLICAS, REPLICAS - 1)


def test_a_new_version_is_rolled_out_without_a_request_lost(cluster: Cluster) -> None:
    deployed, seen = during(cluster, "deploy 2", lambda: cluster.say("running") == str(REPLICAS))
    assert deployed == "deployed"
    assert refused(seen) == []
    for of_one in seen:
        assert {version for version, _ in of_one.answers} == {"1", "2"}
        assert of_one.answers[-1][0] == "2"


def test_a_version_that_cannot_be_loaded_is_not_rolled_out(cluster: Cluster) -> None:
    """Its replicas raise at Ray's health check. What is left of the old version serves."""
    failed, seen = during(cluster, "deploy broken", lambda: True)
    assert "failed" in failed
    assert refused(seen) == []
    assert {version for of_one in seen for version, _ in of_one.answers} == {"2"}


def test_the_example_grows_under_load_and_shrinks_after(ray_environment: dict[str, str], cluster: Cluster) -> None:
    """Beside the other cluster: each is its own."""
    done = subprocess.run(
        [sys.executable, "examples/ray_serve.py", "--check"],
        cwd=ROOT, env=ray_environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].startswith("under load   2 replicas, answers by status: {200: ")
    assert lines[3] == "after it     1 replica"
    assert get(f"{cluster.served.url}/v2/health/live").status_code == 200


def test_a_client_that_goes_leaves_the_replica_usable(served: Served) -> None:
    for _ in range(5):
        gone = HTTPConnection("127.0.0.1", served.port, timeout=30)
        gone.putrequest("POST", "/v2/models/echo/infer")
        gone.putheader("Content-Length", "1000")
        gone.endheaders(b"{")
        gone.close()
    assert get(f"{served.url}/v2/models/echo/ready").json() == {"name": "echo", "ready": True}
