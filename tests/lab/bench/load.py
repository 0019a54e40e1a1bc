"""The clients of the benchmark: one answer to look at, or as many as a server gives in a while.

Small requests over HTTP are sent by wrk. Large ones are sent by loops over plain sockets, which read in larger pieces than wrk does;
they stand in for wrk where that is not installed. Calls of gRPC are sent by h2load.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import h2load
from .rows import GRPC, Answer, LoadFailed, Row

LARGE: Final = 2**16
"""Bodies from this size on are sent by the loop over sockets."""

LEAST: Final = 3
"""Answers that a measurement waits for, however long they take."""

PATIENCE: Final = 60
"""Seconds without any progress after which a server counts as hung."""

_PIECE: Final = 2**20
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    """Where a row is sent: ports of the loopback interface, and the prefix that the protocol is mounted at over HTTP.

    After `most_calls` of gRPC, a connection is closed; None where it is not.
    """

    port: int
    grpc_port: int
    prefix: str
    most_calls: int | None = None

    def url(self, row: Row) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}{row.path}"

    def request(self, row: Row) -> bytes:
        """The row as it travels."""
        headers = {"host": f"127.0.0.1:{self.port}", **row.headers, "content-length": str(len(row.body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{row.method} {self.prefix}{row.path} HTTP/1.1\r\n{lines}\r\n".encode() + row.body


@dataclass(frozen=True)
class Load:
    """What a client saw.

    Args:
        requests: How many were answered.
        seconds: In how long.
        p50: The median latency, in milliseconds.
        p99: The latency that one request in a hundred exceeded, in milliseconds.
    """

    requests: int
    seconds: float
    p50: float
    p99: float


def ask(target: Target, row: Row) -> Answer:
    """One answer."""
    if row.transport == GRPC:
        from . import grpc_client

        return grpc_client.ask(target.grpc_port, row)
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=PATIENCE)
    try:
        connection.request(row.method, target.prefix + row.path, row.body or None, dict(row.headers))
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())
    finally:
        connection.close()


def has_wrk() -> bool:
    return shutil.which("wrk") is not None


def has_h2load() -> bool:
    return shutil.which("h2load") is not None


def client() -> str:
    """What sends the rows, for the reader of the table."""
    sockets = "loops over plain sockets"
    small = f"wrk for bodies below {LARGE // 1024} KiB, {sockets} for larger ones" if has_wrk() else sockets
    return f"{small}; h2load for gRPC"


def load(target: Target, row: Row, connections: int, seconds: int) -> Load:
    """Send a row again and again over some connections for some seconds.

    Raises:
        LoadFailed: A request was not answered with 200.
    """
    if row.transport == GRPC:
        return by_h2load(target, row, connections, seconds)
    if has_wrk() and len(row.body) < LARGE:
        return by_wrk(target, row, connections, seconds)
    return by_sockets(target, row, connections, seconds)


_SCRIPT: Final = """
local body = io.open("{folder}/body", "rb")
wrk.method = "{method}"
wrk.body = body:read("*a")
body:close()
{headers}

function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format('{{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "refused": %d, "broken": %d}}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
"""


def by_wrk(target: Target, row: Row, connections: int, seconds: int) -> Load:
    """With one thread of wrk."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "row.lua")
        Path(folder, "body").write_bytes(row.body)
        headers = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in row.headers.items())
        script.write_text(_SCRIPT.format(folder=folder, method=row.method, headers=headers))
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", f"--timeout={PATIENCE}s", "-s", str(script), target.url(row)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = ran.stdout.splitlines()
    if ran.returncode or not lines or not lines[-1].startswith("{"):
        raise LoadFailed(f"{row.name}: wrk failed: {ran.stderr or ran.stdout}")
    said: Mapping[str, int] = json.loads(lines[-1])
    if said["refused"] or said["broken"] or not said["requests"]:
        raise LoadFailed(
            f"{row.name}: of {said['requests']} requests {said['refused']} were not answered with 2xx, {said['broken']} connections broke"
        )
    return Load(said["requests"], said["microseconds"] / 1e6, said["p50"] / 1e3, said["p99"] / 1e3)


def by_sockets(target: Target, row: Row, connections: int, seconds: float, least: int = LEAST) -> Load:
    """With a thread for each connection, in this process, until the seconds are over and at least so many requests were answered."""
    request, latencies = target.request(row), list[float]()
    start = time.perf_counter()

    def ask_on_and_on() -> None:
        piece = bytearray(_PIECE)
        with socket.create_connection(("127.0.0.1", target.port), PATIENCE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while time.perf_counter() - start < seconds or len(latencies) < least:
                began = time.perf_counter()
                try:
                    connection.sendall(request)
                    _receive(connection, piece)
                except TimeoutError:
                    raise LoadFailed(f"{row.name}: no answer in {PATIENCE} seconds") from None
                except ConnectionError:
                    raise LoadFailed("the server closed the connection") from None
                latencies.append(time.perf_counter() - began)

    with ThreadPoolExecutor(connections) as threads:
        for asked in [threads.submit(ask_on_and_on) for _ in range(connections)]:
            asked.result()
    return _loaded(latencies, time.perf_counter() - start)


def _receive(connection: socket.socket, piece: bytearray) -> None:
    """Read one answer to its end."""
    head, found, body = b"", b"", b""
    while not found:
        head += piece[: _receive_piece(connection, piece)]
        head, found, body = head.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise LoadFailed(f"expected 200, got {head[:200].decode('latin-1')}")
    if length := _LENGTH.search(head + b"\r\n"):
        left = int(length[1]) - len(body)
        while left > 0:
            left -= _receive_piece(connection, piece)
        return
    end = (b"\r\n" + body)[-len(_LAST_CHUNK) :]
    while end != _LAST_CHUNK:  # the last of the chunks is empty
        count = _receive_piece(connection, piece)
        end = (end + piece[max(0, count - len(_LAST_CHUNK)) : count])[-len(_LAST_CHUNK) :]


def _receive_piece(connection: socket.socket, piece: bytearray) -> int:
    if not (count := connection.recv_into(piece)):
        raise LoadFailed("the server closed the connection")
    return count


def by_h2load(target: Target, row: Row, connections: int, seconds: int) -> Load:
    """With calls of gRPC over one connection of h2load, which costs less than grpcio's client: else that would be what is measured."""
    answer_size = len(ask(target, row).body)
    return _loaded(*h2load.latencies(target.grpc_port, row, connections, seconds, answer_size, requests=target.most_calls))


def _loaded(latencies: list[float], seconds: float) -> Load:
    latencies.sort()
    return Load(len(latencies), seconds, latencies[len(latencies) // 2] * 1e3, latencies[int(len(latencies) * 0.99)] * 1e3)
