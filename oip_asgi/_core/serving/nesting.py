"""Calls of models within calls of models, by `server.infer`: which slots those hold that a call is made within.

A call that waits for a slot which its own caller holds would wait for ever. So each call notes its slot in a context variable, which
worker threads and tasks that it starts inherit. A task that outlives the call that started it holds nothing: the slot tells that it has
gone.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Final, TypeAlias

from ..models.limiter import Slot
from ..models.model import Model

_Held: TypeAlias = tuple[tuple[Model, Slot], ...]

_held: Final[ContextVar[_Held]] = ContextVar("oip_asgi_held", default=())


def enter(model: Model, slot: Slot) -> Token[_Held]:
    """Note that user code runs from here on within a call of a model, until `leave`."""
    return _held.set((*_held.get(), (model, slot)))


def leave(token: Token[_Held]) -> None:
    """The counterpart of `enter`."""
    try:  # noqa: SIM105  (`suppress` takes three times as long)
        _held.reset(token)
    except ValueError:
        pass  # the garbage collector ends a coroutine in whatever context it finds


def holders() -> list[Model]:
    """The models within whose calls this runs, the outermost first."""
    held = _held.get()
    return [model for model, slot in held if not slot.is_left] if held else []
