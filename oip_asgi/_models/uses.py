"""Counts the requests that use one thing, and signals when none does. Knows no requests and no models; waits for nothing."""

from __future__ import annotations

import threading
from typing import final

from .._protocol.effects import Signal


@final
class Uses:
    """The requests that use one thing. May be called from any thread."""

    __slots__ = ("_idle", "_lock", "items")

    def __init__(self) -> None:
        self.items: list[None] = []
        self._lock = threading.Lock()
        self._idle: list[Signal] = []

    def release(self) -> None:
        """End one use. May be called from the request's thread."""
        self.items.pop()
        if self._idle:
            self._signal_if_idle()

    def idle(self) -> Signal:
        """A signal that is set as soon as no request uses it."""
        signal = Signal()
        with self._lock:
            self._idle.append(signal)
        self._signal_if_idle()
        return signal

    def _signal_if_idle(self) -> None:
        with self._lock:
            if self.items:
                return
            idle, self._idle = self._idle, []
        for signal in idle:
            signal.set()
