"""Calls of a model's hooks, `load=` and `ready=`. Knows no models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..effects import Await, Run, Steps
from .callables import is_async, no_coroutine


def call_hook(hook: Callable[[], Any]) -> Steps[Any]:
    """Call a hook, which may be an `async def`, and return its result.

    Raises:
        ModelFault: It returned a coroutine.
        Exception: Whatever it raised.
    """
    if is_async(hook):
        return (yield Await(hook))
    return no_coroutine((yield Run(hook, "hook")))
