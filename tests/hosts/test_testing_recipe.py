"""The recipe for tests of one's own models, as the guide has it: without HTTP, with Starlette's TestClient, with httpx2, with werkzeug."""

from __future__ import annotations

import asyncio

import httpx2
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from werkzeug.test import Client

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIMiddleware, TensorSpec
from tests.support.ways import other_wsgi_app

BODY = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer()
    server.register("double", lambda x: x * 2, inputs=[TensorSpec("x", "FP32", [-1])])
    return server


def test_without_http(server: InferenceServer) -> None:
    response = server.infer_sync("double", {"x": [1, 2]})
    np.testing.assert_array_equal(response["output_0"], [2, 4])
    with pytest.raises(InferenceError, match="missing input 'x'"):
        server.infer_sync("double", {})


def test_with_the_test_client_of_starlette(server: InferenceServer) -> None:
    app = Starlette()
    OIPApp(server).install(app, "/v2")
    with TestClient(app) as client:  # as a context manager it runs the lifespan, so the models load
        answer = client.post("/v2/models/double/infer", json=BODY)
    assert answer.json()["outputs"][0]["data"] == [2, 4]


def test_with_httpx2(server: InferenceServer) -> None:
    async def main() -> None:
        transport = httpx2.ASGITransport(OIPApp(server))
        async with server.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post("/models/double/infer", json=BODY)
        assert answer.json()["outputs"][0]["data"] == [2, 4]

    asyncio.run(main())


def test_with_the_client_of_werkzeug(server: InferenceServer) -> None:
    client = Client(OIPWSGIMiddleware(other_wsgi_app, server, "/v2"))
    answer = client.post("/v2/models/double/infer", json=BODY)
    assert answer.json is not None
    assert answer.json["outputs"][0]["data"] == [2, 4]
    server.stop()
