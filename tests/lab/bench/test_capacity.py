"""The plan of capacity: the formula gives what textbooks do, the simulation what can be counted by hand, and each what the other does."""

from __future__ import annotations

import math
import random
import sys

import numpy as np
import pytest

from tests.lab.bench.capacity import __main__ as capacity
from tests.lab.bench.capacity import real
from tests.lab.bench.capacity.formula import burst, queue
from tests.lab.bench.capacity.simulation import BALANCERS, Replicas, Simulation, Traffic, traffic


def at(arrivals: list[float], calls: list[float]) -> Traffic:
    return Traffic(np.array(arrivals), np.array(calls))


def test_the_formula_says_what_textbooks_say() -> None:
    refusing, waiting, large = queue(1, 0, 1.0, 0.05), queue(1, 1000, 0.8, 0.05), queue(2000, 20_000, 0.8, 0.05)
    assert [refusing.refused, refusing.utilisation, refusing.wait] == pytest.approx([0.5, 0.5, 0])
    assert waiting.wait == pytest.approx(0.05 * math.log(100 * 0.8) / (1 - 0.8), rel=1e-3)
    assert waiting.utilisation == pytest.approx(0.8)
    assert [large.wait, large.refused] == pytest.approx([0, 0], abs=1e-9)


def test_a_queue_that_can_be_counted_by_hand() -> None:
    """One slot, two places: the fourth of four at once is refused, the fifth comes when one place is free again."""
    found = Simulation(Replicas(1, 1, 2), BALANCERS["random"]).run(at([0, 0, 0, 0, 1.5], [1, 1, 1, 1, 1]))
    assert found.refused == pytest.approx(1 / 5)
    assert found.wait == pytest.approx(np.percentile([0, 1, 2, 1.5], 99))
    assert found.utilisation == pytest.approx(4 / 1.5)  # of the time in which requests arrive


def test_the_least_loaded_replica_and_the_better_of_two_get_the_next() -> None:
    assert Simulation(Replicas(3, 1, 0), BALANCERS["least loaded"]).run(at([0, 0, 0, 1.5], [1, 2, 3, 1])).refused == 0
    chosen = [BALANCERS["two choices"](np.array([5, 0]), random.Random(seed)) for seed in range(100)]
    assert 10 < chosen.count(0) < 40  # one in four: both choices are the first


@pytest.mark.parametrize(("slots", "places", "load"), [(1, 3, 0.7), (4, 10, 1.2)])
def test_one_replica_is_simulated_as_the_formula_says(slots: int, places: int, load: float) -> None:
    requests = traffic(load * slots / 0.05, 0.05, 60_000)
    found, told = Simulation(Replicas(1, slots, places), BALANCERS["random"]).run(requests), queue(slots, places, load, 0.05)
    assert found.utilisation == pytest.approx(told.utilisation, rel=0.02)
    assert found.refused == pytest.approx(told.refused, rel=0.1)
    assert found.wait == pytest.approx(told.wait, rel=0.1)


def test_a_better_balancer_refuses_less_and_none_is_better_than_one_queue() -> None:
    requests, replicas = traffic(0.95 * 20 / 0.05, 0.05, 60_000), Replicas(10, 2, 4)
    by_chance, of_two, of_all = (Simulation(replicas, BALANCERS[name]).run(requests).refused for name in BALANCERS)
    assert by_chance == pytest.approx(queue(2, 4, 0.95, 0.05).refused, rel=0.1)  # each replica is alone
    assert by_chance > 3 * of_two
    assert of_two > 2 * of_all
    assert of_all > queue(20, 40, 0.95, 0.05).refused


def test_a_burst_that_finds_nothing_to_do() -> None:
    found = Simulation(Replicas(2, 2, 4), BALANCERS["least loaded"]).run(at([0.0] * 14 + [100.0], [1.0] * 15))
    told = burst(14, 4, 8, 0.5, 1)
    assert [told.refused, told.wait] == pytest.approx([2 / 14, 2])
    assert [found.refused, found.wait] == pytest.approx([2 / 15, 2])


def test_bursts_arrive_at_once_and_as_often_as_the_rate_says() -> None:
    requests = traffic(100, 0.05, 10_000, burst=10, lengths="fixed")
    assert len(np.unique(requests.arrivals)) == 1000
    assert requests.arrivals[-1] == pytest.approx(100, rel=0.1)
    assert set(requests.calls) == {0.05}


def test_the_command_prints_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.main(["--replicas", "1", "2", "--max-queue", "4", "--load", "0.9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1:3] for line in lines[2:]] == [
        [" 1        ", " random       "],
        [" 2        ", " random       "],
        [" 2        ", " two choices  "],
        [" 2        ", " least loaded "],
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the benchmark's processes are run on Linux")
def test_two_processes_refuse_what_the_simulation_says() -> None:
    """14 requests at once, and two replicas that take 6 each."""
    requests = at([0.0] * 14, [2.0] * 14)
    found = Simulation(real.REPLICAS, BALANCERS["least loaded"]).run(at([0.0] * 14 + [100.0], [2.0] * 15))
    measured = real.measure(requests, BALANCERS["least loaded"])
    assert measured.refused == pytest.approx(2 / 14)
    assert found.refused == pytest.approx(2 / 15)
    assert measured.wait >= 4  # two calls of two seconds come before
