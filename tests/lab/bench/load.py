"""The clients of the benchmark: one answer to look at, or as many as a server gives in a while.

Small requests over HTTP are sent by wrk. Large ones are sent by a loop over plain sockets, which reads in larger pieces than wrk does;
it stands in for wrk where that is not installed. Calls of gRPC are sent by h2load, or by grpcio where that is not installed.
"""

from __future__ import annotations

import http.client
import json
import re
import selectors
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from . import h2load
from .rows import GRPC, Answer, LoadFailed, Row

LARGE: Final = 2**16
"""Bodies from this size on are sent by the loop over sockets."""

HUGE: Final = 2**24
"""Messages of gRPC from this size on are sent in whole rounds."""

ROUNDS: Final = 2
"""How many times as many of them as are under way at once."""

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
        headers = {"host": f"127.0.0.1:{self.port}", **row.headers}
        if row.method != "GET":
            headers["content-length"] = str(len(row.body))
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
    sockets = "a loop over plain sockets"
    small = f"wrk for bodies below {LARGE // 1024} KiB, {sockets} for larger ones" if has_wrk() else sockets
    return f"{small}; {'h2load' if has_h2load() else 'grpcio'} for gRPC"


def load(target: Target, row: Row, connections: int, seconds: int) -> Load:
    """Send a row again and again over some connections for some seconds.

    Raises:
        LoadFailed: A request was not answered with 200.
    """
    if row.transport == GRPC:
        return (by_h2load if has_h2load() else by_calls)(target, row, connections, seconds)
    if has_wrk() and len(row.body) < LARGE:
        return by_wrk(target, row, connections, seconds)
    return by_sockets(target, row, connections, seconds)


_SCRIPT: Final = """
local body = io.open("{folder}/body", "rb")
wrk.method = "{method}"
wrk.body = body:read("*a")
body:close()
{headers}
if wrk.method == "GET" then wrk.body = nil end

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


@dataclass
class _Exchange:
    """A connection in the middle of a request or its answer."""

    socket: socket.socket
    request: bytes
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    head: bytes = b""
    left: int | None = None
    end: bytes = b""
    began: float = 0.0

    def begin(self) -> None:
        self.unsent, self.head, self.left, self.end, self.began = memoryview(self.request), b"", None, b"", time.perf_counter()
        self.send()

    def send(self) -> None:
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent[:_PIECE]) :]
        except BlockingIOError:
            return
        except ConnectionError:
            raise LoadFailed("the server closed the connection") from None

    def receive(self, piece: bytearray) -> bool:
        """Whether the answer has ended."""
        try:
            while not self.has_ended():
                count = self.socket.recv_into(piece)
                if not count:
                    raise LoadFailed("the server closed the connection")
                if self.left is None:
                    self._read_head(bytes(piece[:count]))
                else:
                    self.left -= count
                    self.end = (self.end + piece[max(0, count - len(_LAST_CHUNK)) : count])[-len(_LAST_CHUNK) :]
        except BlockingIOError:
            return False
        except ConnectionError:
            raise LoadFailed("the server closed the connection") from None
        return True

    def has_ended(self) -> bool:
        return self.left == 0 or (self.left is not None and self.left < 0 and self.end == _LAST_CHUNK)

    def _read_head(self, data: bytes) -> None:
        self.head += data
        head, found, body = self.head.partition(b"\r\n\r\n")
        if not found:
            return
        if not head.startswith(b"HTTP/1.1 200 "):
            raise LoadFailed(f"expected 200, got {self.head[:200].decode('latin-1')}")
        length = _LENGTH.search(head + b"\r\n")
        # below zero for a body in chunks: its end is known by the last of them, which is empty
        self.left = int(length[1]) - len(body) if length else -1
        self.end = body[-len(_LAST_CHUNK) :]


def by_sockets(target: Target, row: Row, connections: int, seconds: float, least: int = LEAST) -> Load:
    """With a loop over sockets, in this process, until the seconds are over and at least so many requests were answered."""
    request = target.request(row)
    piece = bytearray(_PIECE)
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        exchanges = [_Exchange(socket.create_connection(("127.0.0.1", target.port)), request) for _ in range(connections)]
        try:
            start = time.perf_counter()
            for exchange in exchanges:
                exchange.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                exchange.socket.setblocking(False)
                exchange.begin()
                selector.register(exchange.socket, _wanted(exchange), exchange)
            while (passed := time.perf_counter() - start) < seconds or len(latencies) < least:
                ready = selector.select(PATIENCE)
                if not ready:
                    raise LoadFailed(f"{row.name}: no answer in {PATIENCE} seconds")
                for key, _ in ready:
                    _advance(key.data, selector, piece, latencies)
        finally:
            for exchange in exchanges:
                exchange.socket.close()
    return _loaded(latencies, passed)


def by_h2load(target: Target, row: Row, connections: int, seconds: int) -> Load:
    """With calls of gRPC over one connection of h2load, which costs less than grpcio's client: else that would be what is measured."""
    # whole rounds of calls as large as these, which a time would cut off
    requests = ROUNDS * connections if len(row.body) >= HUGE else target.most_calls
    answer_size = len(ask(target, row).body)
    return _loaded(*h2load.latencies(target.grpc_port, row, connections, seconds, answer_size, requests=requests))


def by_calls(target: Target, row: Row, connections: int, seconds: float) -> Load:
    """With calls over one channel of grpcio's own client."""
    from . import grpc_client

    return _loaded(*grpc_client.latencies(target.grpc_port, row, connections, seconds, LEAST))


def _loaded(latencies: list[float], seconds: float) -> Load:
    latencies.sort()
    return Load(len(latencies), seconds, latencies[len(latencies) // 2] * 1e3, latencies[int(len(latencies) * 0.99)] * 1e3)


def _advance(exchange: _Exchange, selector: selectors.BaseSelector, piece: bytearray, latencies: list[float]) -> None:
    was_sending = bool(exchange.unsent)
    if was_sending:
        exchange.send()
    if exchange.receive(piece):
        latencies.append(time.perf_counter() - exchange.began)
        exchange.begin()
    if was_sending != bool(exchange.unsent):
        selector.modify(exchange.socket, _wanted(exchange), exchange)


def _wanted(exchange: _Exchange) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if exchange.unsent else 0)
