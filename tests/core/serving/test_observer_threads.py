"""Observers and their threads: no request waits for one, what does not fit is counted, and a stop hands over what is queued."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from oip_asgi import InferenceServer, Observation
from tests.support.asking import ask, logged, outputs


def test_a_request_does_not_wait_and_the_log_tells_of_what_does_not_fit_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave, entered, got, passed = threading.Event(), threading.Event(), list[str | None](), 0.0
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed)

    def slow(observation: Observation) -> None:
        entered.set()
        assert leave.wait(10)
        got.append(observation.id)

    server = InferenceServer()
    server.register("m", lambda: 1, run="inline")
    server.observe(slow, max_queue=2)
    server.infer_sync("m", {}, id="0")
    assert entered.wait(10)
    for each in range(1, 13):
        server.infer_sync("m", {}, id=str(each))
        if each == 11:
            passed = 61.0
    name = f"{test_a_request_does_not_wait_and_the_log_tells_of_what_does_not_fit_once_a_minute.__name__}.<locals>.slow"
    assert [record.getMessage() for record in logged(caplog)] == [
        f"the observer {name} is too slow: {dropped} dropped, as 2 wait already: make it quicker, or observe with sample= or a larger "
        "max_queue="
        for dropped in ("1 observation was", "9 observations were")
    ]
    leave.set()
    server.start()
    server.stop()
    assert got == ["0", "1", "2"]


def test_it_has_one_thread_and_coroutines_the_background_loop() -> None:
    threads, loops = set[int](), set[object]()
    server = InferenceServer()
    server.register("m", lambda: threading.get_ident())

    async def observe_async(_: Observation) -> None:
        await asyncio.sleep(0)
        loops.add((threading.get_ident(), id(asyncio.get_running_loop())))

    server.observe(lambda _: threads.add(threading.get_ident()))
    server.observe(observe_async)
    models = {outputs(ask(server, "m"))["output_0"][0] for _ in range(3)}
    server.start()
    server.stop()
    assert len(threads) == len(loops) == 1
    assert threads.isdisjoint({threading.get_ident(), *models})


def test_the_stop_hands_over_what_is_queued() -> None:
    heard = list[str | None]()
    server = InferenceServer()
    server.register("m", lambda: 1)

    def slow(observation: Observation) -> None:
        time.sleep(0.02)
        heard.append(observation.id)

    server.observe(slow)
    server.start()
    for each in range(10):
        server.infer_sync("m", {}, id=str(each))
    server.stop()
    assert heard == [str(each) for each in range(10)]


@pytest.mark.parametrize("blocks", ["the observer", "a hook"])
def test_the_stop_waits_no_longer_than_the_timeout(blocks: str, caplog: pytest.LogCaptureFixture) -> None:
    leave, has_begun = threading.Event(), threading.Event()
    server = InferenceServer(worker_threads=1, shutdown_timeout=0.05)
    server.register("m", lambda: 1)
    server.observe((lambda _: leave.wait(20)) if blocks == "the observer" else print)

    def load() -> object:
        has_begun.set()
        leave.wait(20)
        return lambda x: x

    async def main() -> float:
        async with server.lifespan():
            for _ in range(3):
                await server.infer("m", {})
            if blocks == "a hook":
                server.register("loads", load=load)
                loading = asyncio.create_task(server.load("loads"))
                await asyncio.to_thread(has_begun.wait, 10)
            begun = time.monotonic()
        if blocks == "a hook":
            loading.cancel()
        return time.monotonic() - begun

    try:
        assert asyncio.run(main()) < 15
    finally:
        leave.set()
    text = "2 observations were dropped, as the server stops"
    assert any(text in record.getMessage() for record in logged(caplog)) == (blocks == "the observer")


FORKED = """
import atexit, os, sys, time
from oip_asgi import InferenceServer

server = InferenceServer()
server.register("m", lambda: 1)

def observe(observation):
    time.sleep(0.05)
    print(observation.id, "here" if os.getpid() == here else "elsewhere", flush=True)

server.observe(observe)
atexit.register(server.stop)
here = os.getpid()
server.infer_sync("m", {}, id="before")
child = os.fork()
here = os.getpid()
server.infer_sync("m", {}, id="after" if child else "child")
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks there")
def test_after_a_fork_each_process_hands_over_its_own_at_its_end() -> None:
    """As where gunicorn forks its workers with --preload, and `atexit` stops the server."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.splitlines()) == ["after here", "before here", "child here"]
    assert done.stderr == ""


def test_a_stream_that_the_garbage_collector_ends_is_heard_wherever_that_happens() -> None:
    """From Python 3.12 on, the collector may run within any line, and what it closes is observed too."""
    leave, asked = threading.Event(), threading.Event()
    server = InferenceServer(shutdown_timeout=0.1)
    server.register("m", lambda: 1, run="inline")
    server.observe(lambda _: leave.wait(20), max_queue=1)

    def trace(frame: Any, _: str, __: Any) -> Any:
        """Call the model in each line of the module that has the queue."""
        if not frame.f_code.co_filename.endswith("observers.py"):
            return None
        server.infer_sync("m", {})
        return trace

    def ask_often() -> None:
        sys.settrace(trace)
        for _ in range(3):
            server.infer_sync("m", {})
        sys.settrace(None)
        asked.set()

    threading.Thread(target=ask_often, daemon=True).start()
    assert asked.wait(20)
    leave.set()
    server.stop()
