"""Asks a server for its health again and again, and tells the longest wait: `python -m tests.lab.hostile.probe ADDRESS PID`.

For each line that it reads it prints the longest wait since the last one in seconds. Time does not count in which a thread of the server,
or this process itself, was ready to run and had no CPU: that is the doing of others on the machine. The kernel tells it for each thread.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from pathlib import Path

ASKED = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
PAUSE = 0.002
"""Seconds between two questions: a stall of more than twice that is seen."""


def without_cpu(pid: int | str) -> float:
    """The seconds that the threads of a process were ready to run and had no CPU; 0 where the kernel does not tell."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[1])
        except OSError:
            continue  # it has ended
    return total / 1e9


def ask(connection: socket.socket) -> None:
    """One question and its answer."""
    connection.sendall(ASKED)
    received = b""
    while not received.endswith(b'{"live":true}'):
        more = connection.recv(4096)
        if not more:
            raise ConnectionError("the server has closed the probe's connection")
        received += more


def main(address: str, pid: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        longest = 0.0
        while True:
            stolen, began = without_cpu(pid) + without_cpu("self"), time.monotonic()
            ask(connection)
            waited = time.monotonic() - began
            longest = max(longest, waited - (without_cpu(pid) + without_cpu("self") - stolen))
            if select.select([sys.stdin], [], [], PAUSE)[0]:
                if not sys.stdin.readline():
                    return
                print(longest, flush=True)
                longest = 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
