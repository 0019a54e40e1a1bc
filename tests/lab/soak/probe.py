"""Asks a server for its health, in a process of its own so that nothing else delays it: `python -m tests.lab.soak.probe ADDRESS`.

It ends with its standard input, and prints how many milliseconds each answer took, counted from when it was due to be asked: so what
waits behind a slow answer counts as slow too.
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
    due = time.perf_counter()
    while not ended.wait(max(0.0, due + _PAUSE_SECONDS - time.perf_counter())):
        due += _PAUSE_SECONDS
        connection.request("GET", "/v2/health/ready")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b'{"ready":true,"live":true}')
        times.append((time.perf_counter() - due) * 1000)
    print(" ".join(f"{each:.3f}" for each in times))


def _tell_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()
