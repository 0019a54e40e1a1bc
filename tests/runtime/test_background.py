"""The background event loop by itself: what is handed to it ends with a result, or because the loop was stopped, and never hangs."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import pytest

from tests.support.inside.runtime import (
    Await,
    BackgroundLoop,
    CancelledWithin,
    ClientGone,
    DeadlinePassed,
    QuitWithin,
    SharedTask,
    Signal,
    Stopped,
)

ROUNDS = 2000
ASKING = 4


@pytest.fixture
def often_switching() -> Iterator[None]:
    """Threads take turns a thousand times as often as usual, so that they meet everywhere."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 1000)
    yield
    sys.setswitchinterval(interval)


def stop_while_running(background: BackgroundLoop, run: Callable[[], None], found: list[Any]) -> None:
    """Stop the loop again and again until threads that use it have ended."""
    threads = [threading.Thread(target=run, daemon=True) for _ in range(ASKING)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < end, "a run hangs"
        background.stop()
        if len(found) % 2:
            time.sleep(0.0001)


@pytest.mark.parametrize("pauses", [False, True])
def test_a_run_that_races_a_stop_ends(pauses: bool, often_switching: None) -> None:
    background = BackgroundLoop()
    found: list[Any] = []

    async def answer(number: int) -> int:
        if pauses:
            await asyncio.sleep(0)
        return number

    def run() -> None:
        for number in range(ROUNDS // ASKING):
            try:
                found.append(background.run(answer(number)) == number)
            except Stopped:
                found.append("stopped")

    stop_while_running(background, run, found)
    assert len(found) == ROUNDS
    assert set(found) - {"stopped"} == {True}
    background.stop()
    gc.collect()  # would tell of a coroutine that was never awaited, or of a task that was destroyed


def test_what_runs_when_the_loop_stops_is_cancelled_and_awaited() -> None:
    background = BackgroundLoop()
    begun = threading.Event()
    events: list[str] = []

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            events.append("cleaned up")

    def run() -> None:
        with pytest.raises(Stopped):
            background.run(waits())
        events.append("told")

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(20)
    background.stop()
    thread.join(20)
    assert events == ["cleaned up", "told"]


def test_it_starts_when_it_is_needed_and_again_after_a_stop() -> None:
    background = BackgroundLoop()
    before = set(threading.enumerate())
    background.stop()

    async def where() -> tuple[Any, Any]:
        return asyncio.get_running_loop(), threading.current_thread()

    assert set(threading.enumerate()) <= before
    loops = []
    for _ in range(2):
        (loop, thread), (again, _) = background.run(where()), background.run(where())
        assert loop is again
        assert (thread.name, thread.daemon) == ("oip_asgi", True)
        loops.append(loop)
        background.stop()
        assert loop.is_closed()
        assert not thread.is_alive()
    assert loops[0] is not loops[1]


async def raises(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no"), ValueError),
        (SystemExit(), QuitWithin),
        (KeyboardInterrupt(), QuitWithin),
        (asyncio.CancelledError(), CancelledWithin),
        (CancelledError(), CancelledWithin),
    ],
    ids=repr,
)
def test_what_a_coroutine_raises_reaches_its_caller_and_the_loop_goes_on(error: BaseException, expected: type[Exception]) -> None:
    background = BackgroundLoop()
    for _ in range(2):
        with pytest.raises(expected):
            background.run(raises(error))
    background.stop()


def test_a_deadline_and_a_client_that_goes_cancel_it() -> None:
    background = BackgroundLoop()
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(DeadlinePassed):
        background.run(waits(), time.monotonic() + 0.01)
    gone = Signal()
    threading.Timer(0.05, gone.set).start()
    with pytest.raises(ClientGone):
        background.run(waits(), gone=gone)
    assert ended == ["cancelled"] * 2
    background.stop()


def run_in(shared_task: SharedTask, background: BackgroundLoop, function: Callable[[], Any], deadline: float = math.inf) -> Any:
    return background.run_shared(shared_task, Await(function, deadline), None)


def test_what_is_together_is_awaited_in_one_task_in_order() -> None:
    background, shared_task = BackgroundLoop(), SharedTask()

    async def task() -> Any:
        await asyncio.sleep(0)
        return asyncio.current_task()

    async def fails() -> None:
        raise ValueError("wrong")

    async def sleeps() -> None:
        await asyncio.sleep(60)

    first = run_in(shared_task, background, task)
    with pytest.raises(ValueError, match="wrong"):
        run_in(shared_task, background, fails)
    with pytest.raises(DeadlinePassed):
        run_in(shared_task, background, sleeps, time.monotonic() + 0.05)
    assert run_in(shared_task, background, task) is first
    assert run_in(SharedTask(), background, task) is not first
    shared_task.end()
    shared_task.end()
    with pytest.raises(Stopped):
        run_in(shared_task, background, task)
    background.stop()
    with pytest.raises(Stopped):
        run_in(shared_task, background, task)
    shared_task.end()


def test_a_stop_ends_what_is_together() -> None:
    background, shared_task = BackgroundLoop(), SharedTask()
    begun = threading.Event()

    async def sleeps() -> None:
        begun.set()
        await asyncio.sleep(60)

    def stop() -> None:
        begun.wait(20)
        background.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(Stopped):
        run_in(shared_task, background, sleeps)
    stopping.join()


def test_a_run_shared_that_races_a_stop_ends(often_switching: None) -> None:
    background = BackgroundLoop()
    found: list[Any] = []

    async def answer(number: int) -> int:
        await asyncio.sleep(0)
        return number

    def run() -> None:
        for number in range(ROUNDS // ASKING // 2):
            shared_task = SharedTask()
            try:
                found.append(run_in(shared_task, background, partial(answer, number)) == number)
                found.append(run_in(shared_task, background, partial(answer, number)) == number)
            except Stopped:
                found.append("stopped")
            shared_task.end()

    stop_while_running(background, run, found)
    assert set(found) == {True, "stopped"}
