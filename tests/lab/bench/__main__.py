"""`python -m tests.lab.bench`: starts the servers, measures, prints the tables. `--quick` is what to run while making something faster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from . import report
from .load import client
from .machine import described
from .measure import Cell
from .plan import PARTS, chosen, parse
from .rows import HTTP
from .run import apart, rates, tell, warnings
from .serve import uvicorn_settings
from .servers import PEERS, Running, Server
from .strain import health_of, memory_of

STRAINED: Final = ("echo", "async", "thread")
"""The servers whose memory and health are looked at where nobody chooses: an inline model stops the event loop by its own wish."""

HEALTH_SECONDS: Final = 15

T = TypeVar("T")


def alone(servers: Sequence[Server], look: Callable[[Running], T]) -> dict[str, T]:
    """Start one server after the other, and look at each."""
    found = {}
    with apart() as (core, folder):
        for server in servers:
            if HTTP in server.floors and not server.is_peer:
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
    for warning in warnings(PEERS):
        print(warning, file=sys.stderr)
    is_everything = not (arguments.quick or arguments.rows or arguments.ways)
    parts = arguments.parts or (PARTS if is_everything else ["rates"])
    strained = [server for server in cut.servers if arguments.ways or server.name in STRAINED]
    cells: list[Cell] = []
    legend = [report.legend(cut.servers), f"- client: {client()}", f"- uvicorn: {' and '.join(uvicorn_settings().values())}"]
    tables = [described(), "\n".join(legend)]
    if "rates" in parts:
        cells = rates(cut, arguments.rounds, arguments.seconds)
        tables += [report.summary(cells, cut.servers), report.details(cells, cut.servers)]
        if any(server.is_peer for server in cut.servers):
            tables.insert(-1, report.against_peers(cells, cut.servers))
    if "memory" in parts:
        tables.append(report.memories(alone(strained, partial(memory_of, tell=tell))))
    if "health" in parts:
        tables.append(report.healths(alone(strained, partial(health_of, seconds=HEALTH_SECONDS, tell=tell))))
    tell("")
    print(*tables, sep="\n\n")
    if arguments.plot and cells:
        from .plot import draw  # matplotlib is there where a plot is asked for

        draw(cells, cut.servers, arguments.plot)
        print(f"plot: {arguments.plot}", file=sys.stderr)


if __name__ == "__main__":
    main()
