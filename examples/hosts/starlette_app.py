"""A Starlette application with accounts and a database, whose model is served over the Open Inference Protocol.

    uvicorn --app-dir examples/hosts --port 8000 starlette_app:app
    curl -u ada:lovelace http://127.0.0.1:8000/v2/models/iris

Starlette's AuthenticationMiddleware covers /v2 and gRPC as it covers every route; health is open, for probes have no password. gRPC on the
same port needs a server with HTTP/2 trailers, such as gunicorn; gRPC-Web works with each.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, BaseUser, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from werkzeug.datastructures import Authorization

from oip_asgi import InferenceContext, InferenceServer, OIPApp, TensorSpec

# The application as it was -----------------------------------------------------------------------------------------

PASSWORDS = {"ada": "lovelace"}
OPEN = ("/v2/health/live", "/v2/health/ready", "/grpc.health.v1.Health/Check")


class Base(DeclarativeBase):
    pass


class Prediction(Base):
    __tablename__ = "predictions"
    id: Mapped[int] = mapped_column(primary_key=True)
    user: Mapped[str]
    flowers: Mapped[int]


def user_of(header: str | None) -> str | None:
    """Whom an Authorization header is from, None for nobody that we know."""
    given = Authorization.from_header(header)
    if given is None or not given.username or not given.password:
        return None
    is_right = secrets.compare_digest(PASSWORDS.get(given.username, "").encode(), given.password.encode())
    return given.username if is_right else None


class BasicAuth(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        # not `conn.url.path`: older Starlette makes that of the Host header, which is the client's to choose
        if conn.scope["path"].removeprefix(conn.scope["root_path"]) in OPEN:
            return None
        user = user_of(conn.headers.get("authorization"))
        if user is None:
            raise AuthenticationError("name and password, please")
        return AuthCredentials(["authenticated"]), SimpleUser(user)


def refuse(_: HTTPConnection, error: AuthenticationError) -> Response:
    return JSONResponse({"error": str(error)}, 401, {"WWW-Authenticate": "Basic"})


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    engine = create_engine(os.environ.get("DATABASE_URL", "sqlite:///predictions.db"))
    Base.metadata.create_all(engine)
    yield {"engine": engine}
    engine.dispose()


def history(request: Request) -> Response:
    with Session(request.state.engine) as session:
        flowers = session.scalar(select(func.sum(Prediction.flowers)).where(Prediction.user == request.user.username))
    return JSONResponse({"user": request.user.username, "flowers": flowers or 0})


app = Starlette(
    routes=[Route("/history", history)],
    middleware=[Middleware(AuthenticationMiddleware, backend=BasicAuth(), on_error=refuse)],
    lifespan=lifespan,
)

# And its model -----------------------------------------------------------------------------------------------------

data = load_iris()
classifier = make_pipeline(StandardScaler(), LogisticRegression())
server = InferenceServer("starlette-example")


def fit() -> None:
    classifier.fit(data.data, data.target)


@server.model(
    "iris",
    inputs=[TensorSpec("x", "FP64", [-1, 4])],
    outputs=[TensorSpec("species", "BYTES", [-1])],
    load=fit,
)
def iris(x: Any, context: InferenceContext) -> Any:
    scope = context.transport
    with Session(scope["state"]["engine"]) as session:
        session.add(Prediction(user=scope["user"].username, flowers=len(x)))
        session.commit()
    return data.target_names[classifier.predict(x)]


OIPApp(server).install(app, "/v2", grpc=True)
