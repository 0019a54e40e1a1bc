"""Asks a server for its health, in a process of its own so that nothing else delays it: `python -m tests.soak.probe ADDRESS`.

It ends with its standard input, and prints how many milliseconds each answer took.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time

_PAUSE_SECONDS = 0.02


def main() -> None:
    ended = threading.Event()
    threading.Thread(target=_tell_end, args=(ended,), daemon=True).start()
    connection = http.client.HTTPConnection(sys.argv[1], timeout=30)
    times = []
    while not ended.wait(_PAUSE_SECONDS):
        began = time.perf_counter()
        connection.request("GET", "/v2/health/ready")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b'{"ready":true,"live":true}')
        times.append((time.perf_counter() - began) * 1000)
    print(" ".join(f"{each:.3f}" for each in times))


def _tell_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()
