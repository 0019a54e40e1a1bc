"""How many calls of one model run at once, and how many wait for a slot. Counts and hands out slots; waits for nothing itself.

One model may be served by several event loops and threads at the same time, so all of it may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import final

import msgspec

from .._protocol.effects import Signal
from .batches import Batches, Waiting
from .uses import Uses


@final
class Limiter:
    """The slots of one model, handed out first come, first served."""

    def __init__(self, max_concurrency: int, max_queue: int, batches: Batches[Slot] | None = None) -> None:
        self.max_concurrency = max_concurrency
        self.max_queue = max_queue
        self.lock = threading.Lock()
        self.running = 0
        """How many slots are taken."""
        self.inner: dict[Slot, list[Slot]] = {}
        """Slots of this model, each with those that calls within its call wait for."""
        self._batches = batches
        self._queue: dict[Slot, None] = {}  # in order, and a slot leaves its middle at once
        self._idle: list[Signal] = []

    @property
    def waiting(self) -> int:
        """How many requests wait for one."""
        return len(self._queue)

    def is_full(self) -> bool:
        """Whether nobody could enter right now."""
        # requests that may share a call wait also while slots are free
        return len(self._queue) >= self.max_queue + max(0, self.max_concurrency - self.running)

    def set_max_concurrency(self, max_concurrency: int) -> None:
        """Let another number of calls run at once from now on; calls that run go on."""
        with self.lock:
            self.max_concurrency = max_concurrency
            turns = self._give_turns()
        _set(turns)

    def enter(self, uses: Uses, *, may_run: bool = True, may_wait: bool = True) -> Slot | None:
        """Take a slot, which the caller gives up in the end; None if the request may not wait, or the queue is full."""
        with self.lock:
            if may_run and self.running < self.max_concurrency and not (self._queue and may_wait):
                self.running += 1
                return Slot(self, uses, None)
            if not may_wait or self.is_full():
                return None
            slot = Slot(self, uses, Signal())
            self._queue[slot] = None
            return slot

    def take_back(self, slot: Slot) -> Collection[Signal]:
        """Take a slot back. The caller holds the lock, and sets the signals that this returns after it has released the lock."""
        slot.is_left = True
        if self.inner:
            self.inner.pop(slot, None)
        if self._batches is not None:
            self._batches.leave(slot)
        turns: Collection[Signal] = ()
        if slot in self._queue:
            del self._queue[slot]
        else:
            self.running -= 1
        if self._queue:
            turns = self._give_turns()
        elif self._idle and not self.running:
            turns, self._idle = self._idle, []
        return turns

    def _give_turns(self) -> list[Signal]:
        """Give free slots to those that wait and may run. Returns their signals, for the caller to set."""
        turns = []
        while self._queue and self.running < self.max_concurrency:
            slot = next(iter(self._queue)) if self._batches is None else self._batches.next()
            if slot is None:
                break
            assert slot.turn is not None  # it waits
            del self._queue[slot]
            self.running += 1
            turns.append(slot.turn)
        return turns

    # Batches

    def share(self, slot: Slot, key: Hashable, waiting: Waiting) -> None:
        """Let a request in the queue share a call with others that have the same key."""
        assert self._batches is not None
        with self.lock:
            if slot.is_left:  # it was refused
                return
            self._batches.join(slot, key, waiting)
            turns = self._give_turns()
        _set(turns)

    def hold_back_no_longer(self, *slots: Slot) -> None:
        """Let requests that share calls run as soon as slots are free; without arguments all of them."""
        if self._batches is None:
            return
        with self.lock:
            for slot in slots or self._queue:
                self._batches.set_due(slot)
            turns = self._give_turns()
        _set(turns)

    def collect(self, slot: Slot) -> Sequence[Waiting] | None:
        """Begin the call of a request that has a slot, as `Slot.begin` does."""
        assert self._batches is not None
        with self.lock:
            if slot.is_left:
                return None
            slot.in_thread = True
            taken = self._batches.collect(slot)
            for other in taken:
                if other is not slot:
                    del self._queue[other]
                    other.is_left = True
            turns = self._give_turns() if self._queue else []  # for those that did not fit
        if turns:
            _set(turns)
        return list(taken.values())

    # The end

    def refuse_waiting(self, *, is_unloaded: bool) -> None:
        """Refuse all requests that wait."""
        with self.lock:
            slots = list(self._queue)
            self._queue.clear()
            for slot in slots:
                slot.is_left = True
                slot.is_unloaded = is_unloaded
                if self._batches is not None:
                    self._batches.leave(slot)
            idle, self._idle = ([], self._idle) if self.running else (self._idle, [])
        _set(slot.turn for slot in slots if slot.turn is not None)
        _set(idle)

    def idle(self) -> Signal:
        """A signal that is set as soon as no call runs or waits."""
        signal = Signal()
        with self.lock:
            if self.running or self._queue:
                self._idle.append(signal)
                return signal
        signal.set()
        return signal


def _set(signals: Iterable[Signal]) -> None:
    for signal in signals:
        signal.set()


@final
class Slot(msgspec.Struct, eq=False):
    """One request's slot: it waits for its turn, runs, and goes back to the limiter exactly once.

    The request gives it up in the end. A function that runs in a thread keeps it until it returns, even if the request has given it up.

    Args:
        limiter: Where it goes back to.
        uses: Ended when the request has given it up and no thread holds it.
        turn: Set when its turn has come, or never will; None if it came at once.
        is_left: Whether it has gone back, was refused, or is not needed because its request shares another's call.
        in_thread: Whether a thread holds it.
        is_unloaded: Whether it was refused because the model was unloaded.
    """

    limiter: Limiter
    uses: Uses
    turn: Signal | None
    is_left: bool = False
    in_thread: bool = False
    is_unloaded: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether it has not had its turn."""
        return self.turn is not None and not self.turn.is_set() and not self.is_left

    def begin(self) -> bool:
        """Whether a thread may start its part, which `end`s then; False if the request was given up or refused."""
        with self.limiter.lock:
            if self.is_left:
                return False
            self.in_thread = True
            return True

    def end(self, *, is_last: bool) -> None:
        """End the thread's part. The slot goes back if that was the last part, or the request has given it up."""
        following: Collection[Signal] = ()
        with self.limiter.lock:
            was_given_up, self.in_thread = not self.in_thread, False
            if (is_last or was_given_up) and not self.is_left:
                following = self.limiter.take_back(self)
        if was_given_up:
            self.uses.release()
        if following:
            _set(following)

    def give_up(self) -> None:
        """End the request. The slot goes back now, or as soon as the thread's part has ended."""
        following: Collection[Signal] = ()
        if not self.is_left:
            with self.limiter.lock:
                if self.in_thread:
                    self.in_thread = False  # `end` sees that
                    return
                if not self.is_left:
                    following = self.limiter.take_back(self)
        self.uses.release()
        if following:
            _set(following)
