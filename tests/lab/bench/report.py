"""Tables of what was measured, in Markdown, as they stand in the README. Knows no servers but by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .measure import Cell, Measurement
from .servers import Server

KEPT_CONNECTIONS: Final = 8


def legend(servers: Sequence[Server]) -> str:
    """What the servers are."""
    return "\n".join(f"- {server.name}: {server.what}" for server in servers)


def rates(cells: Sequence[Cell], servers: Sequence[str]) -> str:
    """Requests per second of each server, or why it has none."""
    lines = []
    for cell in cells:
        shown = []
        for name in servers:
            turns = cell.turns.get(name, [])
            shown.append(turns if isinstance(turns, str) else number(cell.median(name, _rate)))
        lines.append([cell.row.name, str(cell.connections), *shown])
    return table(["requests per second", "connections", *servers], lines)


def values(cells: Sequence[Cell], servers: Sequence[str], kind: str = "rates") -> dict[str, dict[str, float | None]]:
    """What is kept of eight connections: whole requests per second, or microseconds of CPU for each."""
    measure = _rate if kind == "rates" else _cpu
    by_row: dict[str, dict[str, float | None]] = {}
    for cell in cells:
        if cell.connections == KEPT_CONNECTIONS:
            found = {name: cell.median(name, measure) for name in servers if name in cell.turns}
            by_row[cell.row.name] = {name: None if value is None else round(value) for name, value in found.items()}
    return by_row


def shares(cells: Sequence[Cell], floor: str, servers: Sequence[str]) -> str:
    """What part of one server's requests the others answer, as the median over the rounds."""
    lines = [[cell.row.name, str(cell.connections), *(number(cell.ratio(name, floor)) for name in servers)] for cell in cells]
    return table([f"times `{floor}`", "connections", *servers], lines)


def times(cells: Sequence[Cell], server: str, others: Sequence[str]) -> str:
    """How many times as many requests one server answers as each other, as the median over the rounds."""
    lines = [[cell.row.name, str(cell.connections), *(number(cell.ratio(server, other)) for other in others)] for cell in cells]
    return table([f"`{server}`, times", "connections", *others], lines)


def details(cells: Iterable[Cell]) -> str:
    """One line for each row and server: rate, latency and CPU."""
    lines = []
    for cell in cells:
        for name, turns in cell.turns.items():
            measured = (_rate, lambda turn: turn.load.p50, lambda turn: turn.load.p99, _cpu)
            shown = [turns, "", "", ""] if isinstance(turns, str) else [number(cell.median(name, what)) for what in measured]
            lines.append([cell.row.name, str(cell.connections), name, *shown])
    return table(["row", "connections", "server", "per second", "p50, ms", "p99, ms", "CPU, µs per request"], lines)


def _rate(turn: Measurement) -> float:
    return turn.rate


def _cpu(turn: Measurement) -> float:
    return turn.cpu * 1e6


def table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of Markdown, aligned for terminals too."""
    every = [list(titles), *map(list, lines)]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    drawn = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in every]
    return "\n".join([drawn[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *drawn[1:]])


def number(value: float | None) -> str:
    """Three digits that matter, or all in front of the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
