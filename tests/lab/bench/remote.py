"""A hop through `remote`, over TCP and over a Unix socket, and one copy of a model beside four: `python -m tests.lab.bench.remote`.

Each server runs under uvicorn with uvloop and httptools. A loop over plain sockets asks, with one connection, so that nothing waits. What
counts is the CPU of each server's processes, as other programs change it least. All ways take turns, and of each the least counts. Beside
`remote` stands an echo of aiohttp alone: it posts what came to the other server, and sends back what that answers, and reads none of it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.processes import Served, running, serving

from .load import Target, by_sockets
from .machine import cpu_seconds
from .rows import Row, rows

FAR: Final = "BENCH_FAR"
"""The variable with the URL of the server that has the model; without it, the application has the model itself."""

SECONDS: Final = 2
ROUNDS: Final = 5


def make_app() -> Any:
    """The application that is measured."""
    from oip_asgi import InferenceServer, OIPApp, TensorSpec
    from oip_asgi.client import remote

    server = InferenceServer()
    if FAR in os.environ:
        server.register("identity", load=remote(os.environ[FAR], "identity"), max_concurrency=64)
    else:

        async def identity(x: Any) -> Any:
            return x

        shape = [TensorSpec(name, "FP32", [-1, -1]) for name in "xy"]
        server.register("identity", identity, inputs=shape[:1], outputs=shape[1:])
    return OIPApp(server, path="/v2")


def make_echo() -> Any:
    """The application that passes all on by aiohttp."""
    import aiohttp

    sessions: list[aiohttp.ClientSession] = []  # one, which the event loop has to make

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"  # else uvicorn goes on without a lifespan
        sessions.extend([] if sessions else [aiohttp.ClientSession(read_bufsize=2**18)])
        pieces = [await receive()]
        while pieces[-1]["more_body"]:
            pieces.append(await receive())
        body = b"".join(each["body"] for each in pieces)
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name != b"host"}
        url = os.environ[FAR].removesuffix("/v2") + scope["path"]
        async with sessions[0].request(scope["method"], url, data=body, headers=headers) as response:
            content = await response.read()
        kept = [field for field in response.raw_headers if field[0] not in (b"date", b"server")]
        await send({"type": "http.response.start", "status": response.status, "headers": kept})
        await send({"type": "http.response.body", "body": content})

    return echo


def command(*more: str, app: str = "make_app") -> list[str]:
    fast = ["--loop", "uvloop", "--http", "httptools", "--log-level", "warning", "--no-access-log"]
    return ["python", "-m", "uvicorn", "--factory", f"tests.lab.bench.remote:{app}", *fast, *more]


@contextmanager
def far(folder: Path, *, socket: bool) -> Iterator[tuple[Served, str]]:
    """The server with the model, and its URL."""
    log = folder / "far.log"
    if not socket:
        with serving(command("--port", "PORT"), log) as served:
            yield served, f"{served.url}/v2"
        return
    path = folder / "far.sock"
    with running(command("--uds", str(path)), log) as served:
        end = time.monotonic() + 30
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield served, f"http+unix://{path}/v2"


def measure(front: Served, behind: list[Served], row: Row, connections: int) -> tuple[float, float, float, float]:
    """Microseconds of CPU of the front server and of those behind it, the median latency in microseconds, and answers a second."""
    target = Target(front.port, 0, "/v2")
    by_sockets(target, row, connections, 0.5)
    before = [cpu_seconds(each.process.pid) for each in (front, *behind)]
    load = by_sockets(target, row, connections, SECONDS)
    taken = [cpu_seconds(each.process.pid) - since for each, since in zip((front, *behind), before, strict=True)]
    return taken[0] / load.requests * 1e6, sum(taken[1:]) / load.requests * 1e6, load.p50 * 1e3, load.requests / load.seconds


def best(front: Served, behind: list[Served], row: Row, connections: int = 1) -> tuple[float, float, float, float]:
    """The round that other programs disturbed least."""
    return min(measure(front, behind, row, connections) for _ in range(ROUNDS))


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        fronts: dict[str, tuple[Served, list[Served]]] = {}
        alone = stack.enter_context(serving(command("--port", "PORT"), folder / "alone.log"))
        fronts["alone"] = alone, []
        for way in ("TCP", "Unix socket"):
            behind, url = stack.enter_context(far(folder, socket=way != "TCP"))
            front = stack.enter_context(serving(command("--port", "PORT"), folder / f"{way}.log", {FAR: url}))
            fronts[f"by {way}"] = front, [behind]
            if way == "TCP":
                echo = command("--port", "PORT", app="make_echo")
                fronts["echo of aiohttp"] = stack.enter_context(serving(echo, folder / "echo.log", {FAR: url})), [behind]
        print("| row | way | CPU in front, us | CPU behind, us | front, times alone | front, times the echo | p50, us |")
        print("|---|---|---|---|---|---|---|")
        for row in rows(["binary 1x4", "binary 1x150528"]):
            turns = [{way: measure(*front, row, 1) for way, front in fronts.items()} for _ in range(ROUNDS)]
            least = {way: min(turn[way] for turn in turns) for way in fronts}
            for way, (front_cpu, behind_cpu, p50, _) in least.items():
                times = [f"{front_cpu / least[other][0]:.2f}" for other in ("alone", "echo of aiohttp")]
                print(f"| {row.name} | {way} | {front_cpu:.0f} | {behind_cpu:.0f} | {' | '.join(times)} | {p50:.0f} |", flush=True)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, four = Path(name), ["--port", "PORT", "--workers", "4"]
        behind, url = stack.enter_context(far(folder, socket=True))
        copies = stack.enter_context(serving(command(*four), folder / "copies.log"))
        shared = stack.enter_context(serving(command(*four), folder / "shared.log", {FAR: url}))
        print("\n| four workers, 8 connections | row | answers a second | us of CPU, all processes |\n|---|---|---|---|")
        for row in rows(["binary 1x4", "binary 1x150528"]):
            for what, front, others in (("four copies", copies, []), ("one copy", shared, [behind])):
                front_cpu, behind_cpu, _, rate = best(front, others, row, 8)
                print(f"| {what} | {row.name} | {rate:.0f} | {front_cpu + behind_cpu:.0f} |", flush=True)


if __name__ == "__main__":
    main()
