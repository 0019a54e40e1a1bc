"""How many calls of one model run at once, and how many wait for their turn. Counts and hands out turns; waits for nothing itself.

One model may be served by several event loops and threads at the same time, so all of it may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from types import TracebackType
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
        self.lock = threading.Lock()
        self._running = 0
        self._queue: dict[Place, None] = {}  # in order, and a place leaves its middle at once
        self._awaiting_empty: list[Future[None]] = []

    def is_full(self) -> bool:
        """Whether nobody could enter right now."""
        return self._running >= self.max_concurrency and self.waiting() >= self.max_queue

    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    def enter(self) -> Place | None:
        """A place, to be left by its `with` block; None where the house is full."""
        with self.lock:
            if self._running < self.max_concurrency:
                self._running += 1
                return Place(self)
            if len(self._queue) >= self.max_queue:
                return None
            place = Place(self, Future(), "waits")
            self._queue[place] = None
            return place

    def empty(self) -> Future[None]:
        """Done as soon as nobody runs or waits."""
        future: Future[None] = Future()
        with self.lock:
            if self._running:
                self._awaiting_empty.append(future)
                return future
        future.set_result(None)
        return future

    def leave_queue(self, place: Place) -> None:
        """Take a waiting place out; under the lock."""
        del self._queue[place]

    def hand_on(self) -> list[Future[None]]:
        """Give a turn to the first that waits; under the lock. What it returns is to be finished behind the lock."""
        if self._queue:
            first = next(iter(self._queue))
            del self._queue[first]
            return [first.called()]
        self._running -= 1
        if self._running:
            return []
        awaiting, self._awaiting_empty = self._awaiting_empty, []
        return awaiting


class Place(msgspec.Struct, eq=False):
    """One call's place behind a gate: it waits, has its turn, runs, and is given back exactly once.

    Whoever entered uses it as a context manager, which gives back a place whose call never started. A call that did start, such as one
    in a thread that nobody waits for any more, keeps the place until `end`.

    Args:
        gate: The gate.
        turn: Done when its turn has come; None where it has come at once.
        state: How far it has got; changed under the gate's lock.
        since: When it was entered, by `time.monotonic`.
    """

    gate: Gate
    turn: Future[None] | None = None
    state: Literal["waits", "called", "runs", "left"] = "called"
    since: float = msgspec.field(default_factory=time.monotonic)

    def called(self) -> Future[None]:
        """Its turn has come; under the gate's lock."""
        assert self.turn is not None  # who did not wait is not called
        self.state = "called"
        return self.turn

    def start(self) -> bool:
        """Whether the call may start; False where the place has been given back."""
        with self.gate.lock:
            if self.state != "called":
                return False
            self.state = "runs"
            return True

    def end(self) -> None:
        """The call that was started has ended."""
        with self.gate.lock:
            self.state = "left"
            finished = self.gate.hand_on()
        for future in finished:
            future.set_result(None)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state == "left":
            return
        finished: list[Future[None]] = []
        with self.gate.lock:
            if self.state in ("runs", "left"):
                return  # it is given back by `end`, or has been meanwhile
            if self.state == "waits":
                self.gate.leave_queue(self)
            else:
                finished = self.gate.hand_on()
            self.state = "left"
        for future in finished:
            future.set_result(None)
