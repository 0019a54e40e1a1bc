"""An observer that keeps what it hears, for tests that wait for that."""

from __future__ import annotations

import threading
from typing import Any

from oip_asgi import Observation


class Hearing:
    """An observer that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Observation] = []
        self.thread = ""
        self._condition = threading.Condition()

    def __call__(self, observation: Observation) -> None:
        with self._condition:
            self.thread = threading.current_thread().name
            self.heard.append(observation)
            self._condition.notify_all()

    def wait(self, number: int = 1) -> list[Observation]:
        """Wait until there are so many, and take them."""
        with self._condition:
            assert self._condition.wait_for(lambda: len(self.heard) >= number, 10), self.heard
            heard, self.heard = self.heard, []
            return heard

    def wait_for_one(self) -> Any:
        """The only one, of any type: what it holds may be None, and a test that expects it otherwise fails."""
        [heard] = self.wait()
        return heard
