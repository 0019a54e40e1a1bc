"""How many requests use something that may be let go. Counts; waits for nothing itself. Knows no requests and no models."""

from __future__ import annotations

import threading
from typing import final

from ..effects import Signal


@final
class Uses:
    """The requests that use one thing. May be called from any thread."""

    __slots__ = ("_idle", "_is_let_go", "lock", "number")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.number = 0
        """How many there are. Who begins one adds to it, under the lock, and `end`s it exactly once."""
        self._idle: list[Signal] = []
        self._is_let_go = False

    def end(self) -> None:
        """A request does not use it any more, and neither does a thread of that request."""
        with self.lock:
            self.number -= 1
            if self.number or not self._idle:
                return
            idle, self._idle = self._idle, []
        for signal in idle:
            signal.set()

    def let_go(self) -> bool:
        """Whether it may be let go now. True for the first caller only."""
        with self.lock:
            was_let_go, self._is_let_go = self._is_let_go, True
            return not was_let_go

    def idle(self) -> Signal:
        """Set as soon as no request uses it."""
        signal = Signal()
        with self.lock:
            if self.number:
                self._idle.append(signal)
                return signal
        signal.set()
        return signal
