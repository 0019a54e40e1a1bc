"""Streams against bare ones, and other servers: `python -m tests.lab.bench.streams`. Wants h2load for the rates over gRPC.

Servers have one core and the client the other. Rounds of all ways are interleaved. The time to the first item is that of a stream alone,
whatever the number of streams. TRITON_PYTHON and LITSERVE_PYTHON name the Python of environments that have these.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from tests.support.processes import Served, free_port, running

from .. import grpc_client
from ..load import has_h2load
from ..machine import cpu_seconds, described, on_core, share_in_use, two_cores
from ..rows import LoadFailed
from . import clients
from .report import Measured, shown
from .ways import WAYS, Way, left_out, servers

ROUNDS: Final = 5
STREAMS: Final = (1, 8, 64)
ITEMS: Final = {1: 10_000, 8: 2_500, 64: 500}
"""Of each stream, by how many there are."""

FIRSTS: Final = 20
"""Streams of one item in a round, whose median is the time to the first."""

_SMALLEST: Final = 20
"""Bytes of a message over gRPC at least: its frame, the names, and the number."""


@contextmanager
def started(names: Sequence[str], core: int) -> Iterator[dict[str, tuple[Served, int]]]:
    """Servers on one core, each with its port for gRPC, until the block ends, which begins when all answer."""
    known = servers()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found: dict[str, tuple[Served, int]] = {}
        for name in names:
            port, grpc_port = free_port(), free_port()
            ports = {"PORT": str(port), "GRPC_PORT": str(grpc_port)}
            command = [ports.get(word, word) for word in known[name].command]
            log = Path(folder, f"{name}.log")
            with on_core(core):
                ready = known[name].ready
                served = stack.enter_context(running(command, log, {"TMPDIR": folder}, ready or "/", port))
            found[name] = served, grpc_port
        for name, (served, grpc_port) in found.items():
            if known[name].ready is None:
                grpc_client.wait_until_ready(grpc_port)
            else:
                served.wait_until_ready()
        yield found


def turn(way: Way, server: tuple[Served, int], streams: int, items: int, into: Measured) -> None:
    """Measure one way once."""
    served, grpc_port = server
    if way.transport == "SSE":
        firsts = [asyncio.run(clients.events(served.port, way.target, way.body(1), 1))[0] for _ in range(FIRSTS)]
    else:
        firsts = asyncio.run(clients.first_messages(grpc_port, way.target, FIRSTS))
    cpu = cpu_seconds(served.process.pid)
    if way.transport == "SSE":
        seconds = asyncio.run(clients.all_events(served.port, way.target, way.body(items), streams, items))
    else:
        seconds = clients.all_messages(grpc_port, way.target, streams, items, _SMALLEST)
    into.cpu.append((cpu_seconds(served.process.pid) - cpu) / (streams * items))
    into.rate.append(streams * items / seconds)
    into.first.append(median(firsts))


def measure(
    ways: Sequence[Way], running: Mapping[str, tuple[Served, int]], counts: Sequence[int], rounds: int, share: float
) -> dict[tuple[str, int], Measured]:
    """All ways, round by round. What fails is told once, and left out from there on."""
    found: dict[tuple[str, int], Measured] = {(way.name, streams): Measured() for streams in counts for way in ways}
    failed: set[str] = set()
    for streams in counts:
        for round_ in range(rounds + 1):
            for way in ways:
                if way.name in failed:
                    continue
                items = max(1, round(ITEMS.get(streams, 500) * share / (10 if way.is_slow else 1)))
                into = found[way.name, streams] if round_ else Measured()  # the first is to warm up
                try:
                    turn(way, running[way.server], streams, items, into)
                except LoadFailed as error:
                    failed.add(way.name)
                    print(f"{way.name} fails with {streams} streams: {error}", file=sys.stderr)
    return found


def chosen(patterns: Sequence[str] | None, known: Sequence[str]) -> list[Way]:
    """The ways that are asked for and can be measured; the bare ones are always among them.

    Raises:
        SystemExit: There is no such way.
    """
    names = [way.name for way in WAYS]
    if unknown := set(patterns or ()) - set(names):
        raise SystemExit(f"no way is called {', '.join(sorted(unknown))}: expected some of {', '.join(names)}")
    transports = {way.transport for way in WAYS if not patterns or way.name in patterns}
    wanted = [way for way in WAYS if not patterns or way.name in patterns or (way.name.startswith("bare") and way.transport in transports)]
    return [way for way in wanted if way.server in known and (way.transport == "SSE" or has_h2load())]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.streams", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS, metavar="N", help="how many at once")
    parser.add_argument("--ways", nargs="+", metavar="NAME", help=f"some of: {', '.join(way.name for way in WAYS)}")
    parser.add_argument("--share", type=float, default=1.0, metavar="X", help="of the items that streams have else")
    options = parser.parse_args(arguments)
    known = list(servers())
    ways = chosen(options.ways, known)
    for line in left_out(known):
        print(f"left out: {line}", file=sys.stderr)
    if not has_h2load():
        print("left out: gRPC: wants h2load (Debian: apt-get install nghttp2-client)", file=sys.stderr)
    client, core = two_cores()
    print(described(), f"Others use {share_in_use():.0%} of all cores before this begins.", sep="\n", file=sys.stderr)
    with on_core(client), started(list(dict.fromkeys(way.server for way in ways)), core) as running:
        print(shown(measure(ways, running, options.streams, options.rounds, options.share)))


if __name__ == "__main__":
    main()
