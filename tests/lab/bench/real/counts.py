"""What a request costs the kernel: context switches, and system calls by strace. Both change less than clocks on a busy machine."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..load import by_sockets
from ..machine import context_switches, family
from ..measure import verify
from ..rows import Row
from ..servers import Running

REQUESTS: Final = 500
WARM: Final = 100

_SHOWN: Final = 4
"""Of the system calls, the most frequent that the table names."""

_LINE: Final = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Counts:
    """What one request costs, as the mean over many.

    Args:
        voluntary: How often a thread gave up the CPU to wait.
        involuntary: How often a thread lost the CPU to another.
        calls: How many system calls of each name were made; None where strace is not installed.
    """

    voluntary: float
    involuntary: float
    calls: Mapping[str, float] | None

    def most_frequent(self) -> str:
        """The system calls that are made most often."""
        calls = sorted((self.calls or {}).items(), key=lambda call: -call[1])
        return ", ".join(f"{name} {count:.2f}" for name, count in calls[:_SHOWN])


def has_strace() -> bool:
    return shutil.which("strace") is not None


def counts_of(running: Running, row: Row, connections: int) -> Counts:
    """Count while a server answers one row; first without strace, which makes each system call slow."""
    verify(running, row)
    asked = running.server.asked(row)
    by_sockets(running.target, asked, connections, 0, WARM)
    before = context_switches(running.pid)
    requests = by_sockets(running.target, asked, connections, 0, REQUESTS).requests
    voluntary, involuntary = (after - earlier for after, earlier in zip(context_switches(running.pid), before, strict=True))
    calls = None
    if has_strace():
        with _traced(family(running.pid)) as file:
            traced = by_sockets(running.target, asked, connections, 0, REQUESTS).requests
        calls = {name: count / traced for name, count in parsed(file.read_text()).items()}
        file.unlink()
    return Counts(voluntary / requests, involuntary / requests, calls)


def parsed(summary: str) -> dict[str, int]:
    """How often each system call was made, from the summary that `strace -c` writes."""
    return {name: int(count) for count, name in _LINE.findall(summary) if name != "total"}


@contextmanager
def _traced(processes: Sequence[int]) -> Iterator[Path]:
    """The file that has the summary when the block has ended."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        command = ["strace", "-c", "-f", "-o", file.name, *(word for each in processes for word in ("-p", str(each)))]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                line = process.stderr.readline()
                if "attached" not in line:
                    raise RuntimeError(f"strace could not look into process {processes[0]}: {line.strip()}")
                yield Path(file.name)
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate()
