"""The tables of this benchmark, in Markdown. Knows no servers but by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ..measure import Cell
from ..report import number, table
from .counts import Counts


class Goal(NamedTuple):
    """How many times as many requests one server should answer as another, over eight connections."""

    row: str
    server: str
    other: str
    times: float


GOALS: Final = (
    Goal("digits", "def", "FastAPI", 1.35),
    Goal("digits", "def", "inline", 0.90),
    Goal("JSON 1x4", "def", "FastAPI", 3),
    Goal("JSON 1x4", "def", "echo", 0.40),
    Goal("JSON 1x4", "def", "Triton", 2),
    Goal("frame 1x39", "def", "FastAPI", 2.5),
    Goal("BYTES 1000, JSON", "def", "echo", 0.20),
    Goal("BYTES 1000, binary", "def", "echo", 0.25),
)
"""What this package promises."""

CONNECTIONS: Final = 8
"""Of the goals."""


def rates(cells: Sequence[Cell], servers: Sequence[str]) -> str:
    """Requests per second of each server, or why it has none."""
    lines = []
    for cell in cells:
        shown = []
        for name in servers:
            turns = cell.turns.get(name, [])
            shown.append(turns if isinstance(turns, str) else number(cell.median(name, lambda turn: turn.rate)))
        lines.append([cell.row.name, str(cell.connections), *shown])
    return table(["requests per second", "connections", *servers], lines)


def values(cells: Sequence[Cell], servers: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """The rates over eight connections, as they are kept: in whole requests per second."""
    by_row: dict[str, dict[str, float | None]] = {}
    for cell in cells:
        if cell.connections == CONNECTIONS:
            rates = {name: cell.median(name, lambda turn: turn.rate) for name in servers if name in cell.turns}
            by_row[cell.row.name] = {name: None if rate is None else round(rate) for name, rate in rates.items()}
    return by_row


def times(cells: Sequence[Cell], server: str, others: Sequence[str]) -> str:
    """How many times as many requests one server answers as each other, as the median over the rounds."""
    lines = [[cell.row.name, str(cell.connections), *(number(cell.ratio(server, other)) for other in others)] for cell in cells]
    return table([f"`{server}`, times", "connections", *others], lines)


def of(cells: Sequence[Cell], server: str, others: Sequence[str]) -> str:
    """How many times as many requests the others answer as one server does, as the median over the rounds."""
    lines = [[cell.row.name, str(cell.connections), *(number(cell.ratio(other, server)) for other in others)] for cell in cells]
    return table([f"times `{server}`", "connections", *others], lines)


def goals(cells: Iterable[Cell]) -> str:
    """What is promised beside what was measured."""
    by_row = {cell.row.name: cell for cell in cells if cell.connections == CONNECTIONS}
    lines = []
    for goal in GOALS:
        cell = by_row.get(goal.row)
        measured = cell.ratio(goal.server, goal.other) if cell else None
        if cell and measured is not None:
            reached = "yes" if measured >= goal.times else "no"
            by_cpu = _by_cpu(cell, goal.server, goal.other)
            lines.append([goal.row, f"`{goal.server}` to {goal.other}", number(goal.times), number(measured), reached, number(by_cpu)])
    return table(["row, 8 connections", "requests per second of", "goal", "measured", "reached", "by CPU per request"], lines)


def _by_cpu(cell: Cell, server: str, other: str) -> float | None:
    """What the ratio would be if only the CPU that the servers use counted, on which other programs have less influence."""
    own, others = (cell.median(name, lambda turn: turn.cpu) for name in (server, other))
    return others / own if own and others else None


def counted(found: Mapping[tuple[str, str], Counts], connections: int) -> str:
    """One line for each row and server: context switches and system calls of a request."""
    lines = []
    for (row, server), counts in found.items():
        calls = "no strace" if counts.calls is None else number(sum(counts.calls.values()))
        lines.append([row, server, number(counts.voluntary), number(counts.involuntary), calls, counts.most_frequent()])
    titles = [f"row, {connections} connections", "server", "voluntary switches", "involuntary switches", "system calls", "most frequent"]
    return table(titles, lines)
