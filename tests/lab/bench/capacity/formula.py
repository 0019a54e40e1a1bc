"""What queueing theory says: Erlang's formulas for servers with a bounded queue. Knows no simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Numbers:
    """What a load does to replicas.

    Args:
        utilisation: The part of all slots that are busy, on average.
        wait: How many seconds one in a hundred of the requests that are answered waits at least for its slot.
        refused: The part of the requests that are refused.
    """

    utilisation: float
    wait: float
    refused: float


def queue(slots: int, places: int, load: float, seconds: float) -> Numbers:
    """One queue before `slots`, with `places` beside them (M/M/c/K): arrivals by chance, and calls of exponential length.

    It is exact for one replica, and for each of several behind a balancer that chooses by chance. With the slots and the places of all
    replicas, it is what no balancer can be better than.

    Args:
        slots: How many calls run at once.
        places: How many requests may wait beside them.
        load: What arrives, as a part of what the slots can do.
        seconds: What a call takes on average.
    """
    inside = slots + places
    offered = load * slots
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, inside + 1)))))  # of the factorials
    states = np.arange(inside + 1)
    busy = np.minimum(states, slots)
    weights = busy * math.log(offered) - logs[busy] + (states - busy) * math.log(load)
    chances = np.exp(weights - weights.max())
    chances /= chances.sum()
    refused = float(chances[-1])
    accepted = chances[:-1] / (1 - refused)
    waiting = accepted[slots:]  # that find all slots busy, and so many before them

    def still_waits(rounds: float) -> float:
        """How likely a request waits longer than `rounds` in which one slot ends one call."""
        ended = slots * rounds
        counts = np.arange(len(waiting))
        return float(waiting @ np.cumsum(np.exp(counts * math.log(ended) - ended - logs[: len(waiting)])))

    low, high = 1e-9, 2.0 * (places + 10)
    if not len(waiting) or waiting.sum() <= 0.01:
        return Numbers(load * (1 - refused), 0.0, refused)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if still_waits(middle) > 0.01 else (low, middle)
    return Numbers(load * (1 - refused), high * seconds, refused)


def burst(size: int, slots: int, places: int, load: float, seconds: float) -> Numbers:
    """Bursts, each of which finds all slots free and is spread evenly: what is refused, and how long the last one waits that is not.

    It is the least: bursts that come while one before them is answered are refused and wait more.
    """
    taken = min(size, slots + places)
    return Numbers(load * taken / size, (math.ceil(taken / slots) - 1) * seconds, 1 - taken / size)
