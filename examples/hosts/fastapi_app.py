"""A FastAPI application whose model is served over the Open Inference Protocol.

    uvicorn --app-dir examples/hosts --port 8000 fastapi_app:app
    gunicorn --worker-class asgi --http-protocols h2,h1 --http2-cleartext both --chdir examples/hosts --bind 127.0.0.1:8000 fastapi_app:app
    curl -u ada:lovelace http://127.0.0.1:8000/v2/models/iris

The application's dependency covers /v2 and gRPC as it covers every route; `public=` leaves health open, for probes have no password. gRPC
on the same port needs a server with HTTP/2 trailers, such as gunicorn; gRPC-Web works with each.
"""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.security import HTTPBasic
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from werkzeug.datastructures import Authorization

from oip_asgi import InferenceContext, InferenceServer, OIPApp, TensorSpec

# The application as it was -----------------------------------------------------------------------------------------

PASSWORDS = {"ada": "lovelace"}
FLOWERS: dict[str, int] = {}


def user_of(header: str | None) -> str | None:
    """Whom an Authorization header is from, None for nobody that we know."""
    given = Authorization.from_header(header)
    if given is None or not given.username or not given.password:
        return None
    is_right = secrets.compare_digest(PASSWORDS.get(given.username, "").encode(), given.password.encode())
    return given.username if is_right else None


def authenticate(request: Request, _: object = Depends(HTTPBasic(auto_error=False))) -> None:  # which shows the padlock in /docs
    user = user_of(request.headers.get("authorization"))
    if user is None:
        raise HTTPException(401, "name and password, please", {"WWW-Authenticate": "Basic"})
    request.state.user = user


app = FastAPI(dependencies=[Depends(authenticate)])


@app.get("/history")
async def history(request: Request) -> dict[str, Any]:
    user = request.state.user
    return {"user": user, "flowers": FLOWERS.get(user, 0)}


# And its model -----------------------------------------------------------------------------------------------------

data = load_iris()
classifier = make_pipeline(StandardScaler(), LogisticRegression())
server = InferenceServer("fastapi-example")


def fit() -> None:
    classifier.fit(data.data, data.target)


@server.model(
    "iris",
    inputs=[TensorSpec("x", "FP64", [-1, 4])],
    outputs=[TensorSpec("species", "BYTES", [-1])],
    load=fit,
)
def iris(x: Any, context: InferenceContext) -> Any:
    user = context.transport["state"]["user"]
    FLOWERS[user] = FLOWERS.get(user, 0) + len(x)
    return data.target_names[classifier.predict(x)]


OIPApp(server).install(app, "/v2", grpc=True, public=["health"])
