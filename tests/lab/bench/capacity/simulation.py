"""Replicas under a load, simulated: each has a real limiter of the package, whose clock is the simulation's."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from tests.support.inside import AnySlot, enter, limiter_with

from .formula import Numbers

Balancer: TypeAlias = Callable[[Any, random.Random], int]
"""Chooses a replica, by how many requests each has and by chance."""


def _two_choices(loads: Any, chance: random.Random) -> int:
    one, other = chance.randrange(len(loads)), chance.randrange(len(loads))
    return one if loads[one] <= loads[other] else other


BALANCERS: Final[Mapping[str, Balancer]] = {
    "random": lambda loads, chance: chance.randrange(len(loads)),
    "two choices": _two_choices,
    "least loaded": lambda loads, chance: int(loads.argmin()),
}
"""By chance, as Kubernetes' own services; the better of two by chance, as Ray Serve; the best of all, as nginx with `least_conn`."""


@dataclass(frozen=True)
class Replicas:
    """Equal replicas of one model.

    Args:
        number: How many there are.
        max_concurrency: The option of the model.
        max_queue: The option of the model.
    """

    number: int
    max_concurrency: int
    max_queue: int

    @property
    def slots(self) -> int:
        return self.number * self.max_concurrency


@dataclass(frozen=True)
class Traffic:
    """When requests arrive, and how long the call of each takes, in seconds."""

    arrivals: Any
    calls: Any


def traffic(
    rate: float, seconds: float, requests: int, *, burst: int = 1, lengths: Literal["exponential", "fixed"] = "exponential", seed: int = 1
) -> Traffic:
    """Traffic of so many requests.

    Args:
        rate: Requests in a second, on average.
        seconds: What a call takes on average.
        requests: How many there are.
        burst: How many arrive at once, each time; the times are Poisson's.
        lengths: Whether calls differ.
        seed: For the numbers by chance.
    """
    chance = np.random.default_rng(seed)
    arrivals = np.repeat(chance.exponential(burst / rate, -(-requests // burst)).cumsum(), burst)[:requests]
    calls = chance.exponential(seconds, requests) if lengths == "exponential" else np.full(requests, seconds)
    return Traffic(arrivals, calls)


class Simulation:
    """Replicas behind a balancer, which requests go through one after the other.

    Args:
        replicas: The replicas.
        balancer: What chooses one of them for a request.
        seed: For what the balancer chooses by chance.
    """

    def __init__(self, replicas: Replicas, balancer: Balancer, seed: int = 1) -> None:
        self._replicas = replicas
        self._balancer = balancer
        self._chance = random.Random(seed)
        self._now = 0.0
        self._limiters = [limiter_with(replicas.max_concurrency, replicas.max_queue) for _ in range(replicas.number)]
        self._loads = np.zeros(replicas.number, int)
        self._ends: list[tuple[float, int, int, AnySlot]] = []
        self._waits: list[float] = []
        self._busy = 0.0

    def run(self, load: Traffic) -> Numbers:
        """All of some traffic, to its end."""
        for place, (arrival, call) in enumerate(zip(load.arrivals.tolist(), load.calls.tolist(), strict=True)):
            self._until(arrival)
            self._now = arrival
            self._arrive(place, arrival, call)
        span = self._now
        self._until(float("inf"))
        answered = len(self._waits)
        return Numbers(
            self._busy / (span * self._replicas.slots),
            float(np.percentile(self._waits, 99)),
            1 - answered / len(load.arrivals),
        )

    def _arrive(self, place: int, arrival: float, call: float) -> None:
        replica = self._balancer(self._loads, self._chance)
        slot = enter(self._limiters[replica])
        if slot is None:
            return
        self._loads[replica] += 1
        begin = partial(self._begin, place, arrival, call, replica, slot)
        if slot.turn is None:
            begin()
        else:
            slot.turn.then(begin)

    def _begin(self, place: int, arrival: float, call: float, replica: int, slot: AnySlot) -> None:
        self._waits.append(self._now - arrival)
        self._busy += call
        heapq.heappush(self._ends, (self._now + call, place, replica, slot))

    def _until(self, moment: float) -> None:
        """End the calls that end before a moment. Each end may begin another."""
        while self._ends and self._ends[0][0] <= moment:
            self._now, _, replica, slot = heapq.heappop(self._ends)
            self._loads[replica] -= 1
            slot.give_up()
