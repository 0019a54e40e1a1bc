"""Requests that wait to share calls, by themselves: who shares one, when a call may start, and who gets the slot."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from tests.support.inside import enter
from tests.support.inside.models import Batches, BatchSlot


class Queue:
    """A limiter with batches of at most 8 rows, and the requests in it, by name."""

    def __init__(self, max_concurrency: int = 1, max_queue: int = 100, preferred: Iterable[int] = ()) -> None:
        self.now = 0.0
        self.limiter = Batches(max_concurrency, max_queue, 8, tuple(preferred))
        self.slots: dict[str, BatchSlot] = {}
        self.started: dict[str, BatchSlot] = {}
        """The request that began each call, by the first of the call."""

    def enter(self, name: str, rows: int = 1, *, key: Hashable = "key", is_held: bool = False) -> None:
        place = self.place(may_run=False)
        self.slots[name] = place
        self.now += 1.0
        place.key, place.rows, place.due, place.is_due = key, rows, self.now, not is_held
        assert self.limiter.share(place, name) == self.has_turn(name)

    def place(self, **options: bool) -> BatchSlot:
        place = enter(self.limiter, **options)
        assert isinstance(place, BatchSlot)
        return place

    def set_due(self, name: str) -> None:
        self.limiter.hold_back_no_longer(self.slots[name])

    def has_turn(self, name: str) -> bool:
        turn = self.slots[name].turn
        assert turn is not None
        return turn.is_set()

    def begin(self, first: str) -> list[str]:
        """Begin the call of some requests, one of which has a slot. Returns the requests: any of them may begin the call."""
        [starter] = [slot for slot in self.slots.values() if self.is_about_to_start(slot) and slot.group is self.slots[first].group]
        collected = self.limiter.collect(starter, "itself")
        assert collected[0] == first
        assert all(self.slots[name].request is None for name in collected)  # which knows its slot: otherwise a cycle
        self.started[first] = starter
        return collected

    @staticmethod
    def is_about_to_start(slot: BatchSlot) -> bool:
        assert slot.turn is not None
        return slot.turn.is_set() and not (slot.is_over or slot.in_thread)

    def end(self, first: str) -> None:
        starter = self.started.pop(first)
        starter.end(is_last=True)
        starter.give_up()

    def leave(self, name: str) -> None:
        self.slots[name].give_up()

    def counts(self) -> tuple[int, int]:
        return self.limiter.running, self.limiter.waiting


class ReleasedTo:
    """A lock, and what another thread does as soon as it is released for the first time."""

    def __init__(self, lock: Any, work: Callable[[], object]) -> None:
        self._lock = lock
        self._work: Callable[[], object] | None = work

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        work, self._work = self._work, None
        if work is not None:
            work()


def test_a_request_that_another_takes_along_as_it_joins_has_no_turn() -> None:
    queue = Queue()
    queue.enter("first")
    place = queue.slots["second"] = queue.place(may_run=False)
    place.key, place.rows, place.due = "key", 1, 2.0
    taken: list[str] = []
    queue.limiter.lock = ReleasedTo(queue.limiter.lock, lambda: taken.extend(queue.begin("first")))  # type: ignore[assignment]
    assert not queue.limiter.share(place, "second")
    assert taken == ["first", "second"]
    assert place.is_over


def test_what_queued_while_the_slot_was_taken_goes_together() -> None:
    queue = Queue()
    queue.enter("first")
    assert queue.begin("first") == ["first"]
    for name in "abc":
        queue.enter(name, rows=2)
    assert not any(map(queue.has_turn, "abc"))
    assert queue.counts() == (1, 3)
    queue.end("first")
    assert [queue.has_turn(name) for name in "abc"] == [False, False, True]
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
    queue.enter("b1", key="b")
    queue.enter("a2", key="a")
    queue.enter("alone", key=object())
    queue.enter("alone too", key=object())
    queue.end("first")
    assert queue.begin("a1") == ["a1", "a2"]
    queue.end("a1")
    assert queue.begin("b1") == ["b1"]
    queue.end("b1")
    assert queue.begin("alone") == ["alone"]
    queue.end("alone")
    assert queue.begin("alone too") == ["alone too"]


def test_a_batch_is_held_back_until_one_of_it_is_due() -> None:
    for hurries in ("a", "b"):
        queue = Queue()
        queue.enter("a", is_held=True)
        queue.enter("b", is_held=True)
        assert queue.counts() == (0, 2)
        queue.set_due(hurries)
        assert queue.begin("a") == ["a", "b"]


def test_what_becomes_due_while_the_slot_is_taken_has_its_turn_when_the_slot_is_free() -> None:
    queue = Queue(preferred=[2])
    queue.enter("first", 2, is_held=True)
    assert queue.begin("first") == ["first"]
    queue.enter("a", is_held=True)
    queue.set_due("a")
    queue.enter("late", key="other", is_held=True)
    queue.end("first")
    assert queue.begin("a") == ["a"]
    queue.end("a")
    assert queue.counts() == (0, 1)


def test_a_full_batch_is_not_held_back() -> None:
    queue = Queue()
    queue.enter("a", 4, is_held=True)
    queue.enter("b", 4, is_held=True)
    assert queue.begin("a") == ["a", "b"]


def test_a_batch_that_the_next_one_does_not_fit_into_is_not_held_back() -> None:
    queue = Queue(max_concurrency=2)
    queue.enter("a", 5, is_held=True)
    queue.enter("b", 5, is_held=True)
    assert queue.begin("a") == ["a"]
    assert not queue.has_turn("b")


def test_a_batch_of_a_preferred_size_is_not_held_back() -> None:
    queue = Queue(preferred=[3])
    queue.enter("a", 2, is_held=True)
    assert not queue.has_turn("a")
    queue.enter("b", 1, is_held=True)
    assert queue.begin("a") == ["a", "b"]


def test_above_the_largest_preferred_size_none_is_held_back() -> None:
    queue = Queue(preferred=[2, 6])
    queue.enter("a", 3, is_held=True)
    assert queue.counts() == (0, 1)
    queue.enter("b", 4, is_held=True)
    assert queue.begin("a") == ["a", "b"]


def test_those_that_stay_are_held_back_for_their_own_time_only() -> None:
    queue = Queue()
    queue.enter("a", is_held=True)
    queue.enter("b", is_held=True)
    queue.leave("a")
    assert queue.counts() == (0, 1)
    queue.set_due("a")
    assert queue.counts() == (0, 1)
    queue.set_due("b")
    assert queue.begin("b") == ["b"]


def test_a_second_slot_is_not_for_the_rest_of_a_batch_that_is_about_to_start() -> None:
    queue = Queue(max_concurrency=2)
    for name in "abc":
        queue.enter(name, 3, is_held=True)
    assert [queue.has_turn(name) for name in "abc"] == [True, False, False]
    queue.set_due("b")
    assert [queue.has_turn(name) for name in "abc"] == [True, False, False]
    assert queue.begin("a") == ["a", "b"]
    queue.set_due("c")
    assert queue.begin("c") == ["c"]


def test_another_gets_the_slot_of_one_that_goes_before_it_starts() -> None:
    queue = Queue()
    queue.enter("first")
    queue.begin("first")
    for name in "abc":
        queue.enter(name)
    queue.end("first")
    assert queue.has_turn("c")
    queue.leave("c")
    assert queue.begin("a") == ["a", "b"]
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
    queue.enter("a", is_held=True)
    queue.enter("b", 3, is_held=True)
    queue.enter("c", is_held=True)
    queue.leave("b")
    queue.enter("d", 6, is_held=True)
    assert queue.begin("a") == ["a", "c", "d"]


def test_no_more_wait_than_may() -> None:
    queue = Queue(max_concurrency=2, max_queue=3)
    for name in "abcde":
        queue.enter(name, is_held=True)
    assert queue.limiter.is_full()
    assert enter(queue.limiter) is None
    queue.set_due("a")
    queue.begin("a")
    assert not queue.limiter.is_full()
    for name in "fgh":
        queue.enter(name, is_held=True)
    assert not queue.limiter.is_full()
    queue.enter("i", is_held=True)
    assert queue.limiter.is_full()


def test_a_request_runs_at_once_where_a_slot_is_free_and_nobody_waits() -> None:
    queue = Queue()
    runs = queue.place()
    assert runs.turn is None
    other = queue.place()
    assert other.turn is not None
    assert queue.counts() == (1, 1)
    assert queue.limiter.collect(runs, "runs") == ["runs"]
    runs.end(is_last=True)
    assert queue.counts() == (0, 1)  # the other is decoded yet
    other.is_due = True
    assert queue.limiter.share(other, "other")
    assert other.turn.is_set()


def test_the_last_that_fits_into_a_call_begins_it_as_it_need_not_be_woken() -> None:
    queue = Queue()
    for name in "ab":
        queue.enter(name, 4, is_held=True)
    assert [queue.has_turn(name) for name in "ab"] == [False, True]
    assert queue.begin("a") == ["a", "b"]
    queue.end("a")
    for name in "cd":
        queue.enter(name, 5, is_held=True)
    assert [queue.has_turn(name) for name in "cd"] == [True, False]


def test_what_is_not_to_be_held_back_before_it_has_joined_is_not_held_back() -> None:
    queue = Queue()
    place = queue.place(may_run=False)
    queue.limiter.hold_back_no_longer()
    assert queue.limiter.share(place, "a")


def test_those_that_wait_are_turned_away_and_who_has_a_slot_goes_on_alone() -> None:
    queue = Queue()
    queue.enter("a")
    queue.enter("b")
    queue.enter("c", key="c")
    idle = queue.limiter.make_idle_signal()
    queue.limiter.refuse_waiting(is_unloaded=True)
    for name in "bc":
        slot = queue.slots[name]
        assert slot.turn is not None
        assert (slot.turn.is_set(), slot.is_over, slot.is_unloaded) == (True, True, True)
        queue.leave(name)
    assert queue.begin("a") == ["a"]
    assert not idle.is_set()
    queue.end("a")
    assert idle.is_set()


def test_a_stop_holds_back_nobody_and_waits_for_all() -> None:
    queue = Queue()
    queue.enter("a", is_held=True)
    queue.enter("b", key="b", is_held=True)
    idle = queue.limiter.make_idle_signal()
    assert not idle.is_set()
    queue.limiter.hold_back_no_longer()
    assert queue.begin("a") == ["a"]
    queue.end("a")
    assert queue.begin("b") == ["b"]
    assert not idle.is_set()
    queue.end("b")
    assert idle.is_set()


def test_idle_is_told_where_the_last_that_was_held_back_goes() -> None:
    goes: list[Callable[[Queue], None]] = [lambda queue: queue.leave("a"), lambda queue: queue.limiter.refuse_waiting(is_unloaded=False)]
    for go in goes:
        queue = Queue()
        queue.enter("a", is_held=True)
        idle = queue.limiter.make_idle_signal()
        assert not idle.is_set()
        go(queue)
        assert idle.is_set()
