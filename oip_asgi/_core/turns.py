"""Lets other threads run between two parts of long work, such as numbers of a body or items of a stream. Knows nothing of the work.

A thread that computes keeps the interpreter for five milliseconds each time that another one wants it, and an event loop wants it again
after each system call. So health waited for 120 ms behind a million numbers that were read one by one (uvicorn, two cores), and for 10
to 17 ms with this; behind numbers that msgspec is slow to read for 230 to 280 ms, and for 6 to 8 now that a call reads 4 KiB of them.
"""

from __future__ import annotations

import time
from typing import Final

_SECONDS: Final = 5e-5
"""Long enough for a thread that waits for the interpreter to wake up and take it. A sleep of nothing is over before that."""


def let_others_run() -> None:
    """Give up the interpreter for a moment. Call it between parts of a millisecond or more."""
    time.sleep(_SECONDS)
