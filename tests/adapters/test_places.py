"""Which requests an `async def` or inline model answers without a worker thread: short ones, and long ones of plain numbers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceRequest, InferenceServer, OIPApp, TensorSpec
from oip_asgi.codecs import DatetimeCodec
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import call, frame
from tests.support.grpc_ways import SERVICE, wire_request
from tests.support.ways import Request, over_asgi, send_asgi

NUMBERS = [index / 8 for index in range(5000)]
DATE = "2020-01-01T00:00:00"


async def double(x: np.ndarray) -> np.ndarray:
    return x * 2


async def count(request: InferenceRequest) -> list[int]:
    return [request.inputs[0].array.size]


async def grow(x: np.ndarray) -> np.ndarray:
    return np.repeat(x, 10_000)


async def join(x: list[str]) -> list[int]:
    return [sum(map(len, x))]


async def count_dates(x: list[datetime]) -> list[int]:
    return [len(x)]


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
    server.register("dates", count_dates)
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


async def ask_over_grpc(server: InferenceServer, model: str, inputs: list[Any], raw: list[bytes]) -> None:
    message = wire_request(model, inputs, raw)
    got = await call(OIPGRPCApp(server), f"/{SERVICE}/ModelInfer", frame(message.SerializeToString()))
    assert got.refusal[0] == ("OK" if len(inputs) == 1 else "INVALID_ARGUMENT")  # as the others are unknown


def starts_threads(ask: Callable[[InferenceServer], Coroutine[Any, Any, None]]) -> bool:
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
        pytest.param("dates", as_json([DATE] * 10, "BYTES"), True, id="few dates"),
        pytest.param("dates", as_json([DATE] * 4000, "BYTES"), False, id="dates"),
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


def as_message(size: int, datatype: str = "FP64", count: int = 1, **fields: Any) -> tuple[list[Any], list[bytes]]:
    """So many inputs, as raw contents if the fields give no others."""
    inputs = [{"name": f"x{index}" if index else "x", "datatype": datatype, "shape": [size], **fields} for index in range(count)]
    data = (b"\3\0\0\0abc" if datatype == "BYTES" else np.float64(1.5).tobytes()) * size
    return inputs, [] if fields else [data] * count


@pytest.mark.parametrize(
    ("model", "asked", "is_on_loop"),
    [
        pytest.param("double", as_message(2**17 - 100), True, id="numbers of 1 MiB at most"),
        pytest.param("double", as_message(2**17), False, id="numbers of more"),
        pytest.param("double", as_message(100, count=64), False, id="many inputs"),
        pytest.param("join", as_message(4000, "BYTES"), False, id="texts"),
        pytest.param("double", as_message(50_000, contents={"fp64_contents": [1.5] * 50_000}), False, id="typed numbers"),
        pytest.param("double", as_message(2, contents={"fp64_contents": [1.5] * 2}), True, id="few typed numbers"),
    ],
)
def test_grpc_does_so_too(model: str, asked: tuple[list[Any], list[bytes]], is_on_loop: bool) -> None:
    assert starts_threads(lambda server: ask_over_grpc(server, model, *asked)) is not is_on_loop


@pytest.mark.parametrize(("raised", "status"), [(ValueError, 400), (RuntimeError, 500)])
def test_what_cannot_be_read_in_a_thread_is_answered_as_on_the_loop(
    raised: type[Exception], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tensor: Any) -> Any:
        raise raised("on purpose")

    monkeypatch.setattr(DatetimeCodec, "decode_input", fail)
    for size in (10, 4000):
        headers, body = as_json([DATE] * size, "BYTES")
        answer = over_asgi(OIPApp(make_server()), "")(Request("POST", "/models/dates/infer", tuple(headers.items()), body))
        assert answer.status == status
