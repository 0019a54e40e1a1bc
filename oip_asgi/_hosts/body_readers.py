"""What of an application may have read the body of a request before the protocol does. Knows no framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

TAKEN_BY: Final = "oip_asgi.taken_by"
"""The key in a message of the body that says what of the application has read it, as a `TakenBy`."""

READ_ASYNC: Final = "await request.body()"


def name_one(one: str, many: str, names: Sequence[str]) -> str:
    """Name the part of an application that did something: the only one of its kind, or one of several."""
    if not names:
        return "something of the application"
    return f"the {one} {names[0]}" if len(names) == 1 else f"one of {many} {', '.join(names)}"
