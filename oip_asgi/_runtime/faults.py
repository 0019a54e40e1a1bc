"""Some errors that user code raises, such as SystemExit, are not an `Exception`. This decides whether the
host gets such an error, or the client a 500.
"""

from __future__ import annotations

import threading
from asyncio import CancelledError
from collections.abc import Callable
from typing import Final, TypeVar

from .._io import QuitWithin

T = TypeVar("T")

_ENDS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError)
"""These end a thread, a task or the process."""

_HOSTS: Final = frozenset({"gevent", "greenlet", "eventlet"})
"""The host waits for exceptions of these packages, such as gevent's timeouts. Any other error that is not an
`Exception` is a mistake of the model, such as a panic in a library that is written in Rust."""


def is_for_the_host(error: BaseException) -> bool:
    """Whether what a call raised is the host's, or means more than that the call has failed."""
    if isinstance(error, _ENDS):
        # a signal may have raised it, but only in the main thread; in any other thread, it would end a thread
        # of the host
        return threading.current_thread() is threading.main_thread()
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_for_the_host, error.exceptions))
    return not isinstance(error, Exception) and any(
        kind.__module__.partition(".")[0] in _HOSTS for kind in type(error).__mro__
    )


def as_failure(error: BaseException) -> Exception:
    """The `Exception` for whatever a call has raised: futures take no other."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    failure = RuntimeError("it raised StopIteration") if isinstance(error, StopIteration) else QuitWithin()
    failure.__cause__ = error
    return failure


def call_here(function: Callable[[], T]) -> T:
    """The result of a call in this thread."""
    try:
        return function()
    except BaseException as error:
        if isinstance(error, Exception) or (
            is_for_the_host(error) and not isinstance(error, (CancelledError, GeneratorExit))
        ):
            raise  # those two cannot reach a function from outside
        raise as_failure(error) from error
