"""Calls of models within calls of models, by `server.infer`: which slots the outer calls have.

A call would wait for ever if a caller of it has the slot that it waits for, or if the call that has this slot waits for a slot of such a
caller. So each call writes its slot into a context variable, which the worker threads and tasks that it starts inherit. A task may live
longer than the call that started it; then the slot is marked as left, and does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar, Token
from typing import Final, TypeAlias

from .._models.limiter import Limiter, Slot
from .._models.model import Model

CallStack: TypeAlias = tuple[tuple[Model, Slot], ...]
"""Models and their slots, the outermost first."""

_CALLS: Final[ContextVar[CallStack]] = ContextVar("oip_asgi_calls", default=())

current_calls: Final = _CALLS.get
"""The slots within which this code runs."""

set_calls: Final = _CALLS.set
"""Set the slots within which the following code runs. Returns the token for `reset_calls`."""

reset_calls: Final = _CALLS.reset
"""Undo `set_calls`. Only for calls that do not await: they end in the context in which they began. Others use `leave`."""


def enter(model: Model, slot: Slot) -> Token[CallStack]:
    """Record that the following code runs within a call of a model, until `leave`."""
    return set_calls((*current_calls(), (model, slot)))


def leave(token: Token[CallStack]) -> None:
    """The counterpart of `enter`."""
    try:  # noqa: SIM105  (`suppress` takes three times as long)
        reset_calls(token)
    except ValueError:
        pass  # the garbage collector may close a coroutine in a context to which this token does not belong


def find_callers() -> list[Model]:
    """Find the models within whose calls this code runs, the outermost first."""
    return [model for model, slot in current_calls() if not slot.is_over]


def would_deadlock(slot: Slot) -> bool:
    """True if a call would wait for ever: each call that could give it a slot waits too, for a slot that a caller of this call has."""
    for _, outer in current_calls():
        with outer.limiter.lock:
            if not outer.is_over:
                outer.limiter.inner[outer] = [*(wait for wait in outer.limiter.inner.get(outer, ()) if wait.is_waiting), slot]
    waits: dict[Limiter, list[set[Limiter]]] = {}
    unseen = {slot.limiter}
    while unseen:
        limiter = unseen.pop()
        waits[limiter] = found = _find_waits(limiter)
        unseen.update(*found)
        unseen.difference_update(waits)
    stuck, moving = set(waits), [slot.limiter]
    while moving:
        moving = [limiter for limiter in stuck if _can_move(limiter, waits[limiter], stuck)]
        stuck.difference_update(moving)
    return slot.limiter in stuck


def _find_waits(limiter: Limiter) -> list[set[Limiter]]:
    """Find the models that each call of a model waits for, through calls within it."""
    with limiter.lock:
        return [{wait.limiter for wait in waits if wait.is_waiting} for outer, waits in limiter.inner.items() if not outer.is_over]


def _can_move(limiter: Limiter, waits: Iterable[set[Limiter]], stuck: set[Limiter]) -> bool:
    """True if a slot of a model is free, or one of its calls waits for no stuck model."""
    waiting = sum(not stuck.isdisjoint(each) for each in waits)
    return limiter.running < limiter.max_concurrency or limiter.running > waiting
