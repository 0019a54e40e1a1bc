"""A run: servers are started on one core, the client has the other, and each row is measured on all of them in turns."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from .load import has_h2load, has_wrk
from .machine import on_core, share_in_use, two_cores
from .measure import Cell, measure
from .plan import Cut, works
from .servers import Running, Server, missing_peers

BUSY: Final = 0.1
"""The part of all cores in use from which somebody else is at work."""


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
    with together(cut.servers) as running:
        return [measure(work, rounds, seconds, tell) for work in works(cut, running)]


@contextmanager
def together(servers: Sequence[Server]) -> Iterator[list[Running]]:
    """All servers, until the block ends. Another project's that does not start is left out."""
    with apart() as (core, folder), ExitStack() as stack:
        running = []
        for server in servers:
            tell(f"starting {server.name}")
            try:
                running.append(stack.enter_context(server.started(core, folder / f"{server.name}.log")))
            except AssertionError as error:
                if not server.is_peer:
                    raise
                print(f"left out: {server.name} did not start: {error}", file=sys.stderr)
        yield running


def warnings(peers: Sequence[str]) -> Iterator[str]:
    """What makes this run worth less than another, `peers` being the other servers that it could measure."""
    if not has_wrk():
        yield "wrk is not installed (Debian: apt-get install wrk): small requests come from a slower client"
    if not has_h2load():
        yield "h2load is not installed (Debian: apt-get install nghttp2-client): calls of gRPC come from a client as slow as a server"
    for variable in missing_peers(peers):
        yield f"left out: {variable} names no Python: its environment could not be made"
    if two_cores()[0] == two_cores()[1]:
        yield "there is one core only: the client takes from the servers what it needs"
    if (share := share_in_use()) > BUSY:
        yield f"others use {share:.0%} of this machine: of the numbers below, the CPU per request suffers least"
