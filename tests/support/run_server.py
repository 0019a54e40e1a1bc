"""What a server process of the tests runs its application with. Knows no application, and imports a server only to run it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any


def run_uvicorn(app: Any, **settings: Any) -> None:
    """uvicorn on a free port, whose address is printed once it listens: what `processes.serving_module` waits for."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        print(f"127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="critical", **settings)).run(sockets=[listening])


def run_gunicorn(make_app: Callable[[], Any], port: int, **settings: Any) -> None:
    """gunicorn with threads, which keep connections open, and without its command line."""
    from gunicorn.app.base import BaseApplication

    class Gunicorn(BaseApplication):  # type: ignore[misc]
        def load_config(self) -> None:
            for name, value in {"bind": f"127.0.0.1:{port}", "worker_class": "gthread", **settings}.items():
                self.cfg.set(name, value)

        def load(self) -> Any:
            return make_app()

    Gunicorn().run()
