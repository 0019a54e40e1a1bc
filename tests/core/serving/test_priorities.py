"""Priorities within the queue of one model: which of the requests that wait has the next turn."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from oip_asgi._core.datatypes import Array
from oip_asgi._core.models.limiter import Limiter, Slot
from oip_asgi._core.models.uses import Uses
from tests.support.asking import ask, error, get
from tests.support.inside import waiting_calls


class Queued:
    """A server whose model runs one call at a time, and notes their order."""

    def __init__(self, kind: str, levels: int | None = 3, **options: Any) -> None:
        self.order: list[float] = []
        self.go = asyncio.Event()
        self.server = InferenceServer()
        loop = asyncio.get_running_loop()

        def model(x: Array) -> Array:
            if not self.order:
                asyncio.run_coroutine_threadsafe(self.go.wait(), loop).result(30)
            self.order.append(float(x[0]))
            return x

        async def model_async(x: Array) -> Array:
            if not self.order:
                await self.go.wait()
            self.order.append(float(x[0]))
            return x

        self.server.register(
            "m", model_async if kind == "async" else model, max_concurrency=1, priority_levels=levels, **{"max_queue": 20, **options}
        )

    async def ask(self, value: float, priority: int | None, size: int = 1) -> None:
        parameters = {} if priority is None else {"priority": priority}
        await self.server.infer("m", {"x": np.full(size, value)}, parameters=parameters)

    async def queue(self, *requests: tuple[float, int | None], size: int = 1) -> list[float]:
        """The order in which requests run that all wait behind the first."""
        tasks = [asyncio.create_task(self.ask(*requests[0]))]
        for number, (value, priority) in enumerate(requests[1:], 1):
            tasks.append(asyncio.create_task(self.ask(value, priority, size)))
            while waiting_calls(self.server, "m") < number:
                await asyncio.sleep(0.001)
        self.go.set()
        await asyncio.gather(*tasks)
        return self.order


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_the_highest_level_first_and_within_a_level_the_first(kind: str) -> None:
    async def main() -> list[float]:
        return await Queued(kind).queue((0, 3), (1, 3), (2, None), (3, 2), (4, 1), (5, 0), (6, 2), (7, 1))

    assert asyncio.run(main()) == [0, 4, 7, 3, 6, 1, 2, 5]


def test_the_priority_of_a_long_request_counts_too() -> None:
    async def main() -> list[float]:
        return await Queued("async").queue((0, 3), (1, 3), (2, 1), size=200_000)

    assert asyncio.run(main()) == [0, 2, 1]


def test_without_levels_priorities_mean_nothing() -> None:
    async def main() -> list[float]:
        return await Queued("async", levels=None).queue((0, 3), (1, 3), (2, 1), (3, 99))

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_a_priority_that_is_no_level_is_refused() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, priority_levels=3)
    assert ask(server, "m", {"parameters": {"priority": 3}}, x=[1]).status == 200
    for wrong in (4, 2**64 - 1):
        refused = error(ask(server, "m", {"parameters": {"priority": wrong}}, x=[1]))
        assert refused == (400, f"parameters.priority is {wrong}: expected 1, the highest, to 3, the lowest, or 0 for none")


def test_the_extension_is_listed_where_a_model_has_levels() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x)
    assert "schedule_policy" not in get(server, "")[1]["extensions"]
    server.register("n", lambda x: x, priority_levels=2)
    assert "schedule_policy" in get(server, "")[1]["extensions"]


@pytest.mark.parametrize("wrong", [0, 1, -1, 1.5, True, "2"])
def test_a_number_of_levels_that_cannot_be_right_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"priority_levels=.* must be an integer, 2 or more"):
        InferenceServer().register("m", lambda x: x, priority_levels=wrong)


def test_requests_that_are_looked_at_ahead_are_bounded() -> None:
    async def main() -> None:
        queued = Queued("async", max_queue=1)
        large = [asyncio.create_task(queued.ask(float(number), 1, 400_000)) for number in range(6)]
        await asyncio.sleep(0.05)
        queued.go.set()
        found = await asyncio.gather(*large, return_exceptions=True)
        refused = [each for each in found if isinstance(each, InferenceError)]
        assert 1 <= len(refused) <= 4
        assert all(each.status == 503 for each in refused)
        await queued.ask(9, 1)  # nothing is left behind
        queued.server.stop()

    asyncio.run(main())


def test_a_queue_with_levels_loses_and_doubles_nothing() -> None:
    chance = random.Random(7)
    limiter, uses = Limiter(2, 50, levels=4), Uses()
    running: list[Slot] = []
    waiting: list[Slot] = []
    entered = ended = 0
    for _ in range(5000):
        ready = [slot for slot in waiting if slot.turn is not None and slot.turn.is_set()]
        waiting = [slot for slot in waiting if slot not in ready]
        running += ready
        assert len(running) <= 2
        action = chance.random()
        if action < 0.5:
            uses.items.append(None)
            slot = limiter.enter(uses, level=chance.randint(0, 4))
            if slot is not None:
                entered += 1
                (running if slot.turn is None else waiting).append(slot)
            else:
                assert len(waiting) == 50
        elif action < 0.85 and running:
            before = [slot.level for slot in waiting]
            running.pop(chance.randrange(len(running))).give_up()
            ended += 1
            turned = [slot for slot in waiting if slot.turn is not None and slot.turn.is_set()]
            assert not before or [slot.level for slot in turned] == [min(before)]
        elif waiting:
            waiting.pop(chance.randrange(len(waiting))).give_up()
            ended += 1
        assert limiter.waiting == len([slot for slot in waiting if slot.turn is not None and not slot.turn.is_set()])
    limiter.turn_away(is_unloaded=True)
    assert limiter.waiting == 0
    assert all(slot.is_left for slot in waiting if slot not in running)
    assert entered > 1000 < ended
