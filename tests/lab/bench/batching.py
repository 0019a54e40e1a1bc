"""What batches buy, with real models: `python -m tests.lab.bench.batching [--keep] [--peers]`.

One server process on one core has each model three times: called for each request, with `max_batch_size=64`, and with a delay beside.
wrk on the other core sends one image a request. Rounds of all of them are interleaved. The model alone is a loop that calls it for batches
of the mean size that the server made, on the same core. Where other programs use the machine, compare the CPU that a request costs, which
they disturb least.

With `--peers`, LITSERVE_PYTHON, MLSERVER_PYTHON and TRITON_PYTHON name interpreters that have them and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from tests.support.processes import ROOT

from .figures import keep
from .machine import on_core, two_cores
from .measure import Cell, measure, tell, together, warnings
from .peers.batching_models import images, models
from .report import table
from .rows import HTTP, Row, expect_success
from .servers import Command, Running, Server, peer_python

CONNECTIONS: Final = (1, 8, 64, 256)
MOST: Final = 64
DELAY: Final = 0.002

WAYS: Final = {"unbatched": "", "batched": " batched", "delay of 2 ms": " delayed"}
"""By name, what is behind the name of the model."""

PEERS: Final = {"LitServe": ("", "/health"), "MLServer": ("/v2", "/health/ready"), "Triton": ("/v2", "/health/ready")}
"""Where each serves its models, and says that it is ready."""

BUSY_THREADS: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def make_app() -> Any:
    """The application that is measured."""
    from starlette.applications import Starlette

    from oip_asgi import InferenceServer, OIPApp, TensorSpec

    server = InferenceServer(version="bench")
    inputs, outputs = [TensorSpec("x", "FP32", [-1, 64])], [TensorSpec("y", "INT64", [-1])]
    for name, predict in models().items():
        options: dict[str, Any] = {"inputs": inputs, "outputs": outputs, "max_queue": 1000}
        server.register(name, predict, **options)
        server.register(f"{name} batched", predict, **options, max_batch_size=MOST)
        server.register(f"{name} delayed", predict, **options, max_batch_size=MOST, max_batch_delay=DELAY)
    app = Starlette()
    OIPApp(server).install(app, "/v2")
    return app


def row_of(name: str, document: Any, path: str) -> Row:
    return Row(name, "POST", quote(path), {"content-type": "application/json"}, json.dumps(document).encode(), expect_success)


def servers_of(name: str, row: Row, *, with_peers: bool) -> list[Server]:
    """What serves a model: this package, and the others that are there."""

    def command(*words: str) -> Command:
        return lambda port, _: ["env", *(f"{name}={value}" for name, value in BUSY_THREADS.items()), *words, str(port)]

    own = command(sys.executable, "-m", "tests.lab.bench.batching", "--serve")
    found = [Server("oip_asgi", "", own, {HTTP: ""}, "/v2", ready="/health/ready")]
    for peer, (prefix, ready) in PEERS.items() if with_peers else ():
        if (python := peer_python(peer)) is None:
            print(f"left out: {peer.upper()}_PYTHON does not name a Python that is there", file=sys.stderr)
            continue
        of_peer = command(python, f"tests/lab/bench/peers/batching_{peer.lower()}.py", name)
        own_rows = {name: row_of(name, {"x": images()[0].tolist()}, f"/{name}")} if peer == "LitServe" else {}
        found.append(Server(peer, "", of_peer, {HTTP: ""}, prefix, own_rows=own_rows, is_peer=True, ready=ready))
    return found


def ways_of(running: Running, row: Row) -> list[Running]:
    """The ways of this package, which one process has."""
    asked = {way: replace(row, path=row.path.replace("/infer", quote(f"{suffix}/infer"))) for way, suffix in WAYS.items()}
    return [replace(running, server=replace(running.server, name=way, own_rows={row.name: each})) for way, each in asked.items()]


def counted(running: Running) -> list[int]:
    """The rows and the calls of a model so far."""
    [row] = running.server.own_rows.values()
    with urllib.request.urlopen(running.target.url(row).replace("/infer", "/stats")) as response:
        [told] = json.load(response)["model_stats"]
    return [told["inference_count"], told["execution_count"]]


def measure_model(name: str, options: argparse.Namespace) -> list[tuple[Cell, dict[str, float]]]:
    """For each number of connections what was measured, and the mean number of rows in a call, by way."""
    tensor = {"name": "x", "shape": [1, 64], "datatype": "FP32", "data": images()[0].tolist()}
    row, found = row_of(name, {"inputs": [tensor]}, f"/models/{name}/infer"), []
    with together(servers_of(name, row, with_peers=options.peers and name in ("mlp", "boosted"))) as (ours, *peers):
        ways = ways_of(ours, row)
        for connections in options.connections:
            before = [counted(way) for way in ways]
            cell = measure(row, connections, [*ways, *peers], options.rounds, options.seconds)
            new = [[now - then for now, then in zip(counted(way), so_far, strict=True)] for way, so_far in zip(ways, before, strict=True)]
            found.append((cell, {way.server.name: rows / max(1, calls) for way, (rows, calls) in zip(ways, new, strict=True)}))
    return found


def alone(sizes: Mapping[str, Sequence[int]]) -> dict[str, dict[int, float]]:
    """How many rows a second of CPU each model does in a loop on batches of some sizes."""
    predicts, data = models(), images()
    rates: dict[str, dict[int, float]] = {}
    for name, of_name in sizes.items():
        for size in of_name:
            batch, calls = data[:size], 0
            predicts[name](batch)
            begun = time.process_time()
            while time.process_time() - begun < 0.3:
                predicts[name](batch)
                calls += 1
            rates.setdefault(name, {})[size] = calls * size / (time.process_time() - begun)
    return rates


def alone_apart(sizes: Mapping[str, Sequence[int]]) -> dict[str, dict[str, float]]:
    """The same in a process on the servers' core."""
    command = [sys.executable, "-m", "tests.lab.bench.batching", "--alone", json.dumps(sizes)]
    with on_core(two_cores()[1]):
        ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **BUSY_THREADS}, stdout=subprocess.PIPE, check=True)
    rates: dict[str, dict[str, float]] = json.loads(ran.stdout)
    return rates


def shown(measured: Sequence[tuple[Cell, Mapping[str, float]]], rates: Mapping[str, Mapping[str, float]]) -> str:
    """What was measured, and how much of the CPU is the model's, by what it takes alone."""
    lines = []
    for cell, rows in measured:
        for way, turns in cell.turns.items():
            name = [cell.row.name, str(cell.connections), way]
            if isinstance(turns, str):
                lines.append([*name, turns, "", "", "", "", ""])
                continue
            what = (lambda turn: turn.rate, lambda turn: turn.load.p50, lambda turn: turn.load.p99, lambda turn: turn.cpu * 1e6)
            rate, p50, p99, cpu = (cell.median(way, each) or 0.0 for each in what)
            share, size = cell.ratio(way, "unbatched") or 0.0, rows.get(way)
            told = ["", ""] if size is None else [f"{size:.1f}", f"{1e6 / rates[cell.row.name][_key(size)]:,.0f}"]
            lines.append([*name, f"{rate:,.0f}", f"{share:.2f}", f"{p50:.1f}, {p99:.0f}", told[0], f"{cpu:,.0f}", told[1]])
    heads = ["model", "connections", "", "requests a second", "of unbatched", "p50, p99 ms", "rows a call", "us of CPU", "the model's"]
    return table(heads, lines)


def _key(size: float) -> str:
    return str(max(1, round(size)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.batching", description=__doc__)
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve, instead of measuring")
    parser.add_argument("--alone", metavar="SIZES", help="measure the models alone on batches of these sizes, of JSON")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="of the models, some")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    parser.add_argument("--peers", action="store_true", help="other servers too")
    parser.add_argument("--keep", action="store_true", help="keep the rates, and draw them for the guide")
    options = parser.parse_args()
    if options.serve:
        import uvicorn

        uvicorn.run(make_app(), port=options.serve, log_level="warning", access_log=False)
        return
    if options.alone:
        print(json.dumps(alone(json.loads(options.alone))))
        return
    print(*warnings(), sep="\n", file=sys.stderr)
    measured = [each for name in options.models or models() for each in measure_model(name, options)]
    tell("")
    sizes: dict[str, list[int]] = {}
    for cell, rows in measured:
        sizes.setdefault(cell.row.name, []).extend({int(_key(size)) for size in rows.values()})
    print(shown(measured, alone_apart(sizes)))
    if options.keep:
        kept: dict[str, dict[str, float | None]] = {}
        for cell, _ in measured:
            for way in cell.turns:
                kept.setdefault(way, {})[f"{cell.row.name}, {cell.connections}"] = cell.median(way, lambda turn: turn.rate)
        keep("batching", "python -m tests.lab.bench.batching --peers --keep", kept)


if __name__ == "__main__":
    main()
