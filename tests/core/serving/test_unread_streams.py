"""Clients that open a stream and do not read it: the stream ends at its `stream_timeout`, and its slot is free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError
from tests.support.metrics import is_idle
from tests.support.streaming import KINDS, Noted, listen, serve_stream, take
from tests.support.talk import block_until, until

kinds = pytest.mark.parametrize("kind", KINDS)

MANY = b'{"n": 1000000}'
LATE = "model 'm' did not end its stream within 0.3 seconds, its stream_timeout"
ENDED = ["closed", "finally"]


@kinds
def test_a_response_that_nobody_takes_ends(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted), stream_timeout=0.3)

    async def main() -> None:
        before_the_head, later = listen(server, MANY), listen(server, MANY)
        before_the_head.takes.clear()
        await until(lambda: later.sent)
        later.takes.clear()
        await asyncio.wait_for(asyncio.gather(before_the_head.task, later.task), 20)
        assert before_the_head.sent == []
        assert not any(message.get("more_body") is False for message in later.sent)
        assert is_idle(server)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert noted.ended.count("finally") == 2
    record = next(record for record in caplog.records if "streamed for more than" in record.message)
    assert record.message == "model 'm' streamed for more than 0.3 seconds for a request"
    assert vars(record)["oip_model"] == "m"
    server.stop()


def test_a_generator_that_is_cancelled_by_its_own_cleanup_ends_with_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    async def ticks(n: Any) -> AsyncIterator[int]:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        try:
            while True:
                yield 0
        finally:
            task.cancel()
            await task

    server = serve_stream(ticks, stream_timeout=0.3)

    assert asyncio.run(take(server))[-1] == LATE
    assert is_idle(server)
    assert "model 'm' failed when the stream for a request was closed" in caplog.text
    assert "an error of oip_asgi itself" not in caplog.text
    server.stop()


@kinds
def test_from_python_the_slot_is_free_while_nobody_asks(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted), max_concurrency=1, stream_timeout=0.3)
    inputs = {"n": np.array([9])}

    async def main() -> None:
        responses = server.infer_stream("m", inputs)
        assert (await anext(responses))["output_0"].tolist() == [0]
        await until(lambda: is_idle(server))
        with pytest.raises(InferenceError, match=LATE):
            await anext(responses)
        with pytest.raises(StopAsyncIteration):
            await anext(responses)

    asyncio.run(main())
    responses = server.infer_stream_sync("m", inputs)
    assert next(responses)["output_0"].tolist() == [0]
    block_until(lambda: is_idle(server))
    with pytest.raises(InferenceError, match=LATE):
        next(responses)
    assert noted.ended == ENDED * 2
    server.stop()


@kinds
@pytest.mark.parametrize("turns", [1, None])
async def test_a_second_cancellation_leaves_no_slot_taken(kind: str, turns: int | None) -> None:
    """`turns` is how many turns of the event loop are between the two; None means that the generator is being closed then."""
    noted: list[str] = []
    go_on = threading.Event()

    def blocking(n: Any) -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            noted.append("closing")
            assert go_on.wait(20)
            noted.append("closed")

    async def awaiting(n: Any) -> AsyncIterator[int]:
        task = asyncio.current_task()
        try:
            for number in range(100):
                yield number
        finally:
            noted.append("closing" if asyncio.current_task() is task else "closing in another task, such as one of asyncio's")
            await asyncio.sleep(20)

    server = serve_stream(blocking if kind == "def" else awaiting, max_concurrency=1)
    talk = listen(server)
    talk.takes.clear()
    await until(lambda: not is_idle(server))
    await asyncio.sleep(0.1)  # the client is watched by then
    talk.task.cancel()
    if turns is None:
        await until(lambda: noted)
    else:
        await asyncio.sleep(0)
    talk.task.cancel()
    if kind == "def":
        await until(lambda: noted)
        go_on.set()
        await until(lambda: noted == ["closing", "closed"])
    await asyncio.wait([talk.task], timeout=20)
    assert talk.task.cancelled()
    await until(lambda: is_idle(server))
    assert noted == (["closing"] if kind == "async def" else ["closing", "closed"])
    await asyncio.to_thread(server.stop)
