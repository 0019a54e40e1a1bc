"""The recipes for tests of one's own models: without HTTP, with a test client, our own client over that, with httpx2, with werkzeug."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from werkzeug.test import Client as WerkzeugClient

from oip_asgi import ErrorResponse, InferenceServer, OIPApp, OIPWSGIMiddleware, TensorSpec
from oip_asgi.client import Client
from tests.support.ways import other_wsgi_app

BODY = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}


@pytest.fixture
def server() -> InferenceServer:
    server = InferenceServer()
    server.register("double", lambda x: x * 2, inputs=[TensorSpec("x", "FP32", [-1])])
    return server


def test_with_our_client_over_the_test_client(server: InferenceServer) -> None:
    server.register("loads", load=lambda: lambda x: x)

    @server.model("count")
    def count(n: Any) -> Iterator[Any]:
        for number in range(n.item()):
            yield np.array([number])

    app = FastAPI()
    OIPApp(server).install(app, "/v2")
    large = np.arange(300_000, dtype=np.float32)
    with TestClient(app) as http:
        assert {model.state for model in server.models()} == {"ready"}
        client = Client("/v2", http=http)
        for binary in (True, False):
            np.testing.assert_array_equal(client.infer("double", {"x": large}, binary=binary)["output_0"], large * 2)
        assert [response["output_0"].item() for response in client.stream("count", {"n": np.array(3)})] == [0, 1, 2]
        assert client.is_ready()
        with pytest.raises(ErrorResponse, match="expected FP32") as raised:
            client.infer("double", {"x": ["a"]})
        assert raised.value.response_status == 400
        client.close()
        assert http.get("/v2/health/live").status_code == 200  # it stays the caller's


def test_with_httpx2(server: InferenceServer) -> None:
    async def main() -> None:
        transport = httpx2.ASGITransport(OIPApp(server))
        async with server.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post("/models/double/infer", json=BODY)
        assert answer.json()["outputs"][0]["data"] == [2, 4]

    asyncio.run(main())


def test_with_the_client_of_werkzeug(server: InferenceServer) -> None:
    client = WerkzeugClient(OIPWSGIMiddleware(other_wsgi_app, server, "/v2"))
    answer = client.post("/v2/models/double/infer", json=BODY)
    assert answer.json is not None
    assert answer.json["outputs"][0]["data"] == [2, 4]
    server.stop()
