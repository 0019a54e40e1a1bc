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

Held: TypeAlias = tuple[tuple[Model, Slot], ...]
"""Models, and the slots that are held of them, the outermost first."""

_HELD: Final[ContextVar[Held]] = ContextVar("oip_asgi_held", default=())

held: Final = _HELD.get
"""The slots within which this runs."""

hold: Final = _HELD.set
"""Note within which slots this runs from here on. Returns what `release` takes."""

release: Final = _HELD.reset
"""Undo what `hold` did. Only for calls that do not wait: they end in the context in which they began. For others there is `leave`."""


def enter(model: Model, slot: Slot) -> Token[Held]:
    """Note that user code runs from here on within a call of a model, until `leave`."""
    return hold((*held(), (model, slot)))


def enter_together(model: Model, slot: Slot, of_each: Iterable[Held]) -> Token[Held]:
    """`enter`, for a call that answers several requests: it runs within the slots of all of them."""
    return hold((*dict.fromkeys(pair for each in of_each for pair in each), (model, slot)))


def enter_within(within: Held) -> None:
    """Note that what follows in this context, which is thrown away behind it, runs within these slots."""
    hold(within)


def leave(token: Token[Held]) -> None:
    """The counterpart of `enter`."""
    try:  # noqa: SIM105  (`suppress` takes three times as long)
        release(token)
    except ValueError:
        pass  # the garbage collector ends a coroutine in whatever context it finds


def holders() -> list[Model]:
    """The models within whose calls this runs, the outermost first."""
    return [model for model, slot in held() if not slot.is_left]


def closes_circle(slot: Slot) -> bool:
    """Whether a call waits for ever: all calls that could give its slot back wait too, for a slot that a caller of this one holds."""
    for _, outer in held():
        with outer.limiter.lock:
            if not outer.is_left:
                waits = outer.limiter.inner.get(outer, ())
                outer.limiter.inner[outer] = [*(wait for wait in waits if wait.is_waiting), slot]
    stuck, is_shrinking = _reachable(slot.limiter), True
    while is_shrinking:
        moving = [limiter for limiter in stuck if _moves(limiter, stuck)]
        stuck.difference_update(moving)
        is_shrinking = bool(moving)
    return slot.limiter in stuck


def _moves(limiter: Limiter, stuck: set[Limiter]) -> bool:
    """Whether a slot of a model is free, or held by a call that waits for none of those that are stuck."""
    waiting = sum(not stuck.isdisjoint(waits) for waits in _waits(limiter))
    return limiter.running < limiter.max_concurrency or limiter.running > waiting


def _reachable(first: Limiter) -> set[Limiter]:
    """A model's slots, those that its calls wait for, those that the calls there wait for, and so on."""
    found, left = set[Limiter](), [first]
    while left:
        limiter = left.pop()
        if limiter not in found:
            found.add(limiter)
            left += chain.from_iterable(_waits(limiter))
    return found


def _waits(limiter: Limiter) -> list[set[Limiter]]:
    """What each call of a model waits for, if calls within it wait."""
    with limiter.lock:
        inner = [waits for outer, waits in limiter.inner.items() if not outer.is_left]
    return [{wait.limiter for wait in waits if wait.is_waiting} for waits in inner]
