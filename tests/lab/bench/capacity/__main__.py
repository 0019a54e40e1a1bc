"""How busy replicas are, how long requests wait, how many are refused, simulated and by formula: `python -m tests.lab.bench.capacity`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from ..report import table
from . import real
from .formula import Numbers, burst, queue
from .simulation import BALANCERS, Replicas, Simulation, traffic

LEAST: Final = 30_000
EACH: Final = 200
"""Requests of a run, and requests for each replica: fewer say nothing of one in a hundred."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.capacity", description=__doc__)
    parser.add_argument("--ms", type=float, default=50, help="what a call of the model takes, in milliseconds")
    parser.add_argument("--max-concurrency", type=int, default=2)
    parser.add_argument("--max-queue", type=int, default=20)
    parser.add_argument("--load", type=float, default=0.8, help="requests that arrive, as a part of what all replicas can answer")
    parser.add_argument("--burst", type=int, default=1, help="how many arrive at once for each replica; 1 is no burst")
    parser.add_argument("--fixed", action="store_true", help="all calls take equally long; else they are exponential, as in the formula")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 10, 100, 1000])
    parser.add_argument("--real", action="store_true", help="instead, two processes and the simulation under the same traffic")
    return parser.parse_args(arguments)


def cells(numbers: Numbers) -> list[str]:
    return [f"{numbers.utilisation:.2f}", f"{numbers.wait * 1000:.0f}", f"{numbers.refused:.2%}"]


def simulated(given: argparse.Namespace) -> list[list[str]]:
    """A row for each number of replicas and each balancer: what is simulated, and what the formula says."""
    rows, seconds = [], given.ms / 1000
    for number in given.replicas:
        replicas = Replicas(number, given.max_concurrency, given.max_queue)
        at_once = given.burst * number if given.burst > 1 else 1
        load = traffic(
            given.load * replicas.slots / seconds,
            seconds,
            max(LEAST, EACH * number, 100 * at_once),
            burst=at_once,
            lengths="fixed" if given.fixed else "exponential",
        )
        for name, balancer in list(BALANCERS.items())[: 1 if number == 1 else None]:
            found = Simulation(replicas, balancer).run(load)
            if at_once == 1:
                parts = 1 if name == "random" else number  # by chance, each replica is alone with its part of the load
                told = queue(parts * given.max_concurrency, parts * given.max_queue, given.load, seconds)
            else:
                told = burst(at_once, replicas.slots, number * given.max_queue, given.load, seconds)
            rows.append([str(number), name, *cells(found), *cells(told)])
    return rows


def compared() -> list[list[str]]:
    """A row for each balancer: two processes, and the simulation under the same traffic."""
    rows, seconds = [], 0.2  # so long that what a busy machine adds to a call is small beside it
    load = traffic(0.9 * real.REPLICAS.slots / seconds, seconds, 500)
    for name, balancer in BALANCERS.items():
        found, measured = Simulation(real.REPLICAS, balancer).run(load), real.measure(load, balancer)
        rows.append([str(real.REPLICAS.number), name, *cells(found), *cells(measured)])
    return rows


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    beside = "measured" if given.real else "formula"
    columns = ("busy", "p99 wait, ms", "refused")
    heads = ["replicas", "balancer", *(f"simulated: {columns[0]}", *columns[1:]), *(f"{beside}: {columns[0]}", *columns[1:])]
    print(table(heads, compared() if given.real else simulated(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
