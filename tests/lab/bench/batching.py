"""What batches buy, with real models: `python -m tests.lab.bench.batching [--keep] [--plot FILE] [--peers]`.

One server process on one core has each model twice: called for each request, and with `max_batch_size=64`. wrk on the other core sends one
image a request. Rounds of all of them are interleaved. The model alone is a loop that calls it for batches of the mean size that the server
made, on the same core. Where other programs use the machine, compare the CPU that a request costs, which they disturb least.

With `--peers`, LITSERVE_PYTHON, BENTOML_PYTHON, MLSERVER_PYTHON, RAY_PYTHON and TRITON_PYTHON name interpreters that have them and
scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.support.processes import ROOT, running

from .figures import keep
from .load import Target, by_wrk
from .machine import cpu_seconds, on_core, share_in_use, two_cores
from .peers.batching_models import images, models
from .rows import LoadFailed, Row

CONNECTIONS: Final = (1, 8, 64, 256)
MOST: Final = 64
DELAY: Final = 0.002

PEERS: Final[Mapping[str, tuple[str, str, str]]] = {
    "LitServe": ("LITSERVE_PYTHON", "litserve", "/{model}"),
    "BentoML": ("BENTOML_PYTHON", "bentoml", "/{model}"),
    "MLServer": ("MLSERVER_PYTHON", "mlserver", "/v2/models/{model}/infer"),
    "Ray Serve": ("RAY_PYTHON", "ray", "/{model}"),
    "Triton": ("TRITON_PYTHON", "triton", "/v2/models/{model}/infer"),
}
"""The variable with the interpreter, the script `peers/batching_*.py`, and the path of a model, of each."""

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


WAYS: Final = {"unbatched": "", "batched": " batched", "delay of 2 ms": " delayed"}


@dataclass
class Cell:
    """What one server did with one model and one number of connections, in each round."""

    rate: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    rows: float = 1.0


@contextmanager
def served(command: Sequence[str], path: str, body: bytes, core: int) -> Iterator[tuple[int, int]]:
    """A server on one core: its port and its process."""
    with TemporaryDirectory() as folder, on_core(core), running([*command, "PORT"], Path(folder, "log"), BUSY_THREADS) as server:
        try:
            end = time.monotonic() + 120
            while True:
                try:
                    request = urllib.request.Request(f"{server.url}{path}", body, {"content-type": "application/json"})
                    urllib.request.urlopen(request, timeout=60).read()
                    break
                except OSError:
                    if server.process.poll() is not None or time.monotonic() > end:
                        raise LoadFailed(f"{command} does not serve:\n{server.log.read_text()[-2000:]}") from None
                    time.sleep(0.2)
            yield server.port, server.process.pid
        finally:
            server.ask_to_end()
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(30)
            with suppress(ProcessLookupError):  # LitServe leaves its workers behind, which would disturb the next one
                os.killpg(server.process.pid, signal.SIGKILL)


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process and of its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(map(cpu_of, map(int, children)))


def row_of(path: str, body: bytes, connections: int) -> Row:
    return Row(path, "POST", path, {"content-type": "application/json"}, body, lambda _: None, [connections])


def warm_up(port: int, path: str, body: bytes, connections: int) -> None:
    with suppress(LoadFailed):  # a second may be too short for the first answer
        by_wrk(Target(port, 0, ""), row_of(path, body, connections), connections, 1)


def measure(port: int, pid: int, path: str, body: bytes, connections: int, seconds: int, into: Cell) -> None:
    row = row_of(path, body, connections)
    before = cpu_of(pid)
    load = by_wrk(Target(port, 0, ""), row, connections, seconds)
    into.rate.append(load.requests / load.seconds)
    into.p50.append(load.p50)
    into.p99.append(load.p99)
    into.cpu.append((cpu_of(pid) - before) / load.requests * 1e6)


def counted(port: int, model: str) -> tuple[int, int]:
    """The rows and the calls of a model so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{model.replace(' ', '%20')}/stats") as response:
        [told] = json.load(response)["model_stats"]
    return told["inference_count"], told["execution_count"]


def ours(names: Sequence[str], body: bytes, options: argparse.Namespace, core: int) -> dict[tuple[str, str, int], Cell]:
    cells: dict[tuple[str, str, int], Cell] = {}
    command = [sys.executable, "-m", "tests.lab.bench.batching", "--serve"]
    with served(command, f"/v2/models/{names[0]}/infer", body, core) as (port, pid):
        for round_ in range(options.rounds + 1):
            for connections in options.connections:
                for name in names:
                    for way, suffix in WAYS.items():
                        cell = cells.setdefault((name, way, connections), Cell())
                        model = f"{name}{suffix}"
                        rows, calls = counted(port, model)
                        path = f"/v2/models/{model.replace(' ', '%20')}/infer"
                        if not round_:
                            warm_up(port, path, body, connections)
                            continue
                        measure(port, pid, path, body, connections, options.seconds, cell)
                        now = counted(port, model)
                        cell.rows = (now[0] - rows) / max(1, now[1] - calls)
    return cells


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


def rates_of(cells: Mapping[tuple[str, str, int], Cell], core: int) -> dict[tuple[str, str, int], float]:
    """The same for the mean sizes that the server made, in a process on its core."""
    sizes = {key: max(1, round(cell.rows)) for key, cell in cells.items()}
    names = dict.fromkeys(name for name, _, _ in cells)
    asked = {name: sorted({size for (of, _, _), size in sizes.items() if of == name}) for name in names}
    command = [sys.executable, "-m", "tests.lab.bench.batching", "--alone", json.dumps(asked)]
    with on_core(core):
        ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **BUSY_THREADS}, stdout=subprocess.PIPE, check=True)
    rates = json.loads(ran.stdout)
    return {key: rates[key[0]][str(size)] for key, size in sizes.items()}


def of_peers(names: Sequence[str], options: argparse.Namespace, core: int) -> dict[tuple[str, str, int], Cell]:
    cells: dict[tuple[str, str, int], Cell] = {}
    image = images()[0].tolist()
    for peer, (variable, script, path) in PEERS.items():
        if variable not in os.environ:
            print(f"{peer} is left out: {variable} names no interpreter", file=sys.stderr)
            continue
        v2 = {"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": image}]}
        body = json.dumps({"LitServe": {"x": image}, "Ray Serve": {"x": image}, "BentoML": {"x": [image]}}.get(peer, v2)).encode()
        command = [os.environ[variable], f"tests/lab/bench/peers/batching_{script}.py"]
        for name in names:
            try:
                with served([*command, name], path.format(model=name), body, core) as (port, pid):
                    for connections in options.connections:
                        cell = Cell()
                        warm_up(port, path.format(model=name), body, connections)
                        for _ in range(options.rounds):
                            measure(port, pid, path.format(model=name), body, connections, options.seconds, cell)
                        cells[name, peer, connections] = cell
            except LoadFailed as error:
                print(f"{peer}, {name}: {error}", file=sys.stderr)
    return cells


def table(cells: Mapping[tuple[str, str, int], Cell], rates: Mapping[tuple[str, str, int], float]) -> None:
    """Print what was measured, and how much of the CPU is the model's, by what it takes alone."""
    print("| model | connections | | requests a second | of unbatched | p50, p99 ms | rows a call | us of CPU a request | the model's |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (name, way, connections), cell in sorted(cells.items(), key=lambda item: (item[0][0], item[0][2])):
        plain = cells[name, "unbatched", connections]
        rate, latency = median(cell.rate), f"{median(cell.p50):.1f}, {median(cell.p99):.0f}"
        of_model = rates.get((name, way, connections))
        told = ["", ""] if of_model is None else [f"{cell.rows:.1f}", f"{1e6 / of_model:,.0f}"]
        shares = f"{rate / median(plain.rate):.2f} | {latency} | {told[0]} | {median(cell.cpu):,.0f} | {told[1]}"
        print(f"| {name} | {connections} | {way} | {rate:,.0f} | {shares} |")


def plot(cells: Mapping[tuple[str, str, int], Cell], file: Path) -> None:
    """Requests a second by connections, for each model."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for name, _, _ in cells))
    figure = Figure(figsize=(5 * len(names), 4), layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), place + 1)
        for server in dict.fromkeys(server for model, server, _ in cells if model == name):
            points = sorted(
                (connections, median(cell.rate)) for (model, by, connections), cell in cells.items() if (model, by) == (name, server)
            )
            axes.plot(*zip(*points, strict=True), marker="o", label=server)
        axes.set(title=name, xlabel="connections", xscale="log")
        axes.set_xticks(CONNECTIONS, list(map(str, CONNECTIONS)))
        axes.set_ylim(0)
        axes.legend(fontsize=7)
    figure.supylabel("requests a second")
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.batching", description=__doc__)
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve, instead of measuring")
    parser.add_argument("--alone", metavar="SIZES", help="measure the models alone on batches of these sizes, of JSON")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    parser.add_argument("--peers", action="store_true", help="other servers too")
    parser.add_argument("--keep", action="store_true", help="keep the rates, and draw them for the guide")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a plot, as PNG")
    options = parser.parse_args()
    if options.serve:
        import uvicorn

        uvicorn.run(make_app(), port=options.serve, log_level="warning", access_log=False)
        return
    if options.alone:
        print(json.dumps(alone(json.loads(options.alone))))
        return
    names, (client, core) = list(models()), two_cores()
    print(f"Others use {share_in_use():.0%} of all cores before this begins.", file=sys.stderr)
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": images()[0].tolist()}]}).encode()
    with on_core(client):
        cells = ours(names, body, options, core)
        rates = rates_of(cells, core)
        table(cells, rates)
        if options.peers:
            cells.update(of_peers([name for name in names if name in ("mlp", "boosted")], options, core))
            table(cells, rates)
    if options.keep:
        kept: dict[str, dict[str, float | None]] = {}
        for (name, way, connections), cell in cells.items():
            kept.setdefault(way, {})[f"{name}, {connections}"] = median(cell.rate)
        keep("batching", "python -m tests.lab.bench.batching --peers --keep", kept)
    if options.plot is not None:
        plot(cells, options.plot)


if __name__ == "__main__":
    main()
