"""How many calls of one model run at once, and how many wait for their turn. Counts and hands out turns; waits for nothing itself.

One model may be served by several event loops and threads at the same time, so all of it may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import msgspec


class Gate:
    """The places of one model, handed out first come, first served.

    Args:
        max_concurrency: How many calls may run at once, 1 or more.
        max_queue: How many may wait beside them.
    """

    def __init__(self, max_concurrency: int, max_queue: int) -> None:
        self.max_concurrency = max_concurrency
        self.max_queue = max_queue
        self._lock = threading.Lock()
        self._running = 0
        self._queue: dict[Place, Future[None]] = {}  # in order, and a place leaves its middle at once
        self._awaiting_empty: list[Future[None]] = []

    def is_full(self) -> bool:
        """Whether nobody could enter right now."""
        return self._running >= self.max_concurrency and self.waiting() >= self.max_queue

    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    def enter(self) -> Place | None:
        """A place, to be given up by whoever entered; None where the house is full."""
        with self._lock:
            if self._running < self.max_concurrency:
                self._running += 1
                return Place(self)
            if len(self._queue) >= self.max_queue:
                return None
            turn: Future[None] = Future()
            place = Place(self, turn)
            self._queue[place] = turn
            return place

    def leave(self, place: Place) -> None:
        """Give a place back, once: its call has ended, or never starts. The first that waits has its turn."""
        with self._lock:
            if self._queue:
                if self._queue.pop(place, None) is not None:  # it waited itself
                    return
                finished = [self._queue.pop(next(iter(self._queue)))]
            else:
                self._running -= 1
                if self._running or not self._awaiting_empty:
                    return
                finished, self._awaiting_empty = self._awaiting_empty, []
        for future in finished:
            future.set_result(None)

    def turn_away(self, reason: type[Exception]) -> None:
        """Let nobody who waits have a turn any more: their futures raise the reason."""
        with self._lock:
            turns = [self._queue.pop(place) for place in list(self._queue) if place.start()]
        for turn in turns:
            turn.set_exception(reason())

    def empty(self) -> Future[None]:
        """Done as soon as nobody runs or waits."""
        future: Future[None] = Future()
        with self._lock:
            if self._running:
                self._awaiting_empty.append(future)
                return future
        future.set_result(None)
        return future


class Place(msgspec.Struct, eq=False):
    """One call's place behind a gate: it waits, has its turn, runs, and is given back exactly once.

    Whoever entered gives it up in the end, which gives back a place whose call never started. A call that did start, such as one
    in a thread that nobody waits for any more, keeps the place until it leaves the gate itself.

    Args:
        gate: The gate.
        turn: Done when its turn has come; None where it has come at once.
        since: When it was entered, by `time.monotonic`.
        claim: Held by the one that gives the place back: the call, or whoever entered.
    """

    gate: Gate
    turn: Future[None] | None = None
    since: float = msgspec.field(default_factory=time.monotonic)
    claim: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def start(self) -> bool:
        """Whether the call may start, now that its turn has come; if so, it leaves the gate in the end. Else the place was given back."""
        return self.claim.acquire(False)

    def give_up(self) -> None:
        """Nobody waits for the call any more: the place is given back, unless the call has started."""
        if self.claim.acquire(False):
            self.gate.leave(self)
