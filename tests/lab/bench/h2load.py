"""h2load as the client of the gRPC rows: it speaks HTTP/2 and no gRPC, which frames one message in one request by five bytes in front."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from .rows import LoadFailed, Row

PATIENCE: Final = 120
"""Seconds after which a server counts as hung."""

_DONE: Final = re.compile(r"requests: .* (\d+) done, (\d+) succeeded")
_DATA: Final = re.compile(r"\((\d+)\) data")
_SECONDS: Final = re.compile(r"finished in ([0-9.]+)(us|ms|s)")
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def frame(message: bytes) -> bytes:
    """A message, not compressed, as it travels."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def latencies(port: int, row: Row, calls: int, seconds: int, answer_size: int, *, requests: int | None = None) -> tuple[list[float], float]:
    """How long each call took, and all together, in seconds.

    Args:
        port: Of the server.
        row: What is sent.
        calls: How many are under way at once, over one connection.
        seconds: For how long.
        answer_size: The size of a right answer's message: a call that fails brings none, and the status 200 all the same.
        requests: How many calls are made, however long they take.

    Raises:
        LoadFailed: A call did not succeed.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        how_long = f"-n{requests}" if requests else f"-D{seconds}"
        printed = run(port, row.path, row.body, "-c1", f"-m{calls}", how_long, f"--log-file={log}")
        took = [int(line.split()[2]) / 1e6 for line in log.read_text().splitlines()]
    return took, seconds_of(printed, len(frame(bytes(answer_size))))


def run(port: int, path: str, message: bytes, *options: str) -> str:
    """What h2load prints that sends a message again and again.

    Raises:
        LoadFailed: It ended with an error.
    """
    with tempfile.NamedTemporaryFile() as data:
        data.write(frame(message))
        data.flush()
        command = ["h2load", "-t1", f"--data={data.name}", "-H", "content-type: application/grpc", "-H", "te: trailers", *options]
        ran = subprocess.run([*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, check=False, timeout=PATIENCE)
    if ran.returncode:
        raise LoadFailed(f"h2load failed: {ran.stderr or ran.stdout[-300:]}")
    return ran.stdout


def seconds_of(printed: str, size: int, calls: int | None = None) -> float:
    """The seconds that h2load reports, if all its calls, of which there should be so many, succeeded and brought so many bytes each.

    Raises:
        LoadFailed: Not all of them succeeded, or they brought less.
    """
    done, received, lasted = _DONE.search(printed), _DATA.search(printed), _SECONDS.search(printed)
    if not (done and received and lasted):
        raise LoadFailed(f"h2load failed: {printed[-300:]}")
    expected = calls or int(done[1])
    if int(done[2]) != expected or int(received[1]) < expected * size:
        raise LoadFailed(f"expected {expected * size} bytes of {expected} calls, got {received[1]} of {done[2]}")
    return float(lasted[1]) * _UNITS[lasted[2]]
