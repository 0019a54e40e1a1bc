"""Turns of threads that compute for long: each lets the others have the interpreter now and then. Knows
nothing of the package."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

_SECONDS: Final = 5e-5
"""Long enough for a thread that waits for the interpreter to wake up and take it. `sleep(0)` ends before
that."""

_TURN: Final = 0.002
"""Seconds after which a thread lets others have the interpreter. Left alone, a thread that computes keeps it
for five milliseconds each time that an event loop wants it: health waited for 120 ms while a million numbers
were read one by one."""


def yield_interpreter() -> None:
    """Give up the interpreter for a moment. Call it between parts of a millisecond or more."""
    time.sleep(_SECONDS)


def take_turns(parts: Iterable[T]) -> Iterator[T]:
    """Iterate over the parts of long work, and let other threads run between them."""
    since = time.monotonic()
    for part in parts:
        yield part
        if time.monotonic() - since > _TURN:
            yield_interpreter()
            since = time.monotonic()
