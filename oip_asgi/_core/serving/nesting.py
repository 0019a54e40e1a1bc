"""Calls of models within calls of models, by `server.infer`: which slots the outer calls hold.

A call that waits for a slot which its own caller holds would wait for ever. So each call notes its slot in a context variable, which
worker threads and tasks that it starts inherit. A task that outlives the call that started it holds nothing: the slot tells that it has
gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar, Token
from typing import Final, TypeAlias

from ..models.limiter import Slot
from ..models.model import Model

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
