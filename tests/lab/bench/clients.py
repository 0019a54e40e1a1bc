"""Clients side by side, against one server of this package: `python -m tests.lab.bench.clients [--rounds 7] [--quick]`.

The server has one core and the client the other. Clients take turns of some hundred requests, one after the other over one connection.
The table has medians of the turns: microseconds of the clock and of the client's CPU for a request, and this CPU in times of
tritonclient's: the targets are 0.8 for `Client` and 1 for `AsyncClient` in the first row, 0.7 in the others, but for
`AsyncClient` and 602 KB, where README.md says what is promised. One answer of each is compared
with what was sent. Wants tritonclient and kserve.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from oip_asgi.client import AsyncClient, Client
from tests.support.processes import serving

from .machine import described, on_core, two_cores
from .remote import command
from .report import table

ROWS: Final[Mapping[str, tuple[tuple[int, int], int]]] = {"1x4": ((1, 4), 300), "1x150528": ((1, 150_528), 40), "64 MiB": ((4096, 4096), 1)}
"""For each row the shape of FP32, and the requests of a turn."""

Ask = Callable[[Any], Any]


async def _make(make: Callable[[], Any]) -> Any:
    """What wants a running event loop where it is made."""
    return make()


def make_clients(port: int, stack: ExitStack) -> dict[str, Ask]:
    """Each client as a function from an array to the array that comes back."""
    import tritonclient.http as triton
    import tritonclient.http.aio as triton_aio
    from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
    from kserve.protocol.infer_type import RequestedOutput

    url = f"http://127.0.0.1:{port}/v2"
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    ours = stack.enter_context(Client(url))
    awaited = AsyncClient(url)
    stack.callback(lambda: loop.run_until_complete(awaited.close()))
    tritons = triton.InferenceServerClient(f"127.0.0.1:{port}")
    stack.callback(tritons.close)
    awaited_tritons = loop.run_until_complete(_make(lambda: triton_aio.InferenceServerClient(f"127.0.0.1:{port}")))
    stack.callback(lambda: loop.run_until_complete(awaited_tritons.close()))
    kserves = InferenceRESTClient(RESTConfig(protocol="v2", timeout=120))
    stack.callback(lambda: loop.run_until_complete(kserves.close()))

    def ask_triton(array: Any) -> Any:
        tensor = triton.InferInput("x", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        return tritons.infer("identity", [tensor]).as_numpy("y")

    async def await_triton(array: Any) -> Any:
        tensor = triton_aio.InferInput("x", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array)
        return (await awaited_tritons.infer("identity", [tensor])).as_numpy("y")

    def ask_kserve(array: Any) -> Any:
        tensor = InferInput("x", list(array.shape), "FP32")
        tensor.set_data_from_numpy(array, binary_data=True)
        request = InferRequest("identity", [tensor], request_outputs=[RequestedOutput("y", parameters={"binary_data": True})])
        answer = loop.run_until_complete(kserves.infer(f"http://127.0.0.1:{port}", request, model_name="identity"))
        return answer.outputs[0].as_numpy()

    return {
        "Client": lambda array: ours.infer("identity", {"x": array})["y"],
        "AsyncClient": lambda array: loop.run_until_complete(awaited.infer("identity", {"x": array}))["y"],
        "tritonclient.http": ask_triton,
        "tritonclient.http.aio": lambda array: loop.run_until_complete(await_triton(array)),
        "kserve": ask_kserve,
    }


def measure(clients: Mapping[str, Ask], array: Any, requests: int, rounds: int) -> dict[str, tuple[float, float]]:
    """For each client the medians of the clock and of CPU, in microseconds for a request. The first turn warms up."""
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
    for ask in clients.values():
        assert np.array_equal(ask(array), array)
    for turn in range(rounds + 1):
        for name, ask in clients.items():
            begun, cpu = time.perf_counter(), time.process_time()
            for _ in range(requests):
                ask(array)
            if turn:
                turns[name].append(((time.perf_counter() - begun) / requests * 1e6, (time.process_time() - cpu) / requests * 1e6))
    return {name: (median(clock for clock, _ in found), median(cpu for _, cpu in found)) for name, found in turns.items()}


def shown(found: Mapping[tuple[str, str], tuple[float, float]]) -> str:
    """The table, by row and client."""
    lines = []
    for (row, name), (clock, own) in found.items():
        times = [f"{own / found[row, other][1]:.2f}" for other in ("tritonclient.http", "tritonclient.http.aio")]
        lines.append([row, name, f"{clock:,.0f}", f"{own:,.0f}", *times])
    return table(["row", "client", "clock, us", "CPU, us", "times tritonclient.http", "times tritonclient.http.aio"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.clients")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, and no 64 MiB")
    arguments = parser.parse_args()
    client_core, server_core = two_cores()
    print(described())
    print(f"load average before: {os.getloadavg()[0]:.2f}")
    found: dict[tuple[str, str], tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        with on_core(server_core):
            served = stack.enter_context(serving(command("--port", "PORT"), Path(folder, "server.log")))
        stack.enter_context(on_core(client_core))
        clients = make_clients(served.port, stack)
        for row, (shape, requests) in ROWS.items():
            if arguments.quick and row == "64 MiB":
                continue
            # KServe's client takes minutes for the largest row
            asked = {name: ask for name, ask in clients.items() if (row, name) != ("64 MiB", "kserve")}
            number = max(1, requests // (10 if arguments.quick else 1))
            measured = measure(asked, np.ones(shape, np.float32), number, arguments.rounds)
            found |= {(row, name): each for name, each in measured.items()}
    print(shown(found))


if __name__ == "__main__":
    main()
