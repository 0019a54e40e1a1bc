"""What Linux tells about the machine and its processes: cores, CPU time, memory. It needs /proc and changes nothing but affinities."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")

_PACKAGES: Final = (
    "uvicorn",
    "uvloop",
    "httptools",
    "gunicorn",
    "starlette",
    "numpy",
    "msgspec",
    "pandas",
    "grpcio",
    "pyvoy",
    "zttp",
)


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Run the block, and every process that it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def two_cores() -> tuple[int, int]:
    """The cores for the client and for the servers: the same one where there is no other."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[-1]


def share_in_use(seconds: float = 0.5) -> float:
    """What part of all cores somebody uses, in a while in which this process does nothing; what a hypervisor takes away counts too."""
    idle, total = _idle_and_total()
    time.sleep(seconds)
    idle_after, total_after = _idle_and_total()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def _idle_and_total() -> tuple[int, int]:
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def cpu_seconds(pid: int) -> float:
    """What a process and all that it has started have taken of the CPU, in user and kernel mode together, to a hundredth of a second."""
    return sum(_ticks(each) for each in family(pid)) / _TICKS


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            parents[int(entry.name)] = int(stat[1])
    members = [pid]
    for member in members:  # which grows as children are found
        members += [child for child, parent in parents.items() if parent == member]
    return members


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _ticks(pid: int) -> int:
    stat = _stat(pid)
    return int(stat[11]) + int(stat[12]) if stat else 0


def memory(pid: int, field: str = "VmRSS") -> int:
    """The bytes that a process holds; `VmHWM` is the most that it ever held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended")


def described() -> str:
    """The machine, the versions and the day, as they belong beside every table."""
    model = next((line.split(": ", 1)[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "unknown CPU")
    packages = ", ".join(f"{name} {found}" for name in _PACKAGES if (found := _version(name)))
    day = datetime.now(UTC).date().isoformat()
    return f"{model}, {os.cpu_count()} cores; Linux {platform.release()}; Python {sys.version.split()[0]}, {packages}; {day}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
