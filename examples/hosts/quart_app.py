"""A Quart application whose model is served over the Open Inference Protocol.

    gunicorn --worker-class asgi --http-protocols h2,h1 --http2-cleartext both --chdir examples/hosts --bind 127.0.0.1:8000 quart_app:app
    curl -u ada:lovelace http://127.0.0.1:8000/v2/models/iris

Quart's `before_request` covers its own routes only, so authentication is an ASGI middleware around them, /v2 and gRPC; health is open, for
probes have no password.
"""

from __future__ import annotations

import secrets
from typing import Any

from quart import Quart, request
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from werkzeug.datastructures import Authorization

from oip_asgi import InferenceContext, InferenceServer, OIPMiddleware, TensorSpec

# The application as it was -----------------------------------------------------------------------------------------

PASSWORDS = {"ada": "lovelace"}
OPEN = ("/v2/health/live", "/v2/health/ready", "/grpc.health.v1.Health/Check")
FLOWERS: dict[str, int] = {}


def user_of(header: str | None) -> str | None:
    """Whom an Authorization header is from, None for nobody that we know."""
    given = Authorization.from_header(header)
    if given is None or not given.username or not given.password:
        return None
    is_right = secrets.compare_digest(PASSWORDS.get(given.username, "").encode(), given.password.encode())
    return given.username if is_right else None


class BasicAuth:
    """Lets nobody but health probes through without a password, and notes the user in the scope."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].removeprefix(scope["root_path"]) not in OPEN:
            user = user_of(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
            if user is None:
                headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Basic")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b'{"error":"name and password, please"}'})
                return
            scope = {**scope, "user": user}
        await self.app(scope, receive, send)


app = Quart(__name__)


@app.get("/history")
async def history() -> dict[str, Any]:
    user = request.scope["user"]  # type: ignore[typeddict-item]  # BasicAuth's own
    return {"user": user, "flowers": FLOWERS.get(user, 0)}


# And its model -----------------------------------------------------------------------------------------------------

data = load_iris()
classifier = make_pipeline(StandardScaler(), LogisticRegression())
server = InferenceServer("quart-example")


def fit() -> None:
    classifier.fit(data.data, data.target)


@server.model(
    "iris",
    inputs=[TensorSpec("x", "FP64", [-1, 4])],
    outputs=[TensorSpec("species", "BYTES", [-1])],
    load=fit,
)
def iris(x: Any, context: InferenceContext) -> Any:
    user = context.transport["user"]
    FLOWERS[user] = FLOWERS.get(user, 0) + len(x)
    return data.target_names[classifier.predict(x)]


app.asgi_app = BasicAuth(OIPMiddleware(app.asgi_app, server, grpc=True))  # type: ignore[method-assign]  # as Quart's documentation has it
