"""Rounds of requests at a server with batches, from an event loop and from threads at once, some of which are cancelled, and whether each
answer is the one of the same server without them."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass, field
from typing import Any

from oip_asgi import InferenceServer, OIPApp, OIPWSGIApp
from tests.support.batch_models import Body, body, comparable, make_server
from tests.support.inside import is_idle, statistics_of
from tests.support.talk import block_until
from tests.support.ways import Request, over_wsgi, send_asgi


@dataclass
class Servers:
    """A server with batches, the same without, and what the second has answered."""

    batched: InferenceServer
    alone: InferenceServer = field(default_factory=lambda: make_server(is_batched=False))
    asked: int = 0
    answered: int = 0

    def expected(self, ask: Body) -> Any:
        way = over_wsgi(OIPWSGIApp(self.alone), "")
        return compared(way(_request(ask)))

    def executions(self) -> int:
        """How many calls the server with batches has made."""
        names = [status.name for status in self.batched.models()]
        return sum(statistics_of(self.batched, name).snapshot().execution_count for name in names)


def _request(ask: Body) -> Request:
    model, sent, headers = ask
    return Request("POST", f"/models/{model}/infer", tuple(headers.items()), sent)


def compared(answer: Any) -> Any:
    return comparable(answer.status, answer.headers, answer.body)


async def _on_loop(server: InferenceServer, asks: list[Body], dice: random.Random) -> list[Any]:
    """The answers, None where the client was cancelled."""

    async def one(ask: Body, goes_after: float | None) -> Any:
        asking = asyncio.create_task(send_asgi(OIPApp(server), _request(ask)))
        if goes_after is None:
            return await asking
        await asyncio.sleep(goes_after)
        asking.cancel()
        return (await asyncio.gather(asking, return_exceptions=True))[0]

    goes = [dice.choice([0.0, 0.001, 0.004]) if dice.random() < 0.15 else None for _ in asks]
    answers = await asyncio.gather(*[one(ask, after) for ask, after in zip(asks, goes, strict=True)])
    return [None if isinstance(answer, asyncio.CancelledError) else compared(answer) for answer in answers]


def play(servers: Servers, dice: random.Random, most: int = 24) -> None:
    """One round: each answer that is given must be the one that the server without batches gives."""
    first, second, third = ([body(dice) for _ in range(dice.randrange(1, most))] for _ in range(3))
    answers: dict[str, list[Any]] = {}
    # a loop that ends stops the batches that run on it, whose other requests are 503 then: so each waits for the others
    all_are_answered = threading.Barrier(3, timeout=120)

    def on_loop(name: str, asks: list[Body], seed: int) -> None:
        async def main() -> list[Any]:
            found = await _on_loop(servers.batched, asks, random.Random(seed))
            await asyncio.to_thread(all_are_answered.wait)
            return found

        answers[name] = asyncio.run(main())

    def in_threads() -> None:
        way = over_wsgi(OIPWSGIApp(servers.batched), "")
        found: dict[int, Any] = {}

        def one(place: int) -> None:
            found[place] = compared(way(_request(third[place])))

        threads = [threading.Thread(target=one, args=[place]) for place in range(len(third))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        all_are_answered.wait()
        answers["threads"] = [found[place] for place in range(len(third))]

    seeds = dice.randrange(2**31), dice.randrange(2**31)
    working = [
        threading.Thread(target=on_loop, args=["loop", first, seeds[0]]),
        threading.Thread(target=on_loop, args=["other loop", second, seeds[1]]),
        threading.Thread(target=in_threads),
    ]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join(120)
        assert not thread.is_alive(), "a request is never answered"
    for name, asks in (("loop", first), ("other loop", second), ("threads", third)):
        for ask, answer in zip(asks, answers[name], strict=True):
            servers.asked += 1
            if answer is not None:
                servers.answered += 1
                expected = servers.expected(ask)
                assert answer == expected, f"{ask}: {answer} with batches, {expected} without"
    block_until(lambda: is_idle(servers.batched))
