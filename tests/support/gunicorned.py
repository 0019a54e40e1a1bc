"""gunicorn with threads around the stressed server: `python -m tests.support.gunicorned PORT WORKERS [THREADS]` prints its
address once it listens."""

from __future__ import annotations

import logging
import sys
from typing import Any

from gunicorn.app.base import BaseApplication

from tests.support.stressed import make_wsgi_app


class Gunicorn(BaseApplication):  # type: ignore[misc]
    """gunicorn without its command line."""

    def load_config(self) -> None:
        port, workers, threads = [*sys.argv[1:], "16"][:3]
        settings: dict[str, Any] = {
            "bind": f"127.0.0.1:{port}",
            "workers": int(workers),
            "worker_class": "gthread",
            "threads": int(threads),
            "keepalive": 60,
            "loglevel": "critical",
            "graceful_timeout": 10,
            "when_ready": lambda _: print(f"127.0.0.1:{port}", flush=True),
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return make_wsgi_app()


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    Gunicorn().run()
