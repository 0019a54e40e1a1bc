"""A batch in time: which requests share a call, with and without `max_batch_delay=`."""

from __future__ import annotations

from typing import Final

from .svg import Drawing

CALL: Final = 100
"""How long a call takes, in the unit in which requests come."""

COMES: Final = (0, 20, 55, 80, 150)
"""When each request comes."""


def plan(comes: tuple[int, ...], delay: int) -> list[tuple[int, list[int]]]:
    """When each call begins, and which requests it answers: one call runs at a time, and takes all that wait.

    A request waits for others until the delay is over; if a call runs meanwhile, until that ends.
    """
    calls: list[tuple[int, list[int]]] = []
    free, waiting = 0, list(range(len(comes)))
    while waiting:
        begins = max(free, comes[waiting[0]] + delay)
        taken = [number for number in waiting if comes[number] <= begins]
        calls.append((begins, taken))
        waiting = waiting[len(taken) :]
        free = begins + CALL
    return calls


def draw() -> Drawing:
    drawing = Drawing(720, 372, "A batch in time: requests that come while a call runs, or within max_batch_delay, share the next call")
    drawing.rectangle(20, 14, 14, 14, "wait")
    drawing.words((40, 26), "waits", "soft")
    drawing.rectangle(100, 14, 14, 14, "busy")
    drawing.words((120, 26), "your function runs, once for all rows below each other", "soft")
    _draw_lanes(drawing, 62, "max_batch_size=64", 0)
    _draw_lanes(drawing, 222, "max_batch_size=64, max_batch_delay=", 40)
    return drawing


def _draw_lanes(drawing: Drawing, top: float, option: str, delay: int) -> None:
    left, scale, lane = 110, 1.75, 22
    drawing.words((20, top), option, "name")
    for begins, taken in plan(COMES, delay):
        first = top + 14 + lane * taken[0]
        drawing.rectangle(left + begins * scale, first, CALL * scale, lane * len(taken) - 5, "busy")
        rows = f"{len(taken)} rows" if len(taken) > 1 else "1 row"
        drawing.words((left + (begins + CALL / 2) * scale, first + lane * len(taken) / 2 + 2), rows, "soft light", "middle")
        for number in taken:
            y = top + 14 + lane * number
            if begins > COMES[number]:
                drawing.rectangle(left + COMES[number] * scale, y, (begins - COMES[number]) * scale, lane - 5, "wait")
    for number in range(len(COMES)):
        drawing.words((left - 12, top + 27 + lane * number), f"request {number + 1}", "soft", "end")
