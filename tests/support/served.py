"""A server process for tests with real clients: `python -m tests.support.served install|middleware` prints its address once it serves."""

from __future__ import annotations

import sys
from typing import Any

from starlette.applications import Starlette

from oip_asgi import InferenceServer, OIPApp, OIPMiddleware, TensorSpec
from tests.support.run_server import run_uvicorn


def make_server() -> InferenceServer:
    server = InferenceServer("served", "7")
    add_models(server)
    return server


def add_models(server: InferenceServer) -> None:
    server.register("echo", lambda **inputs: inputs)
    server.register("declared", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, 2])], outputs=[TensorSpec("y", "FP32", [-1, 2])])
    for version in (1, 2):
        server.register("versioned", lambda x, version=version: version, version=str(version), inputs=[TensorSpec("x", "FP32", [-1])])
    server.register("org/model", lambda x: x)

    @server.model("fails")
    def fails(x: Any) -> Any:
        raise RuntimeError("on purpose")


def make_app() -> Any:
    """The same for servers that are told what makes their application."""
    return OIPApp(make_server(), path="/v2")


def main() -> None:
    app: Any = Starlette()
    if sys.argv[1] == "install":
        OIPApp(make_server()).install(app)
    else:
        app = OIPMiddleware(app, make_server())
    run_uvicorn(app)


if __name__ == "__main__":
    main()
