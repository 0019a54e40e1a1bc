"""gRPC in an ASGI application against two echoes, grpcio and other servers, in one run: `python -m tests.lab.bench.grpc_asgi`.

Wants pyvoy, zttp and h2load beside the extra; TRITON_PYTHON, MLSERVER_PYTHON and KSERVE_PYTHON as `tox -e bench-peers` has them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from .machine import described
from .measure import Cell, Work, measure
from .report import details, number, table
from .rows import GRPC, Row, rpc
from .run import tell, together, warnings
from .servers import PEERS, Server, peers

SHAPES: Final = {"1x4": [1, 4], "1x784": [1, 784], "1x150528": [1, 150_528], "64 MiB": [4096, 4096]}
CALLS: Final = (1, 8, 64)

_APPS: Final = f"{__package__}.grpc_apps"
_BASE: Final = "grpc.aio echo"
_ASGI: Final = {"pyvoy": "pyvoy --loop uvloop --port PORT APP", "uvicorn": "uvicorn --port PORT --http zttp --http2 --loop uvloop APP"}
_ZTTP_CALLS: Final = 4000
"""zttp closes a connection after 4,096."""


def own_servers() -> list[Server]:
    """The echoes, and this package on grpcio and on each server of ASGI."""
    found = [
        _served(_BASE, _BASE, [sys.executable, "-m", "tests.lab.bench.serve", "gRPC echo", "PORT"]),
        _served("add_to_server", _BASE, [sys.executable, "-m", "tests.lab.bench.serve", "gRPC", "PORT"]),
    ]
    for name, command in _ASGI.items():
        quiet = ["--log-level", "warning", "--no-access-log", "--timeout-keep-alive", "75"] if name == "uvicorn" else []
        for what, app in (("echo", "echo"), ("oip_asgi", "app")):
            words = [*command.replace("APP", f"{_APPS}:{app}").split(), *quiet]
            found.append(_served(f"{what}, {name}", f"echo, {name}", words, _ZTTP_CALLS if name == "uvicorn" else None))
    return found


def _served(name: str, floor: str, words: Sequence[str], most_calls: int | None = None) -> Server:
    def command(_: int, port: int) -> Sequence[str]:
        return [word.replace("PORT", str(port)) for word in words]

    return Server(name, name, command, {GRPC: floor}, most_calls=most_calls)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.grpc_asgi")
    names = [server.name for server in [*own_servers(), *peers()]]
    parser.add_argument("--rows", nargs="+", choices=SHAPES, default=[*SHAPES], help="shapes of the tensor (all)")
    parser.add_argument("--calls", nargs="+", type=int, default=CALLS, metavar="N", help="at once, over one connection (1 8 64)")
    parser.add_argument("--servers", nargs="+", choices=names, default=names, metavar="NAME", help=f"of: {', '.join(names)} (all)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each server (3)")
    parser.add_argument("--seconds", type=int, default=1, metavar="N", help="of each turn; uvicorn: 4,000 small calls (1)")
    return parser.parse_args()


def rates(cells: Sequence[Cell], servers: Sequence[Server]) -> str:
    """Calls per second."""
    lines = [[*_place(cell), *(_rate(cell, server) for server in servers)] for cell in cells]
    return table(["calls per second", "at once", *(server.name for server in servers)], lines)


def ratios(cells: Sequence[Cell], servers: Sequence[Server]) -> str:
    """What part of the other's calls each server answers: of the bare echo of grpc.aio, and this package of the others."""
    names = [server.name for server in servers]
    pairs = [(name, _BASE) for name in names if name != _BASE and _BASE in names]
    for ours in (name for name in names if name.startswith("oip_asgi")):
        others = [ours.replace("oip_asgi", "echo"), "add_to_server", *(server.name for server in servers if server.is_peer)]
        pairs += [(ours, other) for other in others if other in names]
    lines = [[f"{one} / {other}", *(number(cell.ratio(one, other)) for cell in cells)] for one, other in pairs]
    return table(["ratio", *(", ".join(_place(cell)) for cell in cells)], lines)


def _place(cell: Cell) -> tuple[str, str]:
    return cell.row.name, str(cell.connections)


def _rate(cell: Cell, server: Server) -> str:
    turns = cell.turns.get(server.name, "")
    return turns if isinstance(turns, str) else number(cell.median(server.name, lambda turn: turn.rate))


def is_measured(row: Row, calls: int) -> bool:
    """Not 64 MiB with 64 calls, which are 12 GiB in the server: each is there as the body, the message and what is to be sent."""
    return row.name != "64 MiB" or calls <= 8


def main() -> None:
    arguments = parse()
    for warning in warnings(PEERS):
        print(warning, file=sys.stderr)
    servers = [server for server in [*own_servers(), *peers()] if server.name in arguments.servers]
    rows = [rpc(SHAPES[name], arguments.calls)(name) for name in arguments.rows]
    works = [(row, calls) for row in rows for calls in arguments.calls if is_measured(row, calls)]
    cells = []
    with together(servers) as running:
        started = [each.server for each in running]
        for row, calls in works:
            cells.append(measure(Work(row, calls, running), arguments.rounds, arguments.seconds, tell))
            # a long run that is broken off has said what it found
            print("", rates(cells[-1:], started), sep="\n", file=sys.stderr, flush=True)
    print(described(), rates(cells, started), ratios(cells, started), details(cells, started), sep="\n\n")


if __name__ == "__main__":
    main()
