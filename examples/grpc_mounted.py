"""One port of one FastAPI application: its own route, the Open Inference Protocol at /v2, gRPC and gRPC-Web.

pip install -e '.[grpc-asgi]' fastapi 'gunicorn[http2]'    the server; what else the example imports is for its clients
python examples/grpc_mounted.py            serves on http://127.0.0.1:8000, REST and gRPC
python examples/grpc_mounted.py --check    serves on a free port, asks it about real images in each way, and ends

gRPC needs an ASGI server with HTTP/2 and trailers. Here it is gunicorn's ASGI worker; `pyvoy --port 8000 module:app` is another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import tritonclient.grpc
from digits import ask_binary, free_port, make_server, train
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from oip_asgi import OIPApp

TOKEN = {"authorization": "Bearer secret"}
GRPC_WEB = "/inference.GRPCInferenceService/ServerLive"

GUNICORN = [sys.executable, "-m", "gunicorn", "--no-control-socket", "--chdir", str(Path(__file__).parent)]
ASGI = ["--worker-class", "asgi", "--asgi-loop", "asyncio"]
"""uvloop raises where a client has gone before its answer."""
HTTP2 = ["--http-protocols", "h2,h1", "--http2-cleartext", "both", "--keep-alive", "75"]
"""HTTP/2 and HTTP/1.1 without TLS. A gRPC client keeps one connection, also while it says nothing for a minute."""


def make_app() -> FastAPI:
    """The application. Its middleware guards its own route, /v2 and gRPC alike."""
    classifier, _, _ = train()
    app = FastAPI()
    OIPApp(make_server(classifier)).install(app, "/v2", grpc=True)

    @app.middleware("http")
    async def authenticate(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.headers.get("authorization") != TOKEN["authorization"]:
            return JSONResponse({"error": "a token, please"}, 401)  # gRPC's clients say UNAUTHENTICATED
        return await call_next(request)

    @app.get("/")
    async def home() -> str:
        return "The application's own route. The model is at /v2/models/digits, and over gRPC on the same port"

    return app


def run(app: str) -> None:
    """Serve an application, which is named as gunicorn wants it, on port 8000 until it is interrupted."""
    os.execv(sys.executable, [*GUNICORN, *ASGI, *HTTP2, "--bind", "127.0.0.1:8000", app])


@contextmanager
def serving(app: str) -> Iterator[str]:
    """Such an application on a free port; gives its address."""
    with free_port() as port:  # connections wait here until the server takes them
        address, number = "{}:{}".format(*port.getsockname()), port.fileno()
        command = [*GUNICORN, *ASGI, *HTTP2, "--log-level", "error", "--bind", f"fd://{number}", app]
        with subprocess.Popen(command, pass_fds=[number]) as server:
            try:
                yield address
            finally:
                server.terminate()


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


def check() -> bool:
    """Serve, ask in each way, print the answers beside the truth, and say whether they are right."""
    _, images, digits = train()
    images, digits = images[:16], digits[:16]
    with serving("grpc_mounted:make_app()") as address:
        with httpx2.Client(base_url=f"http://{address}", headers=TOKEN, timeout=60) as client:
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
    if "--check" in sys.argv[1:]:
        return 0 if check() else 1
    run("grpc_mounted:make_app()")
    return 0


if __name__ == "__main__":
    sys.exit(main())
