"""How many instructions of the processor one small request takes: `python -m tests.lab.bench.instructions`. It wants valgrind.

valgrind counts instructions, which are the same however busy the machine is. An application is called directly, 500 times in a loop; the
same loop around an application that does nothing is taken off. The event loop is uvloop, as uvicorn runs it; of a `def`, what the loop and
the worker thread take counts too. Streams are measured by `streams`: they look at the clock, and under valgrind all is fifty times slower.

`--check` compares with the file beside this module, and fails where a row has grown by more than 3 %; `--write` writes that file again.
Other versions of Python and of what the package is built on have other counts: the file says which they are, and where one differs
`--check` says so instead of comparing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from starlette.applications import Starlette

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from oip_asgi.grpc import OIPGRPCApp

from .functions import identity
from .in_process import answer_at_once, ask_often, over_http
from .rows import GRPC, rows

Run: TypeAlias = Literal["async", "inline", "thread"]

ROWS: Final[dict[str, tuple[str, Run]]] = {
    "JSON 1x4, inline": ("JSON 1x4", "inline"),
    "JSON 1x4, async": ("JSON 1x4", "async"),
    "JSON 1x4, def": ("JSON 1x4", "thread"),
    "JSON 1x4, inline, installed": ("JSON 1x4", "inline"),
    "JSON 1x784, inline": ("JSON 1x784", "inline"),
    "JSON 20 KB, inline": ("JSON 1x1000", "inline"),
    "binary 1x4, inline": ("binary 1x4", "inline"),
    "binary 20 KB, inline": ("binary 1x5120", "inline"),
    "binary 602 KB, inline": ("binary 1x150528", "inline"),
    "gRPC 1x4 over ASGI, inline": ("gRPC 1x4", "inline"),
    "1x4 from Python, inline": ("JSON 1x4", "inline"),
}
"""By name: a row of the benchmark, and how its model runs. Of 602 KB, a copy counts 600,000: valgrind counts its bytes."""

_FROM_PYTHON: Final = "1x4 from Python, inline"
"""The row in which the application around calls `server.infer`."""

_INSTALLED: Final = ", installed"
"""How the name of a row ends that asks an application of Starlette, into which ours is installed."""

KEPT: Final = Path(__file__).parent / "instructions.json"
MOST_GROWTH: Final = 0.03
"""What a new release of a dependency may move by itself."""

_REQUESTS: Final = 500
"""What ended requests leave is summed once for so many, which belongs to their cost."""
_WARM: Final = 50
_TURNS: Final = 3
"""Threads wake each other when they like, so a row that has them is the least of so many."""
_BEGIN: Final = "getppid"
_END: Final = "getpgrp"
"""Functions of libc that nobody else calls: callgrind begins to count at the first, and writes its counts at the second."""

_DEPENDENCIES: Final = ("numpy", "msgspec", "starlette", "protobuf", "uvloop")
_STEADY: Final = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The threads of a BLAS library spin while they wait, which is counted too."""
_SAME_ADDRESSES: Final = ("setarch", "--addr-no-randomize")
"""Addresses are the hashes of most objects."""


def versions() -> dict[str, str]:
    """What decides about the counts, but for the package itself."""
    python = f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}, on {platform.machine()}"
    return {"python": python, "libc": " ".join(platform.libc_ver()), **{name: _version(name) for name in _DEPENDENCIES}}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def count() -> dict[str, int]:
    """The instructions of each row, for one request.

    Raises:
        RuntimeError: the loop failed in valgrind.
    """
    with tempfile.TemporaryDirectory() as folder:
        counts = ["--tool=callgrind", f"--callgrind-out-file={folder}/%p", f"--zero-before={_BEGIN}", f"--dump-before={_END}"]
        valgrind = [*(_SAME_ADDRESSES if shutil.which("setarch") else ()), "valgrind", "-q", "--fair-sched=yes", *counts]
        command = [*valgrind, "--", sys.executable, "-m", "tests.lab.bench.instructions", "--run-rows"]
        ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **_STEADY}, check=False)
        if ran.returncode:
            raise RuntimeError(f"the loop failed under valgrind:\n{ran.stderr}")
        found: dict[str, int] = {}
        for line in ran.stdout.splitlines():
            process, _, name = line.partition(" ")
            empty, full = (_total(Path(folder) / f"{process}.{place}") for place in (1, 2))
            each = round((full - empty) / _REQUESTS)
            found[name] = min(found.get(name, each), each)
    return found


def _total(dump: Path) -> int:
    return next(int(line.split()[1]) for line in dump.read_text().splitlines() if line.startswith(("summary:", "totals:")))


def run_rows() -> None:
    """What runs under valgrind: each row in a process of its own, which begins as this one is here. Prints the process of each row."""
    gc.collect()
    for name in (name for name, (_, how) in ROWS.items() for _ in range(_TURNS if how == "thread" else 1)):
        process = os.fork()
        if not process:
            run_row(name)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        if status:
            sys.exit(f"{name} failed")
        print(process, name)


def run_row(name: str) -> None:
    """The application that does nothing first, then the row."""
    import uvloop  # which not every platform has

    [row] = rows([ROWS[name][0]])
    server = _make_server(ROWS[name][1])
    app: Any = OIPGRPCApp(server) if row.transport == GRPC else OIPApp(server)
    if name.endswith(_INSTALLED):
        app, row = _install(server), replace(row, path=f"/v2{row.path}")
    elif name == _FROM_PYTHON:
        app = _make_caller(server)

    async def run(app: Any) -> None:
        await ask_often(app, over_http(row), _WARM)
        gc.collect()
        gc.disable()  # when it runs next depends on what was imported
        os.getppid()
        await ask_often(app, over_http(row), _REQUESTS)
        os.getpgrp()
        gc.enable()

    server.start()
    uvloop.run(run(answer_at_once))
    uvloop.run(run(app))
    server.stop()


def _make_server(run: Run) -> InferenceServer:
    """A server with the model `identity` only: those of `models` load pandas, which takes as long under valgrind as most rows."""

    async def awaited(x: Any) -> Any:
        return identity(x)

    server = InferenceServer("bench")
    x, y = (TensorSpec(name, "FP32", [-1, -1]) for name in "xy")
    where: Literal["inline", "thread"] = "inline" if run == "inline" else "thread"
    server.register("identity", awaited if run == "async" else identity, inputs=[x], outputs=[y], run=where)
    return server


def _make_caller(server: InferenceServer) -> Any:
    """An application that calls a model, and otherwise does as little as the floor."""
    x = np.ones((1, 4), np.float32)

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await server.infer("identity", {"x": x})
        await answer_at_once(scope, receive, send)

    return call


def _install(server: InferenceServer) -> Starlette:
    app = Starlette()
    OIPApp(server).install(app, "/v2")
    return app


def differences(kept: Mapping[str, str]) -> list[str]:
    """Which versions the kept counts are of that this process does not have."""
    return [f"{name} is {now}, and was {kept.get(name)}" for name, now in versions().items() if now != kept.get(name)]


def compare(found: Mapping[str, int], kept: Mapping[str, int]) -> list[str]:
    """The rows that have grown too much, each as a sentence."""
    return [
        f"{name}: {found[name]:,} instructions, {found[name] / before - 1:+.1%} of the {before:,} in {KEPT.name}"
        for name, before in kept.items()
        if found[name] > before * (1 + MOST_GROWTH)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.instructions", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="fail where a row has grown")
    choice.add_argument("--write", action="store_true", help="keep these counts")
    choice.add_argument("--run-rows", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.run_rows:
        run_rows()
        return
    from .report import table  # which loads much that no row needs

    kept = json.loads(KEPT.read_text())
    reasons = differences(kept["versions"])
    if shutil.which("valgrind") is None:
        reasons.append("valgrind is not installed: apt-get install valgrind")
    if parsed.check and reasons:
        print(f"nothing is compared with {KEPT.name}:", *reasons, sep="\n  ")
        return
    found = count()
    lines = [
        [name, f"{now:,}", f"{before:,}", f"{now / before - 1:+.1%}"]
        for name, now in found.items()
        for before in [kept["instructions"].get(name, now)]
    ]
    print(table(["one request", "instructions", "kept", "grown by"], lines), *reasons, sep="\n")
    if parsed.write:
        KEPT.write_text(json.dumps({"versions": versions(), "instructions": found}, indent=2) + "\n")
    if parsed.check and (grown := compare(found, kept["instructions"])):
        sys.exit("\n".join(grown))


if __name__ == "__main__":
    main()
