"""How many calls of one model run at once, and how many wait for a slot. Counts and hands out slots; waits for nothing itself.

One model may be served by several event loops and threads at the same time, so all of it may be called from any thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Final, final

import msgspec

from ..effects import Signal
from .batches import Batch, Batches, Waiting
from .levels import Levels
from .uses import Uses

_SHORTEST_LOOK: Final = 0.005
_LONGEST_LOOK: Final = 0.1
"""Seconds between two looks at what the process has used: less says nothing, and more is another time of the day."""

_WAITING: Final = 0.35
_COMPUTING: Final = 0.8
"""Seconds of CPU in a second, below which calls are taken to wait, and above which to compute: one thread of Python is at most 1."""


@final
class Limiter:
    """The slots of one model, handed out first come, first served, within each level of priority.

    With `most`, the number of slots follows what the calls do: it doubles while they wait for something else than the CPU, and returns to
    `max_concurrency` while they use it, as more of them would then take time from each other without an answer coming sooner.

    Args:
        max_concurrency: How many calls may run at once, 1 or more.
        max_queue: How many may wait beside them.
        most: How many calls may run at once at the most; None for `max_concurrency`, always.
        levels: How many levels of priority requests that wait may have. The highest has the next turn.
        clock: Tells the time in seconds.
        cpu: Tells how many seconds of CPU this process has used.
    """

    def __init__(
        self,
        max_concurrency: int,
        max_queue: int,
        most: int | None = None,
        *,
        levels: int = 1,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self.set_bounds(max_concurrency, most)
        self.max_queue = max_queue
        self._clock = clock
        self._cpu = cpu
        self._seen = (0.0, 0.0)
        self.lock = threading.Lock()
        self.running = 0
        """How many slots are taken."""
        self._lowest = levels
        self._queue: dict[Slot, None] = {} if levels == 1 else Levels(levels)  # in order, and a slot leaves its middle at once
        self._idle: list[Signal] = []
        self.batches: Batches[Slot] | None = None
        """Those of a model whose requests share calls: one that waits is in `_queue` and, as soon as it is decoded, in a batch."""

    def set_bounds(self, max_concurrency: int, most: int | None = None) -> None:
        """Have other bounds from now on; calls that run go on."""
        self.max_concurrency = self._fewest = max_concurrency
        self._most = max_concurrency if most is None else max(most, max_concurrency)

    @property
    def waiting(self) -> int:
        """How many requests wait for one."""
        return len(self._queue)

    def is_full(self) -> bool:
        """Whether nobody could enter right now."""
        # requests that may share a call wait also while slots are free
        return len(self._queue) >= self.max_queue + max(0, self.max_concurrency - self.running)

    def enter(self, uses: Uses, *, may_wait: bool = True, level: int = 0) -> Slot | None:
        """A slot, to be given up in the end; None where all slots are taken and the queue is full.

        Args:
            uses: Ended together with the slot.
            may_wait: Whether the request may wait in the queue.
            level: Its priority there, 1 for the highest; 0 for the lowest.
        """
        with self.lock:
            if self.running < self.max_concurrency:
                self.running += 1
                return Slot(self, uses, None)
            if len(self._queue) >= self.max_queue or not may_wait:
                return None
            slot = Slot(self, uses, Signal(), level=level or self._lowest)
            self._queue[slot] = None
            return slot

    def take_back(self, slot: Slot) -> Signal | None:
        """Take a slot back, under the lock. Returns a signal to be set outside the lock: that of the request that has its turn now."""
        slot.is_left = True
        if not self._queue and not self._idle:
            self.running -= 1
            if self.batches is not None:
                self.batches.leave(slot)
            return None
        if slot in self._queue:
            del self._queue[slot]
            keeper = None if self.batches is None else self.batches.leave(slot)
            if self.running or self._queue:
                return None if keeper is None else self._woken(keeper)
        else:
            first = self._follower(slot)
            if first is not None:
                del self._queue[first]
                return first.turn
            self.running -= 1
            if self.running or self._queue:
                return None
        idle, self._idle = self._idle, []
        every = Signal()
        for signal in idle:
            every.then(signal.set)
        return every

    def _follower(self, slot: Slot) -> Slot | None:
        """Who runs in the place of a slot that is given back."""
        if self.batches is None:
            return next(iter(self._queue)) if self._queue and self.running <= self.max_concurrency else None
        heir = self.batches.leave(slot)  # its batch has not started, and goes on without it
        if heir is not None or self.running > self.max_concurrency:
            return heir
        return self.batches.next(self._clock())

    # Batches

    def enter_to_share(self, uses: Uses, *, may_run: bool) -> Slot | None:
        """A slot for a request that may share a call, to be given up in the end; None where all places in the queue are taken.

        Args:
            uses: Ended together with the slot.
            may_run: Whether it need not wait where a slot is free and nobody waits. Then it runs alone; else it joins a batch by `share`.
        """
        with self.lock:
            if may_run and not self._queue and self.running < self.max_concurrency:
                self.running += 1
                return Slot(self, uses, None)
            if self.is_full():
                return None
            slot = Slot(self, uses, Signal())
            self._queue[slot] = None
            return slot

    def share(self, slot: Slot, key: Hashable | None, waiting: Waiting) -> None:
        """Let a request that waits join a batch. The arguments are those of `Batches.join`."""
        assert self.batches is not None  # only those that share calls have none
        with self.lock:
            if slot.is_left:  # it was turned away
                return
            leaders = self._start(self.batches.join(slot, key, waiting), self._clock())
        _wake(leaders)

    def standing(self, slot: Slot) -> tuple[bool, float]:
        """Whether a request that waits leads a batch that has its turn, and else when its batch is due, if it is to tell."""
        assert self.batches is not None
        with self.lock:
            batch = self.batches.of(slot)
            if batch is None:
                return False, math.inf
            now = self._clock()
            leaders = self._start([batch], now)  # it may have become due since it was joined
            leads, is_told = batch.has_turn and batch.first() is slot, batch.has_turn or batch.keeper is not slot
            due = math.inf if is_told or self.batches.is_ready(batch, now) else batch.due
        _wake(leaders)
        return leads, due

    def tell_due(self, slot: Slot, due: float) -> None:
        """The batch of a request is due, by the timer of an event loop, which may be early."""
        assert self.batches is not None
        with self.lock:
            batch = self.batches.of(slot)
            leaders = [] if batch is None else self._start([batch], max(due, self._clock()))
        _wake(leaders)

    def hold_back_none(self) -> None:
        """Let all batches start that are held back, as far as slots are free."""
        if self.batches is None:
            return
        with self.lock:
            leaders = self._start(self.batches.hold_back_none(), self._clock())
        _wake(leaders)

    def begin_batch(self, slot: Slot) -> list[Waiting] | None:
        """Start the batch that a request leads, as `Slot.begin` starts a part.

        Returns:
            The requests in it; none where the request runs without one; None where it was given up or turned away.
        """
        assert self.batches is not None
        with self.lock:
            if slot.is_left:
                return None
            slot.in_thread = True
            members = self.batches.start(slot)
            for member, waiting in members.items():
                if member is not slot:
                    del self._queue[member]
                    member.is_left = waiting.is_taken = True
            return list(members.values())

    def _start(self, batches: Iterable[Batch[Slot]], now: float) -> list[Slot]:
        """Give batches their turn that are ready, as far as slots are free. Returns who leads them."""
        assert self.batches is not None
        leaders = []
        for batch in batches:
            if self.running < self.max_concurrency and self.batches.is_ready(batch, now):
                self.running += 1
                leader = self.batches.give_turn(batch)
                del self._queue[leader]
                leaders.append(leader)
        return leaders

    def _woken(self, slot: Slot) -> Signal | None:
        """What wakes a request to look how it stands, though its turn has not come."""
        woken, slot.turn = slot.turn, Signal()
        return woken

    # Bounds

    def reconsider(self) -> None:
        """Have more or fewer slots, by what this process has done since the last look. Called while requests wait for one."""
        if self._most == self._fewest:
            return
        given: list[Slot] = []
        with self.lock:
            since, used = self._seen
            now = self._clock()
            seconds = now - since
            if seconds < _SHORTEST_LOOK:  # of many that wait, each may call this
                return
            cpu = self._cpu()
            self._seen = now, cpu
            if seconds > _LONGEST_LOOK:
                return
            busy = (cpu - used) / seconds
            if busy < _WAITING:
                self.max_concurrency = min(2 * self.max_concurrency, self._most)
            elif busy > _COMPUTING:
                self.max_concurrency = max(self.max_concurrency // 2, self._fewest)
            while self._queue and self.running < self.max_concurrency:
                slot = next(iter(self._queue))
                del self._queue[slot]
                self.running += 1
                given.append(slot)
        _wake(given)

    def turn_away(self, *, is_unloaded: bool) -> None:
        """Let no request that waits have a turn any more: their slots are refused.

        Args:
            is_unloaded: Whether that is because the model was unloaded, not because the server stops.
        """
        with self.lock:
            slots = list(self._queue)
            self._queue.clear()
            for slot in slots:
                slot.is_left = True
                slot.is_unloaded = is_unloaded
                if self.batches is not None:
                    self.batches.leave(slot)
            idle, self._idle = ([], self._idle) if self.running else (self._idle, [])
        _wake(slots)
        for signal in idle:
            signal.set()

    def idle(self) -> Signal:
        """Set as soon as no call runs or waits."""
        signal = Signal()
        with self.lock:
            if self.running or self._queue:
                self._idle.append(signal)
                return signal
        signal.set()
        return signal


def _wake(slots: list[Slot]) -> None:
    for slot in slots:
        assert slot.turn is not None  # they waited
        slot.turn.set()


@final
class Slot(msgspec.Struct, eq=False):
    """One request's slot: it waits for its turn, runs, and goes back to the limiter exactly once.

    The request that entered gives it up in the end. A function that runs in a thread holds it meanwhile, even if the request is given up.

    Args:
        limiter: Where it goes back to.
        uses: Ended when the request has given it up and no thread holds it.
        turn: Set when its turn has come, or never will; None where it has come at once.
        is_left: Whether it has gone back, or was refused.
        in_thread: Whether a thread holds it.
        is_unloaded: Whether it was refused because the model was unloaded.
        level: Its priority in the queue, 1 for the highest.
    """

    limiter: Limiter
    uses: Uses
    turn: Signal | None
    is_left: bool = False
    in_thread: bool = False
    is_unloaded: bool = False
    level: int = 1

    def begin(self) -> bool:
        """Whether a thread may start its part, which `end`s then; False where the request was given up or turned away."""
        with self.limiter.lock:
            if self.is_left:
                return False
            self.in_thread = True
            return True

    def end(self, *, is_last: bool) -> None:
        """The thread's part has ended. The slot goes back where that was the last part, or the request was given up meanwhile."""
        following = None
        with self.limiter.lock:
            was_given_up, self.in_thread = not self.in_thread, False
            if (is_last or was_given_up) and not self.is_left:
                following = self.limiter.take_back(self)
        if was_given_up:
            self.uses.end()
        if following is not None:
            following.set()

    def give_up(self) -> None:
        """The request ends here. The slot goes back, or does so as soon as the thread's part has ended."""
        following = None
        if not self.is_left:
            with self.limiter.lock:
                if self.in_thread:
                    self.in_thread = False  # `end` sees that
                    return
                if not self.is_left:
                    following = self.limiter.take_back(self)
        self.uses.end()
        if following is not None:
            following.set()
