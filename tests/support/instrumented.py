"""gunicorn with workers that share a page of Prometheus: `python -m tests.support.instrumented PORT WORKERS`.

PROMETHEUS_MULTIPROC_DIR names the folder that they share.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from werkzeug.wrappers import Request, Response

from oip_asgi import InferenceServer, OIPWSGIMiddleware, TensorSpec
from oip_asgi.prometheus import instrument
from tests.support.run_server import run_gunicorn


def make_app() -> Any:
    server = InferenceServer("shared")
    instrument(server)

    @server.model("echo", inputs=[TensorSpec("x", "FP32", [-1])])
    def echo(x: Any) -> Any:
        return x

    @server.model("pid")
    def pid() -> int:
        return os.getpid()

    server.register("loads", lambda: 1, load=lambda: None)

    @Request.application
    def metrics(request: Request) -> Response:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(generate_latest(registry), content_type="text/plain")

    return OIPWSGIMiddleware(metrics, server)


def main() -> None:
    port, workers = map(int, sys.argv[1:])
    run_gunicorn(
        make_app,
        port,
        workers=workers,
        threads=4,
        preload_app=True,
        loglevel="warning",
        graceful_timeout=10,
        child_exit=lambda _, worker: mark_process_dead(worker.pid),  # type: ignore[no-untyped-call]
    )


if __name__ == "__main__":
    main()
