"""The model that the examples serve: scikit-learn's handwritten digits, trained in a second, and a client that checks its answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import numpy as np
import uvicorn
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from oip_asgi import InferenceServer, TensorSpec


def train() -> tuple[Pipeline, Any, Any]:
    """A classifier, and the images [n, 64] of FP32 and true digits [n] of INT64 that it has not seen."""
    images, digits = load_digits(return_X_y=True)
    seen, unseen, seen_digits, unseen_digits = train_test_split(images.astype(np.float32), digits, test_size=0.2, random_state=0)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(seen, seen_digits)
    return classifier, unseen, unseen_digits


def make_server(classifier: Pipeline) -> InferenceServer:
    """The inference server with the classifier as model "digits"."""
    server = InferenceServer(name="quickstart", version="1.0.0")
    server.register(
        "digits",
        classifier.predict,
        inputs=[TensorSpec("image", "FP32", [-1, 64])],
        outputs=[TensorSpec("digit", "INT64", [-1])],
    )
    return server


def free_port() -> socket.socket:
    """A socket that listens on a free port of the loopback interface: clients wait from now on, until a server accepts them."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    return bound


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application in a thread, on a free port, for as long as the block runs. Gives the server's address."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with free_port() as port:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [port]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def ask_json(client: httpx2.Client, images: Any) -> list[int]:
    """The digits that the server sees in `images` [n, 64], asked and answered in JSON."""
    request = {"inputs": [{"name": "image", "shape": list(images.shape), "datatype": "FP32", "data": images.ravel().tolist()}]}
    answer = client.post("/v2/models/digits/infer", json=request).raise_for_status().json()
    digits: list[int] = answer["outputs"][0]["data"]
    return digits


def ask_binary(client: httpx2.Client, images: Any) -> list[int]:
    """The same, asked and answered with binary tensor data behind the JSON."""
    data = images.astype("<f4").tobytes()
    request = {
        "inputs": [{"name": "image", "shape": list(images.shape), "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}],
        "outputs": [{"name": "digit", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(request).encode()
    answer = client.post(
        "/v2/models/digits/infer", content=head + data, headers={"Inference-Header-Content-Length": str(len(head))}
    ).raise_for_status()
    length = int(answer.headers["Inference-Header-Content-Length"])
    digits: list[int] = np.frombuffer(answer.content[length:], "<i8").tolist()
    return digits


def check(url: str, classifier: Pipeline, images: Any, digits: Any) -> bool:
    """Ask a running server about 16 images, print its answers beside the truth, and say whether they are the classifier's own."""
    shown = images[:16]
    with httpx2.Client(base_url=url) as client:
        by_json, by_binary = ask_json(client, shown), ask_binary(client, shown)
    own = classifier.predict(shown).tolist()
    print("image     ", *[f"{place:2}" for place in range(len(shown))])
    print("JSON      ", *[f"{digit:2}" for digit in by_json])
    print("binary    ", *[f"{digit:2}" for digit in by_binary])
    print("true digit", *[f"{digit:2}" for digit in digits[:16].tolist()])
    agreed: bool = by_json == by_binary == own
    print("The answers are", "the model's own." if agreed else f"not the model's own: {own}")
    return agreed
