"""New weights while requests run, over ASGI and gRPC at once: none fails, and each answer is of weights that were there."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.support.grpc_ways import SERVINGS, Client, wire_request
from tests.support.running import send
from tests.support.ways import Request

RELOADS = 20
ONE = Request("POST", "/models/m/infer", (), b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[0]}]}')


@pytest.mark.parametrize("is_async", [False, True])
def test_twenty_reloads_lose_no_request(is_async: bool) -> None:
    server = InferenceServer(model_control=True)
    versions = iter(range(1, RELOADS + 2))
    let_go: list[int] = []

    def load() -> Any:
        number = next(versions)

        def model(x: Any) -> Any:
            return x + number

        async def model_async(x: Any) -> Any:
            await asyncio.sleep(0)
            return x + number

        made: Any = model_async if is_async else model
        made.number = number
        return made

    spec = [TensorSpec("x", "INT64", [-1])]
    server.register("m", load=load, unload=lambda made: let_go.append(made.number), inputs=spec, outputs=spec)
    server.load_sync("m")
    stop, app = threading.Event(), OIPApp(server)
    current, seen, rpc_seen = [1], set[int](), list[int]()

    def over_grpc(address: str) -> None:
        client = Client(address)
        tensor = {"name": "x", "datatype": "INT64", "shape": [1]}
        while not stop.is_set():
            answer = client.ask("ModelInfer", wire_request("m", [tensor], [bytes(8)]))
            rpc_seen.append(int(np.frombuffer(answer.raw_output_contents[0], "<i8")[0]))

    async def keep_asking() -> None:
        while not stop.is_set():
            before = current[0]
            status, document = await send(app, ONE)
            assert status == 200, document
            [number] = document["outputs"][0]["data"]
            assert before <= number <= current[0] + 1
            seen.add(number)
            await asyncio.sleep(0.001)  # a loop that never waits takes the interpreter back before the thread that loads has woken

    async def main() -> None:
        asking = [asyncio.create_task(keep_asking()) for _ in range(8)]
        try:
            for place in range(RELOADS):
                if place % 2:
                    await server.load("m")
                else:
                    assert (await send(app, Request("POST", "/repository/models/m/load", (), b"{}")))[0] == 200
                current[0] += 1
                for _ in range(5):
                    await asyncio.sleep(0)
            while current[0] not in seen:  # a request that began after the last load
                await asyncio.sleep(0.001)
        finally:
            stop.set()
        await asyncio.gather(*asking)

    with SERVINGS["grpc.aio"](server) as address:
        asking_rpc = threading.Thread(target=over_grpc, args=[address])
        asking_rpc.start()
        asyncio.run(main())
        asking_rpc.join(30)
    assert max(seen) == RELOADS + 1
    assert len(seen) > 5
    assert rpc_seen == sorted(rpc_seen)
    assert set(rpc_seen) <= set(range(1, RELOADS + 2))
    assert rpc_seen
    server.stop()
    assert sorted(let_go) == list(range(1, RELOADS + 2))  # each once
