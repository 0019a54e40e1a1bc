"""A KServe custom predictor: any application of yours with the protocol in it, in a container that listens on 8080.

uvicorn --app-dir examples/kserve --host 0.0.0.0 --port 8080 predictor:app
curl http://127.0.0.1:8080/v2/models/iris
"""

from __future__ import annotations

from typing import Any

from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from starlette.applications import Starlette

from oip_asgi import InferenceServer, OIPApp, TensorSpec

data = load_iris()
classifier = make_pipeline(StandardScaler(), LogisticRegression())
server = InferenceServer("iris-predictor")


def fit() -> None:
    classifier.fit(data.data, data.target)


@server.model(
    "iris",
    platform="sklearn_pipeline",
    inputs=[TensorSpec("x", "FP64", [-1, 4])],
    outputs=[TensorSpec("species", "BYTES", [-1])],
    load=fit,
)
def iris(x: Any) -> Any:
    return data.target_names[classifier.predict(x)]


app = Starlette()
OIPApp(server).install(app, "/v2")
