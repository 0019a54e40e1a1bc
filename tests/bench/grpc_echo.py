"""ModelInfer against a bare grpc.aio echo of the same bytes: `python -m tests.bench.grpc_echo`.

Each server is a process of its own, asked by one blocking client, in turns, so that both see the same machine. What is printed is the
share of the echo's requests per second that the protocol keeps, as the median of the turns.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import grpc.aio
import numpy as np

from oip_asgi import InferenceServer
from oip_asgi.grpc import add_to_server

from ..grpc_ways import SERVICE, UNLIMITED, wire_request

TURNS = 15
SECONDS = 0.4


async def _serve(kind: str) -> None:
    grpc_server = grpc.aio.server(options=UNLIMITED)
    if kind == "oip_asgi":
        server = InferenceServer()
        server.register("identity", lambda x: x, run="inline")
        add_to_server(server, grpc_server)
    else:

        async def echo(request: bytes, context: Any) -> bytes:
            return request

        handlers: Any = {"ModelInfer": grpc.unary_unary_rpc_method_handler(echo)}
        grpc_server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    print(grpc_server.add_insecure_port("127.0.0.1:0"), flush=True)
    await grpc_server.start()
    await grpc_server.wait_for_termination()


@contextmanager
def _asking(kind: str) -> Iterator[Any]:
    """The method of a server of this kind, as a callable from bytes to bytes."""
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.grpc_echo", kind], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
            yield channel.unary_unary(f"/{SERVICE}/ModelInfer")
    finally:
        process.kill()
        process.wait()


def _per_second(ask: Any, message: bytes) -> float:
    asked, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < SECONDS:
        ask(message)
        asked += 1
    return asked / passed


def main() -> None:
    with ExitStack() as stack:
        floor, ours = (stack.enter_context(_asking(kind)) for kind in ("echo", "oip_asgi"))
        for columns in (4, 784, 150_528):
            tensor = {"name": "x", "datatype": "FP32", "shape": [1, columns]}
            message = wire_request("identity", [tensor], [np.ones(columns, "<f4").tobytes()]).SerializeToString()
            turns = [(_per_second(floor, message), _per_second(ours, message)) for _ in range(TURNS)]
            share = statistics.median(mine / bare for bare, mine in turns)
            print(f"1x{columns}: {share:.2f} of {statistics.median(bare for bare, _ in turns):.0f} per second")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_serve(sys.argv[1]))
    else:
        main()
