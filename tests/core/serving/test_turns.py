"""Streams that share an event loop: how often they let worker threads have the interpreter, which stops the loop for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from tests.support.inside import before_each_break
from tests.support.streaming import listen, numbers, serve_stream

TURN = 0.003


async def test_streams_that_wait_stop_their_loop_together_no_more_often_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 16 streams has an item in each turn: if each stopped the loop for itself, it would stand still for a fifth of the time."""
    stopped_at: list[float] = []
    before_each_break(monkeypatch, lambda: stopped_at.append(time.monotonic()))

    async def slow(n: Any) -> AsyncIterator[int]:
        for number in range(int(n[0])):
            await asyncio.sleep(1.2 * TURN)
            yield number

    server = serve_stream(slow, max_concurrency=16)
    talks = [listen(server, b'{"n": 20}') for _ in range(16)]
    await asyncio.wait_for(asyncio.wait([talk.task for talk in talks]), 20)
    assert [numbers(talk) for talk in talks] == [list(range(20))] * 16
    await asyncio.to_thread(server.stop)
    assert stopped_at
    assert all(later - earlier > TURN for earlier, later in pairwise(stopped_at))


async def test_a_stream_beside_one_that_holds_the_loop_has_a_whole_turn_each_time() -> None:
    """Its turn begins when it goes on: not before the other, which takes longer than a turn."""
    turns = 0

    async def quick(n: Any) -> AsyncIterator[int]:
        for number in range(int(n[0])):
            yield number

    async def hold() -> None:
        nonlocal turns
        while True:
            turns += 1
            time.sleep(1.5 * TURN)  # noqa: ASYNC251
            await asyncio.sleep(0)

    server = serve_stream(quick)
    holding = asyncio.create_task(hold())
    talk = listen(server, b'{"n": 800}')
    await asyncio.wait_for(talk.task, 60)
    holding.cancel()
    assert numbers(talk) == list(range(800))
    await asyncio.to_thread(server.stop)
    assert turns < 200
