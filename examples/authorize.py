"""Who may do what with which model, over REST and gRPC: a small table of users, and one function that reads it.

pip install 'oip_asgi[grpc-asgi]' fastapi 'gunicorn[http2]' scikit-learn httpx2 'tritonclient[grpc]'
python examples/authorize.py            serves on http://127.0.0.1:8000, REST and gRPC
python examples/authorize.py --check    serves on a free port, asks as three users, and ends

    curl -H 'authorization: Bearer ada-key' http://127.0.0.1:8000/v2/models

`authorize=` is asked before each action, whatever the transport and the spelling of the path. It gets the action, the model's name and
the headers. Who a user is stays your application's business; here it is a key.
"""

from __future__ import annotations

import secrets
import sys
from typing import Any

import httpx2
import tritonclient.grpc
from digits import train
from fastapi import FastAPI
from grpc_mounted import run, serving

from oip_asgi import Access, InferenceError, InferenceServer, OIPApp, TensorSpec

USERS = {"ada-key": "ada", "bob-key": "bob", "root-key": "root"}

USE = frozenset({"infer", "metadata", "ready", "config", "statistics"})
"""What somebody does who uses a model. The others load and unload it, or share memory with the server."""

RIGHTS = {
    "ada": {"digits": USE},
    "bob": {"digits": USE, "digits-next": USE | {"load", "unload"}},
}


def find_user(header: str) -> str | None:
    """Whom an Authorization header is from; None for nobody that we know."""
    key = header.removeprefix("Bearer ")
    return next((user for known, user in USERS.items() if secrets.compare_digest(known.encode(), key.encode())), None)


def authorize(access: Access) -> bool:
    """Whether a user may do that. Nobody is asked about the server itself: its health and its metadata are open."""
    user = find_user(access.headers.get("authorization", ""))
    if user is None:
        raise InferenceError("send your key: authorization: Bearer ...", status=401, headers={"WWW-Authenticate": "Bearer"})
    return user == "root" or access.action in RIGHTS[user].get(access.model or "", ())


def make_app() -> FastAPI:
    classifier, _, _ = train()
    server = InferenceServer("rights", model_control=True, authorize=authorize)
    inputs, outputs = [TensorSpec("image", "FP32", [-1, 64])], [TensorSpec("digit", "INT64", [-1])]
    for name in ("digits", "digits-next"):
        server.register(name, load=lambda: classifier.predict, inputs=inputs, outputs=outputs)
    app = FastAPI()
    OIPApp(server).install(app, "/v2", grpc=True)
    return app


def ask_rest(address: str, user: str, path: str, body: Any = None) -> str:
    """What a user is answered: the status, and the text of an error."""
    headers = {"authorization": f"Bearer {user}-key"}
    answer = httpx2.request("GET" if body is None else "POST", f"http://{address}/v2{path}", headers=headers, json=body, timeout=60)
    found: Any = answer.json() if answer.content else {}
    return f"{answer.status_code} {found['error']}" if answer.is_error else f"{answer.status_code} {found.get('models', 'ok')}"


def ask_grpc(address: str, user: str, model: str) -> str:
    """What a user is answered who asks for a model's metadata over gRPC."""
    with tritonclient.grpc.InferenceServerClient(address) as client:
        try:
            return str(client.get_model_metadata(model, headers={"authorization": f"Bearer {user}-key"}).name)
        except tritonclient.grpc.InferenceServerException as error:
            return f"{error.status()} {error.message()}"


def check() -> bool:
    image = {"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 64], "data": [0.0] * 64}]}
    infer = [("/models/digits/infer", image), ("/models/digits-next/infer", image), ("/models/absent/infer", image)]
    asked = [("/models", None), *infer, ("/repository/models/digits-next/unload", {})]
    expected = {
        "ada": [
            "200 ['digits']",
            "200 ok",
            "403 not allowed: infer with model 'digits-next'",
            "403 not allowed: infer with model 'absent'",
            "403 not allowed: unload with model 'digits-next'",
            "StatusCode.PERMISSION_DENIED not allowed: metadata with model 'digits-next'",
        ],
        "bob": [
            "200 ['digits', 'digits-next']",
            "200 ok",
            "200 ok",
            "403 not allowed: infer with model 'absent'",
            "200 ok",
            "digits-next",
        ],
        "eve": [
            "200 []",
            *["401 send your key: authorization: Bearer ..."] * 4,
            "StatusCode.UNAUTHENTICATED send your key: authorization: Bearer ...",
        ],
    }
    is_right = True
    with serving("authorize:make_app()") as address:
        for user, answers in expected.items():
            found = [ask_rest(address, user, path, body) for path, body in asked] + [ask_grpc(address, user, "digits-next")]
            for (path, _), answer in zip([*asked, ("gRPC: metadata of digits-next", None)], found, strict=True):
                print(f"{user:5}{path:40}{answer}")
            is_right = is_right and found == answers
    print("Each user may do what the table says." if is_right else "The answers are not those of the table.")
    return is_right


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if check() else 1
    run("authorize:make_app()")
    return 0


if __name__ == "__main__":
    sys.exit(main())
