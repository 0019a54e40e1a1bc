"""Requests that wait to share calls, by themselves: who shares one, when a call may start, and who gets the slot."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest

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


WALKS: dict[str, str] = {
    "what queued while the slot was taken goes together, and others may join until it starts": (
        "first [first] a*2 b*2 c*2 ^a ^b ^c =1,3 ]first ^a ^b ?c late [a,b,c,late] =1,0 ]a -b -c -late =0,0"
    ),
    "a batch has no more rows than the most, and keeps the order": "first [first] a*3 b*3 c*3 d ]first [a,b] ]a [c,d]",
    "another key neither ends nor delays a batch": (
        "first [first] a1@a b1@b a2@a alone@c alone2@d ]first [a1,a2] ]a1 [b1] ]b1 [alone] ]alone [alone2]"
    ),
    "a batch is held back until the first of it is due": "~a ~b =0,2 !a [a,b]",
    "a batch is held back until the second of it is due": "~a ~b =0,2 !b [a,b]",
    "what is due while the slot is taken has its turn when that is free": (
        "preferred=2 ~first*2 [first] ~a !a ~late@other ]first [a] ]a =0,1"
    ),
    "a full batch is not held back": "~a*4 ~b*4 [a,b]",
    "a batch that the next does not fit into is not held back": "slots=2 ~a*5 ~b*5 [a] ^b",
    "a batch of a preferred size is not held back": "preferred=3,6 ~a*2 ^a ~b [a,b]",
    "above the largest preferred size none is held back": "preferred=2,6 ~a*3 =0,1 ~b*4 [a,b]",
    "those that stay are held back for their own time only": "~a ~b -a =0,1 !a =0,1 !b [b]",
    "a second slot is not for the rest of a batch that is about to start": "slots=2 ~a*3 ~b*3 ~c*3 ?a ^b ^c !b ?a ^b ^c [a,b] !c [c]",
    "another gets the slot of one that goes before it starts": "first [first] a b c ]first ?c -c [a,b] =1,0",
    "the slot goes on where nobody is left": "first [first] a@a b@b ]first -a [b] ]b sole -sole =0,0 last [last]",
    "who goes leaves the batch to the others": "~a ~b*3 ~c -b ~d*6 [a,c,d]",
    "the last that fits into a call begins it, as it need not be woken": "~a*4 ~b*4 ^a ?b [a,b] ]a ~c*5 ~d*5 ?c ^d",
}
"""What requests do: `a*3@k` enters with three rows and the key k, `~a` to be held back, `!a` is due, `-a` leaves, `[a,b]` begin a call
which `]a` ends; `?a` has its turn, `^a` has none, and `=1,2` is how many run and wait."""


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_who_shares_a_call_and_when_it_begins(walk: str) -> None:
    slots = int(*re.findall(r"slots=(\d+)", walk) or "1")
    preferred = [int(size) for sizes in re.findall(r"preferred=(\S+)", walk) for size in sizes.split(",")]
    queue = Queue(slots, preferred=preferred)
    for step in re.sub(r"(slots|preferred)=\S+ ", "", walk).split():
        what, name = step[0], step[1:]
        if what == "=":
            assert "{},{}".format(*queue.counts()) == name, step
        elif what == "[":
            called = name.removesuffix("]").split(",")
            assert queue.begin(called[0]) == called, step
        elif what in "?^":
            assert queue.has_turn(name) is (what == "?"), step
        elif what in "]-!":
            {"]": queue.end, "-": queue.leave, "!": queue.set_due}[what](name)
        else:
            [(name, rows, key)] = re.findall(r"(\w+)(?:\*(\d))?(?:@(\w+))?", step)
            queue.enter(name, int(rows or 1), key=key or "key", is_held=what == "~")


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
