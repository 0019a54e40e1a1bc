"""A server with a few models, asked by both clients, in this process and over a socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp, TensorSpec
from tests.support.asked import Asked
from tests.support.threads import serving

WAYS = ("Client, WSGI", "AsyncClient, ASGI", "Client, socket", "AsyncClient, socket")


def make_server() -> InferenceServer:
    server = InferenceServer("asked", "1.2.3", model_control=True, max_body_bytes=None)
    server.register("echo", lambda **inputs: inputs)

    @server.model(
        "spoken", inputs=[TensorSpec("names", "BYTES", [-1], content_type="str")], outputs=[TensorSpec("greetings", "BYTES", [-1])]
    )
    def spoken(names: list[str]) -> list[str]:
        return [f"good day, {name}" for name in names]

    @server.model("counts")
    def counts(n: Any) -> Iterator[Any]:
        for number in range(n.item()):
            if number == 3:
                raise InferenceError("no more than three", status=422)
            yield np.array([number])

    for version in ("1", "2"):
        server.register("versions", lambda version=version: np.array([int(version)]), version=version)
    server.register("org/a model", lambda x: x)
    return server


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    """The URL of a real server."""
    with serving(OIPApp(make_server(), path="/v2")) as port:
        yield f"http://127.0.0.1:{port}/v2"


@pytest.fixture(scope="package", params=WAYS)
def ask(request: pytest.FixtureRequest, url: str) -> Asked:
    if request.param == "Client, WSGI":
        from oip_asgi import OIPWSGIMiddleware

        return Asked(OIPWSGIMiddleware(OIPWSGIApp(InferenceServer()), make_server(), "/v2"), awaited=False)
    awaited = request.param.startswith("Async")
    return Asked(url if "socket" in request.param else OIPApp(make_server(), path="/v2"), awaited=awaited)
