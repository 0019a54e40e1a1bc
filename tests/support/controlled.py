"""A server process whose clients may load and unload: `python -m tests.support.controlled rest|grpc` prints its address once it serves."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
from starlette.applications import Starlette

from oip_asgi import InferenceServer, LoadParameters, OIPApp, TensorSpec
from tests.support.grpc_ways import SERVINGS
from tests.support.run_server import run_uvicorn


def make_server() -> InferenceServer:
    server = InferenceServer("controlled", "1", model_control=True)

    def load(parameters: LoadParameters) -> Any:
        offset = parameters.config.get("offset", 0)
        weights = np.frombuffer(parameters.files.get("1/weights", bytes(4)), "<f4")
        return lambda x: x * weights + offset

    spec = [TensorSpec("x", "FP32", [-1])]
    server.register("org/affine", load=load, inputs=spec)
    server.register("plain", lambda x: x, version="2")
    return server


def main() -> None:
    if sys.argv[1] == "grpc":
        with SERVINGS["grpc.aio"](make_server()) as address:
            print(address, flush=True)
            threading.Event().wait()
    app = Starlette()
    OIPApp(make_server()).install(app)
    run_uvicorn(app)


if __name__ == "__main__":
    main()
