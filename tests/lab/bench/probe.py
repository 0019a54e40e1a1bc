"""Asks for one row again and again, in a process of its own so that nothing else delays it: `python -m tests.lab.bench.probe URL SECONDS`.

It prints how many milliseconds each answer took.
"""

from __future__ import annotations

import http.client
import sys
import time
from urllib.parse import urlsplit

_PAUSE_SECONDS = 0.02


def main() -> None:
    url = urlsplit(sys.argv[1])
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=60)
    end = time.monotonic() + float(sys.argv[2])
    times = []
    while time.monotonic() < end:
        began = time.perf_counter()
        connection.request("GET", url.path)
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise SystemExit(f"{sys.argv[1]} answered {response.status}")
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(_PAUSE_SECONDS)
    print(" ".join(f"{each:.3f}" for each in times))


if __name__ == "__main__":
    main()
