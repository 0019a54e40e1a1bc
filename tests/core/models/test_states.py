"""The states of a model: the table, and any walk through it. The guide's picture of it is looked at in lab/figures."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oip_asgi import InferenceError, InferenceServer
from tests.support.inside import pass_idle_time
from tests.support.inside.models import TRANSITIONS, Event, State

STATES, EVENTS = get_args(State), get_args(Event)


def test_the_table_has_each_state_and_each_event_and_no_others() -> None:
    assert {state for state, _ in TRANSITIONS} == set(STATES)
    assert {event for _, event in TRANSITIONS} == set(EVENTS)


def test_whatever_a_user_asks_for_is_in_the_table_for_every_state() -> None:
    asked: list[Event] = ["load", "unload", "server stopped"]
    assert [(state, event) for state in STATES for event in asked if (state, event) not in TRANSITIONS] == []
    assert {state for state in STATES if (state, "unregister") not in TRANSITIONS} == {"unregistering", "unregistered"}


def test_every_state_is_reached_and_only_an_unregistered_model_stays_what_it_is() -> None:
    moves = {(before, after) for (before, _), (_, after) in TRANSITIONS.items() if before != after}
    assert {after for _, after in moves} == set(STATES)
    assert set(STATES) - {before for before, _ in moves} == {"unregistered"}


class Weights:
    """What a load makes."""

    def __init__(self) -> None:
        self.unloads = 0

    async def __call__(self) -> list[int]:
        await asyncio.sleep(0)
        assert self.unloads == 0
        return [1]


class Walk:
    """A server with the model "m", whose load takes some turns of the event loop, and what is asked of it at the same time."""

    def __init__(self) -> None:
        self.made: list[Weights] = []
        self.loading = 0
        self.fails = False
        self.server = InferenceServer(model_control=True)
        self.server.register("m", load=self.load, unload=self.unload, inputs=[], idle_unload=3600.0)
        self.tasks: list[asyncio.Task[Any]] = []

    async def load(self) -> Weights:
        self.loading += 1
        assert self.loading == 1, "a second load waits for the first"
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if self.fails:
                raise RuntimeError
        finally:
            self.loading -= 1
        self.made.append(Weights())
        return self.made[-1]

    async def unload(self, weights: Weights) -> None:
        weights.unloads += 1
        await asyncio.sleep(0)

    async def do(self, what: str, place: int) -> None:
        """Do one thing of a user, of a request, or of the machine."""
        if what in ("load", "unload", "unregister"):
            self.tasks.append(asyncio.create_task(getattr(self.server, what)("m")))
        elif what == "request":
            self.tasks.append(asyncio.create_task(self.server.infer("m", {})))
        elif what == "idle":
            pass_idle_time(self.server)
        elif what == "fail":
            self.fails = not self.fails
        elif what == "cancel" and self.tasks:
            self.tasks[place % len(self.tasks)].cancel()
        elif what == "step":
            for _ in range(place):
                await asyncio.sleep(0)

    async def finish(self) -> None:
        """Let everything come to its end: nobody waits for ever, and each refusal says why."""
        ended = await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), 20)
        self.tasks.clear()
        for error in ended:
            if isinstance(error, Exception):
                assert isinstance(error, InferenceError), error
                assert error.status in (404, 500, 503), error


WHAT = ("load", "request", "request", "idle", "unload", "unregister", "fail", "cancel", "step", "step", "step")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 9)), max_size=30))
def test_whatever_happens_all_that_was_loaded_is_unloaded_once_and_nobody_waits_for_ever(steps: list[tuple[str, int]]) -> None:
    async def main() -> None:
        walk = Walk()
        async with walk.server.lifespan():
            for what, place in steps:
                await walk.do(what, place)
            await walk.finish()
            walk.fails = False
            if walk.server.models():
                await walk.server.load("m")
                assert [(status.state, status.reason) for status in walk.server.models()] == [("ready", "")]
                assert (await walk.server.infer("m", {}))["output_0"].tolist() == [1]
                assert [weights.unloads for weights in walk.made] == [1] * (len(walk.made) - 1) + [0]
            else:
                with pytest.raises(InferenceError, match="'m' is not found"):
                    await walk.server.load("m")
        assert [weights.unloads for weights in walk.made] == [1] * len(walk.made)

    asyncio.run(main())
