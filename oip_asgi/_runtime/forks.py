"""What has to begin anew in a process that is forked, as threads do not survive that: gunicorn's workers with --preload, for one."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable


def call_after_fork(method: Callable[[], None]) -> None:
    """Call a method in each process forked from this one, before other threads run there. Its object is not kept alive."""
    if sys.platform == "win32":
        return
    kept = weakref.WeakMethod(method)

    def call() -> None:
        found = kept()
        if found is not None:
            found()

    os.register_at_fork(after_in_child=call)
