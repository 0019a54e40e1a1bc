"""`python -m tests.bench`: starts the servers, measures, and prints the tables. `--quick` is what to run while making something faster."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from . import report
from .load import has_wrk
from .machine import described, on_core, two_cores
from .measure import Cell, Work, measure
from .rows import Row, names, rows
from .servers import OURS, Running, Server, missing_peers, peers
from .strain import health_of, memory_of

QUICK_ROWS = ("JSON 1x4", "JSON 1x784", "JSON 1000x1000", "binary 1x4", "binary 1x150528", "binary 64 MiB")
QUICK_WAYS = ("inline", "async")

PARTS = ("rates", "memory", "health")
STRAINED = ("echo", "async", "thread")
"""The servers whose memory and health are looked at: a model that runs inline stops the event loop by its own wish."""

HEALTH_SECONDS = 15
BUSY = 0.7

T = TypeVar("T")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    ways = ", ".join(server.name for server in [*OURS, *peers()])
    parser.add_argument("--quick", action="store_true", help="inline and async on the rows that have targets: one to two minutes")
    parser.add_argument("--rows", nargs="+", metavar="PATTERN", help=f"patterns, such as 'JSON*', of: {', '.join(names())}")
    parser.add_argument("--ways", nargs="+", metavar="NAME", help=f"servers, beside their floors, on all rows asked for; of: {ways}")
    parser.add_argument("--connections", nargs="+", type=int, metavar="N", help="instead of each row's own")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="turns of each server (4)")
    parser.add_argument("--seconds", type=int, default=1, metavar="N", help="of each turn, at least (1)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="of what is measured; all of it, or rates with --quick")
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


def tell(text: str) -> None:
    """Show what is being done, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


@contextmanager
def apart() -> Iterator[tuple[int, Path]]:
    """The client, this process, on one core; gives the core for the servers, and a folder for what they write."""
    client_core, server_core = two_cores()
    with tempfile.TemporaryDirectory() as folder, on_core(client_core):
        yield server_core, Path(folder)


def rates(cut: Cut, rounds: int, seconds: int) -> list[Cell]:
    """Start all servers, measure in turns, and stop them."""
    with apart() as (core, folder), ExitStack() as stack:
        running = []
        for server in cut.servers:
            tell(f"starting {server.name}")
            running.append(stack.enter_context(server.started(core, folder / f"{server.name}.log")))
        return [measure(work, rounds, seconds, tell) for work in works(cut, running)]


def alone(cut: Cut, wanted: Sequence[str], look: Callable[[Running], T]) -> dict[str, T]:
    """Start one server after the other, and look at each."""
    found = {}
    with apart() as (core, folder):
        for server in cut.servers:
            if server.name in wanted:
                with server.started(core, folder / f"{server.name}.log") as running:
                    try:
                        found[server.name] = look(running)
                    except Exception as error:
                        error.add_note(running.note())
                        raise
    return found


def main() -> None:
    arguments = parse()
    cut = chosen(arguments)
    for warning in warnings():
        print(warning, file=sys.stderr)
    parts = arguments.parts or (["rates"] if arguments.quick else PARTS)
    cells: list[Cell] = []
    tables = [described(), report.legend(cut.servers)]
    if "rates" in parts:
        cells = rates(cut, arguments.rounds, arguments.seconds)
        tables += [report.summary(cells, cut.servers), report.details(cells, cut.servers)]
        if any(server.is_peer for server in cut.servers):
            tables.insert(-1, report.against_peers(cells, cut.servers))
    if "memory" in parts:
        tables.append(report.memories(alone(cut, STRAINED, partial(memory_of, tell=tell))))
    if "health" in parts:
        tables.append(report.healths(alone(cut, STRAINED, partial(health_of, seconds=HEALTH_SECONDS, tell=tell))))
    tell("")
    print(*tables, sep="\n\n")
    if arguments.plot and cells:
        from .plot import draw  # matplotlib is there where a plot is asked for

        draw(cells, cut.servers, arguments.plot)
        print(f"plot: {arguments.plot}", file=sys.stderr)


def warnings() -> Iterator[str]:
    """What makes this run worth less than another."""
    if not has_wrk():
        yield "wrk is not installed (Debian: apt-get install wrk): small requests come from a slower client"
    for variable in missing_peers():
        yield f"left out: {variable} names no Python: its environment could not be made"
    if two_cores()[0] == two_cores()[1]:
        yield "there is one core only: the client takes from the servers what it needs"
    if os.getloadavg()[0] > BUSY:
        yield f"the machine is busy (load average {os.getloadavg()[0]:.1f}): only the CPU per request means something"


if __name__ == "__main__":
    main()
