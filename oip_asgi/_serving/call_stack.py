"""Calls of models within calls of models, by `server.infer`: which slots the outer calls hold.

A call would wait for ever if its own caller holds the slot that it waits for, or waits for another caller that does. So each call notes its
slot in a context variable, which worker threads and tasks that it starts inherit. A task that outlives the call that started it holds
nothing: the slot tells that it has gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar, Token
from itertools import chain
from typing import Final, TypeAlias

from .._models.limiter import Limiter, Slot
from .._models.model import Model

CallStack: TypeAlias = tuple[tuple[Model, Slot], ...]
"""Models, and the slots that are held of them, the outermost first."""

_CALLS: Final[ContextVar[CallStack]] = ContextVar("oip_asgi_calls", default=())

current_calls: Final = _CALLS.get
"""The slots within which this runs."""

set_calls: Final = _CALLS.set
"""Note within which slots this runs from here on. Returns what `reset_calls` takes."""

reset_calls: Final = _CALLS.reset
"""Undo what `set_calls` did. Only for calls that do not wait: they end in the context in which they began. For others there is `leave`."""


def enter(model: Model, slot: Slot) -> Token[CallStack]:
    """Note that user code runs from here on within a call of a model, until `leave`."""
    return set_calls((*current_calls(), (model, slot)))


def enter_for_batch(model: Model, slot: Slot, of_each: Iterable[CallStack]) -> Token[CallStack]:
    """`enter`, for a call that answers several requests: it runs within the slots of all of them."""
    return set_calls((*dict.fromkeys(pair for each in of_each for pair in each), (model, slot)))


def leave(token: Token[CallStack]) -> None:
    """The counterpart of `enter`."""
    try:  # noqa: SIM105  (`suppress` takes three times as long)
        reset_calls(token)
    except ValueError:
        pass  # the garbage collector ends a coroutine in whatever context it finds


def find_callers() -> list[Model]:
    """The models within whose calls this runs, the outermost first."""
    return [model for model, slot in current_calls() if not slot.is_left]


def would_deadlock(slot: Slot) -> bool:
    """Whether a call waits for ever: all calls that could give its slot back wait too, for a slot that a caller of this one holds."""
    for _, outer in current_calls():
        with outer.limiter.lock:
            if not outer.is_left:
                waits = outer.limiter.inner.get(outer, ())
                outer.limiter.inner[outer] = [*(wait for wait in waits if wait.is_waiting), slot]
    stuck, is_shrinking = _find_reachable(slot.limiter), True
    while is_shrinking:
        moving = [limiter for limiter in stuck if _can_move(limiter, stuck)]
        stuck.difference_update(moving)
        is_shrinking = bool(moving)
    return slot.limiter in stuck


def _can_move(limiter: Limiter, stuck: set[Limiter]) -> bool:
    """Whether a slot of a model is free, or held by a call that waits for none of those that are stuck."""
    waiting = sum(not stuck.isdisjoint(waits) for waits in _find_waits(limiter))
    return limiter.running < limiter.max_concurrency or limiter.running > waiting


def _find_reachable(first: Limiter) -> set[Limiter]:
    """A model's slots, those that its calls wait for, those that the calls there wait for, and so on."""
    found, left = set[Limiter](), [first]
    while left:
        limiter = left.pop()
        if limiter not in found:
            found.add(limiter)
            left += chain.from_iterable(_find_waits(limiter))
    return found


def _find_waits(limiter: Limiter) -> list[set[Limiter]]:
    """What each call of a model waits for, if calls within it wait."""
    with limiter.lock:
        inner = [waits for outer, waits in limiter.inner.items() if not outer.is_left]
    return [{wait.limiter for wait in waits if wait.is_waiting} for waits in inner]
