"""How many requests may be looked at before they have a slot or a place in the queue. Counts; waits for nothing itself."""

from __future__ import annotations

import threading
from typing import final


@final
class Ahead:
    """The requests of one model that are looked at ahead. May be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0

    def enter(self, most: int) -> bool:
        """Count one more request, which must `leave` in the end. False where `most` of them are counted already."""
        with self._lock:
            if self._number >= most:
                return False
            self._number += 1
            return True

    def leave(self) -> None:
        """The counterpart of `enter`."""
        with self._lock:
            self._number -= 1
