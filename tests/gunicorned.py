"""gunicorn with threads around the stressed server: `python -m tests.gunicorned PORT WORKERS` prints its address once it listens."""

from __future__ import annotations

import sys
from typing import Any

from gunicorn.app.base import BaseApplication

from .stressed import make_wsgi_app


class Gunicorn(BaseApplication):  # type: ignore[misc]
    """gunicorn without its command line."""

    def load_config(self) -> None:
        port, workers = sys.argv[1:3]
        settings: dict[str, Any] = {
            "bind": f"127.0.0.1:{port}",
            "workers": int(workers),
            "worker_class": "gthread",
            "threads": 16,
            "loglevel": "critical",
            "graceful_timeout": 10,
            "when_ready": lambda _: print(f"127.0.0.1:{port}", flush=True),
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return make_wsgi_app()


if __name__ == "__main__":
    Gunicorn().run()
