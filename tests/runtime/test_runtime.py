"""Results on their way from worker threads to event loops and to threads that wait: each arrives once, where it is waited for."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from tests.support.inside.runtime import AsyncIO, BlockingIO, ClientGone, DeadlinePassed, LoopThreads, QuitWithin, Runtime, Signal


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime(40)
    yield made
    made.stop()


class Job:
    """Counts how often its outcome has arrived, and in which thread."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def finish(self) -> None:
        self.found.append(threading.get_ident())


def test_results_of_many_threads_reach_their_loop_exactly_once() -> None:
    jobs: list[Any] = [Job() for _ in range(8000)]

    async def main() -> None:
        threads = LoopThreads(asyncio.get_running_loop(), {})

        def put(some: range) -> None:
            for number in some:
                threads.put(jobs[number])

        putting = [threading.Thread(target=put, args=[range(start, 8000, 8)]) for start in range(8)]
        for thread in putting:
            thread.start()
        while any(thread.is_alive() for thread in putting):
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while not all(job.found for job in jobs):
                await asyncio.sleep(0)

    asyncio.run(main())
    assert [job.found for job in jobs] == [[threading.get_ident()]] * 8000


def test_results_that_come_together_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Any] = [Job() for _ in range(100)]
    wakes: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        threads = LoopThreads(loop, {})
        wake = loop.call_soon_threadsafe

        def noted(callback: Any) -> Any:
            wakes.append(callback)
            return wake(callback)

        def put() -> None:
            for job in jobs:
                threads.put(job)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon_threadsafe", noted)
            for times in (1, 2):
                thread = threading.Thread(target=put)
                thread.start()
                thread.join()  # without a turn of the event loop
                assert len(wakes) == times
                await asyncio.sleep(0)
                assert {len(job.found) for job in jobs} == {times}

    asyncio.run(main())


def test_a_result_for_a_loop_that_has_ended_is_dropped() -> None:
    job: Any = Job()
    loop = asyncio.new_event_loop()
    threads = LoopThreads(loop, {})
    loop.close()
    threads.put(job)
    del loop
    gc.collect()
    threads.put(job)
    assert job.found == []


def test_each_of_many_calls_of_several_loops_gets_its_own_result(runtime: Runtime) -> None:
    found: Counter[tuple[int, int]] = Counter()

    async def many(loop: int) -> None:
        async def one(number: int) -> None:
            found[await AsyncIO(runtime).run(lambda: (loop, number), "model")] += 1

        await asyncio.gather(*map(one, range(300)))

    threads = [threading.Thread(target=lambda loop=loop: asyncio.run(many(loop))) for loop in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {(loop, number): 1 for loop in range(4) for number in range(300)}


def test_forty_calls_that_block_run_at_once(runtime: Runtime) -> None:
    all_in = threading.Barrier(40)

    async def main() -> None:
        places = await asyncio.gather(*[AsyncIO(runtime).run(partial(all_in.wait, 20), "model") for _ in range(40)])
        assert sorted(places) == list(range(40))

    asyncio.run(main())


def test_a_loop_does_nothing_while_all_threads_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    small, release, timers = Runtime(2), threading.Event(), list[float]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls = [asyncio.ensure_future(AsyncIO(small).run(release.wait, "model")) for _ in range(5)]
        await asyncio.sleep(0.1)  # both threads run
        call_later = loop.call_later

        def count(seconds: float, *more: Any) -> asyncio.TimerHandle:
            timers.append(seconds)
            return call_later(seconds, *more)

        monkeypatch.setattr(loop, "call_later", count)
        await asyncio.sleep(0.2)
        release.set()
        assert await asyncio.gather(*calls) == [True] * 5

    asyncio.run(main())
    small.stop()
    assert len(timers) < 20  # two hundred, if it looked for a free thread each millisecond


@pytest.mark.parametrize("work", ["model", "hook", "conversion"])
def test_hooks_and_conversions_do_not_wait_behind_models(work: Any) -> None:
    runtime = Runtime(1)
    entered, leave = threading.Event(), threading.Event()

    def blocks() -> None:
        entered.set()
        assert leave.wait(20)

    async def main() -> None:
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

    asyncio.run(asyncio.wait_for(main(), 20))
    runtime.stop()


def test_a_function_starts_behind_its_signal_or_never(runtime: Runtime) -> None:
    ran: list[int] = []

    async def main() -> None:
        turns = [Signal() for _ in range(2)]
        calls = [AsyncIO(runtime).run(partial(ran.append, place), "model", turn) for place, turn in enumerate(turns)]
        await asyncio.sleep(0.01)
        assert ran == []
        calls[1].cancel()
        await asyncio.wait([calls[1]])
        for turn in turns:
            turn.set()
        await calls[0]

    asyncio.run(main())
    runtime.stop()
    assert ran == [0]


def run_alone(runtime: Runtime, way: str, function: Any, gone: Signal | None = None, seconds: float = 20, late: Any = None) -> Any:
    """The result of a function that a request waits for, on an event loop or in a thread."""
    deadline = time.monotonic() + seconds
    if way == "thread":
        io = BlockingIO(runtime, None, gone)
        return io.complete(io.run(function, "model", None, deadline, late))

    async def is_gone() -> bool:
        assert gone is not None
        await asyncio.sleep(0.01)
        return gone.is_set()

    async def main() -> Any:
        io = AsyncIO(runtime, None, None if gone is None else is_gone)
        try:
            return await io.run(function, "model", None, deadline, late)
        finally:
            await io.end()

    return asyncio.run(main())


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_what_is_raised_behind_the_deadline_is_told_once(runtime: Runtime, way: str) -> None:
    leave = threading.Event()
    told: list[BaseException] = []
    error = ValueError("too late")

    def late() -> None:
        assert leave.wait(20)
        raise error

    with pytest.raises(DeadlinePassed):
        run_alone(runtime, way, late, seconds=0.3, late=told.append)  # it has begun until then, also on a busy machine
    assert told == []
    leave.set()
    runtime.stop()  # waits for the thread; the event loop has ended meanwhile
    assert told == [error]


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_a_client_that_goes_ends_the_waiting(runtime: Runtime, way: str) -> None:
    leave = threading.Event()
    gone = Signal()
    threading.Timer(0.05, gone.set).start()
    with pytest.raises(ClientGone):
        run_alone(runtime, way, lambda: leave.wait(20), gone)
    leave.set()


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_what_nobody_waits_for_never_starts(way: str) -> None:
    runtime = Runtime(1)
    entered, leave = threading.Event(), threading.Event()
    ran: list[str] = []

    def blocks() -> None:
        entered.set()
        assert leave.wait(20)

    blocking = threading.Thread(target=run_alone, args=[runtime, "thread", blocks])
    blocking.start()
    assert entered.wait(20)
    with pytest.raises(DeadlinePassed):
        run_alone(runtime, way, partial(ran.append, "left"), seconds=0.01)
    leave.set()
    blocking.join(20)
    run_alone(runtime, "thread", partial(ran.append, "waited"))
    assert ran == ["waited"]
    runtime.stop()


@pytest.mark.parametrize("way", ["loop", "thread"])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(), KeyboardInterrupt()])
def test_what_a_function_raises_is_its_outcome_and_the_thread_goes_on(runtime: Runtime, way: str, error: BaseException) -> None:
    def raises() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(ValueError if isinstance(error, ValueError) else QuitWithin) as raised:
            run_alone(runtime, way, raises)
        assert error in (raised.value, raised.value.__cause__)
    assert run_alone(runtime, way, lambda: 7) == 7


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_a_function_sees_the_context_variables_of_its_caller(runtime: Runtime, way: str) -> None:
    variable: ContextVar[int] = ContextVar("variable")
    variable.set(7)
    assert run_alone(runtime, way, variable.get) == 7


def test_trips_of_one_function_never_overlap(runtime: Runtime) -> None:
    """Each begins as soon as the one before has ended, in another thread too."""
    running, most, numbers = [0], [0], iter(range(1000))

    def call() -> int | None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        number = next(numbers, None)
        time.sleep(0.0003)  # the event loop has the interpreter meanwhile
        running[0] -= 1
        return number

    async def main() -> list[int]:
        trips, found = runtime.here().begin_trips(call, "model", None), list[int]()
        async with asyncio.timeout(60):
            while (number := await trips.take()) is not None:
                found.append(number)
        return found

    assert asyncio.run(main()) == list(range(1000))
    assert most == [1]


def test_a_trip_that_ends_while_all_its_results_are_taken_is_followed_by_another(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
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

    async def main() -> None:
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

    monkeypatch.setattr(time, "monotonic", read_clock)
    asyncio.run(main())


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
def test_an_error_that_nobody_takes_is_told(runtime: Runtime, *, is_late: bool) -> None:
    told: list[BaseException] = []
    go_on, has_begun = threading.Event(), threading.Event()
    numbers = iter([1])

    def call() -> int:
        for number in numbers:
            return number
        has_begun.set()
        assert go_on.wait(20)
        raise ValueError

    async def main() -> None:
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

    asyncio.run(main())
    assert [type(error) for error in told] == [ValueError]
