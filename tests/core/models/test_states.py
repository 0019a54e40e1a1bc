"""The states of a model: the table, any walk through it, and the guide's picture of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oip_asgi import InferenceError, LoadParameters
from tests.support.inside.codecs import Codecs
from tests.support.inside.models import TRANSITIONS, Event, Handler, Lifecycle, Limiter, Loader, ModelOptions, Slot, State, transition
from tests.support.inside.runtime import Part
from tests.support.processes import ROOT
from tests.support.steps import Begun, Run, StepIO, Wait

STATES, EVENTS = get_args(State), get_args(Event)


@given(st.sampled_from(STATES), st.sampled_from(EVENTS))
def test_any_event_in_any_state_is_in_the_table_or_an_error(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert transition(state, event)[1] in STATES
    else:
        with pytest.raises(LookupError, match=f"a model that is {state} cannot have the event '{event}'"):
            transition(state, event)


def test_whatever_a_user_asks_for_is_in_the_table_for_every_state() -> None:
    asked: list[Event] = ["load", "unload", "server stopped"]
    assert [(state, event) for state in STATES for event in asked if (state, event) not in TRANSITIONS] == []
    assert {state for state in STATES if (state, "unregister") not in TRANSITIONS} == {"unregistering", "unregistered"}


def test_every_state_is_reached_and_only_an_unregistered_model_stays_what_it_is() -> None:
    moves = {(before, after) for (before, _), (_, after) in TRANSITIONS.items() if before != after}
    assert {after for _, after in moves} == set(STATES)
    assert set(STATES) - {before for before, _ in moves} == {"unregistered"}


def picture() -> str:
    """The table as a diagram that GitHub draws: each arrow is a state's end, with the events that lead there."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), (_, after) in TRANSITIONS.items():
        if before != after:
            arrows.setdefault((before, after), []).append(event)
    lines = [f"    {before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> registered: with load=", "    [*] --> ready: without", *lines, "```"])


def test_the_picture_of_the_guide_is_that_of_the_table() -> None:
    assert picture() in (ROOT / "examples/guide/loading.md").read_text()


class Weights:
    """What a load makes."""

    def __init__(self) -> None:
        self.unloads = 0

    def __call__(self) -> None: ...


class Task:
    """A coroutine, and what it has asked for."""

    def __init__(self, steps: Coroutine[Any, Any, object], part: Part | None = None) -> None:
        self.steps, self.part = steps, part
        self.asks: Any = None
        self.error: Exception | None = None


class Walk(StepIO):
    """A model, and what it waits with, which does one step of one task at a time."""

    def __init__(self, *, is_factory: bool) -> None:
        super().__init__()
        self.made: list[Weights] = []
        self.unloads = 0
        self.fails = False
        self.tasks: list[Task] = []
        self.used: list[tuple[Handler, Slot]] = []
        self.is_unregistered = False
        codecs, function = Codecs(), None if is_factory else lambda: 1
        unload: Callable[..., None] = self.unload if is_factory else self.unload_function
        options = ModelOptions(name="m", function=function, load=self.load if is_factory else self.load_function, unload=unload)
        self.limiter = Limiter(1, 0)
        self.lifecycle = Lifecycle("'m'", Loader(options, codecs), None, lambda _: None, self.limiter)

    def load(self) -> Weights:
        if self.fails:
            raise RuntimeError
        self.made.append(Weights())
        return self.made[-1]

    def load_function(self) -> None:
        if self.fails:
            raise RuntimeError

    def unload(self, weights: Weights) -> None:
        assert all(handler.function is not weights for handler, _ in self.used)
        weights.unloads += 1

    def unload_function(self) -> None:
        self.unloads += 1

    def start(self, steps: Coroutine[Any, Any, object], part: Part | None = None) -> Task:
        task = Task(steps, part)
        self.tasks.append(task)
        self.go_on(task, None)
        return task

    def begin(self, part: Part) -> Begun:
        begun = super().begin(part)
        self.start(begun.steps, part)
        return begun

    def go_on(self, task: Task, error: Exception | None, result: Any = None) -> None:
        try:
            task.asks = task.steps.send(result) if error is None else task.steps.throw(error)
        except StopIteration:
            self.end(task)
        except InferenceError as raised:
            task.error = raised
            self.end(task)

    def end(self, task: Task) -> None:
        self.tasks.remove(task)
        if task.part is not None:
            task.part.ended.set()

    def step(self, task: Task) -> bool:
        """Carry out what a task has asked for; False if it waits."""
        if type(task.asks) is Wait:
            if not task.asks.signal.is_set():
                return False
            self.go_on(task, None)
            return True
        assert type(task.asks) is Run
        try:
            result = task.asks.function()
        except RuntimeError as error:
            self.go_on(task, error)
        else:
            self.go_on(task, None, result)
        return True

    def do(self, what: str, place: int) -> None:
        """Do one thing of a user, of a request, or of the machine."""
        lifecycle = self.lifecycle
        if what == "load":
            self.start(lifecycle.load(self, LoadParameters()))
        elif what == "request":
            self.start(lifecycle.wait_until_loaded(self, wakes=True))
        elif what in ("unload", "unregister"):
            if what == "unregister" and self.is_unregistered:
                return  # nobody finds it any more
            self.is_unregistered |= what == "unregister"
            part = lifecycle.unload("unload" if what == "unload" else "unregister")
            if part is not None:
                self.begin(part)
        elif what == "idle":
            part = lifecycle.unload("idle") if lifecycle.state == "ready" and not self.used else None
            if part is not None:
                self.begin(part)
        elif what == "stop":  # as the server does it
            self.do("unload", 0)
            self.run_all()
            lifecycle.forget()
        elif what == "fail":
            self.fails = not self.fails
        elif what == "acquire":
            if lifecycle.is_serving:
                handler = lifecycle.handler or lifecycle.refuse()
                handler.uses.count += 1
                self.used.append((handler, Slot(self.limiter, handler.uses)))
                return
            assert lifecycle.handler is None
            with pytest.raises(InferenceError) as refused:
                lifecycle.refuse()
            assert refused.value.status == (404 if lifecycle.state in ("unregistering", "unregistered") else 503)
        elif what == "release" and self.used:
            self.used.pop(place % len(self.used))[1].give_up()
        elif what == "step" and self.tasks:
            self.step(self.tasks[place % len(self.tasks)])
        elif what == "run":
            self.run_all()
        elif what == "lose":
            self.lose(place)

    def lose(self, place: int) -> None:
        """The event loop of a load or an unload is closed."""
        spawned = [task for task in self.tasks if task.part is not None]
        if spawned:
            task = spawned[place % len(spawned)]
            self.tasks.remove(task)
            assert task.part is not None
            task.part.is_lost = lambda: True

    def run_all(self) -> None:
        """Do all that waits for nothing."""
        is_moving = True
        while is_moving:
            is_moving = False
            for task in self.tasks.copy():
                is_moving |= self.step(task)

    def finish(self) -> None:
        """Let everything come to its end."""
        while self.used:
            self.do("release", 0)
        self.run_all()


USUAL = ("load", "request", "idle", "unload", "unregister", "stop", "fail", "acquire", "release", "step", "step", "step", "run")
STEPS = st.lists(st.tuples(st.sampled_from(USUAL), st.integers(0, 9)), max_size=40)
WITH_LOSS = st.lists(st.tuples(st.sampled_from([*USUAL, "lose"]), st.integers(0, 9)), max_size=40)


@settings(max_examples=70, deadline=None)
@given(STEPS)
def test_whatever_happens_all_that_was_loaded_is_unloaded_once_and_nobody_waits_for_ever(steps: list[tuple[str, int]]) -> None:
    walk = Walk(is_factory=True)
    for what, place in steps:
        walk.do(what, place)
    walk.finish()
    assert walk.tasks == []
    assert [weights.unloads for weights in walk.made] in ([1] * len(walk.made), [*[1] * (len(walk.made) - 1), 0])
    if not walk.is_unregistered:
        walk.do("unload", 0)
        walk.finish()
    if walk.lifecycle.state in ("unloaded", "unregistered"):
        assert [weights.unloads for weights in walk.made[:-1]] == [1] * len(walk.made[:-1])
    if walk.is_unregistered:
        assert walk.lifecycle.state == "unregistered"
        before = len(walk.made)
        task = walk.start(walk.lifecycle.load(walk, LoadParameters()))
        assert (task.error and str(task.error), len(walk.made)) == ("model 'm' is not found: it was unregistered", before)


@settings(max_examples=70, deadline=None)
@given(WITH_LOSS, st.booleans())
@example([("load", 0), ("run", 0), ("load", 0), ("load", 0), ("step", 0), ("step", 2), ("lose", 0)], True)  # lost after its load
def test_a_model_whose_loads_are_lost_can_still_be_loaded(steps: list[tuple[str, int]], is_factory: bool) -> None:
    walk = Walk(is_factory=is_factory)
    for what, place in steps:
        walk.do(what, place)
    walk.finish()
    walk.fails = False
    task = walk.start(walk.lifecycle.load(walk, LoadParameters()))
    walk.finish()
    assert walk.tasks == []
    assert (walk.lifecycle.state, task.error is None) == (("unregistered", False) if walk.is_unregistered else ("ready", True))
    assert all(weights.unloads <= 1 for weights in walk.made)


def test_an_unload_that_is_cancelled_while_a_load_runs_ends_after_it() -> None:
    walk = Walk(is_factory=False)
    walk.do("load", 0)
    walk.do("unload", 0)
    unloading = next(task for task in walk.tasks if task.part is not None and type(task.asks) is Wait)
    unloading.steps.close()
    walk.end(unloading)
    before: State = walk.lifecycle.state
    walk.finish()
    assert [before, walk.lifecycle.state] == ["unloading", "unloaded"]
