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

from tests.support.inside.runtime import ClientGone, DeadlinePassed, Gone, LoopThreads, QuitWithin, Run, Runtime, Signal


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
            found[await runtime.run(Run(lambda: (loop, number), "model"))] += 1

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
        places = await asyncio.gather(*[runtime.run(Run(partial(all_in.wait, 20), "model")) for _ in range(40)])
        assert sorted(places) == list(range(40))

    asyncio.run(main())


@pytest.mark.parametrize("work", ["model", "hook", "conversion"])
def test_hooks_and_conversions_do_not_wait_behind_models(work: Any) -> None:
    runtime = Runtime(1)
    entered, leave = threading.Event(), threading.Event()

    def blocks() -> None:
        entered.set()
        assert leave.wait(20)

    async def main() -> None:
        model = asyncio.create_task(runtime.run(Run(blocks, "model")))
        await asyncio.to_thread(entered.wait, 20)
        call = asyncio.create_task(runtime.run(Run(lambda: 7, work)))
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
        calls = [asyncio.create_task(runtime.run(Run(partial(ran.append, place), "model", turn))) for place, turn in enumerate(turns)]
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


async def attended(runtime: Runtime, effect: Run, gone: Gone | None = None) -> Any:
    here = runtime.here()
    watch = here.patrol.watch(gone)
    try:
        return await watch.limit(here.begin(effect), effect.deadline, for_client=effect.for_client)
    finally:
        await watch.end()


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_what_is_raised_behind_the_deadline_is_told_once(runtime: Runtime, way: str) -> None:
    leave = threading.Event()
    told: list[BaseException] = []
    error = ValueError("too late")

    def late() -> None:
        assert leave.wait(20)
        raise error

    effect = Run(late, "model", deadline=time.monotonic() + 0.3, late=told.append)  # it has begun until then, also on a busy machine
    with pytest.raises(DeadlinePassed):
        asyncio.run(attended(runtime, effect)) if way == "loop" else runtime.call(effect)
    assert told == []
    leave.set()
    runtime.stop()  # waits for the thread; the event loop has ended meanwhile
    assert told == [error]


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_a_client_that_goes_ends_the_waiting(runtime: Runtime, way: str) -> None:
    leave = threading.Event()
    gone = Signal()

    async def has_gone() -> bool:
        return True

    effect = Run(lambda: leave.wait(20), "model", for_client=True)
    threading.Timer(0.05, gone.set).start()
    with pytest.raises(ClientGone):
        asyncio.run(attended(runtime, effect, has_gone)) if way == "loop" else runtime.call(effect, gone)
    leave.set()


def run_alone(runtime: Runtime, way: str, effect: Run) -> Any:
    return asyncio.run(attended(runtime, effect)) if way == "loop" else runtime.call(effect)


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_what_nobody_waits_for_never_starts(way: str) -> None:
    runtime = Runtime(1)
    entered, leave = threading.Event(), threading.Event()
    ran: list[str] = []

    def blocks() -> None:
        entered.set()
        assert leave.wait(20)

    blocking = threading.Thread(target=runtime.call, args=[Run(blocks, "model")])
    blocking.start()
    assert entered.wait(20)
    with pytest.raises(DeadlinePassed):
        run_alone(runtime, way, Run(partial(ran.append, "left"), "model", deadline=time.monotonic() + 0.01))
    leave.set()
    blocking.join(20)
    runtime.call(Run(partial(ran.append, "waited"), "model"))
    assert ran == ["waited"]
    runtime.stop()


@pytest.mark.parametrize("way", ["loop", "thread"])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(), KeyboardInterrupt()])
def test_what_a_function_raises_is_its_outcome_and_the_thread_goes_on(runtime: Runtime, way: str, error: BaseException) -> None:
    def raises() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(ValueError if isinstance(error, ValueError) else QuitWithin) as raised:
            run_alone(runtime, way, Run(raises, "model"))
        assert error in (raised.value, raised.value.__cause__)
    assert run_alone(runtime, way, Run(lambda: 7, "model")) == 7


@pytest.mark.parametrize("way", ["loop", "thread"])
def test_a_function_sees_the_context_variables_of_its_caller(runtime: Runtime, way: str) -> None:
    variable: ContextVar[int] = ContextVar("variable")
    variable.set(7)
    assert run_alone(runtime, way, Run(variable.get, "model")) == 7
