"""Streams against bare ones, and other servers: `python -m tests.lab.bench.streams`. Wants h2load for the rates over gRPC.

Servers have one core and the client the other. Rounds of all ways are interleaved. The time to the first item is that of a stream alone,
whatever the number of streams. TRITON_PYTHON and LITSERVE_PYTHON name the Python of environments that have these.

`--called` needs neither servers nor a quiet machine: it calls the application in this process, on uvloop, and shows the CPU of an item, of
all threads together. That is the difference between a long stream and a short one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import process_time
from typing import Final

from . import streams_clients as clients
from .in_process import ask
from .load import has_h2load
from .machine import cpu_seconds, described
from .measure import tell, together
from .report import table
from .rows import GRPC, HTTP, LoadFailed, Row
from .servers import Command, Running, Server, peer_python

ROUNDS: Final = 5
STREAMS: Final = (1, 8, 64)
ITEMS: Final = {1: 10_000, 8: 2_500, 64: 500}
"""Of each stream, by how many there are."""

CALLED: Final = (1_000, 100)
"""Items of the long and of the short stream whose difference is shown by `--called`."""

FIRSTS: Final = 20
"""Streams of one item in a round, whose median is the time to the first."""

_SMALLEST: Final = 20
"""Bytes of a message over gRPC at least: its frame, the names, and the number."""

BARE: Final = {HTTP: "bare SSE", GRPC: "bare gRPC"}
"""What the others over each transport are compared with."""


@dataclass(frozen=True)
class Way:
    """A stream of items.

    Args:
        name: What the tables call it.
        transport: How it is asked for: over HTTP as server-sent events.
        server: The name of its server.
        target: The path over HTTP, the model over gRPC.
        is_slow: Whether it is asked for a tenth of the items.
    """

    name: str
    transport: str
    server: str
    target: str
    is_slow: bool = False


WAYS: Final = (
    Way("bare SSE", HTTP, "uvicorn", "/bare"),
    Way("async def", HTTP, "uvicorn", "/v2/models/async/generate_stream"),
    Way("async def, texts", HTTP, "uvicorn", "/v2/models/texts/generate_stream"),
    Way("def", HTTP, "uvicorn", "/v2/models/thread/generate_stream", is_slow=True),
    Way("Triton, SSE", HTTP, "Triton", "/v2/models/items/generate_stream", is_slow=True),
    Way("LitServe", HTTP, "LitServe", "/items", is_slow=True),
    Way("bare gRPC", GRPC, "bare gRPC", "bare"),
    Way("gRPC, async def", GRPC, "grpc.aio", "async"),
    Way("gRPC, def", GRPC, "grpc.aio", "thread", is_slow=True),
    Way("Triton, gRPC", GRPC, "Triton", "items", is_slow=True),
)


def body_of(items: int) -> bytes:
    """What a way is sent over HTTP."""
    return b'{"n":[%d]}' % items


def servers() -> dict[str, Server]:
    """The servers that can be started here."""

    def run(*words: str) -> Command:
        return lambda port, grpc_port: [{"PORT": str(port), "GRPC_PORT": str(grpc_port)}.get(word, word) for word in words]

    def own(kind: str, port: str) -> Command:
        return run(sys.executable, "-m", "tests.lab.bench.streams_served", kind, port)

    found = [
        Server("uvicorn", "", own("uvicorn", "PORT"), BARE, ready="/v2/health/ready"),
        Server("bare gRPC", "", own("bare gRPC", "GRPC_PORT"), {GRPC: BARE[GRPC]}),
        Server("grpc.aio", "", own("grpc.aio", "GRPC_PORT"), {GRPC: BARE[GRPC]}),
    ]
    for name, ports, ready in (("Triton", ["PORT", "GRPC_PORT"], "/v2/health/ready"), ("LitServe", ["PORT"], "/health")):
        if python := peer_python(name):
            command = run(python, "-m", f"tests.lab.bench.peers.streams_{name.lower()}", *ports)
            found.append(Server(name, "", command, BARE, ready=ready, is_peer=True))
    return {server.name: server for server in found}


@dataclass
class Measured:
    """What one way did with one number of streams, in each round.

    Args:
        first: Seconds to the first item, of a stream alone.
        rate: Items a second, of all streams.
        cpu: The server's seconds of CPU for an item.
    """

    first: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def turn(way: Way, running: Running, streams: int, items: int, into: Measured) -> None:
    """Measure one way once."""
    port, grpc_port = running.target.port, running.target.grpc_port
    if way.transport == HTTP:
        firsts = [asyncio.run(clients.events(port, way.target, body_of(1), 1))[0] for _ in range(FIRSTS)]
    else:
        firsts = asyncio.run(clients.first_messages(grpc_port, way.target, FIRSTS))
    cpu = cpu_seconds(running.pid)
    if way.transport == HTTP:
        seconds = asyncio.run(clients.all_events(port, way.target, body_of(items), streams, items))
    else:
        seconds = clients.all_messages(grpc_port, way.target, streams, items, _SMALLEST)
    into.cpu.append((cpu_seconds(running.pid) - cpu) / (streams * items))
    into.rate.append(streams * items / seconds)
    into.first.append(median(firsts))


def measure(
    ways: Sequence[Way], running: Mapping[str, Running], counts: Sequence[int], rounds: int, share: float
) -> dict[tuple[str, int], Measured]:
    """All ways, round by round. What fails is told once, and left out from there on."""
    found: dict[tuple[str, int], Measured] = {(way.name, streams): Measured() for streams in counts for way in ways}
    failed: set[str] = set()
    for streams in counts:
        for round_ in range(rounds + 1):
            for way in ways:
                if way.name in failed or way.server not in running:
                    continue
                items = max(1, round(ITEMS.get(streams, 500) * share / (10 if way.is_slow else 1)))
                into = found[way.name, streams] if round_ else Measured()  # the first is to warm up
                try:
                    turn(way, running[way.server], streams, items, into)
                except LoadFailed as error:
                    failed.add(way.name)
                    print(f"{way.name} fails with {streams} streams: {error}", file=sys.stderr)
    return found


def lines(found: Mapping[tuple[str, int], Measured]) -> list[list[str]]:
    """The lines of the table: those of each number of streams together, in the order of `WAYS`."""
    made = []
    for streams in sorted({streams for _, streams in found}):
        for way in WAYS:
            measured, bare = found.get((way.name, streams)), found.get((BARE[way.transport], streams), Measured())
            if measured is not None and measured.rate:
                firsts, rates = _share(measured.first, bare.first), _share(measured.rate, bare.rate)
                numbers = [f"{median(measured.first) * 1e3:.2f}", firsts, f"{median(measured.rate):,.0f}", rates]
                made.append([str(streams), way.name, *numbers, f"{median(measured.cpu) * 1e6:.1f}"])
    return made


def _share(these: list[float], bare: list[float]) -> str:
    """The median of the ratios, round by round; nothing where one of them was not measured."""
    ratios = [one / other for one, other in zip(these, bare, strict=False)]
    return f"{median(ratios):.2f}" if ratios else ""


async def call_often(ways: Sequence[Way], rounds: int, share: float) -> list[list[str]]:
    """The lines of the table of `--called`: the least of all rounds, as what else runs on the machine only adds to it."""
    from .streams_served import make_app

    app, found = make_app(), {way.name: list[float]() for way in ways}
    long, short = (round(items * share) for items in CALLED)
    for _ in range(rounds + 1):
        for way in ways:
            taken = []
            for items in (long, short):
                row = Row(way.name, "POST", way.target, {"content-type": "application/json"}, body_of(items), lambda _: None)
                began = process_time()
                await ask(app, row)
                taken.append(process_time() - began)
            found[way.name].append((taken[0] - taken[1]) / (long - short))
    return [[name, f"{min(seconds) * 1e6:.1f}", _share(seconds, found[BARE[HTTP]])] for name, seconds in found.items()]


def chosen(names: Sequence[str] | None, known: Sequence[str]) -> list[Way]:
    """The ways that are asked for and can be measured; the bare ones are always among them.

    Raises:
        SystemExit: There is no such way.
    """
    every = [way.name for way in WAYS]
    if unknown := set(names or ()) - set(every):
        raise SystemExit(f"no way is called {', '.join(sorted(unknown))}: expected some of {', '.join(every)}")
    asked = set(names or every)
    asked |= {BARE[way.transport] for way in WAYS if way.name in asked}
    return [way for way in WAYS if way.name in asked and way.server in known and (way.transport == HTTP or has_h2load())]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.streams", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS, metavar="N", help="how many at once")
    parser.add_argument("--ways", nargs="+", metavar="NAME", help=f"some of: {', '.join(way.name for way in WAYS)}")
    parser.add_argument("--share", type=float, default=1.0, metavar="X", help="of the items that streams have else")
    parser.add_argument("--called", action="store_true", help="the CPU of items in this process, without any server")
    options = parser.parse_args(arguments)
    if options.called:
        import uvloop

        own = [way for way in WAYS if way.server == "uvicorn"]
        print(table(["way", "us of CPU an item", "times bare"], uvloop.run(call_often(own, options.rounds, options.share))))
        return
    known = servers()
    ways = chosen(options.ways, list(known))
    if missing := [way.name for way in WAYS if way not in ways and (not options.ways or way.name in options.ways)]:
        print(f"left out: {', '.join(missing)}; h2load, TRITON_PYTHON and LITSERVE_PYTHON are what they want", file=sys.stderr)
    print(described(), file=sys.stderr)
    with together([known[name] for name in dict.fromkeys(way.server for way in ways)]) as running:
        found = measure(ways, {each.server.name: each for each in running}, options.streams, options.rounds, options.share)
    tell("")
    print(table(["streams", "way", "first item, ms", "times bare", "items a second", "of bare", "us of CPU an item"], lines(found)))


if __name__ == "__main__":
    main()
