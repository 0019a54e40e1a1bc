"""The states of a model, and what each event does in them. A table; nothing here waits, or knows a handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal[
    "registered", "loading", "ready", "reloading", "failed", "unloading", "unloaded", "unregistering", "unregistered"
]
"""A model with `load=` is registered first; one without is ready from the start. While it is reloading, its old handler serves."""

Event: TypeAlias = Literal["load", "loaded", "raised", "cancelled", "unload", "unregister", "unload ended", "server stopped"]
"""What somebody asked for, or how that ended."""

Action: TypeAlias = Literal[
    "begin to load", "wait", "refuse", "serve", "serve as before", "discard", "begin to unload", "forget", "nothing"
]
"""What the model does because of an event. "Discard" is for a load that ends while the model is unloaded."""

_TABLE: Final[tuple[tuple[Event, tuple[State, ...], Action, State | None], ...]] = (
    ("load", ("registered", "failed", "unloaded"), "begin to load", "loading"),
    ("load", ("ready",), "begin to load", "reloading"),
    ("load", ("loading", "reloading", "unloading"), "wait", None),
    ("load", ("unregistering", "unregistered"), "refuse", None),
    #
    ("loaded", ("loading",), "serve", "ready"),
    ("raised", ("loading",), "nothing", "failed"),
    ("cancelled", ("loading",), "nothing", "registered"),
    ("loaded", ("reloading",), "serve", "ready"),
    ("raised", ("reloading",), "serve as before", "ready"),
    ("cancelled", ("reloading",), "nothing", "ready"),
    ("loaded", ("unloading", "unregistering"), "discard", None),
    ("raised", ("unloading", "unregistering"), "nothing", None),
    ("cancelled", ("unloading", "unregistering"), "discard", None),
    #
    ("unload", ("registered", "failed", "unloaded"), "nothing", "unloaded"),
    ("unload", ("loading", "ready", "reloading"), "begin to unload", "unloading"),
    ("unload", ("unloading", "unregistering", "unregistered"), "nothing", None),
    ("unregister", ("registered", "failed", "unloaded"), "nothing", "unregistered"),
    ("unregister", ("loading", "ready", "reloading"), "begin to unload", "unregistering"),
    ("unregister", ("unloading",), "nothing", "unregistering"),
    ("unload ended", ("unloading",), "nothing", "unloaded"),
    ("unload ended", ("unregistering",), "nothing", "unregistered"),
    #
    ("server stopped", ("registered", "failed", "unloaded"), "nothing", "registered"),
    ("server stopped", ("ready",), "forget", "registered"),
    ("server stopped", ("loading", "reloading", "unloading", "unregistering", "unregistered"), "nothing", None),
)
"""What each event does in some states, and the next state; None if the state does not change."""

TRANSITIONS: Final[Mapping[tuple[State, Event], tuple[Action, State]]] = {
    (state, event): (action, after or state) for event, states, action, after in _TABLE for state in states
}
"""All that can happen to a model. Any other event in a state is an error of this package."""


def transition(state: State, event: Event) -> tuple[Action, State]:
    """What an event does in a state, and the next state; LookupError if that cannot happen."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise LookupError(f"a model that is {state} cannot have the event {event!r}") from None
