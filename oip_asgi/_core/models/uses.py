"""How many requests use something that may be let go. Counts; waits for nothing itself. Knows no requests and no models."""

from __future__ import annotations

import threading
from typing import final

from ..effects import Signal


@final
class Uses:
    """The requests that use one thing. May be called from any thread."""

    __slots__ = ("_idle", "_is_let_go", "_lock", "_number")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._idle: list[Signal] = []
        self._is_let_go = False

    def begin(self) -> None:
        """A request uses it, and `end`s that exactly once."""
        with self._lock:
            self._number += 1

    def end(self) -> None:
        """A request does not use it any more, and neither does a thread of that request."""
        with self._lock:
            self._number -= 1
            if self._number or not self._idle:
                return
            idle, self._idle = self._idle, []
        for signal in idle:
            signal.set()

    def let_go(self) -> bool:
        """Whether it may be let go now: True once."""
        with self._lock:
            was_let_go, self._is_let_go = self._is_let_go, True
            return not was_let_go

    def idle(self) -> Signal:
        """Set as soon as no request uses it."""
        signal = Signal()
        with self._lock:
            if self._number:
                self._idle.append(signal)
                return signal
        signal.set()
        return signal
