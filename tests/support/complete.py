"""A server process with every extension switched on: `python -m tests.support.complete PREFIX` prints its addresses, REST and gRPC.

PREFIX begins the keys of the shared memory that clients may use.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc.aio
import numpy as np
import uvicorn
from starlette.applications import Starlette

from oip_asgi import InferenceServer, LoadParameters, OIPApp, ResponseCache, SharedMemory, TensorSpec
from oip_asgi.grpc import add_to_server
from tests.support.inside.values import Array
from tests.support.served import add_models

CLASSES = [f"class {number}" for number in range(10)]


def make_server(prefix: str) -> InferenceServer:
    server = InferenceServer("complete", "1", model_control=True, shared_memory=SharedMemory(allow=lambda key: key.startswith(prefix)))
    add_models(server)
    server.register("kept", lambda x: np.array([time.perf_counter()]), cache=ResponseCache())

    @server.model(
        "classifier", inputs=[TensorSpec("image", "FP32", [3, 4, 4])], outputs=[TensorSpec("scores", "FP32", [10], labels=CLASSES)]
    )
    def classify(image: Array) -> Array:
        """Score 1 for the class of the image's first pixel, and less for those further from it."""
        scores: Array = 1 - np.abs(np.arange(10, dtype="f4") - image[0, 0, 0]) / 10
        return scores

    @server.model("count")
    def count(n: Array) -> Iterator[Array]:
        for number in range(int(n[0])):
            yield np.array([number])

    def load() -> Callable[[Any], Any]:
        return lambda x: x

    server.register("loaded", load=load)

    def load_affine(parameters: LoadParameters) -> Any:
        offset = parameters.config.get("offset", 0)
        weights = np.frombuffer(parameters.files.get("1/weights", bytes(4)), "<f4")
        return lambda x: x * weights + offset

    server.register("org/affine", load=load_affine, inputs=[TensorSpec("x", "FP32", [-1])])
    return server


async def main() -> None:
    server = make_server(sys.argv[1])
    app = Starlette()
    OIPApp(server).install(app)
    grpc_server = grpc.aio.server()
    add_to_server(server, grpc_server)
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    await grpc_server.start()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"127.0.0.1:{listening.getsockname()[1]} 127.0.0.1:{port}", flush=True)
        await uvicorn.Server(uvicorn.Config(app, log_level="critical")).serve(sockets=[listening])
    await grpc_server.stop(0)


if __name__ == "__main__":
    asyncio.run(main())
