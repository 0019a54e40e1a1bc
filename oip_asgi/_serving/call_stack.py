"""Calls of models within calls of models, by `server.infer`: which slots the outer calls have, and until
when.

A call that waits for a slot of one of its own callers would wait for ever. So would a call that waits for the
slot of another call, if that waits, in turn, for a slot of such a caller. So each call writes its slot and
its deadline into a context variable, which the worker threads and tasks that it starts inherit. A task may
live longer than the call that started it; then the slot is marked as left, and does not count.
"""

from __future__ import annotations

import math
from contextvars import ContextVar, Token
from typing import Final, TypeAlias

from .._models.limiter import Slot
from .._models.model import Model

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
