"""The states of a model, and what each event does in them. A table; nothing here waits, or knows a
handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

State: TypeAlias = Literal[
    "registered",
    "loading",
    "ready",
    "reloading",
    "idling",
    "idle",
    "waking",
    "failed",
    "unloading",
    "unloaded",
    "unregistering",
    "unregistered",
]
"""A model with `load=` is registered first; one without is ready from the start. While it is reloading, its
old handler serves.

A model with `idle_unload=` that nobody calls is unloaded while it is idling, idle after that, and waking
while the next request loads it. It counts as ready in these three states. One whose `unload=` still runs when
the server has stopped is idling too: the next request after that loads it.
"""

Event: TypeAlias = Literal[
    "load", "loaded", "raised", "cancelled", "idle", "unload", "unregister", "unload ended", "server stopped"
]
"""What somebody asked for, or how that ended. A request to a model asks to load it only if it is registered
or idle: see `lifecycle`."""

Action: TypeAlias = Literal[
    "begin to load",
    "wait",
    "refuse",
    "serve",
    "serve as before",
    "discard",
    "begin to unload",
    "forget",
    "nothing",
]
"""What the model does because of an event. "Discard" is for a load that ends while the model is unloaded."""

_TABLE: Final[tuple[tuple[Event, tuple[State, ...], Action, State | None], ...]] = (
    ("load", ("registered", "failed", "unloaded"), "begin to load", "loading"),
    ("load", ("ready",), "begin to load", "reloading"),
    ("load", ("idle",), "begin to load", "waking"),
    ("load", ("loading", "reloading", "idling", "waking", "unloading"), "wait", None),
    ("load", ("unregistering", "unregistered"), "refuse", None),
    #
    ("loaded", ("loading",), "serve", "ready"),
    ("raised", ("loading",), "nothing", "failed"),
    ("cancelled", ("loading",), "nothing", "registered"),
    ("loaded", ("reloading",), "serve", "ready"),
    ("raised", ("reloading",), "serve as before", "ready"),
    ("cancelled", ("reloading",), "nothing", "ready"),
    ("loaded", ("waking",), "serve", "ready"),
    ("raised", ("waking",), "nothing", "idle"),
    ("cancelled", ("waking",), "nothing", "idle"),
    ("loaded", ("unloading", "unregistering"), "discard", None),
    ("raised", ("unloading", "unregistering"), "nothing", None),
    ("cancelled", ("unloading", "unregistering"), "discard", None),
    #
    ("idle", ("ready",), "begin to unload", "idling"),
    ("unload ended", ("idling",), "nothing", "idle"),
    #
    ("unload", ("registered", "failed", "unloaded"), "nothing", "unloaded"),
    ("unload", ("loading", "ready", "reloading", "idle", "waking"), "begin to unload", "unloading"),
    ("unload", ("idling",), "nothing", "unloading"),
    ("unload", ("unloading", "unregistering", "unregistered"), "nothing", None),
    ("unregister", ("registered", "failed", "unloaded"), "nothing", "unregistered"),
    ("unregister", ("loading", "ready", "reloading", "idle", "waking"), "begin to unload", "unregistering"),
    ("unregister", ("idling", "unloading"), "nothing", "unregistering"),
    ("unload ended", ("unloading",), "nothing", "unloaded"),
    ("unload ended", ("unregistering",), "nothing", "unregistered"),
    #
    ("server stopped", ("registered", "idle", "failed", "unloaded"), "nothing", "registered"),
    ("server stopped", ("ready",), "forget", "registered"),
    ("server stopped", ("unloading",), "nothing", "idling"),
    (
        "server stopped",
        ("loading", "reloading", "idling", "waking", "unregistering", "unregistered"),
        "nothing",
        None,
    ),
)
"""What each event does in some states, and the next state; None if the state does not change."""

TRANSITIONS: Final[Mapping[tuple[State, Event], tuple[Action, State]]] = {
    (state, event): (action, after or state) for event, states, action, after in _TABLE for state in states
}
"""All that can happen to a model. Any other event in a state is an error of this package."""
