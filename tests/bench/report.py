"""Tables of what was measured, in Markdown, as they stand in the README. Knows no servers but by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .measure import Cell, Measurement
from .servers import Server


def summary(cells: Sequence[Cell], servers: Sequence[Server]) -> str:
    """One line for each row: what the floor does, and what part of it each server keeps."""
    floors = {server.name for server in servers if server.floor is None}
    compared = [server for server in servers if server.floor is not None]
    lines = []
    for cell in cells:
        found = [_share(cell, server) for server in compared]
        if any(found):
            rate = next((cell.median(name, lambda turn: turn.rate) for name in cell.turns if name in floors), None)
            lines.append([cell.row.name, str(cell.connections), _number(rate), *found])
    return table(["row", "connections", "floor, per second", *(server.name for server in compared)], lines)


def _share(cell: Cell, server: Server) -> str:
    turns = cell.turns.get(server.name)
    if isinstance(turns, str):
        return turns
    assert server.floor is not None
    return _number(cell.ratio(server.name, server.floor))


def details(cells: Iterable[Cell], servers: Sequence[Server]) -> str:
    """One line for each row and server: rate, latency and CPU, and the floor's part of the latter."""
    floors = {server.name: server.floor or server.name for server in servers}
    lines = []
    for cell in cells:
        for name, turns in cell.turns.items():
            where = [cell.row.name, str(cell.connections), name]
            if isinstance(turns, str):
                lines.append([*where, turns, "", "", "", ""])
                continue
            cpu, bare = cell.median(name, _cpu), cell.median(floors[name], _cpu)
            medians = [cell.median(name, what) for what in (lambda turn: turn.rate, lambda turn: turn.load.p50, lambda turn: turn.load.p99)]
            lines.append([*where, *map(_number, [*medians, cpu, bare / cpu if bare and cpu else None])])
    return table(["row", "connections", "server", "per second", "p50, ms", "p99, ms", "CPU, µs per request", "floor's CPU of it"], lines)


def _cpu(turn: Measurement) -> float:
    return turn.cpu * 1e6


def table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of Markdown, aligned for terminals too."""
    every = [list(titles), *map(list, lines)]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    drawn = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in every]
    return "\n".join([drawn[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *drawn[1:]])


def _number(value: float | None) -> str:
    """Three digits that matter, or all in front of the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
