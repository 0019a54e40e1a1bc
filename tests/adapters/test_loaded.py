"""What `load=` brings along beside the function, and what a model knows of its request's time and outputs."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from oip_asgi import (
    InferenceContext,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InferenceServer,
    Loaded,
    OIPApp,
    OIPMiddleware,
    Tensor,
    TensorSpec,
)
from tests.support.asking import ask, error, get, outputs

X = TensorSpec("x", "FP32", [-1, 2])
Y = TensorSpec("y", "FP32", [-1, 2])
GOOD = np.array([[1, 2]], np.float32)


def test_what_is_declared_when_it_is_loaded_is_checked_and_shown() -> None:
    server = InferenceServer()
    server.register("m", load=lambda: Loaded(lambda x: x * 2, inputs=[X], outputs=[Y]))
    assert outputs(ask(server, "m", x=GOOD)) == {"y": [2.0, 4.0]}
    assert ask(server, "m", x=GOOD[0]).status == 400
    metadata = get(server, "/models/m")[1]
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    assert metadata["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]


def test_what_register_says_goes_before() -> None:
    server, asked = InferenceServer(), []
    loaded = Loaded(function=lambda x: x, inputs=[X], outputs=[Y], ready=lambda: False, unload=lambda: asked.append("loaded"))
    mine = TensorSpec("x", "FP32", [1, 2])
    server.register("m", load=lambda: loaded, inputs=[mine], ready=lambda: True, unload=lambda: asked.append("registered"))
    assert get(server, "/models/m/ready")[0] == 200
    assert get(server, "/models/m")[1]["inputs"][0]["shape"] == [1, 2]
    server.unload_sync("m")
    assert asked == ["registered"]


def test_it_says_whether_it_is_ready_and_is_unloaded_when_it_is_replaced_and_at_the_end() -> None:
    server, unloaded, numbers = InferenceServer(), [], iter(range(9))
    states = {"ready": False}

    async def load() -> Loaded:
        number = next(numbers)
        return Loaded(function=lambda x: x + number, ready=lambda: states["ready"], unload=lambda: unloaded.append(number))

    server.register("m", load=load)
    assert get(server, "/models/m/ready")[0] == 503
    states["ready"] = True
    assert get(server, "/models/m/ready")[0] == 200

    async def live() -> None:
        async with server.lifespan():
            await server.load("m")
            assert (await server.infer("m", {"x": np.array([1])}))["output_0"].tolist() == [2]

    asyncio.run(live())
    assert sorted(unloaded) == [0, 1]


def test_inputs_of_a_whole_request_may_be_optional() -> None:
    server = InferenceServer()

    def whole(request: InferenceRequest) -> Any:
        return np.array([len(request.inputs)])

    server.register("m", load=lambda: Loaded(function=whole, inputs=[X, TensorSpec("mask", "BOOL", [-1])], optional=["mask"]))
    assert outputs(ask(server, "m", x=GOOD)) == {"output_0": [1]}
    assert outputs(ask(server, "m", x=GOOD, mask=np.array([True]))) == {"output_0": [2]}
    assert error(ask(server, "m", mask=np.array([True])))[0] == 400
    assert [each["optional"] for each in get(server, "/models/m/config")[1]["input"]] == [False, True]
    schema = get(server, "/models/m/openapi.json")[1]
    assert "mask" in str(schema)


@pytest.mark.parametrize(
    ("timeout", "asked", "least", "most"), [(None, None, math.inf, math.inf), (30, None, 20, 30), (30, 9_000_000, 5, 9)]
)
def test_a_model_is_told_when_its_request_is_given_up(timeout: float | None, asked: int | None, least: float, most: float) -> None:
    server, left = InferenceServer(), []

    @server.model("m", timeout=timeout, allow_timeout_override=True)
    async def tell(x: Any, context: InferenceContext) -> Any:
        left.append(context.deadline - time.monotonic())
        return x

    ask(server, "m", {"parameters": {"timeout": asked}} if asked else None, x=GOOD)
    assert least <= left[0] <= most


def test_a_response_of_the_model_need_not_hold_more_than_what_is_asked_for() -> None:
    server = InferenceServer()

    @server.model("m", outputs=[Y, TensorSpec("z", "INT64", [1])])
    def some(request: InferenceRequest) -> InferenceResponse:
        wanted = [output.name for output in request.outputs] or ["z"]
        return InferenceResponse([Tensor(name, np.array([1]) if name == "z" else GOOD) for name in wanted])

    assert outputs(ask(server, "m", {"outputs": [{"name": "z"}]}, x=GOOD)) == {"z": [1]}
    assert list(outputs(ask(server, "m", {"outputs": [{"name": "z"}, {"name": "y"}]}, x=GOOD))) == ["z", "y"]
    assert ask(server, "m", x=GOOD).status == 500


@pytest.mark.parametrize("way", ["install", "middleware", "alone"])
def test_the_log_says_once_where_the_page_is_and_how_long_each_load_took(way: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oip_asgi")
    server = InferenceServer("demo")
    for version in ("1", "2"):
        server.register("m", load=lambda: lambda x: x, version=version)
    server.register("at once", lambda x: x)
    app: Any = Starlette()
    if way == "install":
        OIPApp(server).install(app, "/v2")
    else:
        app = OIPMiddleware(app, server, "/v2") if way == "middleware" else OIPApp(server, path="/v2")
    with TestClient(app):
        pass
    told = [re.sub(r"\d\.\d s", "SECONDS", record.getMessage()) for record in caplog.records if record.name == "oip_asgi"]
    assert told[0] == "the page of server 'demo' is at /v2/docs"
    assert sorted(told[1:]) == [f"model 'm' version '{version}' is loaded after SECONDS" for version in ("1", "2")]


def test_a_stream_has_a_second_function_for_one_response() -> None:
    def items(x: Any) -> Any:
        yield from x

    server = InferenceServer()
    server.register("m", load=lambda: Loaded(items, inputs=[X], once=lambda x: x.sum(0)))
    assert outputs(ask(server, "m", x=GOOD)) == {"output_0": [1.0, 2.0]}
    assert [response["output_0"].tolist() for response in server.infer_stream_sync("m", {"x": GOOD})] == [[1.0, 2.0]]


def test_a_function_that_reads_its_requests_itself_is_asked_for_all() -> None:
    def read(request: InferenceRequest) -> InferenceResponse:
        return InferenceResponse([Tensor(each.name, each.array, {"content_type": "str"}) for each in request.inputs])

    server = InferenceServer()
    server.register("m", load=lambda: Loaded(read, inputs=[X], content_types=["hex"]))
    server.load_sync("m")
    assert get(server, "/models/m")[1]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    sent = Tensor("other", np.array([b"0708"], object), {"content_type": "hex"})
    assert server.infer_sync("m", {"other": sent})["other"].tolist() == [b"0708"]
    sent.parameters = {"content_type": "img"}
    with pytest.raises(InferenceError, match="has the unknown content_type 'img': expected one of np, str, base64, datetime, pd_json, hex"):
        server.infer_sync("m", {"other": sent})


def test_what_answers_once_is_no_generator_and_content_types_are_no_text(caplog: pytest.LogCaptureFixture) -> None:
    def stream(x: Any) -> Iterator[Any]:
        yield x

    wrong = [
        (Loaded(stream, once=stream), "model 'm': Loaded(once=) answers once, and has a generator: return the answer"),
        (Loaded(lambda request: request, content_types="hex"), "model 'm': Loaded(content_types='hex') is one text: write a list, ['hex']"),
    ]
    for loaded, text in wrong:
        server = InferenceServer()
        server.register("m", load=lambda loaded=loaded: loaded)
        with pytest.raises(InferenceError):
            server.load_sync("m")
        assert text in caplog.text


def test_what_is_new_is_found_before_a_client_lists_or_loads() -> None:
    for has_control in (True, False):
        server, found = InferenceServer(model_control=has_control), list[str]()

        def find(server: InferenceServer = server, found: list[str] = found) -> None:
            found.append(f"m{len(found)}")
            server.register(found[-1], lambda x: x)

        server.discover(find)
        with TestClient(OIPApp(server, path="/v2")) as client:
            assert client.post("/v2/repository/models/m0/load").status_code == (200 if has_control else 404)
            listed = [each["name"] for each in client.post("/v2/repository/index", json={}).json()]
        assert listed == found == (["m0", "m1"] if has_control else [])


def test_a_function_that_cannot_find_what_is_new_hides_no_model(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer(model_control=True)
    server.register("m", lambda x: x)

    def fail() -> None:
        raise ValueError("'m' is registered already")

    async def find() -> None:
        server.register("new", lambda x: x, replace=True)

    server.discover(fail)
    server.discover(find)
    with TestClient(OIPApp(server, path="/v2")) as client:
        assert [each["name"] for each in client.post("/v2/repository/index", json={}).json()] == ["m", "new"]
        assert client.post("/v2/repository/models/m/load").status_code == 200
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert logged == ["a function of discover() raised, so what is new may be missing"] * 2
