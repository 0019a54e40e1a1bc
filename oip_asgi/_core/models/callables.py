"""What kind of callable something is. Knows no signatures and no requests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CoroutineType
from typing import Any

from ..errors import ModelFault


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling gives something to await: an `async def`, a partial of one, or an object whose `__call__` is one."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def no_coroutine(result: Any) -> Any:
    """The result of a call, unless it is a coroutine that nobody would await.

    Raises:
        ModelFault: It is one.
    """
    if isinstance(result, CoroutineType):
        result.close()
        raise ModelFault("it returned a coroutine: register the async def itself")
    return result
