"""What requests per second do not show: the memory that large bodies take, and whether health answers while they are worked on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.support.processes import ROOT

from .load import by_sockets
from .machine import forget_peak, memory
from .measure import verify
from .rows import one_mebibyte, rows
from .servers import Running

MANY: Final = 1_000
WARM: Final = 100
LARGE_ONES: Final = 5
CONNECTIONS: Final = 8

SETTLED: Final = 5.0
"""Seconds after which a process counts as idle again."""


@dataclass(frozen=True)
class Memory:
    """What a server process held, in bytes.

    Args:
        idle: Before, when it had answered one small request.
        peak: At most, above that, while it answered a few requests of 64 MiB one after the other.
        body: The size of such a request.
        left: Above idle, a while after them.
        grown: What 1,000 requests of 1 MiB added to what 100 of them had left.
    """

    idle: int
    peak: int
    body: int
    left: int
    grown: int


def memory_of(running: Running, tell: Callable[[str], object]) -> Memory:
    """Send large bodies to a server that has seen none, and read what Linux says of its process."""
    small, large = rows(["binary 1x4", "binary 64 MiB"])
    verify(running, small)
    tell(f"memory: {running.server.name}, {large.name}")
    idle = memory(running.pid)
    forget_peak(running.pid)
    by_sockets(running.target, large, 1, 0, LARGE_ONES)
    peak = memory(running.pid, "VmHWM") - idle
    time.sleep(SETTLED)
    left = memory(running.pid) - idle
    tell(f"memory: {running.server.name}, {MANY} requests of 1 MiB")
    by_sockets(running.target, one_mebibyte(), 1, 0, WARM)
    before = memory(running.pid)
    by_sockets(running.target, one_mebibyte(), 1, 0, MANY)
    return Memory(idle, peak, len(large.body), left, memory(running.pid) - before)


@dataclass(frozen=True)
class Health:
    """How a server answers for its health under large requests.

    Args:
        asked: How often it was asked.
        p50: The median latency, in milliseconds.
        p99: The latency that one request in a hundred exceeded, in milliseconds.
        worked: How many large requests it answered meanwhile.
    """

    asked: int
    p50: float
    p99: float
    worked: int


def health_of(running: Running, seconds: int, tell: Callable[[str], object]) -> Health:
    """Ask for health/live from one process while this one sends 1000x1000 JSON over eight connections."""
    [large], [live] = rows(["JSON 1000x1000"]), rows(["health/live"])
    tell(f"health: {running.server.name}, while {CONNECTIONS} connections send {large.name}")
    # the probe ends first, so that it never asks an idle server
    command = [sys.executable, "-m", "tests.lab.bench.probe", running.target.url(live), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as probe:
        seen = by_sockets(running.target, large, CONNECTIONS, seconds + 1)
        printed = probe.communicate()[0]
    times = sorted(map(float, printed.split()))
    return Health(len(times), times[len(times) // 2], times[int(len(times) * 0.99)], seen.requests)
