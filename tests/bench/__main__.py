"""`python -m tests.bench`: starts the servers, measures, and prints the tables. `--quick` is what to run while making something faster."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from . import report
from .load import client, has_h2load, has_wrk
from .machine import described, on_core, share_in_use, two_cores
from .measure import Cell, measure
from .plan import PARTS, Cut, chosen, parse, works
from .rows import HTTP
from .serve import uvicorn_settings
from .servers import Running, Server, missing_peers
from .strain import health_of, memory_of

STRAINED: Final = ("echo", "async", "thread")
"""The servers whose memory and health are looked at where nobody chooses: an inline model stops the event loop by its own wish."""

HEALTH_SECONDS: Final = 15

BUSY: Final = 0.1
"""The part of all cores in use from which somebody else is at work."""

T = TypeVar("T")


def tell(text: str) -> None:
    """Show what is being done: in one line where somebody watches, else in a line for each row."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif ", round" not in text and text:
        print(text, file=sys.stderr, flush=True)


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
            try:
                running.append(stack.enter_context(server.started(core, folder / f"{server.name}.log")))
            except AssertionError as error:
                if not server.is_peer:
                    raise
                print(f"left out: {server.name} did not start: {error}", file=sys.stderr)
        return [measure(work, rounds, seconds, tell) for work in works(cut, running)]


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
    for warning in warnings():
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


def warnings() -> Iterator[str]:
    """What makes this run worth less than another."""
    if not has_wrk():
        yield "wrk is not installed (Debian: apt-get install wrk): small requests come from a slower client"
    if not has_h2load():
        yield "h2load is not installed (Debian: apt-get install nghttp2-client): calls of gRPC come from a client as slow as a server"
    for variable in missing_peers():
        yield f"left out: {variable} names no Python: its environment could not be made"
    if two_cores()[0] == two_cores()[1]:
        yield "there is one core only: the client takes from the servers what it needs"
    if (share := share_in_use()) > BUSY:
        yield f"others use {share:.0%} of this machine: of the numbers below, the CPU per request suffers least"


if __name__ == "__main__":
    main()
