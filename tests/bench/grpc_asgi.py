"""gRPC over ASGI under pyvoy against two echoes, in one run: `python -m tests.bench.grpc_asgi`. Wants pyvoy and h2load, beside the extra.

Prints, for each round, the calls per second over one connection with eight calls at once, and the medians' ratios.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import grpc.aio
import numpy as np

from oip_asgi import InferenceServer
from oip_asgi.grpc import OIPGRPCApp, add_to_server
from tests.support.grpc_asgi import frame
from tests.support.grpc_ways import SERVICE, wire_request
from tests.support.processes import environment, free_port

PATH: Final = f"/{SERVICE}/ModelInfer"
ROUNDS, SECONDS, CALLS = 5, 2, 8
COMMANDS: Final = {
    "ASGI echo, pyvoy": "pyvoy --loop uvloop --port PORT tests.bench.grpc_asgi:bare",
    "oip_asgi, pyvoy": "pyvoy --loop uvloop --port PORT tests.bench.grpc_asgi:app",
    "grpc.aio echo": "python -m tests.bench.grpc_asgi echo PORT",
    "oip_asgi, grpc.aio": "python -m tests.bench.grpc_asgi oip PORT",
}


def make_server() -> InferenceServer:
    server = InferenceServer()
    server.register("echo", lambda x: x, run="inline")
    return server


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """The least that answers a call over ASGI: the same bytes."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/grpc")], "trailers": True})
    await send({"type": "http.response.body", "body": body, "more_body": False})
    await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")], "more_trailers": False})


app = OIPGRPCApp(make_server())


async def serve_grpcio(kind: str, port: str) -> None:
    async def echo(request: bytes, context: Any) -> bytes:
        return request

    server = grpc.aio.server()
    if kind == "oip":
        add_to_server(make_server(), server)
    else:
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(echo)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"ModelInfer": handler})])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def calls_per_second(port: int, data: Path) -> float:
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    command = ["taskset", "-c", "1", "h2load", "-t1", "-c1", f"-m{CALLS}", f"-D{SECONDS}", f"--data={data}", *headers]
    ran = subprocess.run([*command, f"http://127.0.0.1:{port}{PATH}"], capture_output=True, text=True, check=True)
    [line] = [line for line in ran.stdout.splitlines() if line.startswith("requests:")]
    words = line.split()
    assert int(words[words.index("failed,") - 1]) == 0 < int(words[words.index("succeeded,") - 1]), line
    return int(words[words.index("succeeded,") - 1]) / SECONDS


def main() -> None:
    message = wire_request("echo", [{"name": "x", "datatype": "FP32", "shape": [1, 4]}], [np.ones(4, "<f4").tobytes()])
    rates: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = Path(folder, "data")
        data.write_bytes(frame(message.SerializeToString()))
        ports = {}
        for name, command in COMMANDS.items():
            ports[name] = free_port()
            words = [sys.executable if word == "python" else word.replace("PORT", str(ports[name])) for word in command.split()]
            process = stack.enter_context(subprocess.Popen(["taskset", "-c", "0", *words], env=environment(), stderr=subprocess.DEVNULL))
            stack.callback(process.terminate)
        asyncio.run(wait_for(list(ports.values())))
        for _ in range(ROUNDS):
            for name, port in ports.items():
                rates[name].append(calls_per_second(port, data))
            print({name: round(found[-1]) for name, found in rates.items()}, flush=True)
    for base in ("ASGI echo, pyvoy", "grpc.aio echo"):
        ratios = {name: median(one / other for one, other in zip(found, rates[base], strict=True)) for name, found in rates.items()}
        print(f"of the {base}:", {name: round(ratio, 2) for name, ratio in ratios.items()})


async def wait_for(ports: list[int]) -> None:
    for port in ports:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 60)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(serve_grpcio(*sys.argv[1:]))
    else:
        main()
