"""Servers are started on one core, the client has the other, and each row is measured on all of them in turns, so that all of them see the
same machine. Medians and ratios of what came."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Final, TypeVar

from .load import LARGE, Load, ask, by_sockets, has_h2load, has_wrk, load
from .machine import cpu_seconds, on_core, share_in_use, two_cores
from .rows import HTTP, LoadFailed, Row, WrongAnswer
from .servers import Running, Server, missing_peers

WARM_UP: Final = 0.2
"""Seconds of each small row before it is measured."""

REASON: Final = 60
"""Characters of a failure that the table has room for."""

BUSY: Final = 0.1
"""The part of all cores in use from which somebody else is at work."""

T = TypeVar("T")


def tell(text: str) -> None:
    """Show what is being done: in one line where somebody watches, else in a line for each row."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif ", round" not in text and text:
        print(text, file=sys.stderr, flush=True)


def warnings() -> Iterator[str]:
    """What makes this run worth less than another."""
    if not has_wrk():
        yield "wrk is not installed (Debian: apt-get install wrk): small requests come from a slower client"
    if not has_h2load():
        yield "h2load is not installed (Debian: apt-get install nghttp2-client): gRPC is left out"
    for variable in missing_peers():
        yield f"left out: {variable} names no Python: its environment could not be made"
    if two_cores()[0] == two_cores()[1]:
        yield "there is one core only: the client takes from the servers what it needs"
    if (share := share_in_use()) > BUSY:
        yield f"others use {share:.0%} of this machine: of the numbers below, the CPU per request suffers least"


@contextmanager
def together(servers: Sequence[Server]) -> Iterator[list[Running]]:
    """All servers on one core, and this process on the other, until the block ends. Another project's that does not start is left out."""
    client_core, server_core = two_cores()
    with tempfile.TemporaryDirectory() as folder, on_core(client_core), ExitStack() as stack:
        running = []
        for server in servers:
            tell(f"starting {server.name}")
            try:
                running.append(stack.enter_context(server.started(server_core, Path(folder, f"{server.name}.log"))))
            except AssertionError as error:
                if not server.is_peer:
                    raise
                print(f"left out: {server.name} did not start: {error}", file=sys.stderr)
        yield running


@dataclass(frozen=True)
class Measurement:
    """One server under one row for one turn.

    Args:
        load: What the client saw.
        cpu: What the server took of the CPU for each request, in seconds.
    """

    load: Load
    cpu: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.load.requests / self.load.seconds


@dataclass(frozen=True)
class Cell:
    """A row over some connections, and the turns of each server by its name, or why it cannot serve the row."""

    row: Row
    connections: int
    turns: Mapping[str, Sequence[Measurement] | str]

    def median(self, server: str, what: Callable[[Measurement], float]) -> float | None:
        """The median over the turns; None for a server that has none."""
        turns = self.turns.get(server, "")
        return None if isinstance(turns, str) else statistics.median(map(what, turns))

    def ratio(self, server: str, other: str) -> float | None:
        """A server's requests per second as a part of another's, as the median over the rounds; None where one of them has none."""
        turns, others = self.turns.get(server, ""), self.turns.get(other, "")
        if isinstance(turns, str) or isinstance(others, str):
            return None
        return statistics.median(turn.rate / floor.rate for turn, floor in zip(turns, others, strict=True))


def verify(running: Running, row: Row) -> None:
    """Look at one answer, so that nothing is measured on a wrong one.

    Raises:
        WrongAnswer: It is not what the row asks for.
    """
    row = running.server.asked(row)
    answer = ask(running.target, row)
    if not running.server.is_floor(row):
        row.check(answer)
    elif answer.status != 200 or answer.body != row.body:
        raise WrongAnswer(f"{running.server.name} did not send back {row.name}")


def measure(row: Row, connections: int, servers: Sequence[Running], rounds: int, seconds: int) -> Cell:
    """Measure one row, on the servers that can serve it.

    A server of another project that fails is left out, and the table says why.

    Raises:
        WrongAnswer: A floor, or a server of this package, answered wrongly.
        LoadFailed: It failed under load.
    """
    turns: dict[str, list[Measurement] | str] = {}
    tell(f"{row.name}, {connections} connections")
    servers = [running for running in servers if running.server.serves(row)]
    for running in servers:
        turns[running.server.name] = _tried(running, partial(_first, running, row, connections))
    for place in range(rounds):
        for running in servers:
            name = running.server.name
            so_far = turns[name]
            if isinstance(so_far, list):
                tell(f"{row.name}, {connections} connections, round {place + 1} of {rounds}: {name}")
                turn = _tried(running, partial(_turn, running, row, connections, seconds))
                turns[name] = turn if isinstance(turn, str) else [*so_far, turn]
    return Cell(row, connections, turns)


def _first(running: Running, row: Row, connections: int) -> list[Measurement]:
    """No measurements yet, of a server that answers rightly and is warm."""
    verify(running, row)
    asked = running.server.asked(row)
    if asked.transport == HTTP and len(asked.body) < LARGE:
        by_sockets(running.target, asked, connections, WARM_UP)
    elif asked.transport != HTTP:
        load(running.target, asked, connections, 1)
    return []


def _turn(running: Running, row: Row, connections: int, seconds: int) -> Measurement:
    before = cpu_seconds(running.pid)
    seen = load(running.target, running.server.asked(row), connections, seconds)
    return Measurement(seen, (cpu_seconds(running.pid) - before) / seen.requests)


def _tried(running: Running, step: Callable[[], T]) -> T | str:
    """What the step gives, or the reason why it failed, where the server is another project's."""
    try:
        return step()
    except (WrongAnswer, LoadFailed, OSError, HTTPException) as error:
        if not running.server.is_peer:
            error.add_note(running.note())
            raise
        return f"fails: {' '.join(str(error).replace('|', ' ').split())[:REASON]}"
