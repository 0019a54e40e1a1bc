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
    server.stop()


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as client:
        yield client


def numbers(n: int) -> list[Any]:
    return [triton.InferInput("n", [1], "INT64").set_data_from_numpy(np.array([n]))]


def said(result: Any, error: Any) -> Any:
    if error is not None:
        return str(error)
    response = result.get_response()
    outputs = [int(result.as_numpy(output.name)[0]) for output in response.outputs]
    return response.id, outputs, response.parameters["triton_final_response"].bool_param


def started(client: Any, **options: Any) -> queue.SimpleQueue[Any]:
    """What the stream answers, as it comes."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.start_stream(lambda result, error: answers.put(said(result, error)), **options)
    return answers


@pytest.mark.parametrize("model", ["awaiting", "blocking"])
def test_a_stream(client: Any, model: str) -> None:
    answers = started(client)
    client.async_stream_infer(model, numbers(3), request_id="a", enable_empty_final_response=True)
    assert [answers.get(timeout=30) for _ in range(4)] == [("a", [0], False), ("a", [1], False), ("a", [2], False), ("a", [], True)]
    client.async_stream_infer("plain", numbers(3), request_id="b")
    assert answers.get(timeout=30) == ("b", [4], True)
    client.async_stream_infer("nowhere", numbers(3), request_id="c")
    assert "request id 'c': Request for unknown model" in answers.get(timeout=30)
    client.stop_stream()
    assert answers.empty()


@pytest.mark.parametrize("seconds", [None, 0.5])
def test_a_stream_that_is_stopped_with_its_requests_or_by_its_deadline(client: Any, noted: Noted, seconds: float | None) -> None:
    answers = started(client, stream_timeout=seconds)
    client.async_stream_infer("awaiting", numbers(9))
    assert [answers.get(timeout=30) for _ in range(3)] == [("", [number], False) for number in range(3)]
    if seconds is None:
        client.stop_stream(cancel_requests=True)
    else:
        assert "Deadline Exceeded" in answers.get(timeout=30)
    block_until(lambda: noted.ended[-1:] == ["finally"])


def test_a_stream_of_asyncio_that_ends_or_is_left(address: str, noted: Noted) -> None:
    async def requests(**by_model: int) -> AsyncIterator[Any]:
        for model, n in by_model.items():
            yield {"model_name": model, "inputs": numbers(n), "request_id": model}

    async def main() -> list[Any]:
        async with triton_aio.InferenceServerClient(address) as client:
            answers = [said(*answer) async for answer in client.stream_infer(requests(awaiting=3, plain=3))]
            stream = client.stream_infer(requests(awaiting=9))
            async for answer in stream:
                assert said(*answer) == ("awaiting", [0], False)
                break
            stream.cancel()
            return answers

    # this client cannot ask for the end of one request's stream: it ends with the call
    assert sorted(asyncio.run(main())) == [*(("awaiting", [n], False) for n in range(3)), ("plain", [4], True)]
    block_until(lambda: noted.ended[-1:] == ["finally"])
