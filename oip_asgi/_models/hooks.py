"""Calls of a model's hooks, `load=`, `unload=` and `ready=`. Knows no models."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from .._protocol.effects import Await, Run, Steps
from .callables import is_async, no_coroutine


def call_hook(hook: Callable[..., Any], *args: Any) -> Steps[Any]:
    """Call a hook, which may be an `async def`, and return its result."""
    called = partial(hook, *args) if args else hook
    if is_async(hook):
        return (yield Await(called))
    return no_coroutine((yield Run(called, "hook")))


def wants_argument(hook: Callable[..., Any], annotation: type | None, where: str) -> bool:
    """Whether a hook takes one argument: a positional parameter without a default, or the first one where it is annotated so."""
    try:
        parameters = list(inspect.signature(hook).parameters.values())
    except (ValueError, TypeError):  # a callable that is not written in Python
        return False
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise TypeError(f"{where} has a keyword parameter without a default: it is called with one argument or none")
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    if required > 1:
        raise TypeError(f"{where} has {required} parameters without a default: it is called with one argument or none")
    # annotations are text where a module defers them
    named = (annotation, annotation.__name__) if annotation is not None else ()
    return required == 1 or (len(positional) > 0 and positional[0].annotation in named)
