"""h2load as the client of the gRPC rows: it speaks HTTP/2 and no gRPC, which frames one message in one request by five bytes in front."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from .rows import LoadFailed, Row

_SUCCEEDED: Final = re.compile(r"requests: .* (\d+) done, (\d+) succeeded")
_DATA: Final = re.compile(r"\((\d+)\) data")
_SECONDS: Final = re.compile(r"finished in ([0-9.]+)(m?s)")


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
        data, log = Path(folder, "data"), Path(folder, "log")
        data.write_bytes(frame(row.body))
        headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        command = [
            "h2load",
            "-t1",
            "-c1",
            f"-m{calls}",
            f"-n{requests}" if requests else f"-D{seconds}",
            f"--data={data}",
            f"--log-file={log}",
            *headers,
        ]
        ran = subprocess.run([*command, f"http://127.0.0.1:{port}{row.path}"], capture_output=True, text=True, check=False)
        took = [int(line.split()[2]) / 1e6 for line in log.read_text().splitlines()] if log.exists() else []
    done, received, lasted = _SUCCEEDED.search(ran.stdout), _DATA.search(ran.stdout), _SECONDS.search(ran.stdout)
    if ran.returncode or not (done and received and lasted and took):
        raise LoadFailed(f"{row.name}: h2load failed: {ran.stderr or ran.stdout[-300:]}")
    if done[1] != done[2] or int(received[1]) < int(done[1]) * len(frame(bytes(answer_size))):
        raise LoadFailed(f"{row.name}: not every call of {done[1]} was answered with a message of {answer_size} bytes")
    return took, float(lasted[1]) * (1e-3 if lasted[2] == "ms" else 1)
