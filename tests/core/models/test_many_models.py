"""Thousands of models: what each costs to register, in calls and bytes, does not grow with their number, and documents are made aside."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fastapi import FastAPI

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.calls import counted_calls
from tests.support.ways import Request, send_asgi

KIB = 1024

SPECS: dict[str, Any] = {"inputs": [TensorSpec("x", "FP32", [-1, 4])], "outputs": [TensorSpec("y", "FP32", [-1, 4])]}


def double(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return x * 2


def untyped(x: Any) -> Any:
    return x


async def pause(x: Any) -> Any:
    yield x


def scaled(x: Any, factor: float = 1.0, rounds: int = 3) -> Any:
    return x


def of_frame(**columns: Any) -> Any:
    return columns


COLUMNS = {"inputs": [TensorSpec(f"column {place}", "FP64", [-1]) for place in range(30)]}
KINDS = pytest.mark.parametrize(
    ("function", "options"),
    [(double, SPECS), (untyped, SPECS), (pause, SPECS), (scaled, SPECS), (of_frame, COLUMNS)],
    ids=["array", "untyped", "stream", "scalars", "columns"],
)


def test_registering_takes_as_many_calls_and_bytes_however_many_there_are() -> None:
    server = InferenceServer()
    calls, peaks = list[int](), list[int]()
    for place in range(301):
        with counted_calls() as count:
            server.register(f"model {place:04}", double, **SPECS)
        calls.append(count())
        if place in (5, 290, 291, 292):
            tracemalloc.start()
            server.register(f"traced {place}", double, **SPECS)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert abs(calls[300] - calls[10]) < 50
    assert min(peaks[1:]) < peaks[0] + 16 * KIB  # a dict of them all would be twice as much
    for place in (0, 150, 300):
        with counted_calls() as count:
            server.unregister_sync(f"model {place:04}")
        calls.append(count())
    assert max(calls[-3:]) < 2 * calls[10]
    assert [model.name for model in server.models()][:2] == ["model 0001", "model 0002"]


@KINDS
def test_a_model_takes_few_bytes(function: Any, options: dict[str, Any]) -> None:
    server = InferenceServer()
    server.register("first", function, **options)
    tracemalloc.start()
    for place in range(40):
        server.register(f"model {place}", function, **options)
    each = tracemalloc.get_traced_memory()[0] / 40
    tracemalloc.stop()
    assert each < 25 * KIB


def many(count: int) -> InferenceServer:
    server = InferenceServer()
    for place in range(count):
        server.register(f"model {place}", double, **SPECS)
    return server


def test_a_document_is_made_in_small_pieces_aside_from_the_event_loop() -> None:
    """The interpreter is held for as long as one call in C takes: to go through the dicts of all models would be such a call."""
    app, sizes, peaks = OIPApp(many(100)), list[int](), list[int]()

    async def thin(scope: Any, receive: Any, send: Any) -> None:
        async def send_none(message: Any) -> None:
            if "body" in message:
                sizes.append(len(message["body"]))
                peaks.append(tracemalloc.get_traced_memory()[1])
            await send({**message, "body": b""} if "body" in message else message)

        await app(scope, receive, send_none)

    async def main() -> int:
        with counted_calls() as calls:
            await send_asgi(thin, Request("GET", "/openapi.json"))
            return calls()

    tracemalloc.start()
    calls = asyncio.run(main())
    tracemalloc.stop()
    assert calls < 20 * 100  # its operations take some hundred calls for each model
    assert peaks[0] < 4 * sum(sizes)  # they are JSON as soon as they are made; as dicts it was seven times


def test_the_document_of_fastapi_keeps_no_dicts() -> None:
    app = FastAPI()
    OIPApp(many(50)).install(app, "/v2")
    app.openapi()
    tracemalloc.start()
    OIPApp(many(50)).install(other := FastAPI(), "/v2")
    before = tracemalloc.get_traced_memory()[0]
    assert len(other.openapi()["paths"]) > 300
    each = (tracemalloc.get_traced_memory()[0] - before) / 50
    tracemalloc.stop()
    assert each < 10 * KIB
