"""`python -m tests.bench`: starts the servers, measures, and prints the tables. `--quick` is what to run while making something faster."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from . import report
from .load import has_wrk
from .machine import described, on_core, two_cores
from .measure import Cell, Work, measure
from .rows import Row, names, rows
from .servers import OURS, Running, Server

QUICK_ROWS = ("JSON 1x4", "JSON 1x784", "JSON 1000x1000", "binary 1x4", "binary 1x150528", "binary 64 MiB")
QUICK_WAYS = ("inline", "async")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the rows that have targets, over 8 connections or one, inline and async")
    parser.add_argument("--rows", nargs="+", metavar="PATTERN", help=f"of: {', '.join(names())}")
    parser.add_argument(
        "--ways", nargs="+", metavar="NAME", help=f"of: {', '.join(server.name for server in OURS)}; floors come by themselves"
    )
    parser.add_argument("--connections", nargs="+", type=int, metavar="N", help="of 1, 8 and 64, where the row allows it")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--seconds", type=int, default=1, metavar="N", help="for one server in one round; large requests take longer")
    return parser.parse_args(arguments)


def chosen(ways: Sequence[str] | None) -> list[Server]:
    """The servers of these names, each behind its floor.

    Raises:
        SystemExit: There is no such server.
    """
    known = {server.name: server for server in OURS}
    wanted = list(known) if ways is None else ways
    for name in wanted:
        if name not in known:
            raise SystemExit(f"no way is called {name!r}: expected some of {', '.join(known)}")
    floors = {known[name].floor for name in wanted}
    return [server for server in OURS if server.name in wanted or server.name in floors]


def works(rows: Sequence[Row], connections: Sequence[int] | None, running: Sequence[Running]) -> Iterator[Work]:
    for row in rows:
        for count in row.connections:
            if connections is None or count in connections:
                yield Work(row, count, running)


def tell(text: str) -> None:
    """Show what is being done, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main() -> None:
    arguments = parse()
    asked = rows(arguments.rows or (QUICK_ROWS if arguments.quick else ["*"]))
    if not asked:
        raise SystemExit(f"no row is called so: expected some of {', '.join(names())}")
    servers = chosen(arguments.ways or (QUICK_WAYS if arguments.quick else None))
    if not has_wrk():
        print("wrk is not installed (Debian: apt-get install wrk): small requests come from a slower client", file=sys.stderr)
    client_core, server_core = two_cores()
    cells: list[Cell] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(on_core(client_core))
        running = []
        for server in servers:
            tell(f"starting {server.name}")
            running.append(stack.enter_context(server.started(server_core, folder / f"{server.name}.log")))
        for work in works(asked, arguments.connections, running):
            if arguments.quick and work.connections != (8 if 8 in work.row.connections else 1):
                continue
            cells.append(measure(work, arguments.rounds, arguments.seconds, tell))
    tell("")
    print(described(), report.summary(cells, servers), report.details(cells, servers), sep="\n\n")


if __name__ == "__main__":
    main()
