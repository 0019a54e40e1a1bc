"""Results on their way from worker threads to event loops and to threads that wait; and methods that are called after a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from oip_asgi import InferenceServer
from tests.support.inside.runtime import Alarms, AsyncIO, LoopThreads, Runtime
from tests.support.talk import block_until


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime(40)
    yield made
    made.stop()


async def test_results_that_come_together_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    wakes: list[Any] = []
    loop = asyncio.get_running_loop()
    threads = LoopThreads(loop, {})
    wake = loop.call_soon_threadsafe

    def noted(callback: Any) -> Any:
        wakes.append(callback)
        return wake(callback)

    def put() -> None:
        for number in range(100):
            job: Any = SimpleNamespace(finish=partial(found.append, number))
            threads.put(job)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_soon_threadsafe", noted)
        for times in (1, 2):
            thread = threading.Thread(target=put)
            thread.start()
            thread.join()  # without a turn of the event loop
            assert len(wakes) == times
            await asyncio.sleep(0)
            assert found == [*range(100)] * times


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


@pytest.mark.parametrize("work", ["model", "hook", "conversion"])
async def test_hooks_and_conversions_do_not_wait_behind_models(work: Any) -> None:
    runtime = Runtime(1)
    entered, leave = threading.Event(), threading.Event()

    def blocks() -> None:
        entered.set()
        assert leave.wait(20)

    model = AsyncIO(runtime).run(blocks, "model")
    await asyncio.to_thread(entered.wait, 20)
    call = AsyncIO(runtime).run(lambda: 7, work)
    if work == "model":
        await asyncio.sleep(0.05)
        assert not call.done()
    else:
        assert await call == 7
    leave.set()
    assert await call == 7
    await model
    await asyncio.to_thread(runtime.stop)


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


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
async def test_an_error_that_nobody_takes_is_told(runtime: Runtime, *, is_late: bool) -> None:
    told: list[BaseException] = []
    go_on, has_begun = threading.Event(), threading.Event()
    numbers = iter([1])

    def call() -> int:
        for number in numbers:
            return number
        has_begun.set()
        assert go_on.wait(20)
        raise ValueError

    trips = runtime.here().begin_trips(call, "model", told.append)
    assert await trips.take() == 1
    future = trips.take()
    await asyncio.to_thread(has_begun.wait, 20)
    future.cancel()
    if is_late:
        trips.leave()
    go_on.set()
    await asyncio.sleep(0.05)
    if not is_late:
        trips.leave()
    async with asyncio.timeout(20):
        while not told:
            await asyncio.sleep(0.001)
    assert [type(error) for error in told] == [ValueError]


class Bell:
    def __init__(self) -> None:
        self.rung: list[float] = []
        self.threads: set[threading.Thread] = set()

    def ring(self) -> None:
        self.rung.append(time.monotonic())
        self.threads.add(threading.current_thread())


def test_they_are_called_in_their_order_and_not_too_early_from_one_thread_which_ends() -> None:
    alarms, late, soon, since = Alarms(), Bell(), Bell(), time.monotonic()
    alarms.set(0.1, late.ring)
    alarms.set(0.02, soon.ring)
    block_until(lambda: late.rung and soon.rung)
    assert since + 0.02 <= soon.rung[0] < late.rung[0]
    assert late.rung[0] >= since + 0.1
    assert late.threads == soon.threads
    [thread] = soon.threads
    assert thread.name == "oip_asgi alarms"
    block_until(lambda: not thread.is_alive())
    alarms.set(0.0, late.ring)
    block_until(lambda: len(late.rung) == 2)


def test_what_nobody_else_keeps_is_not_called() -> None:
    alarms, bell, other = Alarms(), Bell(), Bell()
    rung = bell.rung
    alarms.set(0.01, bell.ring)
    alarms.set(0.02, other.ring)
    del bell
    block_until(lambda: other.rung)
    assert rung == []


def test_after_a_stop_what_was_due_is_called_once_there_is_another() -> None:
    alarms, bell, other = Alarms(), Bell(), Bell()
    alarms.set(0.05, bell.ring)
    alarms.stop()
    time.sleep(0.1)
    assert bell.rung == []
    alarms.set(0.0, other.ring)
    block_until(lambda: bell.rung and other.rung)
    alarms.stop()
