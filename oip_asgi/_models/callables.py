"""What kind of callable something is. Knows no signatures and no requests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CoroutineType
from typing import Any, Final, Literal, TypeAlias

from .._protocol.errors import ModelFault

Kind: TypeAlias = Literal["thread", "inline", "async", "stream", "async stream"]
"""How a model's function runs. A `def` runs in a worker thread: on the event loop it would hold up all other
requests and health probes. It runs there, inline, only if its user says so. Under WSGI it runs in the
server's own thread, unless it has a timeout. A generator's items are made in worker threads too. A coroutine
function and an async generator run on the event loop."""


STREAMS: Final[frozenset[Kind]] = frozenset({"stream", "async stream"})
"""Those that answer a request more than once."""


def unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def find_owner(function: Callable[..., Any]) -> object:
    """The object whose method a function is, or a partial of one; None for any other."""
    return getattr(unwrap_partial(function), "__self__", None)


def kind_of(function: Callable[..., Any], run: Literal["thread", "inline"]) -> Kind:
    """How a callable runs. It may be a partial, or an object with `__call__`."""
    function = unwrap_partial(function)
    for called in (function, type(function).__call__):
        if inspect.iscoroutinefunction(called):
            return "async"
        if inspect.isasyncgenfunction(called):
            return "async stream"
        if inspect.isgeneratorfunction(called):
            return "stream"
    return run


def find_place(function: Callable[..., Any]) -> str:
    """Where a function is written, as in a traceback. Empty for one that is not written in Python."""
    function = inspect.unwrap(unwrap_partial(function))
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return "" if code is None else f'File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}'


def find_description(function: Callable[..., Any]) -> str:
    """The docstring of a function, up to a form feed, as FastAPI has it; of an object with `__call__`, that
    of its class."""
    return (inspect.getdoc(unwrap_partial(function)) or "").partition("\f")[0].strip()


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling gives something to await."""
    return kind_of(function, "thread") == "async"


def refuse_coroutine(result: Any) -> Any:
    """The result of a call, unless it is a coroutine that nobody would await."""
    if isinstance(result, CoroutineType):
        result.close()
        raise ModelFault("it returned a coroutine: register the async def itself")
    return result
