"""How many slots a limiter has where nobody said it: by what the process does while requests wait, told by clocks that tests set."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from oip_asgi import InferenceServer
from oip_asgi._core.models.limiter import Limiter, Slot
from tests.support.inside import in_use, limiter_of
from tests.support.ways import Request, asked_together, ways_into


class Clocks:
    """A clock, and the seconds of CPU that the process has used."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.used = 0.0

    def advance(self, seconds: float, used: float) -> None:
        self.now += seconds
        self.used += used


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def limiter(clocks: Clocks) -> Limiter:
    return Limiter(2, 100, 16, clock=lambda: clocks.now, cpu=lambda: clocks.used)


def entered(limiter: Limiter, count: int) -> list[Slot]:
    slots = [limiter.enter(in_use()) for _ in range(count)]
    assert None not in slots
    return [slot for slot in slots if slot is not None]


def have_turn(slots: list[Slot]) -> list[bool]:
    return [slot.turn is None or slot.turn.is_set() for slot in slots]


def test_slots_double_while_calls_wait_and_the_first_in_the_queue_get_them(limiter: Limiter, clocks: Clocks) -> None:
    slots = entered(limiter, 20)
    limiter.reconsider()
    assert have_turn(slots) == [True] * 2 + [False] * 18
    for at_once in (4, 8, 16, 16):
        clocks.advance(0.01, 0.001)
        limiter.reconsider()
        assert limiter.max_concurrency == limiter.running == at_once
        assert have_turn(slots) == [True] * at_once + [False] * (20 - at_once)


def test_slots_stay_few_while_calls_compute(limiter: Limiter, clocks: Clocks) -> None:
    slots = entered(limiter, 20)
    for _ in range(10):
        limiter.reconsider()
        clocks.advance(0.01, 0.0099)
    assert have_turn(slots) == [True] * 2 + [False] * 18


def test_slots_become_few_again_and_none_is_lost(limiter: Limiter, clocks: Clocks) -> None:
    slots = entered(limiter, 20)
    for _ in range(4):
        limiter.reconsider()
        clocks.advance(0.01, 0.0)
    assert limiter.running == 16
    for at_once in (8, 4, 2, 2):
        clocks.advance(0.01, 0.0199)
        limiter.reconsider()
        assert (limiter.max_concurrency, limiter.running) == (at_once, 16)
    for slot in slots[:14]:
        slot.give_up()
    assert (limiter.running, limiter.waiting) == (2, 4)
    for slot in slots[14:]:
        slot.give_up()
    assert (limiter.running, limiter.waiting) == (0, 0)
    assert limiter.idle().is_set()


@pytest.mark.parametrize("seconds", [0.001, 5.0])
def test_looks_that_are_too_near_or_too_far_apart_say_nothing(limiter: Limiter, clocks: Clocks, seconds: float) -> None:
    entered(limiter, 20)
    limiter.reconsider()
    clocks.advance(seconds, 0.0)
    limiter.reconsider()
    assert limiter.max_concurrency == 2


def test_many_that_wait_and_look_each_by_itself_get_more_slots(limiter: Limiter, clocks: Clocks) -> None:
    entered(limiter, 20)
    for _ in range(40):
        limiter.reconsider()
        clocks.advance(0.001, 0.0)
    assert limiter.max_concurrency == 16


def test_a_number_that_the_user_says_stays() -> None:
    server = InferenceServer()
    server.register("m", lambda x: x, max_concurrency=3)
    limiter = limiter_of(server, "m")
    entered(limiter, 50)
    for _ in range(5):
        limiter.reconsider()
        time.sleep(0.006)
    assert limiter.max_concurrency == limiter.running == 3


@pytest.mark.parametrize("name", ["OIPApp", "OIPWSGIApp"])
@pytest.mark.parametrize("action", ["infer", "infer_stream"])
@pytest.mark.parametrize("size", [1, 50_000])
def test_models_that_wait_run_many_at_once(name: str, action: str, size: int) -> None:
    meeting = threading.Barrier(8)
    server = InferenceServer()

    @server.model("infer")
    def waits(x: np.ndarray) -> np.ndarray:
        meeting.wait(20)  # for seven others
        return x[:1]

    @server.model("infer_stream")
    def items(x: np.ndarray) -> Iterator[np.ndarray]:
        meeting.wait(20)
        yield x[:1]

    data = ",".join(["1.5"] * size)
    body = f'{{"inputs":[{{"name":"x","shape":[{size}],"datatype":"FP32","data":[{data}]}}]}}'.encode()
    assert asked_together(ways_into(server)[name], Request("POST", f"/models/{action}/{action}", (), body)) == [200] * 8
    server.stop()
