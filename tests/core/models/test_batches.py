"""Batches by themselves, with a clock that the test moves: who shares one, when it has its turn, who leads it, and who keeps its time."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable

from oip_asgi._core.models.batches import Batches, Waiting
from oip_asgi._core.models.limiter import Limiter, Slot
from tests.support.inside import in_use


class Queue:
    """A limiter with batches of at most 8 rows, and the requests in it, by name."""

    def __init__(self, max_concurrency: int = 1, max_queue: int = 100, preferred: Iterable[int] = ()) -> None:
        self.now = 0.0
        self.limiter = Limiter(max_concurrency, max_queue, clock=lambda: self.now)
        self.limiter.batches = Batches(8, tuple(preferred))
        self.slots: dict[str, Slot] = {}

    def enter(self, name: str, rows: int = 1, *, key: Hashable | None = "key", hold: float = 0.0) -> None:
        slot = self.limiter.enter_to_share(in_use(), may_run=False)
        assert slot is not None
        self.slots[name] = slot
        self.limiter.share(slot, key, Waiting(rows, self.now + hold, name))

    def leads(self, name: str) -> bool:
        turn = self.slots[name].turn
        assert turn is not None
        return turn.is_set() and self.limiter.standing(self.slots[name])[0]

    def due(self, name: str) -> float:
        return self.limiter.standing(self.slots[name])[1]

    def begin(self, name: str) -> list[str]:
        """Begin the batch that a request leads. Returns who is in it."""
        assert self.leads(name)
        members = self.limiter.begin_batch(self.slots[name])
        assert members is not None
        return [member.item for member in members]

    def end(self, name: str) -> None:
        self.slots[name].end(is_last=True)
        self.slots[name].give_up()

    def leave(self, name: str) -> None:
        self.slots[name].give_up()

    def counts(self) -> tuple[int, int]:
        return self.limiter.running, self.limiter.waiting


def test_what_queued_while_the_slot_was_taken_goes_together() -> None:
    queue = Queue()
    queue.enter("first")
    assert queue.begin("first") == ["first"]
    for name in "abc":
        queue.enter(name, rows=2)
    assert not any(map(queue.leads, "abc"))
    assert queue.counts() == (1, 3)
    queue.end("first")
    assert [queue.leads(name) for name in "abc"] == [True, False, False]
    queue.enter("late")  # until it starts, others may join
    assert queue.begin("a") == ["a", "b", "c", "late"]
    assert queue.counts() == (1, 0)
    queue.end("a")
    for name in ("b", "c", "late"):
        queue.leave(name)
    assert queue.counts() == (0, 0)


def test_a_batch_has_no_more_rows_than_the_most_and_keeps_the_order() -> None:
    queue = Queue()
    queue.enter("first")
    queue.begin("first")
    for name, rows in (("a", 3), ("b", 3), ("c", 3), ("d", 1)):
        queue.enter(name, rows)
    queue.end("first")
    assert queue.begin("a") == ["a", "b"]
    queue.end("a")
    assert queue.begin("c") == ["c", "d"]


def test_another_key_neither_ends_nor_delays_a_batch() -> None:
    queue = Queue()
    queue.enter("first")
    queue.begin("first")
    queue.enter("a1", key="a")
    queue.now = 1.0
    queue.enter("b1", key="b")
    queue.enter("a2", key="a")
    queue.enter("alone", key=None)
    queue.enter("alone too", key=None)
    queue.end("first")
    assert queue.begin("a1") == ["a1", "a2"]
    queue.end("a1")
    assert queue.begin("b1") == ["b1"]
    queue.end("b1")
    assert queue.begin("alone") == ["alone"]
    queue.end("alone")
    assert queue.begin("alone too") == ["alone too"]


def test_a_batch_is_held_back_until_its_oldest_is_due() -> None:
    queue = Queue()
    queue.enter("a", hold=5.0)
    queue.now = 1.0
    queue.enter("b", hold=5.0)
    assert queue.counts() == (0, 2)
    assert (queue.due("a"), queue.due("b")) == (5.0, math.inf)  # one of them keeps time
    queue.now = 4.9
    queue.limiter.tell_due(queue.slots["a"], 4.9)
    assert not queue.leads("a")
    queue.limiter.tell_due(queue.slots["a"], 5.0)  # an event loop may be a little early
    assert queue.begin("a") == ["a", "b"]


def test_a_batch_that_is_due_before_anybody_waits_has_its_turn() -> None:
    """Its thread may have stood still for longer than the delay."""
    queue = Queue()
    queue.enter("a", hold=5.0)
    queue.now = 5.0
    assert queue.due("a") == math.inf
    assert queue.begin("a") == ["a"]


def test_a_full_batch_is_not_held_back() -> None:
    queue = Queue()
    queue.enter("a", 4, hold=5.0)
    queue.enter("b", 4, hold=5.0)
    assert queue.begin("a") == ["a", "b"]


def test_a_batch_that_the_next_one_does_not_fit_into_is_not_held_back() -> None:
    queue = Queue(max_concurrency=2)
    queue.enter("a", 5, hold=5.0)
    queue.enter("b", 5, hold=5.0)
    assert queue.begin("a") == ["a"]
    assert (queue.leads("b"), queue.due("b")) == (False, 5.0)


def test_a_batch_of_a_preferred_size_is_not_held_back() -> None:
    queue = Queue(preferred=[3])
    queue.enter("a", 2, hold=5.0)
    assert not queue.leads("a")
    queue.enter("b", 1, hold=5.0)
    assert queue.begin("a") == ["a", "b"]


def test_a_request_in_more_of_a_hurry_makes_its_batch_due_earlier() -> None:
    queue = Queue()
    queue.enter("a", hold=5.0)
    queue.enter("b", hold=1.0)
    assert queue.due("b") == 1.0
    queue.limiter.tell_due(queue.slots["b"], 1.0)
    assert queue.begin("a") == ["a", "b"]


def test_another_keeps_time_where_the_one_that_did_goes() -> None:
    queue = Queue()
    queue.enter("a", hold=5.0)
    queue.now = 1.0
    queue.enter("b", hold=5.0)
    waited_for = queue.slots["b"].turn
    queue.leave("a")
    assert waited_for is not None
    assert waited_for.is_set()  # so that it looks
    assert not queue.leads("b")
    assert queue.due("b") == 6.0
    assert queue.counts() == (0, 1)
    queue.leave("b")
    assert queue.counts() == (0, 0)


def test_another_leads_where_the_one_that_did_goes_before_the_start() -> None:
    queue = Queue()
    queue.enter("first")
    queue.begin("first")
    for name in "abc":
        queue.enter(name)
    queue.end("first")
    assert queue.leads("a")
    queue.leave("a")
    assert queue.begin("b") == ["b", "c"]
    assert queue.counts() == (1, 0)


def test_the_slot_goes_on_where_nobody_is_left() -> None:
    queue = Queue()
    queue.enter("first")
    queue.begin("first")
    queue.enter("a", key="a")
    queue.enter("b", key="b")
    queue.end("first")
    queue.leave("a")
    assert queue.begin("b") == ["b"]
    queue.end("b")
    queue.enter("sole")
    queue.leave("sole")
    assert queue.counts() == (0, 0)
    queue.enter("last")
    assert queue.begin("last") == ["last"]


def test_who_goes_leaves_the_batch_to_the_others() -> None:
    queue = Queue()
    queue.enter("a", hold=5.0)
    queue.enter("b", 3, hold=5.0)
    queue.enter("c", hold=5.0)
    queue.leave("b")
    queue.enter("d", 6, hold=5.0)
    assert queue.begin("a") == ["a", "c", "d"]


def test_no_more_wait_than_may() -> None:
    queue = Queue(max_concurrency=2, max_queue=3)
    for name in "abcde":
        queue.enter(name, hold=5.0)
    assert queue.limiter.is_full()
    assert queue.limiter.enter_to_share(in_use(), may_run=True) is None
    queue.limiter.tell_due(queue.slots["a"], 5.0)
    queue.begin("a")
    assert not queue.limiter.is_full()
    for name in "fgh":
        queue.enter(name, hold=5.0)
    assert not queue.limiter.is_full()
    queue.enter("i", hold=5.0)
    assert queue.limiter.is_full()


def test_a_request_runs_at_once_where_a_slot_is_free_and_nobody_waits() -> None:
    limiter = Queue().limiter
    slot = limiter.enter_to_share(in_use(), may_run=True)
    assert slot is not None
    assert slot.turn is None
    other = limiter.enter_to_share(in_use(), may_run=True)
    assert other is not None
    assert other.turn is not None
    assert (limiter.running, limiter.waiting) == (1, 1)
    assert limiter.begin_batch(slot) == []
    slot.end(is_last=True)
    assert (limiter.running, limiter.waiting) == (0, 1)  # the other is decoded yet
    limiter.share(other, "key", Waiting(1, 0.0, "other"))
    assert other.turn.is_set()


def test_those_that_wait_are_turned_away_and_what_leads_goes_on_alone() -> None:
    queue = Queue()
    queue.enter("a")
    queue.enter("b")
    queue.enter("c", key="c")
    idle = queue.limiter.idle()
    queue.limiter.turn_away(is_unloaded=True)
    for name in "bc":
        slot = queue.slots[name]
        assert slot.turn is not None
        assert (slot.turn.is_set(), slot.is_left, slot.is_unloaded) == (True, True, True)
        queue.leave(name)
    assert queue.begin("a") == ["a"]
    assert not idle.is_set()
    queue.end("a")
    assert idle.is_set()


def test_a_stop_holds_back_nobody_and_waits_for_all() -> None:
    queue = Queue()
    queue.enter("a", hold=1000.0)
    queue.enter("b", key="b", hold=1000.0)
    idle = queue.limiter.idle()
    assert not idle.is_set()
    queue.limiter.hold_back_none()
    assert queue.begin("a") == ["a"]
    queue.end("a")
    assert queue.begin("b") == ["b"]
    assert not idle.is_set()
    queue.end("b")
    assert idle.is_set()


def test_idle_is_told_where_the_last_that_was_held_back_goes() -> None:
    goes: list[Callable[[Queue], None]] = [lambda queue: queue.leave("a"), lambda queue: queue.limiter.turn_away(is_unloaded=False)]
    for go in goes:
        queue = Queue()
        queue.enter("a", hold=5.0)
        idle = queue.limiter.idle()
        assert not idle.is_set()
        go(queue)
        assert idle.is_set()
