"""The matrix's application as a deployment of Ray Serve, with a model that tells which process answered."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ray import serve
from starlette.applications import Starlette

from oip_asgi import OIPApp

from .models import make_server

MAX_CONCURRENCY, MAX_QUEUE, PROBES = 2, 2, 4
REPLICAS = 2


def make_app(version: str) -> Starlette:
    """The application; its model `who` answers the version and the process after 50 ms.

    Args:
        version: What the model answers; the load of "broken" raises.
    """
    server = make_server()

    def load() -> Callable[..., Any]:
        if version == "broken":
            raise ValueError("this version cannot be loaded")

        def who(x: np.ndarray) -> dict[str, Any]:
            time.sleep(0.05)
            return {"version": [version], "process": np.array([os.getpid()])}

        return who

    server.register("who", load=load, max_concurrency=MAX_CONCURRENCY, max_queue=MAX_QUEUE)
    app = Starlette()
    app.state.server = server
    OIPApp(server).install(app, "/v2")
    return app


def deployment(version: str) -> Any:
    """The deployment of a version."""

    def build() -> Starlette:
        return make_app(version)

    @serve.deployment(
        num_replicas=REPLICAS,
        max_ongoing_requests=MAX_CONCURRENCY + MAX_QUEUE + PROBES,
        max_queued_requests=50,
        health_check_period_s=1,
        graceful_shutdown_wait_loop_s=0.5,
        ray_actor_options={"num_cpus": 0.2},
    )
    @serve.ingress(build)
    class Site:
        def check_health(self) -> None:
            failed = [model.name for model in self.app.state.server.models() if model.state == "failed"]  # type: ignore[attr-defined]
            if failed:
                raise RuntimeError(f"could not load {', '.join(failed)}")

    return Site.bind()  # type: ignore[attr-defined]
