"""`python -m tests.lab.bench.real`: real models behind this package, behind FastAPI by hand, and behind other servers; prints the tables.

`--hosts` compares ASGI servers instead, all with this package. `--counts` counts context switches and system calls of a request.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..figures import keep
from ..load import client
from ..machine import described
from ..measure import Cell
from ..plan import Cut
from ..report import details, legend
from ..run import rates, tell, together, warnings
from . import onnx_file, report
from .counts import Counts, counts_of, has_strace
from .functions import ONNX_FILE
from .rows import NAMES, rows
from .servers import PEERS, host_servers, missing_hosts, real_servers

QUICK_ROUNDS: Final = 2
ROUNDS: Final = 3

HOST_ROWS: Final = ("JSON 1x4", "digits", "BYTES 1000, JSON")
"""Of the rows, those that ASGI servers are compared on where nobody chooses."""

COUNTED_ROWS: Final = ("JSON 1x4", "digits")
COUNTED_WAYS: Final = ("echo", "def", "inline", "FastAPI")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.real", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--hosts", action="store_true", help="compare ASGI servers, all with this package")
    what.add_argument("--counts", action="store_true", help="count context switches and system calls of a request, and measure no time")
    parser.add_argument("--quick", action="store_true", help="eight connections and two rounds: about three minutes")
    parser.add_argument("--rows", nargs="+", metavar="PATTERN", help=f"patterns, such as 'BYTES*', of: {', '.join(NAMES)}")
    parser.add_argument("--ways", nargs="+", metavar="NAME", help="servers, beside the echo, by the names that the table has")
    parser.add_argument("--connections", nargs="+", type=int, metavar="N", help="instead of 1, 8 and 64")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"turns of each server ({ROUNDS})")
    parser.add_argument("--seconds", type=int, default=1, metavar="N", help="of each turn (1)")
    parser.add_argument("--keep", action="store_true", help="keep the rates over eight connections, and draw them for the README")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the rates into this PNG")
    return parser.parse_args(arguments)


def chosen(arguments: argparse.Namespace) -> Cut:
    """The rows, servers and numbers of connections that the command line asks for.

    Raises:
        SystemExit: There is no such row or server.
    """
    known = {server.name: server for server in (host_servers() if arguments.hosts else real_servers())}
    ways = arguments.ways or (COUNTED_WAYS if arguments.counts else known)
    if unknown := set(ways) - set(known):
        raise SystemExit(f"no way is called {', '.join(unknown)}: expected some of {', '.join(known)}")
    patterns = arguments.rows or (HOST_ROWS if arguments.hosts else COUNTED_ROWS if arguments.counts else ["*"])
    found = [row for row in rows(patterns) if row.name != "ONNX" or ONNX_FILE in os.environ]
    if not found:
        raise SystemExit(f"no row is called so: expected some of {', '.join(NAMES)}")
    servers = [server for server in known.values() if server.name in ways or server.name == "echo"]
    few = [8] if arguments.quick or arguments.counts else [1, 8] if arguments.hosts else None
    return Cut(found, servers, lambda row: arguments.connections or few or row.connections, lambda *_: True)


def main() -> None:
    arguments = parse()
    for warning in warnings([] if arguments.hosts or arguments.counts else PEERS):
        print(warning, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        if onnx_file.can_convert():
            file = Path(folder, "digits.onnx")
            onnx_file.write(file)
            os.environ[ONNX_FILE] = str(file)
        else:
            print("left out: ONNX wants onnxruntime and skl2onnx", file=sys.stderr)
        cut = chosen(arguments)
        print(*(_counts(cut) if arguments.counts else _rates(cut, arguments)), sep="\n\n")


def _rates(cut: Cut, arguments: argparse.Namespace) -> list[str]:
    if arguments.hosts and (missing := missing_hosts()):
        print(f"left out: not installed: {', '.join(missing)}", file=sys.stderr)
    before = os.getloadavg()[0]
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    cells = rates(cut, rounds, arguments.seconds)
    tell("")
    names = [server.name for server in cut.servers]
    load = f"- load average of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after, of which this benchmark makes up to 2"
    if arguments.plot:
        from .plot import draw  # matplotlib is there where a plot is asked for

        draw(cells, [name for name in names if name != "echo"], arguments.plot)
        print(f"plot: {arguments.plot}", file=sys.stderr)
    if arguments.keep:
        keep("rates", f"python -m tests.lab.bench.real --connections 8 --rounds {rounds} --keep", report.values(cells, names))
    head = [described(), "\n".join([legend(cut.servers), f"- client: {client()}", load]), report.rates(cells, names)]
    return [*head, *_compared(cells, names, arguments.hosts), details(cells, cut.servers)]


def _compared(cells: Sequence[Cell], names: Sequence[str], is_of_hosts: bool) -> list[str]:
    if is_of_hosts:
        bases = {
            "uvicorn": [name for name in names if ", async" not in name],
            "uvicorn, async": [name for name in names if ", async" in name],
        }
        return [report.of(cells, base, hosts) for base, hosts in bases.items() if base in names]
    ours = [name for name in ("def", "inline") if name in names]
    compared = [report.times(cells, name, [other for other in names if other != name]) for name in ours]
    return [*compared, report.goals(cells)]


def _counts(cut: Cut) -> list[str]:
    if not has_strace():
        print("strace is not installed (Debian: apt-get install strace): system calls are not counted", file=sys.stderr)
    tables = [described()]
    with together(cut.servers) as running:
        for connections in cut.connections(cut.rows[0]):
            found: dict[tuple[str, str], Counts] = {}
            for row in cut.rows:
                for each in running:
                    if each.server.serves(row):
                        tell(f"counting: {row.name}, {connections} connections: {each.server.name}")
                        found[row.name, each.server.name] = counts_of(each, row, connections)
            tables.append(report.counted(found, connections))
    tell("")
    return tables


if __name__ == "__main__":
    main()
