"""Streams over server-sent events against a bare Starlette `StreamingResponse`: `python -m tests.bench.streams`.

One server process has the bare stream beside the models, all of which make the same events, so that a run compares what it measures under
the same conditions. Rounds of all of them are interleaved. The events of the bare stream are encoded each time, as an application would.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from tests.support.processes import Served, free_port, serving

from .machine import cpu_seconds

ITEMS: Final = 5_000
ROUNDS: Final = 7
STREAMS: Final = (1, 8)

WAYS: Final = {
    "bare": "/bare",
    "async def": "/v2/models/async/generate_stream",
    "async def, mappings": "/v2/models/mappings/generate_stream",
    "def": "/v2/models/thread/generate_stream",
}


def make_app() -> Any:
    """The application that is measured."""
    import msgspec
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    from oip_asgi import InferenceServer, OIPApp, TensorSpec

    encode = msgspec.json.Encoder().encode
    server = InferenceServer()

    async def items(n: np.ndarray) -> AsyncIterator[np.ndarray]:
        for index in range(int(n[0])):
            yield np.array([index])

    async def mappings(n: np.ndarray) -> AsyncIterator[dict[str, np.ndarray]]:
        for index in range(int(n[0])):
            yield {"text_output": np.array([index])}

    def blocking_items(n: np.ndarray) -> Iterator[np.ndarray]:
        for index in range(int(n[0])):
            yield np.array([index])

    for name, model in (("async", items), ("mappings", mappings), ("thread", blocking_items)):
        server.register(name, model, outputs=[TensorSpec("text_output", "INT64", [1])])

    async def bare(request: Request) -> StreamingResponse:
        count = int((await request.json())["n"])

        async def events() -> AsyncIterator[bytes]:
            for index in range(count):
                yield b"data: %b\n\n" % encode({"model_name": "bare", "text_output": index})

        return StreamingResponse(events(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/bare", bare, methods=["POST"])])
    OIPApp(server).install(app, "/v2")
    return app


@dataclass
class Measured:
    """What one way did: seconds to the first item, items a second, and the server's seconds of CPU for all items, of each round."""

    first: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def _stream(port: int, path: str, items: int) -> tuple[float, float]:
    """Seconds to the first item, and to the last, of one stream on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"n": [%d]}' % items if path != WAYS["bare"] else b'{"n": %d}' % items
    begun = time.perf_counter()
    writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body))
    head = await reader.readuntil(b"data: ")
    first = time.perf_counter() - begun
    assert head.startswith(b"HTTP/1.1 200"), head
    seen = 1
    tail = b""
    while not tail.endswith(b"0\r\n\r\n"):
        chunk = await reader.read(2**16)
        assert chunk, "the server closed the connection"
        seen += (tail[-5:] + chunk).count(b"data: ")
        tail = (tail + chunk)[-5:]
    last = time.perf_counter() - begun
    assert seen == items, f"{seen} items came, not {items}"
    writer.close()
    return first, last


async def _round(server: Served, path: str, streams: int, into: Measured) -> None:
    firsts = [(await _stream(server.port, path, 1))[0] for _ in range(20)]
    cpu, begun = cpu_seconds(server.process.pid), time.perf_counter()
    await asyncio.gather(*(_stream(server.port, path, ITEMS) for _ in range(streams)))
    into.rate.append(streams * ITEMS / (time.perf_counter() - begun))
    into.cpu.append(cpu_seconds(server.process.pid) - cpu)
    into.first.append(median(firsts))


async def measure(server: Served, streams: int, rounds: int) -> dict[str, Measured]:
    """All ways, round by round."""
    measured = {way: Measured() for way in WAYS}
    for path in WAYS.values():
        await _round(server, path, streams, Measured())  # to warm up
    for _ in range(rounds):
        for way, path in WAYS.items():
            await _round(server, path, streams, measured[way])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve, instead of measuring")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if options.serve:
        import uvicorn

        uvicorn.run(make_app(), port=options.serve, log_level="warning", access_log=False)
        return
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.streams", "--serve", str(port)]
    with TemporaryDirectory() as folder, serving(command, port, Path(folder) / "log") as server:
        print("| streams | generator | first item, ms | times bare | items a second | of bare | us of CPU an item |")
        print("|---|---|---|---|---|---|---|")
        for streams in STREAMS:
            measured = asyncio.run(measure(server, streams, options.rounds))
            floor = measured["bare"]
            for way, of_way in measured.items():
                first = median(a / b for a, b in zip(of_way.first, floor.first, strict=True))
                rate = median(a / b for a, b in zip(of_way.rate, floor.rate, strict=True))
                cpu = sum(of_way.cpu) / (options.rounds * streams * ITEMS) * 1e6
                speed = f"{median(of_way.rate):,.0f} | {rate:.2f} | {cpu:.1f}"
                print(f"| {streams} | {way} | {median(of_way.first) * 1e3:.2f} | {first:.2f} | {speed} |")


if __name__ == "__main__":
    main()
