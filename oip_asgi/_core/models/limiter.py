"""How many calls of one model run at once, and how many wait for a slot. Counts and hands out slots; waits for nothing itself.

One model may be served by several event loops and threads at the same time, so all of it may be called from any thread.
"""

from __future__ import annotations

import threading
from typing import final

from ..effects import Signal


@final
class Limiter:
    """The slots of one model, handed out first come, first served.

    Args:
        max_concurrency: How many calls may run at once, 1 or more.
        max_queue: How many may wait beside them.
    """

    def __init__(self, max_concurrency: int, max_queue: int) -> None:
        self.max_concurrency = max_concurrency
        self.max_queue = max_queue
        self.lock = threading.Lock()
        self._running = 0
        self._queue: dict[Slot, None] = {}  # in order, and a slot leaves its middle at once
        self._idle: list[Signal] = []

    @property
    def running(self) -> int:
        """How many slots are taken."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many requests wait for one."""
        return len(self._queue)

    def is_full(self) -> bool:
        """Whether nobody could enter right now."""
        return self._running >= self.max_concurrency and len(self._queue) >= self.max_queue

    def enter(self) -> Slot | None:
        """A slot, to be given up in the end; None where all slots are taken and the queue is full."""
        with self.lock:
            if self._running < self.max_concurrency:
                self._running += 1
                return Slot(self, None)
            if len(self._queue) >= self.max_queue:
                return None
            slot = Slot(self, Signal())
            self._queue[slot] = None
            return slot

    def hand_on(self, slot: Slot) -> Signal | None:
        """Take a slot back, under the lock. Returns the signal of the request that has its turn now, to be set outside the lock."""
        if slot in self._queue:
            del self._queue[slot]
            return None
        if self._queue:
            first = next(iter(self._queue))
            del self._queue[first]
            return first.turn
        self._running -= 1
        if not self._running and self._idle:
            idle, self._idle = self._idle, []
            every = Signal()
            for signal in idle:
                every.then(signal.set)
            return every
        return None

    def turn_away(self) -> None:
        """Let no request that waits have a turn any more: their slots are refused."""
        with self.lock:
            slots, self._queue = list(self._queue), {}
            for slot in slots:
                slot.is_left = True
        for slot in slots:
            assert slot.turn is not None  # only those that wait are in the queue
            slot.turn.set()

    def idle(self) -> Signal:
        """Set as soon as no call runs or waits."""
        signal = Signal()
        with self.lock:
            if self._running:
                self._idle.append(signal)
                return signal
        signal.set()
        return signal


@final
class Slot:
    """One request's slot: it waits for its turn, runs, and goes back to the limiter exactly once.

    The request that entered gives it up in the end. A function that runs in a thread holds it meanwhile, even if the request is given up.

    Args:
        limiter: Where it goes back to.
        turn: Set when its turn has come, or never will; None where it has come at once.
    """

    __slots__ = ("_in_thread", "_limiter", "is_left", "turn")

    def __init__(self, limiter: Limiter, turn: Signal | None) -> None:
        self._limiter = limiter
        self.turn = turn
        self.is_left = False
        self._in_thread = False

    def begin(self) -> bool:
        """Whether a thread may start its part, which `end`s then; False where the request was given up or turned away."""
        with self._limiter.lock:
            if self.is_left:
                return False
            self._in_thread = True
            return True

    def end(self, *, is_last: bool) -> None:
        """The thread's part has ended. The slot goes back where that was the last part, or the request was given up meanwhile."""
        with self._limiter.lock:
            was_given_up, self._in_thread = not self._in_thread, False
            following = self._leave() if is_last or was_given_up else None
        if following is not None:
            following.set()

    def give_up(self) -> None:
        """The request ends here. The slot goes back, or does so as soon as the thread's part has ended."""
        if self.is_left:
            return
        with self._limiter.lock:
            if self._in_thread:
                self._in_thread = False  # `end` sees that
                return
            following = self._leave()
        if following is not None:
            following.set()

    def _leave(self) -> Signal | None:
        if self.is_left:
            return None
        self.is_left = True
        return self._limiter.hand_on(self)
