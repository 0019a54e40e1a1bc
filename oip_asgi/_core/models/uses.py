"""How many requests use something that may be let go. Counts; waits for nothing itself. Knows no requests and no models."""

from __future__ import annotations

import threading
from typing import final

from ..effects import Signal


@final
class Uses:
    """The requests that use one thing. May be called from any thread.

    Each request is an item of a list, which needs no lock. A request that ends takes its item out first, and then looks for signals.
    `idle` leaves its signal first, and then looks for items. So if both happen at the same time, at least one of them sees the other. This
    relies on Python's global lock: with it, threads see each other's steps in order.
    """

    __slots__ = ("_idle", "_is_let_go", "_lock", "items")

    def __init__(self) -> None:
        self.items: list[None] = []
        """One for each request. Who begins adds one, and `end`s it exactly once."""
        self._lock = threading.Lock()
        self._idle: list[Signal] = []
        self._is_let_go = False

    def end(self) -> None:
        """A request does not use it any more, and neither does a thread of that request."""
        self.items.pop()
        if self._idle:
            self._look()

    def _look(self) -> None:
        with self._lock:
            if self.items:
                return
            idle, self._idle = self._idle, []
        for signal in idle:
            signal.set()

    def let_go(self) -> bool:
        """Whether it may be let go now. True for the first caller only."""
        with self._lock:
            was_let_go, self._is_let_go = self._is_let_go, True
            return not was_let_go

    def idle(self) -> Signal:
        """Set as soon as no request uses it."""
        signal = Signal()
        with self._lock:
            self._idle.append(signal)
        self._look()
        return signal
