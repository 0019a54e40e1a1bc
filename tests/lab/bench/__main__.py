"""`python -m tests.lab.bench`: models behind this package, FastAPI by hand, and other servers; prints the tables.

`--hosts` compares servers of ASGI and WSGI instead, all with this package. Rows of gRPC are measured where they are asked for: "gRPC*".
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import functions, report
from .figures import keep
from .load import client, has_h2load
from .machine import described
from .measure import Cell, measure, tell, together, warnings
from .rows import GRPC, IN_THREADS, Row, names, rows
from .servers import Server, all_servers, host_servers

REAL_ROWS = ("JSON 1x4", "digits", "ONNX", "clicks 1x39", "frame 1x39", "BYTES*", *IN_THREADS)
HOST_ROWS = ("JSON 1x4", "digits")
CPU_ROWS = ("JSON 1x4", "JSON 1x784", "JSON 1x1000", "binary 1x4", "binary 1x5120", "binary 1x150528")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench", description=__doc__)
    parser.add_argument("--hosts", action="store_true", help="compare servers of ASGI and WSGI, all with this package")
    parser.add_argument("--quick", action="store_true", help="two rounds: about three minutes")
    parser.add_argument("--rows", nargs="+", metavar="PATTERN", help=f"patterns, such as 'BYTES*', of: {', '.join(names())}")
    parser.add_argument("--ways", nargs="+", metavar="NAME", help="servers, beside their floors, by the names that the table has")
    parser.add_argument("--connections", nargs="+", type=int, metavar="N", help="instead of each row's own")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each server (3)")
    parser.add_argument("--seconds", type=int, default=1, metavar="N", help="of each turn (1)")
    parser.add_argument("--keep", choices=("rates", "cpu"), help="keep the rates over eight connections, or the CPU, and draw it")
    return parser.parse_args(arguments)


@dataclass(frozen=True)
class Cut:
    """What of all there is shall be measured."""

    rows: Sequence[Row]
    servers: Sequence[Server]
    connections: Callable[[Row], Sequence[int]]


def chosen(arguments: argparse.Namespace) -> Cut:
    """What the command line asks for.

    Raises:
        SystemExit: There is no such row or server.
    """
    known = {server.name: server for server in (host_servers() if arguments.hosts else all_servers())}
    if unknown := set(arguments.ways or ()) - set(known):
        raise SystemExit(f"no way is called {', '.join(unknown)}: expected some of {', '.join(known)}")
    usual = HOST_ROWS if arguments.hosts else CPU_ROWS if arguments.keep == "cpu" else REAL_ROWS
    found = rows(arguments.rows or usual)
    if not found:
        raise SystemExit(f"no row is called so: expected some of {', '.join(names())}")
    found = [row for row in found if (row.name != "ONNX" or functions.has_onnx()) and (row.transport != GRPC or has_h2load())]
    transports = {row.transport for row in found}
    asked = set(arguments.ways or known)
    asked |= {floor for name in asked for floor in known[name].floors.values()}
    servers = [server for server in known.values() if server.name in asked and transports & set(server.floors)]
    return Cut(found, servers, lambda row: arguments.connections or row.connections)


def compared(cells: Sequence[Cell], servers: Sequence[Server], *, is_of_hosts: bool) -> list[str]:
    """The tables of ratios: to each floor, and of this package to the others."""
    every = [server.name for server in servers]
    if is_of_hosts:
        bases = {base: [name for name in every if (", async" in name) == (", async" in base)] for base in ("uvicorn", "uvicorn, async")}
        return [report.shares(cells, base, hosts) for base, hosts in bases.items() if base in every]
    floors = dict.fromkeys(floor for server in servers for floor in server.floors.values())
    ours = [name for name in every if name in ("def", "inline") or name.startswith("oip_asgi")]
    of_floors = [report.shares(cells, floor, [each.name for each in servers if floor in each.floors.values()]) for floor in floors]
    return [*of_floors, *(report.times(cells, name, [other for other in every if other != name]) for name in ours)]


def main() -> None:
    arguments = parse()
    for warning in warnings():
        print(warning, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        if functions.can_convert():
            functions.write_onnx(Path(folder, "digits.onnx"))
            os.environ[functions.ONNX_FILE] = str(Path(folder, "digits.onnx"))
        else:
            print("left out: ONNX wants onnxruntime and skl2onnx", file=sys.stderr)
        cut, before = chosen(arguments), os.getloadavg()[0]
        rounds = arguments.rounds or (2 if arguments.quick else 3)
        with together(cut.servers) as running:
            works = [(row, count) for row in cut.rows for count in cut.connections(row)]
            cells = [measure(row, count, running, rounds, arguments.seconds) for row, count in works]
    tell("")
    every = [server.name for server in cut.servers]
    if arguments.keep:
        command = f"python -m tests.lab.bench --connections 8 --rounds {rounds} --keep {arguments.keep}"
        keep(arguments.keep, command, report.values(cells, every, arguments.keep))
    load = f"- load average of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after, of which this benchmark makes up to 2"
    head = [described(), "\n".join([report.legend(cut.servers), f"- client: {client()}", load]), report.rates(cells, every)]
    print(*head, *compared(cells, cut.servers, is_of_hosts=arguments.hosts), report.details(cells), sep="\n\n")


if __name__ == "__main__":
    main()
