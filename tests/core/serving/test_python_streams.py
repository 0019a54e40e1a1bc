"""Streams from Python: `server.infer_stream` and its blocking twin."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.inside import is_idle
from tests.support.streaming import KINDS, Noted, serve_stream

kinds = pytest.mark.parametrize("kind", KINDS)
N = {"n": np.array([3])}


@kinds
def test_each_response_is_made_when_it_is_asked_for(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted))

    async def main() -> None:
        responses = server.infer_stream("m", N, id="a")
        seen = [(response.id, response.model_name, response["output_0"].tolist(), noted.made) async for response in responses]
        assert seen == [("a", "m", [number], number + 1) for number in range(3)]

    asyncio.run(main())
    assert [response["output_0"].tolist() for response in server.infer_stream_sync("m", N)] == [[0], [1], [2]]
    assert noted.ended == ["finally", "finally"]
    assert is_idle(server)
    server.stop()


@kinds
def test_who_leaves_early_ends_the_generator(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted))

    async def main() -> None:
        async with aclosing(server.infer_stream("m", N)) as stream:
            async for _ in stream:
                break
        assert noted.ended == ["closed", "finally"]

    asyncio.run(main())
    responses = server.infer_stream_sync("m", N)
    next(responses)
    responses.close()
    assert noted.ended == ["closed", "finally"] * 2
    assert is_idle(server)
    server.stop()


def test_a_plain_model_gives_one_response() -> None:
    server = InferenceServer()
    server.register("double", lambda x: x * 2)
    assert [response["output_0"].tolist() for response in server.infer_stream_sync("double", {"x": np.array([2])})] == [[4]]
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
