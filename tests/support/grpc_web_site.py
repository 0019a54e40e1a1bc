"""A Flask application with gRPC-Web beside REST: `gunicorn --threads 4 tests.support.grpc_web_site:app`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Flask

from oip_asgi import InferenceServer, OIPWSGIMiddleware

server = InferenceServer()


@server.model("digits")
def digits(image: Any) -> Any:
    return image[:, 0].astype("int64") + 7


@server.model("count")
def count(n: Any) -> Iterator[int]:
    yield from range(int(n[0]))


app = Flask(__name__)
app.wsgi_app = OIPWSGIMiddleware(app.wsgi_app, server, grpc=True)  # type: ignore[method-assign]


@app.get("/own")
def own() -> str:
    return "own"
