"""The application of examples/grpc_server.py with models that wait: `python -m tests.support.grpc_beside_rest` prints
the ports of REST and gRPC.

A model prints a line when it has begun, and ends with the next line of standard input.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path

import numpy as np
import uvicorn

from oip_asgi import InferenceServer


def make_server() -> InferenceServer:
    server = InferenceServer()

    @server.model("held")
    def held(x: np.ndarray) -> np.ndarray:
        print("begun", flush=True)
        sys.stdin.readline()
        return x / 3

    @server.model("awaited")
    async def awaited(x: np.ndarray) -> np.ndarray:
        return await asyncio.to_thread(held, x)

    return server


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    listening, bound = socket.create_server(("127.0.0.1", 0)), Future[int]()
    bound.add_done_callback(lambda port: print(listening.getsockname()[1], port.result(), flush=True))
    app = import_module("grpc_server").make_app(make_server(), "127.0.0.1:0", bound)
    uvicorn.Server(uvicorn.Config(app, access_log=False)).run(sockets=[listening])


if __name__ == "__main__":
    main()
