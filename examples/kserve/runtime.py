"""The container of serving_runtime.yaml: it serves a scikit-learn estimator that KServe has put into a directory.

python examples/kserve/runtime.py --model_name iris --model_dir DIRECTORY --http_port 8080    serves DIRECTORY/model.joblib

A joblib file is code: run only those that you trust.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.prometheus import instrument


def make_app(name: str, directory: Path) -> Starlette:
    """An application that serves the estimator of a directory under a name. It is not ready before the file is read."""
    server = InferenceServer("joblib-runtime")

    def load() -> Callable[..., Any]:
        predict: Callable[..., Any] = joblib.load(directory / "model.joblib").predict
        return predict

    server.register(name, load=load, inputs=[TensorSpec("x", "FP64", [-1, -1])], max_concurrency=1, max_queue=20)
    registry = CollectorRegistry()
    instrument(server, registry)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    app = Starlette(routes=[Route("/metrics", metrics)])
    OIPApp(server).install(app, "/v2")
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a scikit-learn estimator over the Open Inference Protocol.")
    parser.add_argument("--model_name", required=True)
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--http_port", type=int, default=8080)
    given = parser.parse_args()
    app = make_app(given.model_name, given.model_dir)
    uvicorn.run(app, host="0.0.0.0", port=given.http_port, timeout_graceful_shutdown=20)


if __name__ == "__main__":
    main()
