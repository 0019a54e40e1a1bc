"""Worker threads, results on their way to who waits for them, and the background loop: nothing waits long, and nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.inside import background_of, limit_threads, limiter_of
from tests.support.inside.runtime import PATIENCE, Alarms, BackgroundLoop, QuitWithin, Runtime, WorkerThreads
from tests.support.inside.runtime import threads as threads_module
from tests.support.talk import block_until


class Outcome:
    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.has_come = threading.Event()
        self.result: Any = None
        self.times = 0

    def run(self) -> None:
        self.result = self._function()
        self.times += 1
        self.has_come.set()

    def wait(self) -> Any:
        assert self.has_come.wait(20)
        return self.result


@pytest.fixture
def pool() -> Iterator[WorkerThreads]:
    before = set(threading.enumerate())
    made = WorkerThreads(40)
    yield made
    made.stop()
    assert set(threading.enumerate()) <= before


class Blocked:
    def __init__(self, pool: WorkerThreads) -> None:
        self.leave = threading.Event()
        self._entered = threading.Event()
        self.outcome = Outcome(self._block)
        pool.submit(self.outcome)
        assert self._entered.wait(20)

    def _block(self) -> None:
        self._entered.set()
        assert self.leave.wait(20)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(threads_module, "time", clock)
    return clock


def test_a_job_waits_for_a_thread_that_is_awake_no_longer_than_its_patience(pool: WorkerThreads, clock: Clock) -> None:
    blocked = Blocked(pool)
    threads = set(threading.enumerate())
    outcomes = [Outcome(lambda: 7) for _ in range(3)]
    assert [pool.submit(outcome, is_patient=True) for outcome in outcomes] == [True] * 3
    assert pool.hurry()
    assert set(threading.enumerate()) <= threads
    clock.now += PATIENCE
    pool.hurry()
    assert [outcome.wait() for outcome in outcomes] == [7] * 3
    assert not pool.hurry()
    more = list[Outcome]()

    def is_waited_for() -> bool:
        more.append(Outcome(lambda: 7))
        return pool.submit(more[-1], is_patient=True)

    block_until(lambda: not is_waited_for())  # as soon as that thread rests: the other one is known to block
    assert [outcome.wait() for outcome in more] == [7] * len(more)
    assert not blocked.outcome.has_come.is_set()
    blocked.leave.set()


def test_short_jobs_share_the_thread_that_is_awake(pool: WorkerThreads, clock: Clock) -> None:
    """That is what patience buys: one wake-up for all of them."""
    blocked = Blocked(pool)
    outcomes = [Outcome(threading.get_ident) for _ in range(100)]
    for outcome in outcomes:
        assert pool.submit(outcome, is_patient=True)
    blocked.leave.set()
    assert len({outcome.wait() for outcome in outcomes}) == 1


def test_forty_jobs_that_block_run_at_once_and_no_more(pool: WorkerThreads) -> None:
    all_in = threading.Barrier(41)
    outcomes = [Outcome(partial(all_in.wait, 20)) for _ in range(40)]
    for number, outcome in enumerate(outcomes):
        pool.submit(outcome, is_patient=number % 2 == 0)
    one_more = Outcome(lambda: 7)
    pool.submit(one_more)
    for _ in range(2000):
        if all_in.n_waiting == 40:
            break
        time.sleep(PATIENCE)
        pool.hurry()
    assert all_in.n_waiting == 40
    assert not one_more.has_come.is_set()
    all_in.wait(20)
    assert one_more.wait() == 7
    assert sorted(outcome.wait() for outcome in outcomes) == list(range(40))


def test_each_of_many_jobs_of_many_callers_runs_once(pool: WorkerThreads) -> None:
    outcomes = [[Outcome(int) for _ in range(100)] for _ in range(8)]

    def submit(own: list[Outcome]) -> None:
        for number, outcome in enumerate(own):
            pool.submit(outcome, is_patient=number % 2 == 0)

    callers = [threading.Thread(target=submit, args=[own]) for own in outcomes]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    while pool.hurry():
        time.sleep(PATIENCE)
    assert [[outcome.wait() for outcome in own] for own in outcomes] == [[0] * 100] * 8
    assert {outcome.times for own in outcomes for outcome in own} == {1}


def test_a_pool_whose_threads_have_ended_leaves_nothing_to_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "_IDLE_SECONDS", 0.01)
    before = set(threading.enumerate())
    pool = WorkerThreads(40)
    for _ in range(2):
        outcome = Outcome(int)
        pool.submit(outcome)
        assert outcome.wait() == 0
        while set(threading.enumerate()) - before:
            time.sleep(0.01)
    kept = weakref.ref(pool)
    gc.disable()
    try:
        del pool
        assert kept() is None
    finally:
        gc.enable()


def test_a_thread_that_the_system_refuses_takes_no_place_for_good_and_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerThreads(2)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="can't start"):
                pool.submit(Outcome(partial(ran.append, "refused")))
    blocked = Blocked(pool)
    outcome = Outcome(partial(ran.append, "left to the thread that is there"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        pool.submit(outcome)
    blocked.leave.set()
    outcome.wait()
    assert ran == ["left to the thread that is there"]
    pool.stop()


def test_alarms_whose_thread_the_system_refuses_begin_with_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bell:
        rung = threading.Event()

        def ring(self) -> None:
            self.rung.set()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    alarms, bell = Alarms(), Bell()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            alarms.set(0.0, bell.ring)
    alarms.set(0.0, bell.ring)
    assert bell.rung.wait(5)
    alarms.stop()


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime()
    yield made
    made.stop()


async def test_a_loop_does_nothing_while_all_threads_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    release, timers = threading.Event(), list[float]()
    server = InferenceServer()
    limit_threads(server, 2)
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


async def test_a_stream_that_was_never_begun_waits_for_no_thread_to_be_refused() -> None:
    async def spell(text: list[str]) -> AsyncIterator[str]:
        yield text[0]

    def count(n: int) -> Iterator[int]:
        yield n

    server, release = InferenceServer(), threading.Event()
    limit_threads(server, 1)
    server.register("busy", lambda: release.wait(20))
    server.register("spell", spell)
    server.register("count", count, timeout=0.2)
    busy = asyncio.ensure_future(server.infer("busy", {}))
    await asyncio.sleep(0.1)
    for model, inputs, status in (("spell", {"text": np.array([b"\xff"], object)}, 400), ("count", {"n": 1}, 504)):
        with pytest.raises(InferenceError) as caught:
            await asyncio.wait_for(anext(server.infer_stream(model, inputs)), 5)
        assert caught.value.status == status
        assert not limiter_of(server, model).running
    release.set()
    await busy
    await asyncio.to_thread(server.stop)


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


ROUNDS = 2000
ASKING = 4


def stop_while_running(background: BackgroundLoop, run: Callable[[], None], found: list[Any]) -> None:
    threads = [threading.Thread(target=run, daemon=True) for _ in range(ASKING)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < end, "a run hangs"
        background.stop()
        if len(found) % 2:
            time.sleep(0.0001)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(), asyncio.CancelledError(), CancelledError()], ids=repr)
def test_what_a_coroutine_raises_reaches_its_caller_and_the_loop_goes_on(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    background = BackgroundLoop()
    for _ in range(2):
        with pytest.raises(ValueError if isinstance(error, ValueError) else QuitWithin):
            background.run(fail())
    background.stop()


def serve_counting(begun: threading.Event) -> InferenceServer:
    """A model of an asynchronous generator that shows in which task each item is made."""
    server = InferenceServer()

    @server.model("m")
    async def m(n: int) -> AsyncIterator[int]:
        begun.set()
        for _ in range(n):
            yield id(asyncio.current_task())

    return server


# asyncio's own hook may queue the closing of a generator that a thread drops while its loop is being closed, and Python 3.13 warns of that
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_stream_that_races_a_stop_ends(often_switching: None) -> None:
    server = serve_counting(threading.Event())
    background = background_of(server)
    found: list[Any] = []

    def run() -> None:
        for _ in range(ROUNDS // ASKING // 4):
            try:
                found.append(len(list(server.infer_stream_sync("m", {"n": 2}))))
            except InferenceError as error:
                found.append(error.status)

    stop_while_running(background, run, found)
    assert set(found) == {2, 503}
    assert len(found) == ROUNDS // 4
    background.stop()
