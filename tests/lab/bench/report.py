"""Tables of what was measured, in Markdown, as they stand in the README. Knows no servers but by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .measure import Cell, Measurement
from .servers import Server
from .strain import Health, Memory

_MEGABYTE = 1e6

_BEST = ("inline", "gRPC")
"""What other servers are compared with."""


def legend(servers: Sequence[Server]) -> str:
    """What the servers are."""
    return "\n".join(f"- {server.name}: {server.what}" for server in servers)


def summary(cells: Sequence[Cell], servers: Sequence[Server]) -> str:
    """For each row the requests per second of its floor, and what part of them each server keeps."""
    compared = [server for server in servers if server.name not in server.floors.values()]
    lines = []
    for cell in cells:
        # where mounted servers have floors of their own, those stand among the details
        floor = next(server.name for server in servers if server.is_floor(cell.row) and server.name in cell.turns)
        rate = number(cell.median(floor, _rate))
        lines.append([cell.row.name, str(cell.connections), rate, *(_share(cell, server) for server in compared)])
    return table(["row", "connections", "floor, per second", *(server.name for server in compared)], lines)


def _share(cell: Cell, server: Server) -> str:
    turns = cell.turns.get(server.name, [])
    return turns if isinstance(turns, str) else number(cell.ratio(server.name, server.floors.get(cell.row.transport, "")))


def against_peers(cells: Sequence[Cell], servers: Sequence[Server]) -> str:
    """For each row, how many times as many requests a server of this package answers as each other server does."""
    others = [server.name for server in servers if server.is_peer]
    lines = []
    for cell in cells:
        ours = next(name for name in (*_BEST, *cell.turns) if name in cell.turns)
        lines.append([cell.row.name, str(cell.connections), ours, *(number(cell.ratio(ours, other)) for other in others)])
    return table(["row", "connections", "server", *(f"times {other}" for other in others)], lines)


def details(cells: Iterable[Cell], servers: Sequence[Server]) -> str:
    """One line for each row and server: rate, latency and CPU, and the floor's part of the latter."""
    by_name = {server.name: server for server in servers}
    lines = []
    for cell in cells:
        for name, turns in cell.turns.items():
            where = [cell.row.name, str(cell.connections), name]
            if isinstance(turns, str):
                lines.append([*where, turns, "", "", "", ""])
                continue
            cpu, bare = cell.median(name, _cpu), cell.median(by_name[name].floors[cell.row.transport], _cpu)
            medians = [cell.median(name, what) for what in (_rate, lambda turn: turn.load.p50, lambda turn: turn.load.p99)]
            lines.append([*where, *map(number, [*medians, cpu, bare / cpu if bare and cpu else None])])
    return table(["row", "connections", "server", "per second", "p50, ms", "p99, ms", "CPU, µs per request", "floor's CPU of it"], lines)


def memories(found: Mapping[str, Memory]) -> str:
    """One line for each server that was given large bodies."""
    lines = [
        [
            name,
            number(each.idle / _MEGABYTE),
            number(each.peak / each.body),
            number(each.left / _MEGABYTE),
            number(each.grown / _MEGABYTE),
        ]
        for name, each in found.items()
    ]
    return table(["server", "idle, MB", "peak above idle, in bodies of 64 MiB", "left behind, MB", "grown by 1,000 of 1 MiB, MB"], lines)


def healths(found: Mapping[str, Health]) -> str:
    """One line for each server that was asked for its health under load."""
    lines = [[name, number(each.p50), number(each.p99), str(each.asked), str(each.worked)] for name, each in found.items()]
    return table(["server", "health/live p50, ms", "p99, ms", "asked", "JSON 1000x1000 over 8 connections, answered meanwhile"], lines)


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
