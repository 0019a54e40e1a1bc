"""What is known of users' code that runs for a request: within which calls of models it runs, how long it
holds the event loop, and which exceptions of hosts' frameworks it raises.

Knows no event loop and no transport, and imports no framework: their exceptions are known by class names.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from types import coroutine
from typing import Any, Final, TypeAlias

import msgspec

from .._models.callables import find_place
from .._models.handler import Handler
from .._models.limiter import Slot
from .._models.model import Model
from .._protocol.errors import InferenceError, logger

# Calls of models within calls of models, by `server.infer`: which slots the outer calls have, and until when
#
# A call that waits for a slot of one of its own callers would wait for ever. So would a call that waits for
# the slot of another call, if that waits, in turn, for a slot of such a caller. So each call writes its slot
# and its deadline into a context variable, which the worker threads and tasks that it starts inherit. A task
# may live longer than the call that started it; then the slot is marked as left, and does not count.

CallStack: TypeAlias = tuple[tuple[Model, Slot, float], ...]
"""Models, their slots and the deadlines of their calls, the outermost first."""

MOST_SECONDS: Final = 60.0
"""How long a call within calls that have no deadline waits for a slot: as long as most clients wait for an
answer."""

_CALLS: Final[ContextVar[CallStack]] = ContextVar("oip_asgi_calls", default=())

current_calls: Final = _CALLS.get
"""The slots within which this code runs."""

set_calls: Final = _CALLS.set
"""Set the slots within which the following code runs. Returns the token for `reset_calls`."""

reset_calls: Final = _CALLS.reset
"""Undo `set_calls`. Only for calls that do not await: they end in the context in which they began. Others use
`leave_call`."""


def enter_call(model: Model, slot: Slot, deadline: float) -> Token[CallStack]:
    """Record that what follows in this context runs within a call of a model."""
    return set_calls((*current_calls(), (model, slot, deadline)))


def leave_call(token: Token[CallStack]) -> None:
    """`reset_calls` for calls that await."""
    try:  # noqa: SIM105  (`suppress` takes three times as long)
        reset_calls(token)
    except ValueError:
        pass  # the garbage collector may close a coroutine in a context to which this token does not belong


def find_callers() -> list[Model]:
    """Find the models within whose calls this code runs, the outermost first."""
    return [model for model, slot, _ in current_calls() if slot.state != "over"]


def find_latest_turn(entered: float) -> float:
    """When a call within others gives up that has waited for a slot since it `entered`: models that wait for
    each other would do so for ever. Infinity for any other call."""
    deadlines = [deadline for _, slot, deadline in current_calls() if slot.state != "over"]
    if not deadlines:
        return math.inf
    return entered + MOST_SECONDS if deadlines[-1] == math.inf else deadlines[-1]


# Calls that hold their event loop, where they would not have to: the log says it once of a model

HELD_SECONDS: Final = 0.1

_MENDS: Final = {
    "async": (
        "write a def, which runs in a worker thread, or await asyncio.to_thread(...) for the part that blocks"
    ),
    "async stream": (
        "write a def with yield, which runs in a worker thread, or await asyncio.to_thread(...) for the part "
        "that blocks"
    ),
    "inline": 'leave run="inline" out, so that it runs in a worker thread',
}


def watch_steps(
    awaitable: Awaitable[Any],
    model: Model,
    handler: Handler,
    clock: Callable[[], float],
    *,
    goes_on: bool = False,
) -> Awaitable[Any]:
    """What is awaited for a call of an `async def`: after one that has taken long, it warns if that held the
    event loop. This is too costly for every call, or item of a stream."""
    if not handler.watch.is_measured:
        return awaitable
    handler.watch.is_measured = goes_on
    return _measure_steps(awaitable, model, handler, clock)


@coroutine
def _measure_steps(
    awaitable: Awaitable[Any], model: Model, handler: Handler, clock: Callable[[], float]
) -> Generator[Any, None, Any]:
    """Await what an `async def` returned, and warn if it held the event loop."""
    steps: Any = awaitable.__await__()
    longest, error = 0.0, None
    try:
        while True:
            since = clock()
            try:
                waits_for = steps.send(None) if error is None else steps.throw(error)
            finally:
                longest, error = max(longest, clock() - since), None
            try:
                yield waits_for
            except BaseException as raised:
                error = raised
    except StopIteration as end:
        return end.value
    finally:
        if longest > HELD_SECONDS:
            _warn_of_hold(model, handler, longest)


def note_long(model: Model, handler: Handler, seconds: float, *, is_on_loop: Callable[[], bool]) -> None:
    """Look at a model that has just taken long. An `async def` may have held the event loop, or only waited:
    its next call is measured."""
    handler.watch.is_measured = handler.kind == "async" and not handler.watch.is_warned
    if handler.kind == "inline" and is_on_loop():
        _warn_of_hold(model, handler, seconds)


def _warn_of_hold(model: Model, handler: Handler, seconds: float) -> None:
    watch = handler.watch
    with model.limiter.lock:  # its calls may run on several event loops
        was_warned, watch.is_warned, watch.is_measured = watch.is_warned, True, False
    if not was_warned:
        where, mend = find_place(handler.function), _MENDS[handler.kind]
        text = (
            "%s held the event loop for %d ms, in which nothing else ran on it, health probes neither (%s): "
            "%s"
        )
        logger.warning(text, model, round(seconds * 1000), where, mend)


# Exceptions of hosts' frameworks, as errors for the client

_HOST_ERRORS: Final[Mapping[tuple[str, str], int | None]] = {
    ("starlette.exceptions", "HTTPException"): None,
    ("litestar.exceptions.http_exceptions", "HTTPException"): None,
    ("werkzeug.exceptions", "HTTPException"): None,
    ("django.http.response", "Http404"): 404,
    ("django.core.exceptions", "PermissionDenied"): 403,
}
"""Classes by module and name, and the status if the class has none. FastAPI's class derives from Starlette's;
Flask uses werkzeug's."""


def convert_host_error(error: BaseException) -> InferenceError | None:
    """Convert an HTTP exception of the host's framework, with its status, text and headers. None for any
    other exception."""
    names = [(kind.__module__, kind.__name__) for kind in type(error).__mro__]
    known_class = next((name for name in names if name in _HOST_ERRORS), None)
    if known_class is None:
        return None
    status = _HOST_ERRORS[known_class] or getattr(error, "status_code", None) or getattr(error, "code", None)
    if (
        not isinstance(status, int)
        or not 400 <= status <= 599
        or getattr(error, "response", None) is not None
    ):
        return None
    headers = getattr(error, "headers", None)
    text = _read_text(error, status)
    if isinstance(headers, Mapping):
        with suppress(ValueError):  # its headers belong to a body that is not sent
            return InferenceError(text, status=status, headers=headers)
    return InferenceError(text, status=status)


def _read_text(error: BaseException, status: int) -> str:
    detail: Any = (
        getattr(error, "detail", None) or getattr(error, "description", None) or next(iter(error.args), None)
    )
    if detail and not isinstance(detail, str):
        try:
            return msgspec.json.encode(detail).decode()
        except (TypeError, ValueError, RecursionError):
            detail = None
    return detail or f"status {status}"


def is_sync_only(error: BaseException) -> bool:
    """True if Django refused to block an event loop, such as with a query."""
    return type(error).__name__ == "SynchronousOnlyOperation"
