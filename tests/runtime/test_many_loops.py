"""One server for several event loops and threads at once, which change turns all the time: nothing shared relies on the global lock.

`tox -e free` runs this on an interpreter without that lock.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, ResponseCache
from tests.support.inside import cache_of, is_idle, limit_threads, limiter_of, outcomes, statistics_of
from tests.support.talk import block_until

LOOPS, BLOCKING, TASKS, REQUESTS = 4, 2, 6, 150
KINDS = ("plain", "inline", "awaited", "timed", "cached", "together", "together, awaited", "stream", "stream, awaited")


RELOADED: dict[str, Any] = {"reloaded": {}, "reloaded inline": {"run": "inline"}, "reloaded batches": {"max_batch_size": 8}}

pytestmark = pytest.mark.usefixtures("often_switching")


class Loads:
    """How often models were loaded and unloaded, and how often one was called after its unload."""

    def __init__(self) -> None:
        self.loaded: list[None] = []
        self.unloaded: list[None] = []
        self.late: list[None] = []

    def load(self) -> Callable[[Any], Any]:
        self.loaded.append(None)

        def model(x: Any) -> Any:
            if model.is_closed:  # type: ignore[attr-defined]
                self.late.append(None)
            return x * 2

        model.is_closed = False  # type: ignore[attr-defined]
        return model

    def unload(self, model: Any) -> None:
        model.is_closed = True
        self.unloaded.append(None)


def double(x: np.ndarray) -> np.ndarray:
    return x * 2


async def double_later(x: np.ndarray) -> np.ndarray:
    await asyncio.sleep(0)
    return x * 2


def each_doubled(x: np.ndarray) -> Iterator[np.ndarray]:
    for _ in range(3):
        yield x * 2


async def each_doubled_later(x: np.ndarray) -> AsyncIterator[np.ndarray]:
    for _ in range(3):
        await asyncio.sleep(0)
        yield x * 2


def make_server(loads: Loads) -> InferenceServer:
    server = InferenceServer()
    limit_threads(server, 4)
    narrow: dict[str, Any] = {"max_concurrency": 3, "max_queue": 1000}
    server.register("plain", double, **narrow)
    server.register("inline", double, run="inline")
    server.register("awaited", double_later, **narrow)
    server.register("timed", double, timeout=60, **narrow)
    server.register("cached", double, cache=ResponseCache(max_bytes=20_000), **narrow)
    server.register("together", double, max_batch_size=8, max_queue=1000)
    server.register("together, awaited", double_later, max_batch_size=8, max_batch_delay=0.001, max_queue=1000)
    server.register("stream", each_doubled, **narrow)
    server.register("stream, awaited", each_doubled_later, **narrow)
    for name, options in RELOADED.items():
        server.register(name, load=loads.load, unload=loads.unload, **options)
    return server


class Storm:
    """Sends requests from event loops and threads, and counts them by model."""

    def __init__(self, server: InferenceServer) -> None:
        self.server = server
        self.lock = threading.Lock()
        self.begun: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.ends = False

    def choose(self, chance: random.Random) -> tuple[str, dict[str, Any], Any]:
        kind, number = chance.choice(KINDS), chance.randrange(10)
        with self.lock:
            self.begun[kind] += 1
        return kind, {"x": np.full((1, 2), number, np.int64)}, [[2 * number] * 2]

    def check(self, kind: str, got: Any, expected: Any) -> None:
        if got != expected:
            self.wrong.append(f"{kind}: {got} instead of {expected}")

    async def ask(self, chance: random.Random) -> None:
        for _ in range(REQUESTS):
            kind, inputs, expected = self.choose(chance)
            if "stream" in kind:
                async for response in self.server.infer_stream(kind, inputs):
                    self.check(kind, response.outputs[0].array.tolist(), expected)
            elif chance.random() < 0.2:
                try:
                    async with asyncio.timeout(chance.choice([0.0005, 0.005])):
                        await self.server.infer(kind, inputs)
                except TimeoutError:
                    pass
            else:
                self.check(kind, (await self.server.infer(kind, inputs)).outputs[0].array.tolist(), expected)

    async def run_loop(self, seed: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for task in range(TASKS):
                tasks.create_task(self.ask(random.Random(f"{seed} {task}")))

    def ask_here(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(2 * REQUESTS):
            kind, inputs, expected = self.choose(chance)
            for response in self.server.infer_stream_sync(kind, inputs):
                self.check(kind, response.outputs[0].array.tolist(), expected)

    def disturb(self, seed: int) -> None:
        """Register, load and unload models, ask one of them, and read numbers, until the others have ended."""
        chance, name = random.Random(seed), f"guest {seed}"
        while not self.ends:
            self.server.register(name, double)
            self.check(name, self.server.infer_sync(name, {"x": np.array([3])}).outputs[0].array.tolist(), [6])
            statistics_of(self.server, chance.choice(KINDS)).snapshot()
            reloaded = chance.choice([*RELOADED])
            try:
                chance.choice([self.server.load_sync, self.server.unload_sync])(reloaded)
                self.check(reloaded, self.server.infer_sync(reloaded, {"x": np.array([3])}).outputs[0].array.tolist(), [6])
            except InferenceError as error:  # the other thread has unloaded it
                if error.status != 503:
                    raise
            self.server.unregister_sync(name)

    def guard(self, work: Callable[..., Any], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self.wrong.append(repr(error))
                raise

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.mark.slow
def test_nothing_is_lost_between_event_loops_and_threads() -> None:
    loads = Loads()
    server = make_server(loads)
    storm = Storm(server)
    disturbing = [storm.guard(storm.disturb, seed) for seed in range(2)]
    asking = [storm.guard(lambda seed: asyncio.run(storm.run_loop(seed)), seed) for seed in range(LOOPS)]
    asking += [storm.guard(storm.ask_here, seed) for seed in range(BLOCKING)]
    until = time.monotonic() + 120
    for thread in asking:
        thread.join(max(0.0, until - time.monotonic()))
    storm.ends = True
    for thread in disturbing:
        thread.join(30)
    assert not any(thread.is_alive() for thread in [*asking, *disturbing])
    assert storm.wrong == []
    block_until(lambda: is_idle(server))
    counted = outcomes(server)
    assert {kind: counted[kind].get("ok", 0) + counted[kind].get("cancelled", 0) for kind in KINDS} == dict(storm.begun)
    assert all(counted[kind].keys() <= {"ok", "cancelled"} for kind in KINDS)
    assert all(limiter_of(server, kind).waiting == 0 for kind in KINDS)
    cache = cache_of(server, "cached")
    assert cache is not None
    assert 0 < cache.size <= 20_000
    for name in RELOADED:
        server.unload_sync(name)
    server.stop()
    assert len(loads.loaded) >= len(loads.unloaded) > 0
    assert loads.late == []


def test_a_model_that_holds_several_event_loops_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    server, together = InferenceServer(), threading.Barrier(LOOPS)

    @server.model("holds", run="inline")
    def holds() -> int:
        place = together.wait(20)
        time.sleep(0.11)
        return place

    async def ask() -> None:
        await server.infer("holds", {})

    threads = [threading.Thread(target=lambda: asyncio.run(ask())) for _ in range(LOOPS)]
    with caplog.at_level(logging.WARNING):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len([record for record in caplog.records if "held the event loop" in record.getMessage()]) == 1
