"""One port of one FastAPI application: its own route, the Open Inference Protocol at /v2, gRPC and gRPC-Web.

pip install -e '.[grpc-asgi]' fastapi hypercorn    the server; what else the example imports is for its clients
python examples/grpc_mounted.py            serves on http://127.0.0.1:8000, REST and gRPC
python examples/grpc_mounted.py --check    serves on a free port, asks it about real images in each way, and ends

gRPC needs an ASGI server with HTTP/2 and trailers. Here it is hypercorn; `pyvoy --port 8000 module:app` is the fastest.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import tritonclient.grpc
from digits import ask_binary, make_server, train
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from hypercorn.asyncio import serve
from hypercorn.config import Config

from oip_asgi import InferenceServer, OIPApp

TOKEN = {"authorization": "Bearer secret"}
GRPC_WEB = "/inference.GRPCInferenceService/ServerLive"


def make_app(server: InferenceServer) -> FastAPI:
    """The application. Its middleware guards its own route, /v2 and gRPC alike."""
    app = FastAPI()
    OIPApp(server).install(app, "/v2", grpc=True)

    @app.middleware("http")
    async def authenticate(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.headers.get("authorization") != TOKEN["authorization"]:
            return JSONResponse({"error": "a token, please"}, 401)  # gRPC's clients say UNAUTHENTICATED
        return await call_next(request)

    @app.get("/")
    async def home() -> str:
        return "The application's own route. The model is at /v2/models/digits, and over gRPC on the same port"

    return app


def configured(bind: str) -> Config:
    """hypercorn's configuration. A gRPC client keeps one connection, which hypercorn closes after 1,000 requests else."""
    config = Config()
    config.bind, config.keep_alive_max_requests = [bind], 2**62
    return config


def run(app: FastAPI) -> None:
    """Serve the application on port 8000 until it is interrupted."""
    asyncio.run(serve(app, configured("127.0.0.1:8000")))  # type: ignore[arg-type]  # hypercorn has ASGI types of its own


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """The application on a free port; gives its address."""
    listening = socket.create_server(("127.0.0.1", 0))  # connections wait here until the server takes them
    config, loop = configured(f"fd://{listening.fileno()}"), asyncio.new_event_loop()
    config.errorlog = None
    stop = asyncio.Event()
    serving = serve(app, config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]  # as above
    thread = threading.Thread(target=loop.run_until_complete, args=[serving])
    thread.start()
    try:
        yield "{}:{}".format(*listening.getsockname())
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
        listening.detach()  # the server has closed it


def ask_grpc(address: str, images: Any) -> list[int]:
    """The digits that the server sees in `images` [n, 64], asked over gRPC."""
    with tritonclient.grpc.InferenceServerClient(address) as client:
        tensor = tritonclient.grpc.InferInput("image", images.shape, "FP32").set_data_from_numpy(images)
        digits: list[int] = client.infer("digits", [tensor], headers=TOKEN).as_numpy("digit").tolist()
        return digits


def refusal(address: str) -> str:
    """What a client without a token is told."""
    with tritonclient.grpc.InferenceServerClient(address) as client:
        try:
            client.is_server_live()
        except tritonclient.grpc.InferenceServerException as error:
            return str(error.status())
    return "nothing"


def check(app: FastAPI, images: Any, digits: Any) -> bool:
    """Serve, ask in each way, print the answers beside the truth, and say whether they are right."""
    with serving(app) as address:
        with httpx2.Client(base_url=f"http://{address}", headers=TOKEN) as client:
            home = client.get("/").json()
            by_rest = ask_binary(client, images)
            web = client.post(GRPC_WEB, headers={"content-type": "application/grpc-web"}, content=bytes(5)).content
        by_grpc = ask_grpc(address, images)
        refused = refusal(address)
    print("own route ", home)
    print("REST      ", *[f"{digit:2}" for digit in by_rest])
    print("gRPC      ", *[f"{digit:2}" for digit in by_grpc])
    print("true digit", *[f"{digit:2}" for digit in digits.tolist()])
    print("gRPC-Web   live" if b"grpc-status:0" in web else f"gRPC-Web   {web!r}")
    print("no token  ", refused)
    is_right = by_rest == by_grpc and b"grpc-status:0" in web and refused == "StatusCode.UNAUTHENTICATED"
    print("REST and gRPC", "agree." if is_right else "disagree.")
    return is_right


def main() -> int:
    classifier, images, digits = train()
    app = make_app(make_server(classifier))
    if "--check" in sys.argv[1:]:
        return 0 if check(app, images[:16], digits[:16]) else 1
    run(app)
    return 0


if __name__ == "__main__":
    sys.exit(main())
