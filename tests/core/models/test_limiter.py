"""The slots of a model by themselves: first come, first served, and every slot goes back exactly once, whichever way its call ends."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.inside import enter
from tests.support.inside.models import Limiter, Slot
from tests.support.inside.runtime import Signal


def entered(limiter: Limiter) -> Slot:
    slot = enter(limiter)
    assert slot is not None
    return slot


def has_turn(slot: Slot) -> bool:
    return slot.turn is None or slot.turn.is_set()


def test_who_gives_up_in_the_queue_is_passed_over() -> None:
    limiter = Limiter(1, 3)
    slots = [entered(limiter) for _ in range(4)]
    slots[1].give_up()
    assert (limiter.running, limiter.waiting) == (1, 2)
    slots[0].give_up()
    assert [has_turn(slot) for slot in slots[2:]] == [True, False]


@dataclass(eq=False)
class Request:
    """What a request with a slot has done so far."""

    slot: Slot
    is_in_thread: bool = False
    is_given_up: bool = False


class Slots(RuleBasedStateMachine):
    """A limiter beside a plain list of who holds a slot, and another of who waits."""

    @initialize(max_concurrency=st.integers(1, 3), max_queue=st.integers(0, 3))
    def make(self, max_concurrency: int, max_queue: int) -> None:
        self.limiter = Limiter(max_concurrency, max_queue)
        self.holding: list[Request] = []
        self.queue: list[Request] = []
        self.gone: list[Request] = []
        self.unset: list[Signal] = []
        """Of those who wait until nothing runs."""
        self.set: list[Signal] = []

    def leave(self, request: Request) -> None:
        self.holding.remove(request)
        self.gone.append(request)
        if self.queue:
            self.holding.append(self.queue.pop(0))
        if not self.holding:
            self.set += self.unset
            self.unset = []

    @rule()
    def enter(self) -> None:
        slot = enter(self.limiter)
        if len(self.holding) < self.limiter.max_concurrency:
            assert slot is not None
            assert slot.turn is None
            self.holding.append(Request(slot))
        elif len(self.queue) < self.limiter.max_queue:
            assert slot is not None
            assert slot.turn is not None
            self.queue.append(Request(slot))
        else:
            assert slot is None

    @precondition(lambda self: any(not request.is_in_thread for request in self.holding))
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([request for request in self.holding if not request.is_in_thread]))
        assert request.slot.begin()
        request.is_in_thread = True

    @precondition(lambda self: any(request.is_in_thread for request in self.holding))
    @rule(data=st.data(), is_last=st.booleans())
    def end(self, data: st.DataObject, is_last: bool) -> None:
        request = data.draw(st.sampled_from([request for request in self.holding if request.is_in_thread]))
        request.slot.end(is_last=is_last)
        request.is_in_thread = False
        if is_last or request.is_given_up:
            self.leave(request)

    @precondition(lambda self: any(not request.is_given_up for request in self.holding))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([request for request in self.holding if not request.is_given_up]))
        request.slot.give_up()
        request.is_given_up = True
        if not request.is_in_thread:
            self.leave(request)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def give_up_in_the_queue(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.queue))
        request.slot.give_up()
        request.is_given_up = True
        self.queue.remove(request)
        self.gone.append(request)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def come_late(self, data: st.DataObject) -> None:
        """A thread that finds its request given up, and a request that ends behind its thread."""
        request = data.draw(st.sampled_from(self.gone))
        assert not request.slot.begin()
        if not request.is_given_up:
            request.slot.give_up()
            request.is_given_up = True
        assert request.slot.uses.count == 0

    @rule()
    def turn_away(self) -> None:
        self.limiter.refuse_waiting(is_unloaded=False)
        self.gone += self.queue
        for request in self.queue:
            assert has_turn(request.slot)
        self.queue = []

    @rule()
    def wait_until_idle(self) -> None:
        (self.unset if self.holding else self.set).append(self.limiter.make_idle_signal())

    @invariant()
    def counts(self) -> None:
        limiter = self.limiter
        assert limiter.running == len(self.holding) <= limiter.max_concurrency
        assert limiter.waiting == len(self.queue) <= limiter.max_queue
        assert limiter.is_full() == (limiter.running == limiter.max_concurrency and limiter.waiting == limiter.max_queue)
        assert not self.queue or limiter.running == limiter.max_concurrency

    @invariant()
    def turns(self) -> None:
        assert all(has_turn(request.slot) for request in self.holding)
        assert not any(has_turn(request.slot) for request in self.queue)

    @invariant()
    def idle(self) -> None:
        assert all(signal.is_set() for signal in self.set)
        assert not any(signal.is_set() for signal in self.unset)

    def teardown(self) -> None:
        """However it went, no slot is lost."""
        for request in [*self.queue, *self.holding, *self.gone]:
            if not request.is_given_up:
                request.slot.give_up()
            if request.is_in_thread:
                request.slot.end(is_last=True)
            assert request.slot.uses.count == 0
        assert (self.limiter.running, self.limiter.waiting) == (0, 0)
        assert all(signal.is_set() for signal in self.unset)


Slots.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestSlots = Slots.TestCase


def test_many_threads_share_the_slots() -> None:
    limiter = Limiter(3, 5)
    lock = threading.Lock()
    inside = most = begun = 0

    def request(chance: random.Random) -> None:
        nonlocal inside, most, begun
        slot = enter(limiter)
        if slot is None:
            return
        turn = threading.Event()
        if slot.turn is not None:
            slot.turn.then(turn.set)
            is_patient = chance.random() < 0.7
            assert turn.wait(20 if is_patient else 0) or not is_patient
            if not turn.is_set():
                slot.give_up()
                return
        for is_last in (False, True):
            assert slot.begin()
            with lock:
                inside += 1
                most = max(most, inside)
                begun += 1
            with lock:
                inside -= 1
            slot.end(is_last=is_last)
        slot.give_up()

    def many(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(500):
            request(chance)

    threads = [threading.Thread(target=many, args=[seed]) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert begun > 1000
    assert most <= 3
    assert (limiter.running, limiter.waiting) == (0, 0)
    assert limiter.make_idle_signal().is_set()
