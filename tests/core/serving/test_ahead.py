"""A `def` generator over ASGI: its thread goes on to the next items while the client keeps up, two of them ahead at most. And how often
streams let worker threads have the interpreter, which stops their event loop for a moment."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import pytest

from oip_asgi import InferenceServer
from tests.support.asking import get
from tests.support.inside import before_each_break
from tests.support.metrics import is_idle
from tests.support.streaming import Noted, listen, numbers, serve_stream
from tests.support.talk import Talk, until

MANY = b'{"n": 1000000}'


async def take_one(server: InferenceServer) -> Talk:
    """A client that takes the first item, and no more until it is told to."""
    talk = listen(server, MANY)
    take, sent = talk.takes, talk.sent
    while len(sent) < 2:  # the head, and the item
        await asyncio.sleep(0)
    take.clear()
    return talk


async def settle(noted: Noted) -> int:
    """How many items there are when no more are made."""
    made = -1
    while made != noted.made:
        made = noted.made
        await asyncio.sleep(0.1)
    return made


def counts(server: InferenceServer) -> dict[str, int]:
    """How many responses ended in each way."""
    [stats] = get(server, "/models/m/stats")[1]["model_stats"]
    found: Counter[str] = Counter()
    for responses in stats["response_stats"].values():
        found.update({end: responses[end]["count"] for end in ("success", "fail", "cancel", "empty_response") if responses[end]["count"]})
    return dict(found)


def test_a_generator_is_two_items_ahead_of_a_client_that_does_not_read() -> None:
    async def stop_after_one() -> int:
        """How many items there are behind the one that is being sent."""
        noted = Noted()
        server = serve_stream(noted.blocking)
        talk = await take_one(server)
        ahead = await settle(noted) - len(numbers(talk)) - 1
        talk.takes.set()
        await until(lambda: len(talk.sent) > 20)
        assert numbers(talk)[:10] == list(range(10))
        talk.go()
        await asyncio.wait_for(talk.task, 20)
        assert noted.ended == ["closed", "finally"]
        server.stop()
        return ahead

    seen = set[int]()
    for _ in range(20):  # on a busy machine, a turn of the thread may be over before
        if 2 not in seen:
            seen.add(asyncio.run(stop_after_one()))
    assert max(seen) == 2


@pytest.mark.parametrize("reads", [True, False])
async def test_others_have_their_turn_of_the_only_thread(reads: bool) -> None:
    noted = Noted()
    server = InferenceServer(worker_threads=1)
    server.register("m", noted.blocking)
    server.register("other", lambda n: n)
    talk = await take_one(server)
    if reads:
        talk.takes.set()
    for _ in range(5):
        assert (await Talk(server, "other", b'{"n": 1}', action="generate").answer())[0] == 200
    assert not talk.task.done()
    talk.go()
    talk.takes.set()
    await asyncio.wait_for(talk.task, 20)
    assert noted.made < 1_000_000
    await asyncio.to_thread(server.stop)


async def test_each_item_is_there_while_the_next_one_is_made() -> None:
    """Also in the middle of a trip, where one item came right after the other."""
    go_on = threading.Semaphore(0)

    def pairs(n: Any) -> Iterator[int]:
        for number in range(int(n[0])):
            if number % 2:
                assert go_on.acquire(timeout=20)
            yield number

    server = serve_stream(pairs)
    talk = listen(server, b'{"n": 8}')
    for number in (1, 3, 5, 7):
        await until(lambda number=number: len(talk.sent) > number)
        await asyncio.sleep(0.02)
        assert numbers(talk) == list(range(number))
        go_on.release()
    await asyncio.wait_for(talk.task, 20)
    assert numbers(talk) == list(range(8))
    await asyncio.to_thread(server.stop)


@pytest.mark.parametrize("end", ["gone", "cancel"])
def test_items_that_nobody_takes_are_not_counted_and_the_generator_is_closed_once(end: str) -> None:
    noted = Noted()
    server = serve_stream(noted.blocking)

    async def main() -> int:
        talk = await take_one(server)
        await settle(noted)
        if end == "gone":
            talk.go()
        else:
            talk.task.cancel()
        await asyncio.wait([talk.task], timeout=20)
        await until(lambda: is_idle(server))
        return len(numbers(talk))

    taken = asyncio.run(main())
    assert noted.ended == ["closed", "finally"]
    assert noted.threads == ["oip_asgi worker"]
    assert counts(server) == {"success": taken + 1, "cancel": 1}  # one was being sent
    server.stop()


def test_an_error_that_was_made_ahead_is_logged_though_nobody_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    raised: list[ValueError] = []

    def fails(n: Any) -> Iterator[int]:
        yield from range(3)
        raised.append(ValueError("secret"))
        raise raised[0]

    async def stop_after_one() -> None:
        server = serve_stream(fails, stream_timeout=0.3)
        talk = await take_one(server)
        await asyncio.wait_for(talk.task, 20)
        assert numbers(talk) == [0]
        assert is_idle(server)
        server.stop()

    for _ in range(20):  # on a busy machine, a turn of the thread may be over before
        if not raised:
            asyncio.run(stop_after_one())
    assert "model 'm' failed on a request, after its timeout" in caplog.text
    assert "secret" in caplog.text


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
