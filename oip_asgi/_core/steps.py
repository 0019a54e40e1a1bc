"""What the core asks of whoever drives it. Values only: each step is described here and done elsewhere.

A request is one generator of the core's. It yields steps, is sent what came of each (or is thrown what was raised), and returns
its answer. So every decision exists once, for callers that block and for callers that await.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, TypeAlias

from .bodies import Body
from .errors import ModelFault
from .signature import is_async


class Read(NamedTuple):
    """Feed the request's body into `body`, and send what it finishes with."""

    body: Body


class Wait(NamedTuple):
    """Wait until somebody else has finished `future`."""

    future: Future[None]


class Call(NamedTuple):
    """Call user code, and send its result.

    Under ASGI, `run` says where: awaited or called on the event loop, or in a worker thread, among those of the models or aside
    from them, so that loading and health never queue behind models. Callers that block call what is not "async" as it is.
    """

    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    run: Literal["async", "inline", "thread", "aside"]

    @classmethod
    def aside(cls, function: Callable[[], Any]) -> Call:
        """A call of a hook, such as `load=`."""
        return cls(function, [], {}, "async" if is_async(function) else "aside")


class Response(NamedTuple):
    """An answer: its parts are sent one after the other; `Content-Length` is among the headers."""

    status: int
    headers: list[tuple[bytes, bytes]]
    parts: list[bytes]


Step: TypeAlias = Read | Wait | Call
Exchange: TypeAlias = Generator[Step, Any, Response]


def no_coroutine(result: Any) -> Any:
    """What came of a call, unless it is a coroutine that nobody would await.

    Raises:
        ModelFault: It is one.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise ModelFault("it returned a coroutine: register the async def itself")
    return result
