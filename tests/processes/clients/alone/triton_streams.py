"""tritonclient's streams, blocking and asyncio, against real servers in this process."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

from oip_asgi import InferenceServer
from tests.support.grpc_ways import SERVINGS
from tests.support.inside import is_idle
from tests.support.streaming import Noted
from tests.support.talk import block_until


@pytest.fixture
def noted() -> Noted:
    return Noted(silent_after=2)


@pytest.fixture(params=SERVINGS)
def address(request: pytest.FixtureRequest, noted: Noted) -> Iterator[str]:
    server = InferenceServer()
    server.register("awaiting", noted.awaiting)
    server.register("blocking", noted.blocking)
    server.register("plain", lambda n: n + 1)
    with SERVINGS[request.param](server) as where:
        yield where
    noted.go_on.set()
    block_until(lambda: is_idle(server))


def numbers(n: int) -> list[Any]:
    return [triton.InferInput("n", [1], "INT64").set_data_from_numpy(np.array([n]))]


def said(result: Any, error: Any) -> Any:
    if error is not None:
        return str(error)
    response = result.get_response()
    outputs = [int(result.as_numpy(output.name)[0]) for output in response.outputs]
    return response.id, outputs, response.parameters["triton_final_response"].bool_param


@pytest.mark.parametrize("model", ["awaiting", "blocking"])
def test_a_stream(address: str, model: str) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with triton.InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: answers.put(said(result, error)))
        client.async_stream_infer(model, numbers(3), request_id="a", enable_empty_final_response=True)
        assert [answers.get(timeout=30) for _ in range(4)] == [("a", [0], False), ("a", [1], False), ("a", [2], False), ("a", [], True)]
        client.async_stream_infer("plain", numbers(3), request_id="b")
        assert answers.get(timeout=30) == ("b", [4], True)
        client.async_stream_infer("nowhere", numbers(3), request_id="c")
        assert "request id 'c': Request for unknown model" in answers.get(timeout=30)
        client.stop_stream()
    assert answers.empty()


def test_a_stream_that_is_stopped_with_its_requests(address: str, noted: Noted) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with triton.InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: answers.put(said(result, error)))
        client.async_stream_infer("awaiting", numbers(9))
        assert [answers.get(timeout=30) for _ in range(3)] == [("", [number], False) for number in range(3)]
        client.stop_stream(cancel_requests=True)
        block_until(lambda: noted.ended[-1:] == ["finally"])


def test_the_deadline_of_a_stream(address: str, noted: Noted) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with triton.InferenceServerClient(address) as client:
        client.start_stream(lambda result, error: answers.put(said(result, error)), stream_timeout=0.5)
        client.async_stream_infer("awaiting", numbers(9))
        assert [answers.get(timeout=30) for _ in range(3)] == [("", [number], False) for number in range(3)]
        assert "Deadline Exceeded" in answers.get(timeout=30)
        block_until(lambda: noted.ended[-1:] == ["finally"])


def test_a_stream_of_asyncio(address: str) -> None:
    async def requests() -> AsyncIterator[Any]:
        yield {"model_name": "awaiting", "inputs": numbers(3), "request_id": "a"}
        yield {"model_name": "plain", "inputs": numbers(3), "request_id": "b"}

    async def main() -> list[Any]:
        async with triton_aio.InferenceServerClient(address) as client:
            return [said(*answer) async for answer in client.stream_infer(requests())]

    answers = asyncio.run(main())
    # this client cannot ask for the end of one request's stream: it ends with the call
    assert sorted(answers) == [("a", [0], False), ("a", [1], False), ("a", [2], False), ("b", [4], True)]


def test_a_stream_of_asyncio_that_is_left(address: str, noted: Noted) -> None:
    async def requests() -> AsyncIterator[Any]:
        yield {"model_name": "awaiting", "inputs": numbers(9)}

    async def main() -> None:
        async with triton_aio.InferenceServerClient(address) as client:
            stream = client.stream_infer(requests())
            async for answer in stream:
                assert said(*answer) == ("", [0], False)
                break
            stream.cancel()

    asyncio.run(main())
    block_until(lambda: noted.ended[-1:] == ["finally"])
