"""How many calls of one model run at once, and how many wait for their turn. Counts and hands out turns; waits for nothing itself.

One model may be served by several event loops and threads at the same time, so all of it may be called from any thread. Each request
comes through here, so locks are taken by hand: a `with` block takes twice as long.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Literal

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
        self._lock.acquire()
        try:
            if self._running < self.max_concurrency:
                self._running += 1
                return Place(self)
            if len(self._queue) >= self.max_queue:
                return None
            turn: Future[None] = Future()
            place = Place(self, turn)
            self._queue[place] = turn
            return place
        finally:
            self._lock.release()

    def leave(self, place: Place) -> None:
        """Give a place back, once: its call has ended, or never starts. The first that waits has its turn."""
        self._lock.acquire()
        try:
            if self._queue:
                if self._queue.pop(place, None) is not None:  # it waited itself
                    return
                finished = [self._queue.pop(next(iter(self._queue)))]
            else:
                self._running -= 1
                if self._running or not self._awaiting_empty:
                    return
                finished, self._awaiting_empty = self._awaiting_empty, []
        finally:
            self._lock.release()
        for future in finished:
            future.set_result(None)

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
        owner: Who gives it back, under "by": the first to claim that, which a dict decides in one step.
    """

    gate: Gate
    turn: Future[None] | None = None
    since: float = msgspec.field(default_factory=time.monotonic)
    owner: dict[str, Literal["call", "entrant"]] = {}

    def start(self) -> bool:
        """Whether the call may start, and leaves the gate when it has ended; False where the place has been given back."""
        return self.owner.setdefault("by", "call") == "call"

    def give_up(self) -> None:
        """Nobody waits for the call any more: the place is given back, unless the call has started."""
        if self.owner.setdefault("by", "entrant") == "entrant":
            self.gate.leave(self)
