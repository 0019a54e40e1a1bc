"""The same traffic against two real processes: what the simulation says is held against what they do."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx2
import numpy as np

from oip_asgi import InferenceServer, OIPApp
from tests.support.processes import get, serving

from .formula import Numbers
from .simulation import Balancer, Replicas, Traffic

REPLICAS: Final = Replicas(2, max_concurrency=2, max_queue=4)


def make_app() -> OIPApp:
    """An application whose model takes as long as it is told, in a worker thread."""
    server = InferenceServer("capacity")

    @server.model("sleep", max_concurrency=REPLICAS.max_concurrency, max_queue=REPLICAS.max_queue)
    def sleep(seconds: np.ndarray) -> np.ndarray:
        time.sleep(float(seconds[0]))
        return seconds

    return OIPApp(server, path="/v2")


@contextmanager
def processes() -> Iterator[list[str]]:
    """The replicas, as processes of uvicorn; gives their addresses."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()))
        urls = []
        for number in range(REPLICAS.number):
            command = ["python", "-m", "uvicorn", "--port", "PORT", "--no-access-log", "--factory", f"{__name__}:make_app"]
            urls.append(stack.enter_context(serving(command, place / str(number))).url)
        yield urls


async def run(urls: list[str], load: Traffic, balancer: Balancer, seed: int = 1) -> Numbers:
    """Send some traffic as it says, whether answers come or not."""
    chance, loads, waits = random.Random(seed), np.zeros(len(urls), int), []
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=60, limits=limits) as client:

        async def ask(replica: int, call: float) -> None:
            body = {"inputs": [{"name": "seconds", "datatype": "FP64", "shape": [1], "data": [call]}]}
            began = time.monotonic()
            answer = await client.post(f"{urls[replica]}/v2/models/sleep/infer", json=body)
            loads[replica] -= 1
            if answer.status_code == 200:
                waits.append(time.monotonic() - began - call)
            elif answer.status_code != 503:
                raise AssertionError(f"{answer.status_code}: {answer.text}")

        asking, start = [], time.monotonic()
        for arrival, call in zip(load.arrivals.tolist(), load.calls.tolist(), strict=True):
            await asyncio.sleep(max(0.0, start + arrival - time.monotonic()))
            replica = balancer(loads, chance)
            loads[replica] += 1
            asking.append(asyncio.create_task(ask(replica, call)))
        span = time.monotonic() - start
        await asyncio.gather(*asking)
    busy = sum(_computed(url) for url in urls)
    return Numbers(busy / (span * REPLICAS.slots), float(np.percentile(waits, 99)), 1 - len(waits) / len(load.arrivals))


def _computed(url: str) -> float:
    """How many seconds a replica's model has run, by its own statistics."""
    told: dict[str, Any] = get(f"{url}/v2/models/sleep/stats").json()["model_stats"][0]["inference_stats"]
    return float(told["compute_infer"]["ns"]) / 1e9


def measure(load: Traffic, balancer: Balancer) -> Numbers:
    """What two processes do with some traffic."""
    with processes() as urls:
        return asyncio.run(run(urls, load, balancer))
