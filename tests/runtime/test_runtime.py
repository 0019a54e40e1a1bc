"""Results on their way from worker threads to event loops and to threads that wait; and methods that are called after a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from oip_asgi import InferenceServer
from tests.support.inside.runtime import Runtime


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime(40)
    yield made
    made.stop()


async def test_a_loop_does_nothing_while_all_threads_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    release, timers = threading.Event(), list[float]()
    server = InferenceServer(worker_threads=2)
    server.register("m", lambda: release.wait(20))
    loop = asyncio.get_running_loop()
    calls = [asyncio.ensure_future(server.infer("m", {})) for _ in range(5)]
    await asyncio.sleep(0.1)  # both threads run
    call_later = loop.call_later

    def count(seconds: float, *more: Any) -> asyncio.TimerHandle:
        timers.append(seconds)
        return call_later(seconds, *more)

    monkeypatch.setattr(loop, "call_later", count)
    await asyncio.sleep(0.2)
    release.set()
    assert [answer["output_0"].tolist() for answer in await asyncio.gather(*calls)] == [[True]] * 5
    await asyncio.to_thread(server.stop)
    assert len(timers) < 20  # two hundred, if it looked for a free thread each millisecond


async def test_a_trip_that_ends_while_all_its_results_are_taken_is_followed_by_another(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop has the interpreter between the moment when a thread sees that its turn is over, and when it says so."""
    numbers, clock, made = iter(range(3)), time.monotonic, threading.local()
    is_over, has_taken = threading.Event(), threading.Event()

    def call() -> int | None:
        number = made.number = next(numbers, None)
        return number

    def read_clock() -> float:
        if getattr(made, "number", None) != 1:
            return clock()
        made.number = None
        is_over.set()
        assert has_taken.wait(20)
        return clock() + 1

    monkeypatch.setattr(time, "monotonic", read_clock)
    trips = runtime.here().begin_trips(call, "model", None)
    assert await trips.take() == 0
    is_ahead = await asyncio.to_thread(is_over.wait, 0.5)  # else its turn was over before, on a busy machine
    second, third = trips.take(), None
    if is_ahead:
        third = trips.take()
    has_taken.set()
    assert await second == 1
    third = third or trips.take()
    async with asyncio.timeout(20):
        assert await third == 2
