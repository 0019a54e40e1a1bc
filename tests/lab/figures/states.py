"""The states of a model, with all arrows of the table of states: those of several states that lead to the same one are drawn as one."""

from __future__ import annotations

from typing import Final

from .svg import Drawing, Point

PLACES: Final[dict[str, Point]] = {
    "registered": (90, 100),
    "failed": (90, 190),
    "unloaded": (90, 300),
    "loading": (320, 100),
    "ready": (490, 100),
    "reloading": (660, 100),
    "waking": (320, 224),
    "idle": (490, 224),
    "idling": (660, 224),
    "unloading": (400, 370),
    "unregistering": (600, 370),
    "unregistered": (600, 460),
}
"""The middle of each state."""

GROUPS: Final = {
    "without": (("registered", "failed", "unloaded"), (20, 60, 140, 276)),
    "with": (("loading", "ready", "reloading", "waking", "idle", "idling"), (250, 60, 480, 216)),
}
"""States that are drawn in one frame, so that one arrow leaves all of them."""

Arrow = tuple[str, tuple[str, ...], str, list[Point], Point, str]

ARROWS: Final[list[Arrow]] = [
    ("without", ("load",), "loading", [(160, 112), (268, 112)], (205, 128), "middle"),
    ("loading", ("cancelled",), "registered", [(268, 88), (142, 88)], (205, 80), "middle"),
    ("loading", ("raised",), "failed", [(284, 118), (284, 190), (142, 190)], (205, 182), "middle"),
    ("loading", ("loaded",), "ready", [(372, 100), (438, 100)], (405, 92), "middle"),
    ("ready", ("load",), "reloading", [(542, 90), (608, 90)], (575, 82), "middle"),
    ("reloading", ("loaded", "raised", "cancelled"), "ready", [(608, 110), (542, 110)], (640, 134), "middle"),
    ("ready", ("idle",), "idling", [(535, 118), (615, 206)], (588, 168), "start"),
    ("idling", ("unload ended",), "idle", [(608, 224), (542, 224)], (575, 262), "middle"),
    ("idle", ("load",), "waking", [(438, 214), (372, 214)], (405, 207), "middle"),
    ("waking", ("raised", "cancelled"), "idle", [(372, 234), (438, 234)], (405, 262), "middle"),
    ("waking", ("loaded",), "ready", [(365, 206), (445, 118)], (398, 158), "end"),
    ("with", ("unload",), "unloading", [(400, 276), (400, 352)], (392, 312), "end"),
    ("with", ("unregister",), "unregistering", [(600, 276), (600, 352)], (608, 312), "start"),
    ("unloading", ("unload ended",), "unloaded", [(348, 370), (210, 370), (210, 306), (142, 306)], (280, 363), "middle"),
    ("unloading", ("unregister",), "unregistering", [(452, 370), (538, 370)], (495, 362), "middle"),
    ("unregistering", ("unload ended",), "unregistered", [(600, 388), (600, 442)], (608, 420), "start"),
    ("without", ("unregister",), "unregistered", [(90, 336), (90, 460), (538, 460)], (300, 452), "middle"),
    ("failed", ("unload",), "unloaded", [(90, 208), (90, 282)], (98, 250), "start"),
    ("registered", ("unload",), "unloaded", [(60, 118), (60, 150), (30, 150), (30, 296), (38, 296)], (66, 142), "start"),
]
"""From a state or a group, by events, to a state; the points of the arrow; where its words stand, and how."""

STOPPED: Final = (("ready", "idle", "failed", "unloaded"), "registered"), (("unloading",), "idling")
"""What "server stopped" makes of states; it is written, as its arrows would cross all others."""


def list_moves() -> set[tuple[str, str, str]]:
    """What is drawn or written: a state, an event, and the next state."""
    moves = {(state, "server stopped", after) for states, after in STOPPED for state in states}
    for source, events, after, *_ in ARROWS:
        states = GROUPS[source][0] if source in GROUPS else (source,)
        moves |= {(state, event, after) for state in states for event in events if state != after}
    return moves


def draw() -> Drawing:
    drawing = Drawing(750, 520, "The states of a model, and the events that lead from one to the next")
    for name, (_, (left, top, width, height)) in GROUPS.items():
        drawing.rectangle(left, top, width, height, "group")
        head = "not loaded" if name == "without" else "ready and reloading answer; idling, idle and waking count as ready"
        drawing.words((left + 8, top - 10), head, "soft")
    drawing.words((20, 22), "register(load=) begins with registered, without it with ready")
    for _, events, _, points, place, anchor in ARROWS:
        drawing.arrow(points)
        drawing.words(place, ", ".join(events), "soft", anchor)
    for name, (x, y) in PLACES.items():
        width = 124 if name.startswith("unregister") else 104
        drawing.rectangle(x - width / 2, y - 18, width, 36, "busy" if name in ("ready", "reloading") else "box")
        drawing.words((x, y + 5), name, "name light" if name in ("ready", "reloading") else "name", "middle")
    said = "; ".join(f"{', '.join(states)} → {after}" for states, after in STOPPED)
    drawing.words((20, 504), f"server stopped: {said}", "soft")
    return drawing
