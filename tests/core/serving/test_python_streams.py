"""Streams from Python: `server.infer_stream` and its blocking twin."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.metrics import is_idle
from tests.support.streaming import KINDS, Noted, serve_stream

kinds = pytest.mark.parametrize("kind", KINDS)
N = {"n": np.array([3])}


@kinds
def test_each_response_is_made_when_it_is_asked_for_and_who_leaves_early_ends_the_generator(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted))

    async def main() -> None:
        responses = server.infer_stream("m", N, id="a")
        seen = [(response.id, response.model_name, response["output_0"].tolist(), noted.made) async for response in responses]
        assert seen == [("a", "m", [number], number + 1) for number in range(3)]
        async with aclosing(server.infer_stream("m", N)) as stream:
            async for _ in stream:
                break

    asyncio.run(main())
    assert noted.ended == ["finally", "closed", "finally"]
    assert [response["output_0"].tolist() for response in server.infer_stream_sync("m", N)] == [[0], [1], [2]]
    responses = server.infer_stream_sync("m", N)
    next(responses)
    responses.close()
    assert noted.ended == ["finally", "closed", "finally"] * 2
    assert is_idle(server)
    server.stop()


def test_errors_are_raised_where_they_happen(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()

    def fails(x: Any) -> Any:
        yield x
        raise ValueError("secret")

    server.register("fails", fails)
    responses = server.infer_stream_sync("fails", {"x": np.array([2])})
    assert next(responses)["output_0"].tolist() == [2]
    with pytest.raises(InferenceError, match="model 'fails' failed: see the server's log"):
        next(responses)
    with pytest.raises(InferenceError, match="Request for unknown model: 'nowhere'"):
        next(server.infer_stream_sync("nowhere", {}))

    async def main() -> None:
        with pytest.raises(InferenceError, match="missing input 'x'"):
            await anext(server.infer_stream("fails", {}))
        with pytest.raises(RuntimeError, match="infer_stream"):
            server.infer_stream_sync("fails", {})
        with pytest.raises(InferenceError, match="answers with a stream"):
            await server.infer("fails", {"x": np.array([2])})

    asyncio.run(main())
    assert is_idle(server)
    server.stop()


@kinds
def test_a_model_may_read_another_ones_stream(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted))

    async def summed(n: Any) -> Any:
        return sum([response["output_0"][0] async for response in server.infer_stream("m", {"n": n})])

    def running(n: Any) -> Any:
        total = 0
        for response in server.infer_stream_sync("m", {"n": n}):
            total += int(response["output_0"][0])
            yield total

    server.register("summed", summed)
    server.register("running", running)

    async def main() -> None:
        assert (await server.infer("summed", N))["output_0"].tolist() == [3]
        assert [response["output_0"].tolist() async for response in server.infer_stream("running", N)] == [[0], [1], [3]]

    asyncio.run(main())
    assert is_idle(server)
    server.stop()


def test_an_async_generator_runs_in_one_task_of_the_background_loop() -> None:
    tasks: list[Any] = []
    variable: ContextVar[int] = ContextVar("variable", default=0)

    async def counts(n: Any) -> AsyncIterator[int]:
        tasks.append(asyncio.current_task())
        try:
            async with asyncio.timeout(60):  # which belongs to the task that opens it
                for _ in range(int(n[0])):
                    variable.set(variable.get() + 1)
                    await asyncio.sleep(0)
                    tasks.append(asyncio.current_task())
                    yield variable.get()
        finally:
            tasks.append(asyncio.current_task())

    server = serve_stream(counts)
    inputs = {"n": np.array([3])}
    assert [response["output_0"].tolist() for response in server.infer_stream_sync("m", inputs)] == [[1], [2], [3]]
    with closing(server.infer_stream_sync("m", inputs)) as stream:
        assert next(stream)["output_0"].tolist() == [1]
    server.stop()
    first, second = dict.fromkeys(tasks)
    assert first is not None
    assert [tasks.count(first), tasks.count(second)] == [5, 3]


def test_a_stream_of_a_server_that_stops_ends() -> None:
    async def silent(n: Any) -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(60)
        yield 2

    server = InferenceServer(shutdown_timeout=0.1)
    server.register("m", silent)
    stream = server.infer_stream_sync("m", {"n": np.array([3])})
    next(stream)
    stopping = threading.Timer(0.1, server.stop)
    stopping.start()
    with pytest.raises(InferenceError) as caught:
        next(stream)
    assert caught.value.status == 503
    stopping.join()


def test_a_timeout_that_passes_between_two_items_is_the_generators_own() -> None:
    seen: list[str] = []

    async def counts(n: Any) -> AsyncIterator[int]:
        try:
            async with asyncio.timeout(0.05):
                for number in range(int(n[0])):
                    yield number
                    await asyncio.sleep(0)
        except TimeoutError:
            seen.append("timeout")
        finally:
            seen.append("finally")
        yield 100

    server = serve_stream(counts)
    found = []
    for response in server.infer_stream_sync("m", N):
        found.append(response["output_0"].tolist())
        if found == [[0]]:
            time.sleep(0.2)
    server.stop()
    assert (found, seen) == ([[0], [100]], ["timeout", "finally"])


def test_who_is_interrupted_while_waiting_ends_the_generator() -> None:
    ended = threading.Event()

    async def silent(n: Any) -> AsyncIterator[int]:
        yield 1
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        yield 2

    class Interrupted(BaseException):
        pass

    def interrupt(*_: Any) -> None:
        raise Interrupted

    server = serve_stream(silent)
    stream = server.infer_stream_sync("m", N)
    next(stream)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            next(stream)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended.wait(20)
    server.stop()
    assert is_idle(server)
