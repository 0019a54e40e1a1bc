"""FastAPI's dependencies before the protocol: that nothing gets past them, what they may do, and where they cannot apply."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request
from starlette.applications import Starlette

from oip_asgi import InferenceContext, InferenceServer, OIPApp, OIPMiddleware
from tests.support.asking import exactly, logged
from tests.support.client import Client
from tests.table.row import GOOD, inputs

KEY = {"x-api-key": "k"}
BODY = inputs(GOOD)
PROTOCOL_PATHS = [
    *("/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/models", "/v2/models/echo", "/v2/models/echo/infer", "/v2/nothing"),
    *("/v2//models", "/v2/models/echo%2Finfer", "/v2/repository/index"),
]
UNARY = "/inference.GRPCInferenceService/ServerLive"
GRPC_WEB = {"content-type": "application/grpc-web+proto"}


async def check_key(x_api_key: str | None = Header(None)) -> None:
    if x_api_key != "k":
        raise HTTPException(401, "send the header x-api-key", {"WWW-Authenticate": "ApiKey"})


def make_server() -> InferenceServer:
    server = InferenceServer()
    server.register("echo", lambda x: x)

    @server.model("count")
    def count(x: Any) -> Iterator[Any]:
        yield from x

    @server.model("user")
    def user(context: InferenceContext) -> Any:
        return np.array([str(context.transport["state"]["user"])])

    return server


@pytest.fixture(scope="module", params=["of the application", "of install"])
def client(request: pytest.FixtureRequest) -> Client:
    is_of_app = request.param == "of the application"
    app = FastAPI(dependencies=[Depends(check_key)] if is_of_app else [])
    OIPApp(make_server()).install(app, grpc=True, dependencies=[] if is_of_app else [Depends(check_key)])
    return Client(app)


@pytest.fixture(scope="module")
def plain() -> Client:
    """Of an application without dependencies."""
    app = Starlette()
    OIPApp(make_server()).install(app)
    return Client(app)


@pytest.mark.parametrize("path", PROTOCOL_PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"])
def test_nothing_gets_past_a_dependency(client: Client, plain: Client, method: str, path: str) -> None:
    refused = client.request(method, path, content=BODY)
    assert refused.status_code == 401
    assert refused.content == (b"" if method == "HEAD" else b'{"error":"send the header x-api-key"}')
    assert (refused.headers["content-type"], refused.headers["www-authenticate"]) == ("application/json", "ApiKey")
    allowed, expected = client.request(method, path, content=BODY, headers=KEY), plain.request(method, path, content=BODY)
    assert (allowed.status_code, allowed.content, dict(allowed.headers)) == (expected.status_code, expected.content, dict(expected.headers))


def test_a_longer_word_is_the_hosts(client: Client) -> None:
    assert client.get("/v2x", headers=KEY).json() == {"detail": "Not Found"}


def test_streams_pass(client: Client) -> None:
    answer = client.post("/v2/models/count/infer_stream", content=BODY, headers=KEY)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [json.loads(line[6:])["outputs"][0]["data"] for line in answer.text.split("\n\n") if line] == [[1.0], [2.0]]


def test_grpc_is_behind_them_too(client: Client) -> None:
    assert client.post(UNARY, content=bytes(5), headers=GRPC_WEB).status_code == 401
    answer = client.post(UNARY, content=bytes(5), headers=GRPC_WEB | KEY)
    assert (answer.status_code, answer.content[:7]) == (200, b"\0\0\0\0\2\x08\1")
    assert answer.content.endswith(b"grpc-status:0\r\n")


def test_the_hosts_document_lists_the_paths_of_the_protocol_and_not_the_routes_that_they_are_behind(client: Client) -> None:
    assert set(client.get("/openapi.json").json()["paths"]) == set(make_server().openapi("/v2")["paths"])


def test_what_dependencies_may_do() -> None:
    """Read the body, as for a signature of it, leave something for the model, and end when the request has been answered."""
    seen: list[str] = []

    async def signed(request: Request) -> AsyncIterator[None]:
        seen.append(f"{len(await request.body())} bytes")
        request.state.user = "ann"
        yield
        seen.append("end")

    app = FastAPI(dependencies=[Depends(signed)])
    OIPApp(make_server()).install(app)
    with Client(app) as client:
        answer = client.post("/v2/models/echo/infer", content=BODY)
        assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [1.0, 2.0])
        assert client.post("/v2/models/user/infer", content=b'{"inputs":[]}').json()["outputs"][0]["data"] == ["ann"]
    assert seen == [f"{len(BODY)} bytes", "end", "13 bytes", "end"]


def test_overrides_of_tests_apply() -> None:
    app = FastAPI(dependencies=[Depends(check_key)])
    OIPApp(make_server()).install(app)
    app.dependency_overrides[check_key] = lambda: None
    assert Client(app).get("/v2/models").status_code == 200


def test_behind_a_proxys_root_path() -> None:
    app = FastAPI(dependencies=[Depends(check_key)])
    OIPApp(make_server()).install(app)
    client = Client(app, root_path="/api")
    assert client.get("/v2/models", headers=KEY).json() == {"models": ["echo", "count", "user"]}
    assert (
        client.get("/v2/nothing", headers=KEY).json()["error"].startswith("unknown path '/api/v2/nothing': expected /api/v2/health/live,")
    )


MIDDLEWARE = (
    "OIPMiddleware answers before the dependencies of the FastAPI application run, so they would not protect the protocol: "
    'write OIPApp(server).install(app, "/v2"), to which they apply'
)
MOUNT = (
    "FastAPI runs no dependencies before what is mounted, so those of the application or router do not protect OIPApp: write "
    'OIPApp(server).install(app, "/v2"), to which the application\'s apply, and which takes dependencies=[Depends(...)]'
)


def test_middleware_refuses_what_it_would_get_around() -> None:
    app = FastAPI(dependencies=[Depends(check_key)])
    with pytest.raises(ValueError, match=exactly(MIDDLEWARE)):
        OIPMiddleware(app, make_server())
    app.add_middleware(OIPMiddleware, server=make_server())  # made when the first request comes
    with pytest.raises(ValueError, match=exactly(MIDDLEWARE)):
        Client(app).get("/v2/models")


def test_a_mount_beside_an_install_warns(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI(dependencies=[Depends(check_key)])
    ours = OIPApp(make_server())
    ours.install(app, public=["health"])
    app.mount("/open", ours)
    assert Client(app).get("/v2/health/live").status_code == 200
    assert not logged(caplog)
    assert Client(app).get("/open/models").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == [MOUNT]


def test_a_mount_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI(dependencies=[Depends(check_key)])
    app.mount("/v2", OIPApp(make_server()))
    open_app = FastAPI()
    open_app.mount("/v2", OIPApp(make_server()))
    for each in (open_app, app, app):
        assert Client(each).get("/v2/models").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.name == "oip_asgi"] == [MOUNT]


def test_a_mount_in_a_router_with_dependencies_warns_where_it_is_served(caplog: pytest.LogCaptureFixture) -> None:
    router, app = APIRouter(dependencies=[Depends(check_key)]), FastAPI()
    router.mount("/v2", OIPApp(make_server()))
    app.include_router(router)
    status = Client(app).get("/v2/models").status_code
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert (status, warned) in [(200, [MOUNT]), (404, [])]  # FastAPI before 0.165 leaves out what is mounted in a router


def test_only_fastapi_has_dependencies() -> None:
    with pytest.raises(TypeError, match="dependencies= is for FastAPI applications: for Starlette, use middleware"):
        OIPApp(make_server()).install(Starlette(), dependencies=[Depends(check_key)])
