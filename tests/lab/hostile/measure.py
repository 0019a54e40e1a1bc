"""What a row costs a real server: time, memory, and how long a health probe waits meanwhile."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from tests.support.processes import ROOT, stressed
from tests.support.sockets import read_answer

from .rows import MOST_SECONDS, Hostile

MOST_WAIT = 0.1
"""Seconds that health should wait for any row. By the clock, so it is told, and nothing fails."""

TRIES = 3
"""How often a row is sent before its wait counts as too long: what the server does is the same each time, what others do is not."""


_LOOK: Final = 0.05
"""Seconds for which a server is looked at, whether it is idle."""


@dataclass(frozen=True)
class Outcome:
    """What came of a row."""

    status: int | None
    """None where the connection was closed without an answer."""
    headers: dict[str, str]
    body: bytes
    next_status: int | None
    """What the next request on the same connection was answered; None where that was closed."""


def send(address: str, row: Hostile, staying: ExitStack) -> list[Outcome]:
    """Send a row as often as it says, and a good request behind each. Clients that stay do so as long as `staying` is open."""
    if row.times == 1:
        return [_send(address, row, staying)]
    with ThreadPoolExecutor(row.times) as clients:
        return list(clients.map(lambda _: _send(address, row, staying), range(row.times)))


def _send(address: str, row: Hostile, staying: ExitStack) -> Outcome:
    connecting = _connected(address)
    if row.stays:
        connection = staying.enter_context(connecting)
        for part in row.parts:
            connection.sendall(part)
        return Outcome(None, {}, b"", None)
    with connecting as connection:
        for request in row.before:
            connection.sendall(request)
            assert answer(connection)[0] is not None
        try:
            for part in row.parts:
                connection.sendall(part)
            if row.ends:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server has said all that it wants to, and closed
        if row.leaves:
            return Outcome(None, {}, b"", None)
        status, headers, body = answer(connection)
        next_status = None
        if row.goes_on and status is not None:
            with suppress(OSError):
                connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            next_status = answer(connection)[0]
    return Outcome(status, headers, body, next_status)


def _connected(address: str) -> socket.socket:
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=MOST_SECONDS * 12)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def answer(connection: socket.socket) -> tuple[int | None, dict[str, str], bytes]:
    """The next answer on a connection; no status if there is none."""
    try:
        return read_answer(connection)
    except (OSError, http.client.HTTPException):
        return None, {}, b""


def seconds_until_served(address: str, request: tuple[bytes, ...]) -> float:
    """How long it takes until a good request is answered 200; it is sent again where there is no room for it yet."""
    began = time.monotonic()
    while time.monotonic() < began + 2 * MOST_SECONDS:
        with _connected(address) as connection:
            for part in request:
                connection.sendall(part)
            if answer(connection)[0] == 200:
                break
        time.sleep(0.02)
    return time.monotonic() - began


class Memory:
    """How much the memory of a process grows at most, from now on. Linux only.

    Pages of files do not count: which of a library's are mapped is the kernel's to say, and they are the system's cache.
    """

    def __init__(self, pid: int) -> None:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # forgets the peak
        self._pid = pid
        self._before = self._kilobytes("VmHWM") - self._kilobytes("RssFile")

    def _kilobytes(self, name: str) -> int:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    def grown(self) -> int:
        """By how many bytes it has grown at most."""
        return 1024 * (self._kilobytes("VmHWM") - self._kilobytes("RssFile") - self._before)


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has had: other than the time on the wall, it does not grow with what others do."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What a row has cost.

    Args:
        outcomes: What came of it, each time that it was sent.
        cpu: How many seconds of CPU time the server took.
        grown: By how many bytes the server's memory grew at most.
        waited: How many seconds health waited at most.
        served: How many seconds after it its good request was answered; 0 if it has none.
    """

    outcomes: list[Outcome]
    cpu: float
    grown: int
    waited: float
    served: float


class Measured:
    """A server, and a probe beside it.

    Args:
        name: Which server it is.
        address: Its address.
        pid: The process that answers.
        probe: The process of `probe`.
    """

    def __init__(self, name: str, address: str, pid: int, probe: subprocess.Popen[str]) -> None:
        self._name = name
        self.address = address
        self._pid = pid
        self._probe = probe

    def _longest_wait(self) -> float:
        assert self._probe.stdin is not None
        assert self._probe.stdout is not None
        self._probe.stdin.write("\n")
        self._probe.stdin.flush()
        return float(self._probe.stdout.readline())

    def _settle(self) -> None:
        """Wait until the server is idle: on a busy machine, what is left to do for the row before would count for this one."""
        end, is_idle = time.monotonic() + MOST_SECONDS, False
        while not is_idle and time.monotonic() < end:
            before = cpu_seconds(self._pid)
            time.sleep(_LOOK)
            is_idle = cpu_seconds(self._pid) - before < _LOOK / 2  # the probe wants a little

    def _cost_once(self, row: Hostile) -> Cost:
        self._settle()
        self._longest_wait()
        memory, cpu = Memory(self._pid), cpu_seconds(self._pid)
        with ExitStack() as staying:
            outcomes = send(self.address, row, staying)
            served = seconds_until_served(self.address, row.honest) if row.honest else 0.0
        return Cost(outcomes, cpu_seconds(self._pid) - cpu, memory.grown(), self._longest_wait(), served)

    def cost(self, row: Hostile) -> Cost:
        """What a row costs. It is sent again where health waited for long: the least wait counts."""
        cost = self._cost_of_tries(row)
        if is_slow(cost) and row.read_only and self._name == "gunicorn":
            by_server = self._cost_of_tries(replace(row, parts=row.read_only))
            assert [outcome.status for outcome in by_server.outcomes] == [200]
            cost = replace(cost, waited=max(0.0, cost.waited - by_server.waited))
        return cost

    def _cost_of_tries(self, row: Hostile) -> Cost:
        """The cost of the try in which health waited the least."""
        least = self._cost_once(row)
        for _ in range(TRIES - 1):
            if is_slow(least):
                least = min(least, self._cost_once(row), key=attrgetter("waited"))
        return least


def is_slow(cost: Cost) -> bool:
    return cost.waited > MOST_WAIT


def faults(row: Hostile, cost: Cost) -> list[str]:
    """What is wrong with what a row cost: beyond a bound, or another answer than it should have."""
    found = []
    if cost.grown > row.most_memory:
        found.append(f"memory grew by {cost.grown:,} bytes: expected {row.most_memory:,} at most")
    if cost.cpu > MOST_SECONDS:
        found.append(f"it took {cost.cpu:.1f} s of CPU time: expected {MOST_SECONDS} at most")
    if cost.served > MOST_SECONDS:
        found.append(f"a good request was answered after {cost.served:.1f} s: expected {MOST_SECONDS} at most")
    for outcome in cost.outcomes:
        if row.statuses and outcome.status is not None and outcome.status not in row.statuses:
            found.append(f"{outcome.status}, {outcome.body[:200]!r}: expected one of {row.statuses}")
        if row.is_right is not None and not row.is_right(outcome.body):
            found.append(f"another answer than it should be: {outcome.body[:200]!r}")
    return found


@contextmanager
def measured(name: str) -> Iterator[Measured]:
    """A running server, "uvicorn" or "gunicorn", which has answered already: what its start costs is no row's."""
    with stressed(name) as (_, address):
        with urllib.request.urlopen(f"http://{address}/pid", timeout=60) as response:
            pid = int(response.read())
        command = [sys.executable, "-m", "tests.lab.hostile.probe", address, str(pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as probe:
            try:
                yield Measured(name, address, pid, probe)
            finally:
                probe.terminate()
