"""gunicorn with threads around the stressed server: `python -m tests.support.gunicorned PORT WORKERS THREADS` prints its address once it
listens."""

from __future__ import annotations

import logging
import sys

from tests.support.run_server import run_gunicorn
from tests.support.stressed import make_wsgi_app


def main() -> None:
    logging.basicConfig(level=logging.CRITICAL)
    port, workers, threads = map(int, sys.argv[1:])
    run_gunicorn(
        make_wsgi_app,
        port,
        workers=workers,
        threads=threads,
        keepalive=60,
        loglevel="critical",
        graceful_timeout=10,
        when_ready=lambda _: print(f"127.0.0.1:{port}", flush=True),
    )


if __name__ == "__main__":
    main()
