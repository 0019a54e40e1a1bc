"""The slots of a model, and its batches: first come, first served; who gives up is passed over; when a shared call begins.

At random, from threads and event loops: tests/core/serving/test_threads_that_meet.py. What each of a batch gets: test_batching.py there.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceError, InferenceServer
from tests.support.batching import Held, rows, told
from tests.support.inside.models import SLOT_TRANSITIONS, Limiter, Slot, SlotEvent, SlotState, Uses
from tests.support.inside.runtime import Stopped
from tests.support.metrics import is_idle, waiting_calls
from tests.support.talk import until


@pytest.mark.parametrize("most", [1, 2])
def test_who_gives_up_in_the_queue_is_passed_over(most: int) -> None:
    server, leave, order = InferenceServer(), threading.Event(), list[int]()

    def model(x: Any) -> Any:
        order.append(int(x[0]))
        assert leave.wait(20)
        return x

    server.register("m", model, max_concurrency=most, max_queue=4)

    async def main() -> None:
        asked: list[asyncio.Task[Any]] = []
        for place in range(most + 4):
            asked.append(asyncio.create_task(server.infer("m", {"x": np.array([place])})))
            await until(lambda: len(order) + waiting_calls(server, "m") == len(asked))
        with pytest.raises(InferenceError, match="is busy"):
            await server.infer("m", {"x": np.array([9])})
        for task in (asked[most], asked[-1]):
            task.cancel()
        await until(lambda: waiting_calls(server, "m") == 2)
        leave.set()
        await asyncio.wait(asked)
        assert [task.cancelled() for task in asked] == [False] * most + [True, False, False, True]

    asyncio.run(main())
    assert sorted(order[:most]) == list(range(most))
    assert sorted(order[most:]) == [most + 1, most + 2]
    assert is_idle(server)


def test_every_state_of_a_slot_is_reached_and_only_two_are_its_end() -> None:
    moves = {(before, after) for does in SLOT_TRANSITIONS.values() for before, (_, after) in does.items() if before != after}
    states = set(get_args(SlotState))
    assert {after for _, after in moves} == states - {"new"}
    assert states - {before for before, _ in moves} == {"over", "unloaded"}
    assert set(SLOT_TRANSITIONS["give up"]) == states
    assert set(SLOT_TRANSITIONS) == set(get_args(SlotEvent))


STEPS = ("enter", "begin", "end part", "end part of a generator", "end", "give up", "close", "unload")


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(STEPS))))
def test_whatever_happens_to_slots_each_goes_back_once_and_the_next_has_its_turn(steps: list[tuple[int, str]]) -> None:
    limiter, uses = Limiter(2, 2), Uses(5)
    slots = [Slot(limiter, uses) for _ in range(5)]
    for place, step in steps:
        slot = slots[place]
        if step == "enter" and slot.state == "new":
            limiter.enter(slot)
        elif step == "begin" and slot.state in ("running", "over", "unloaded"):
            with nullcontext() if slot.state == "running" else pytest.raises(Stopped):
                slot.begin()
        elif step == "end part of a generator" and slot.state in ("held", "given up"):
            is_held = slot.state == "held"
            assert slot.end_part_of_generator() is is_held
            assert slot.state == ("running" if is_held else "given up")
        elif step in ("end part", "end") and slot.state in ("held", "given up"):
            slot.end_part(is_last=step == "end")
        elif step == "give up":
            slot.give_up()
        elif step == "close":
            is_paused = slot.state == "running"
            assert slot.give_up_generator() is is_paused
            assert slot.state in (("given up",) if is_paused else ("given up", "over", "unloaded"))
        elif step == "unload":
            limiter.refuse_waiting(is_unloaded=True)
        states = [slot.state for slot in slots]
        assert limiter.running == sum(state in ("running", "held", "given up") for state in states) <= 2
        assert limiter.waiting == states.count("waiting")
        assert limiter.running == 2 or not limiter.waiting
        assert uses.count == 5 - states.count("over") - states.count("unloaded")
        assert all(slot.turn is None or slot.turn.is_set() is (slot.state != "waiting") or slot.state == "over" for slot in slots)


LONG: dict[str, Any] = {"max_batch_delay": 60.0}


@pytest.mark.parametrize(
    ("options", "asks", "calls"),
    [
        pytest.param(LONG, [4, 4], [8], id="as many rows as may be"),
        pytest.param(LONG, [5, 5, 3], [5, 8], id="the next does not fit"),
        pytest.param({"max_batch_delay": 0.1}, [1, 2], [3], id="the first of them is due"),
        pytest.param({"max_batch_delay": 0.1}, [1, 1, 1, 1, 1], [5], id="all came before it was due"),
    ],
)
def test_who_shares_a_call_and_when_it_begins(options: dict[str, Any], asks: list[int], calls: list[int]) -> None:
    server, sizes = InferenceServer(), list[int]()

    @server.model("m", max_batch_size=8, max_concurrency=1, **options)
    def model(x: Any) -> Any:
        sizes.append(len(x))
        return x

    async def main() -> None:
        asked = [asyncio.create_task(server.infer("m", {"x": rows(*[place] * count)})) for place, count in enumerate(asks)]
        await asyncio.wait_for(asyncio.gather(*asked), 20)
        assert [told(task) for task in asked] == [[place] * count for place, count in enumerate(asks)]

    asyncio.run(main())
    assert sizes == calls
    assert is_idle(server)


def test_who_goes_leaves_the_batch_to_the_others_and_the_slot_goes_on_where_nobody_is_left() -> None:
    held = Held()

    async def main() -> None:
        tasks = await held.waiting(rows(1), rows(2, 3), rows(4), {"inputs": {"x": rows(5)}, "parameters": {"mode": 1}})
        for place in (1, 3):
            tasks[place].cancel()
        await until(lambda: waiting_calls(held.server, "m") == 2)
        held.leave.set()
        await asyncio.wait([*tasks, held.holder])
        assert [told(task) for task in (tasks[0], tasks[2])] == [[2], [8]]
        assert (await held.server.infer("m", {"x": rows(6)}))["output_0"].tolist() == [[12]]

    asyncio.run(main())
    assert held.sizes == [2, 1]
    assert is_idle(held.server)
