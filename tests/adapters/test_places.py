"""Which requests an `async def` or inline model answers without a worker thread: short ones, and long ones of plain numbers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceRequest, InferenceServer, OIPApp, TensorSpec
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import call, frame
from tests.support.grpc_ways import SERVICE, wire_request
from tests.support.ways import Request, send_asgi

NUMBERS = [index / 8 for index in range(5000)]


async def double(x: np.ndarray) -> np.ndarray:
    return x * 2


async def count(request: InferenceRequest) -> list[int]:
    return [request.inputs[0].array.size]


async def grow(x: np.ndarray) -> np.ndarray:
    return np.repeat(x, 10_000)


async def join(x: list[str]) -> list[int]:
    return [sum(map(len, x))]


async def count_columns(df: pd.DataFrame) -> list[int]:
    return [len(df.columns)]


async def count_series(**columns: pd.Series) -> list[int]:
    return [len(columns)]


def make_server() -> InferenceServer:
    server = InferenceServer()
    server.register("double", double)
    server.register("ranged", double, inputs=[TensorSpec("x", "FP64", [-1], minimum=0)])
    server.register("count", count)
    server.register("join", join)
    server.register("grow", grow)
    server.register("frame", count_columns)
    server.register("series", count_series)
    server.register("thread", lambda x: x * 2)
    return server


def as_json(data: list[Any], datatype: str = "FP64", **parameters: Any) -> tuple[dict[str, str], bytes]:
    entry = {"name": "x", "datatype": datatype, "shape": [len(data)], "data": data, **({"parameters": parameters} if parameters else {})}
    return {}, json.dumps({"inputs": [entry]}).encode()


def as_binary(size: int, datatype: str = "FP64", **parameters: Any) -> tuple[dict[str, str], bytes]:
    data = (b"\3\0\0\0abc" if datatype == "BYTES" else np.float64(1.5).tobytes()) * size
    entry = {"name": "x", "datatype": datatype, "shape": [size], "parameters": {"binary_data_size": len(data), **parameters}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    return {"Inference-Header-Content-Length": str(len(head))}, head + data


def as_columns(count: int) -> tuple[dict[str, str], bytes]:
    entries = [{"name": f"x{index}", "datatype": "FP64", "shape": [1], "data": [index]} for index in range(count)]
    return {}, json.dumps({"inputs": entries}).encode()


async def ask_over_http(server: InferenceServer, model: str, headers: dict[str, str], body: bytes) -> None:
    answer = await send_asgi(OIPApp(server), Request("POST", f"/models/{model}/infer", tuple(headers.items()), body))
    assert answer.status == 200, answer.body


async def ask_over_grpc(server: InferenceServer, size: int, count: int) -> None:
    """One call with so many inputs of FP64 as raw contents."""
    inputs = [{"name": f"x{index}" if index else "x", "datatype": "FP64", "shape": [size]} for index in range(count)]
    message = wire_request("double", inputs, [np.full(size, 1.5).tobytes()] * count)
    got = await call(OIPGRPCApp(server), f"/{SERVICE}/ModelInfer", frame(message.SerializeToString()))
    assert got.refusal[0] == ("OK" if count == 1 else "INVALID_ARGUMENT")  # as the others are unknown


def starts_threads(ask: Callable[[InferenceServer], Coroutine[Any, Any, None]]) -> bool:
    """Whether the first request to a server starts a worker thread."""
    server = make_server()
    before = {*threading.enumerate()}
    asyncio.run(ask(server))
    started = {*threading.enumerate()} - before
    server.stop()
    return bool(started)


@pytest.mark.parametrize(
    ("model", "sent", "is_on_loop"),
    [
        pytest.param("double", as_json(NUMBERS[:4000]), True, id="JSON of 32 KiB at most"),
        pytest.param("double", as_json([0.1 + each for each in NUMBERS]), False, id="JSON of more"),
        pytest.param("double", as_json([1e300] * 4000), False, id="numbers that take long to read"),
        pytest.param("double", as_binary(2**17 - 100), True, id="binary numbers of 1 MiB at most"),
        pytest.param("double", as_binary(2**17), False, id="binary numbers of more"),
        pytest.param("count", as_binary(2**17 - 100), True, id="binary numbers for a model that takes the request itself"),
        pytest.param("count", as_binary(4000, "BYTES"), False, id="binary texts for it"),
        pytest.param("ranged", as_binary(5000), False, id="a range, which looks at each number"),
        pytest.param("join", as_json(["abc"] * 4000, "BYTES"), False, id="texts"),
        pytest.param("join", as_binary(4000, "BYTES"), False, id="binary texts"),
        pytest.param("double", as_json(NUMBERS[:4000], content_type="np"), False, id="a content type"),
        pytest.param("frame", as_columns(10), True, id="few columns"),
        pytest.param("frame", as_columns(20), False, id="many columns of a data frame"),
        pytest.param("series", as_columns(20), False, id="many series"),
        pytest.param("double", as_json(NUMBERS[:8]), True, id="a short request"),
        pytest.param("grow", as_binary(1), True, id="a long result of binary numbers"),
        pytest.param("grow", as_json([1.5]), False, id="a long result as JSON"),
        pytest.param("thread", as_json(NUMBERS[:8]), False, id="a def"),
    ],
)
def test_the_event_loop_takes_what_is_quick(model: str, sent: tuple[dict[str, str], bytes], is_on_loop: bool) -> None:
    assert starts_threads(lambda server: ask_over_http(server, model, *sent)) is not is_on_loop


@pytest.mark.parametrize(("size", "count", "is_on_loop"), [(2**17 - 100, 1, True), (2**17, 1, False), (100, 64, False)])
def test_grpc_does_so_too(size: int, count: int, is_on_loop: bool) -> None:
    assert starts_threads(lambda server: ask_over_grpc(server, size, count)) is not is_on_loop
