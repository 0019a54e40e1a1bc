"""How many calls of a model run at once where its user does not say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .._models.callables import kind_of

_ASYNC_AT_ONCE: Final = 256
"""Coroutines mostly wait for others; this many cost memory alone."""

_BLOCKING_AT_ONCE: Final = 40
"""As many as Starlette and FastAPI run at once in threads."""


def at_once(function: Callable[..., Any]) -> int:
    """How many calls of a function run at once."""
    return _ASYNC_AT_ONCE if kind_of(function, "thread") in ("async", "async stream") else _BLOCKING_AT_ONCE
