"""A Litestar application whose model is served over the Open Inference Protocol.

    uvicorn --app-dir examples/hosts --port 8000 litestar_app:app
    curl -u ada:lovelace http://127.0.0.1:8000/v2/models/iris

Litestar's middleware covers its mounts, of /v2 and of gRPC, as it covers every handler; health is open, for probes have no password. gRPC
on the same port needs a server with HTTP/2 trailers, such as gunicorn; gRPC-Web works with each.
"""

from __future__ import annotations

import secrets
from typing import Any

from litestar import Litestar, Request, asgi, get
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult, DefineMiddleware
from litestar.types import Receive, Scope, Send
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from werkzeug.datastructures import Authorization

from oip_asgi import InferenceContext, InferenceServer, OIPApp, TensorSpec
from oip_asgi.grpc import OIPGRPCApp

# The application as it was -----------------------------------------------------------------------------------------

PASSWORDS = {"ada": "lovelace"}
OPEN = [r"^/v2/health/(live|ready)$", r"^/grpc\.health\.v1\.Health/Check$"]
FLOWERS: dict[str, int] = {}


def user_of(header: str | None) -> str | None:
    """Whom an Authorization header is from, None for nobody that we know."""
    given = Authorization.from_header(header)
    if given is None or not given.username or not given.password:
        return None
    is_right = secrets.compare_digest(PASSWORDS.get(given.username, "").encode(), given.password.encode())
    return given.username if is_right else None


class BasicAuth(AbstractAuthenticationMiddleware):
    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        user = user_of(connection.headers.get("authorization"))
        if user is None:
            raise NotAuthorizedException("name and password, please", headers={"WWW-Authenticate": "Basic"})
        return AuthenticationResult(user=user, auth="basic")


@get("/history", sync_to_thread=False)
def history(request: Request[str, str, Any]) -> dict[str, Any]:
    return {"user": request.user, "flowers": FLOWERS.get(request.user, 0)}


# And its model -----------------------------------------------------------------------------------------------------

data = load_iris()
classifier = make_pipeline(StandardScaler(), LogisticRegression())
server = InferenceServer("litestar-example")
oip_app, grpc_app = OIPApp(server), OIPGRPCApp(server)


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


@asgi("/v2", is_mount=True, copy_scope=False)
async def v2(scope: Scope, receive: Receive, send: Send) -> None:
    await oip_app(scope, receive, send)  # type: ignore[arg-type]  # Litestar has ASGI types of its own


@asgi(grpc_app.paths, is_mount=True, copy_scope=False)
async def services(scope: Scope, receive: Receive, send: Send) -> None:
    await grpc_app(scope, receive, send)  # type: ignore[arg-type]  # as above


app = Litestar(
    [history, v2, services],
    middleware=[DefineMiddleware(BasicAuth, exclude=OPEN, exclude_http_methods=[])],
    lifespan=[lambda _: server.lifespan()],
)
