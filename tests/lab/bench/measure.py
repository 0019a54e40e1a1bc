"""Rounds: each server is asked in turn, again and again, so that all of them see the same machine. Medians and ratios of what came."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from typing import Final, TypeVar

from .load import LARGE, Load, ask, by_calls, by_sockets, load
from .machine import cpu_seconds
from .rows import GRPC, LoadFailed, Row, WrongAnswer
from .servers import Running

WARM_UP: Final = 0.2
"""Seconds of each small row before it is measured."""

REASON: Final = 60
"""Characters of a failure that the table has room for."""

T = TypeVar("T")


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


@dataclass(frozen=True)
class Work:
    """What is to be measured: a row, over some connections, on some servers."""

    row: Row
    connections: int
    servers: Sequence[Running]


def verify(running: Running, row: Row) -> None:
    """Look at one answer, so that nothing is measured on a wrong one.

    Raises:
        WrongAnswer: It is not what the row asks for.
    """
    row = running.server.asked(row)
    answer = ask(running.target, row)
    if not running.server.is_floor(row):
        row.check(answer)
    elif answer.status != 200 or (row.body and answer.body != row.body):
        raise WrongAnswer(f"{running.server.name} did not send back {row.name}")


def measure(work: Work, rounds: int, seconds: int, tell: Callable[[str], object]) -> Cell:
    """Measure one row.

    A server of another project that fails is left out, and the table says why.

    Raises:
        WrongAnswer: A floor, or a server of this package, answered wrongly.
        LoadFailed: It failed under load.
    """
    turns: dict[str, list[Measurement] | str] = {}
    tell(f"{work.row.name}, {work.connections} connections")
    for running in work.servers:
        turns[running.server.name] = _tried(running, partial(_first, running, work))
    for place in range(rounds):
        for running in work.servers:
            name = running.server.name
            so_far = turns[name]
            if isinstance(so_far, list):
                tell(f"{work.row.name}, {work.connections} connections, round {place + 1} of {rounds}: {name}")
                turn = _tried(running, partial(_turn, running, work, seconds))
                turns[name] = turn if isinstance(turn, str) else [*so_far, turn]
    return Cell(work.row, work.connections, turns)


def _first(running: Running, work: Work) -> list[Measurement]:
    """No measurements yet, of a server that answers rightly and is warm."""
    verify(running, work.row)
    row = running.server.asked(work.row)
    if len(row.body) < LARGE:
        warm = by_calls if row.transport == GRPC else by_sockets
        warm(running.target, row, work.connections, WARM_UP)
    return []


def _turn(running: Running, work: Work, seconds: int) -> Measurement:
    before = cpu_seconds(running.pid)
    seen = load(running.target, running.server.asked(work.row), work.connections, seconds)
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
