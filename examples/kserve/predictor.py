"""A KServe custom predictor: any application of yours with the protocol in it, in a container that listens on 8080.

uvicorn --app-dir examples/kserve --host 0.0.0.0 --port 8080 predictor:app
curl http://127.0.0.1:8080/v2/models/iris

Under gunicorn's ASGI worker, gRPC is on the same port: inference_service_grpc.yaml. Prometheus finds the numbers at /metrics.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.prometheus import instrument

data = load_iris()
classifier = make_pipeline(StandardScaler(), LogisticRegression())
server = InferenceServer("iris-predictor")


def fit() -> None:
    classifier.fit(data.data, data.target)


@server.model(
    "iris",
    inputs=[TensorSpec("x", "FP64", [-1, 4])],
    outputs=[TensorSpec("species", "BYTES", [-1])],
    load=fit,
    max_concurrency=1,  # the CPUs that the container may use
    max_queue=20,  # inference_service.yaml adds a replica long before so many wait
)
def iris(x: Any) -> Any:
    return data.target_names[classifier.predict(x)]


registry = CollectorRegistry()
instrument(server, registry)


async def metrics(request: Request) -> Response:
    return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")


app = Starlette(routes=[Route("/metrics", metrics)])
OIPApp(server).install(app, "/v2", grpc=True)
