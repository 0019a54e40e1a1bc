"""Calls methods after a time, from one thread that sleeps until the next is due. Knows no models."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from .threads import call_after_fork

_MOST_SECONDS: Final = 3600.0
"""The thread looks again after so long: not every system can sleep as long as it is asked to."""


class Alarms:
    """The methods that are to be called. The thread, a daemon, starts with the first method, and ends after the last."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, weakref.WeakMethod[Callable[[], object]]]] = []
        self._number = count()
        self._begin()
        call_after_fork(self._go_on)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def _go_on(self) -> None:
        """In a process forked from this one, no thread is left, and what is due there is due here."""
        self._begin()
        with self._changed:
            self._wake()

    def set(self, seconds: float, method: Callable[[], object]) -> None:
        """Call a method, which must not raise, after so many seconds. Its object is not kept alive."""
        with self._changed:
            heappush(self._due, (time.monotonic() + seconds, next(self._number), weakref.WeakMethod(method)))
            self._wake()

    def _wake(self) -> None:
        if self._thread is None and self._due:
            self._thread = threading.Thread(target=self._run, name="oip_asgi alarms", daemon=True)
            self._thread.start()
        self._changed.notify()

    def stop(self) -> None:
        """End the thread. What is due stays due: the next `set` starts it again."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            method = due()
            if method is not None:
                method()
            del method

    def _wait(self) -> weakref.WeakMethod[Callable[[], object]] | None:
        """The next method that is due, when it is; None if this thread is not wanted any more."""
        thread = threading.current_thread()
        with self._changed:
            while self._thread is thread:
                if not self._due:
                    self._thread = None
                    break
                seconds = self._due[0][0] - time.monotonic()
                if seconds <= 0:
                    return heappop(self._due)[2]
                self._changed.wait(min(seconds, _MOST_SECONDS))
        return None
