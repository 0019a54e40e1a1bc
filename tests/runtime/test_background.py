"""The background event loop by itself: what is handed to it ends with a result, or because the loop was stopped, and never hangs."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.inside import background_of
from tests.support.inside.runtime import BackgroundLoop, QuitWithin, Stopped

ROUNDS = 2000
ASKING = 4


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("takes", [1, 5])
def test_a_stream_leaves_nothing_to_the_garbage_collector(takes: int) -> None:
    server = serve_counting(threading.Event())

    def ask() -> None:
        stream = server.infer_stream_sync("m", {"n": 5})
        for _ in range(takes):
            next(stream)
        stream.close()

    ask()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        ask()
        gc.collect()
        left = [f"{type(each).__module__}.{type(each).__qualname__}: {each!r}"[:200] for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []
