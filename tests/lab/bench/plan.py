"""What of all that could be measured is: the command line, and the servers, rows and numbers of connections that it means."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .measure import Work
from .rows import Row, names, rows
from .servers import OURS, Running, Server, peers

QUICK_ROWS: Final = ("JSON 1x4", "JSON 1x784", "JSON 1000x1000", "binary 1x4", "binary 1x150528", "binary 64 MiB")
QUICK_WAYS: Final = ("inline", "async")

PARTS: Final = ("rates", "memory", "health")

_DESCRIPTION: Final = "Starts the servers, measures what the protocol costs above a bare echo, and prints the tables."


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench", description=_DESCRIPTION)
    ways = ", ".join(server.name for server in [*OURS, *peers()])
    parser.add_argument("--quick", action="store_true", help="inline and async on the rows that have targets: one to two minutes")
    parser.add_argument("--rows", nargs="+", metavar="PATTERN", help=f"patterns, such as 'JSON*', of: {', '.join(names())}")
    parser.add_argument("--ways", nargs="+", metavar="NAME", help=f"servers, beside their floors, on all rows asked for; of: {ways}")
    parser.add_argument("--connections", nargs="+", type=int, metavar="N", help="instead of each row's own")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="turns of each server (4)")
    parser.add_argument("--seconds", type=int, default=1, metavar="N", help="of each turn, at least (1)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="of what is measured: rates, where rows or ways are chosen, else all")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table into this PNG")
    return parser.parse_args(arguments)


@dataclass(frozen=True)
class Cut:
    """What of all there is shall be measured."""

    rows: Sequence[Row]
    servers: Sequence[Server]
    connections: Callable[[Row], Sequence[int]]
    is_measured: Callable[[Server, Row, int], bool]


def chosen(arguments: argparse.Namespace) -> Cut:
    """What the command line asks for.

    Raises:
        SystemExit: There is no such row or server.
    """
    known = {server.name: server for server in [*OURS, *peers()]}
    ways = arguments.ways or (QUICK_WAYS if arguments.quick else None)
    if unknown := set(ways or ()) - set(known):
        raise SystemExit(f"no way is called {', '.join(unknown)}: expected some of {', '.join(known)}")
    found = rows(arguments.rows or (QUICK_ROWS if arguments.quick else ["*"]))
    if not found:
        raise SystemExit(f"no row is called so: expected some of {', '.join(names())}")
    asked = set(ways or known)
    asked |= {floor for name in asked for floor in known[name].floors.values()}
    transports = {row.transport for row in found}
    servers = [server for server in known.values() if server.name in asked and transports & set(server.floors)]
    return Cut(
        found,
        servers,
        lambda row: arguments.connections or ([max(set(row.connections) & {1, 8})] if arguments.quick else row.connections),
        lambda server, row, connections: ways is not None or server.is_measured(row, connections),
    )


def works(cut: Cut, running: Sequence[Running]) -> Iterator[Work]:
    """Each row with each number of connections, on the servers that can serve it."""
    for row in cut.rows:
        for count in cut.connections(row):
            servers = [each for each in running if each.server.serves(row) and cut.is_measured(each.server, row, count)]
            if servers:
                yield Work(row, count, servers)
