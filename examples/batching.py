"""A random forest in a FastAPI application, called once for many requests: what `max_batch_size=` buys.

python examples/batching.py            serves on http://127.0.0.1:8000
python examples/batching.py --check    serves on a free port, sends 256 images over 32 connections to both models, and ends

`digits` is called for each request. `digits_batched` is the same function, and is called for all requests that came while it was busy,
or within 20 ms of the first.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import numpy as np
import uvicorn
from digits import serving
from fastapi import FastAPI
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from oip_asgi import InferenceServer, OIPApp, TensorSpec

REQUESTS = 256
CONNECTIONS = 32


def train() -> tuple[RandomForestClassifier, Any]:
    """A classifier, and images [n, 64] of FP32."""
    images, digits = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    return RandomForestClassifier(random_state=0).fit(images, digits), images


def make_app(classifier: RandomForestClassifier) -> FastAPI:
    inputs, outputs = [TensorSpec("image", "FP32", [-1, 64])], [TensorSpec("digit", "INT64", [-1])]
    server = InferenceServer(name="batching")
    server.register("digits", classifier.predict, inputs=inputs, outputs=outputs)
    server.register("digits_batched", classifier.predict, inputs=inputs, outputs=outputs, max_batch_size=64, max_batch_delay=0.02)
    app = FastAPI()
    OIPApp(server).install(app, "/v2")
    return app


def check(url: str, images: Any, expected: list[int]) -> bool:
    """Ask for one image at a time over many connections, print what the server counted, and say whether all answers are right."""
    limits = httpx2.Limits(max_connections=CONNECTIONS)
    with httpx2.Client(base_url=url, timeout=60, limits=limits) as client, ThreadPoolExecutor(CONNECTIONS) as threads:

        def ask(model: str, image: Any) -> int:
            inputs = [{"name": "image", "shape": [1, 64], "datatype": "FP32", "data": image.tolist()}]
            answer = client.post(f"/v2/models/{model}/infer", json={"inputs": inputs}).raise_for_status().json()
            digit: int = answer["outputs"][0]["data"][0]
            return digit

        calls: dict[str, int] = {}
        for model in ("digits", "digits_batched"):
            if list(threads.map(lambda image, model=model: ask(model, image), images)) != expected:
                print(f"{model}: the answers are not the model's own")
                return False
            [counted] = client.get(f"/v2/models/{model}/stats").json()["model_stats"]
            calls[model] = counted["execution_count"]
            seconds = sum(batch["compute_infer"]["ns"] for batch in counted["batch_stats"]) / 1e9
            rows = counted["inference_count"] / calls[model]
            print(f"{model:15}{len(images)} requests, {calls[model]:3} calls of {rows:4.1f} rows, {seconds:.2f} seconds in the model")
    return calls["digits"] == len(images) and calls["digits_batched"] < len(images) / 2


def main() -> int:
    classifier, images = train()
    app = make_app(classifier)
    if "--check" not in sys.argv[1:]:
        uvicorn.run(app, host="127.0.0.1", port=8000)
        return 0
    asked = images[:REQUESTS]
    with serving(app) as url:
        return 0 if check(url, asked, classifier.predict(asked).tolist()) else 1


if __name__ == "__main__":
    sys.exit(main())
