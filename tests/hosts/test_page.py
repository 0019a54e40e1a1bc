"""The page and the OpenAPI documents in hosts: where they say they are, what is not sent again, who may see them, and FastAPI's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Response
from fastapi import Request as FastAPIRequest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.calls import counted_calls
from tests.support.described import described_server
from tests.support.host_ways import host_ways
from tests.support.ways import Request, Way, over_asgi


@pytest.fixture(scope="module")
def server() -> InferenceServer:
    return described_server()


@pytest.fixture(scope="module")
def hosts(server: InferenceServer) -> Iterator[dict[str, Way]]:
    with host_ways(server) as ways:
        yield ways


def test_every_host_s_documents_are_the_same_but_for_the_mount(server: InferenceServer, hosts: dict[str, Way]) -> None:
    itself = over_asgi(OIPApp(server), "")
    models = ("org%2Fscorer", "%E6%A8%A1%E5%9E%8B")
    for path in ("/openapi.json", "/docs/dataplane.json", *(f"/models/{name}/openapi.json" for name in models)):
        expected = json.loads(itself(Request("GET", path)).body)
        assert expected["servers"] == [{"url": "/"}]
        for name, way in hosts.items():
            mount = "/async/v2" if name.endswith("async view") else "/v2"
            assert json.loads(way(Request("GET", path)).body) == {**expected, "servers": [{"url": mount}]}, name


def test_every_host_s_page_is_the_same_and_what_did_not_change_is_not_sent_again(server: InferenceServer, hosts: dict[str, Way]) -> None:
    expected = over_asgi(OIPApp(server), "")(Request("GET", "/docs")).body
    assert expected.startswith(b"<!doctype html>")
    for name, way in hosts.items():
        answer = way(Request("GET", "/docs"))
        assert (answer.status, answer.body) == (200, expected), name
        assert way(Request("GET", "/models/iris/docs/state.json")).status == 200, name
        first = way(Request("GET", "/docs/page.js"))
        assert first.status == 200
        again = way(Request("GET", "/docs/page.js", (("if-none-match", first.headers["etag"]),)))
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"]), name


def hosted(**options: Any) -> FastAPI:
    app = FastAPI()

    @app.get("/hello")
    def hello() -> str:
        return "hello"

    OIPApp(described_server(**options.pop("server", {}))).install(app, **options)
    return app


def documented(app: FastAPI, path: str = "/openapi.json") -> Any:
    return json.loads(over_asgi(app, "")(Request("GET", path)).body)


def test_fastapi_s_own_document_has_the_models() -> None:
    app = hosted()
    for _ in range(2):  # FastAPI keeps its own
        document = documented(app)
        assert "/hello" in document["paths"]
        infer = document["paths"]["/v2/models/iris/infer"]["post"]
        assert infer["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/OipRequest_iris"}
        assert "OipRequest_iris" in document["components"]["schemas"]
        assert {"name": "model iris"} in document["tags"]
    assert app.openapi_schema is not None
    assert "/v2/models/iris/infer" not in app.openapi_schema["paths"]


def test_the_models_of_fastapi_s_own_document_are_written_once_until_another_is_registered() -> None:
    app, server = FastAPI(), described_server()
    OIPApp(server).install(app)
    path = "/v2/models/iris/infer"
    with counted_calls() as calls_of_first:
        first = app.openapi()
    app.get("/hello")(lambda: "hello")
    app.openapi_schema = None  # as FastAPI says to do where a route comes later
    with counted_calls() as calls_of_second:
        second = app.openapi()
    assert second["paths"][path] == first["paths"][path]
    assert calls_of_second() < calls_of_first() / 4
    assert "/hello" in second["paths"].keys() - first["paths"].keys()
    server.register("later", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])])
    assert "/v2/models/later/infer" in documented(app)["paths"]
    server.unregister_sync("later")
    assert "/v2/models/later/infer" not in documented(app)["paths"]


def test_two_servers_in_fastapi_s_own_document() -> None:
    validator = pytest.importorskip("openapi_spec_validator").OpenAPIV31SpecValidator
    app = FastAPI()
    for mount in ("/v2", "/{tenant}/v2"):
        server = InferenceServer()
        server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])])
        OIPApp(server).install(app, mount)
    document = documented(app)
    assert {"/v2/models/m/infer", "/{tenant}/v2/models/m/infer"} <= document["paths"].keys()
    assert list(validator(document).iter_errors()) == []


def test_fastapi_s_own_document_without_the_models() -> None:
    of_3_0 = hosted()
    of_3_0.openapi_version = "3.0.2"
    for app in (hosted(openapi=False), hosted(server={"docs": False}), of_3_0):
        assert list(documented(app)["paths"]) == ["/hello"]
    app = hosted(openapi=False)  # the page and our own documents stay
    assert over_asgi(app, "/v2")(Request("GET", "/docs")).status == 200
    assert "/models/iris/infer" in documented(app, "/v2/openapi.json")["paths"]


def test_a_path_of_the_host_goes_before_ours() -> None:
    app = hosted()

    @app.get("/v2/models/iris", summary="the host's own")
    def iris() -> None: ...

    assert documented(app)["paths"]["/v2/models/iris"]["get"]["summary"] == "the host's own"


def test_the_host_s_authentication_covers_the_page() -> None:
    app = hosted()

    @app.middleware("http")
    async def authenticate(request: FastAPIRequest, call_next: Any) -> Any:
        is_allowed = request.headers.get("authorization") == "Bearer secret"
        return await call_next(request) if is_allowed else Response(status_code=401)

    way = over_asgi(app, "/v2")
    for path in ("/docs", "/docs/page.js", "/openapi.json", "/models/iris/openapi.json"):
        assert way(Request("GET", path)).status == 401
        assert way(Request("GET", path, (("authorization", "Bearer secret"),))).status == 200
