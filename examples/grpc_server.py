"""A FastAPI application that serves a scikit-learn model over REST and, on the same event loop, over gRPC.

python examples/grpc_server.py            serves on http://127.0.0.1:8000 and, over gRPC, on 127.0.0.1:8001
python examples/grpc_server.py --check    serves on free ports, asks both about real images, and ends
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import httpx2
import tritonclient.grpc
import uvicorn
from digits import ask_binary, make_server, serving, train
from fastapi import FastAPI

from oip_asgi import InferenceServer, OIPApp
from oip_asgi.grpc import add_to_server


def make_app(server: InferenceServer, address: str, bound: Future[int]) -> FastAPI:
    """The application. Its lifespan starts and stops gRPC at `address`, and `bound` tells the port."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        options = [("grpc.max_receive_message_length", 128 * 2**20), ("grpc.so_reuseport", 0)]  # 0: a second process at the port fails
        grpc_server = grpc.aio.server(options=options)
        add_to_server(server, grpc_server)
        async with server.lifespan():  # around gRPC's, so that models stay loaded until its last call is answered
            bound.set_result(grpc_server.add_insecure_port(address))
            await grpc_server.start()
            yield
            await grpc_server.stop(grace=5)

    app = FastAPI(lifespan=lifespan)
    OIPApp(server).install(app, "/v2")

    @app.get("/")
    async def home() -> str:
        return "The application's own route. The model is at /v2/models/digits, and beside it over gRPC"

    return app


def ask_grpc(address: str, images: Any) -> list[int]:
    """The digits that the server sees in `images` [n, 64], asked over gRPC."""
    with tritonclient.grpc.InferenceServerClient(address) as client:
        tensor = tritonclient.grpc.InferInput("image", images.shape, "FP32").set_data_from_numpy(images)
        digits: list[int] = client.infer("digits", [tensor]).as_numpy("digit").tolist()
        return digits


def check(app: FastAPI, bound: Future[int], images: Any, digits: Any) -> bool:
    """Serve, ask over both, print the answers beside the truth, and say whether they are the same."""
    with serving(app) as url:
        with httpx2.Client(base_url=url) as client:
            by_rest = ask_binary(client, images)
        by_grpc = ask_grpc(f"127.0.0.1:{bound.result(timeout=30)}", images)
    print("REST      ", *[f"{digit:2}" for digit in by_rest])
    print("gRPC      ", *[f"{digit:2}" for digit in by_grpc])
    print("true digit", *[f"{digit:2}" for digit in digits.tolist()])
    print("REST and gRPC", "agree." if by_rest == by_grpc else "disagree.")
    return by_rest == by_grpc


def main() -> int:
    classifier, images, digits = train()
    server, bound = make_server(classifier), Future[int]()
    if "--check" not in sys.argv[1:]:
        uvicorn.run(make_app(server, "127.0.0.1:8001", bound), host="127.0.0.1", port=8000)
        return 0
    return 0 if check(make_app(server, "127.0.0.1:0", bound), bound, images[:16], digits[:16]) else 1


if __name__ == "__main__":
    sys.exit(main())
