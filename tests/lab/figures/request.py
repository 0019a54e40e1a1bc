"""The way of a request, and where it may wait. The limits and their defaults are those of the signatures."""

from __future__ import annotations

import inspect
from typing import Final

from oip_asgi import InferenceServer
from tests.support.inside.models import CONCURRENCY

from .svg import Drawing

_DEFAULTS: Final = {
    name: parameter.default
    for function in (InferenceServer, InferenceServer.register)
    for name, parameter in inspect.signature(function).parameters.items()
}


def _said(name: str) -> str:
    """An option as one writes it, with its default if that is a number."""
    default = _DEFAULTS[name]
    return f"{name}={default}" if default is not None else f"{name}="


_MIB: Final = _DEFAULTS["max_body_bytes"] >> 20
STEPS: Final = [
    ("Your application", False, "middleware, dependencies", "a stranger: 401 or 403, as you write it"),
    ("Rights", True, "authorize=", "may await your database; refused: 403"),
    ("The body arrives", True, f"max_body_bytes, {_MIB} MiB", "longer: 413; not as declared: 400"),
    ("Queue", True, _said("max_queue"), "first come, first served; full: 503"),
    ("Slot", False, "max_concurrency=", f"def {CONCURRENCY['thread']}, async def {CONCURRENCY['async']}, with batches 1"),
    ("Worker thread", True, "40 threads, or more", "of all models; an async def needs none"),
    ("Your function", False, "run=", "it raises: 500; wrong result: 500"),
    ("The answer leaves", True, "stream_timeout=", "a client that reads slowly slows its stream"),
]
"""Where a request comes: its name, whether it may wait there, the option, and what happens."""

COUNTED: Final = ("Queue", "Your function")
"""From the first to the last of these, `timeout=` counts."""


def draw() -> Drawing:
    step, left, top, box = 62, 92, 44, 166
    drawing = Drawing(556, top + step * len(STEPS) + 6, "The way of a request: where it may wait, and what each part answers")
    drawing.dot((left + 10, 20), "wait")
    drawing.words((left + 24, 25), "a request may wait here", "soft")
    tops = {name: top + step * number for number, (name, *_) in enumerate(STEPS)}
    for name, waits, option, happens in STEPS:
        y = tops[name]
        if y > top:
            drawing.arrow([(left + box / 2, y - step + 42), (left + box / 2, y)])
        drawing.rectangle(left, y, box, 42, "box")
        drawing.words((left + 30, y + 26), name)
        if waits:
            drawing.dot((left + 15, y + 21), "wait")
        drawing.words((left + box + 14, y + 17), option, "name")
        drawing.words((left + box + 14, y + 35), happens, "soft")
    first, last = (tops[name] for name in COUNTED)
    drawing.line([(left - 10, first), (left - 18, first), (left - 18, last + 42), (left - 10, last + 42)])
    middle = (first + last + 42) / 2
    drawing.words((left - 26, middle - 2), "timeout=", "name", "end")
    drawing.words((left - 26, middle + 16), "over: 504", "soft", "end")
    return drawing
