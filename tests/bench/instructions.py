"""How many instructions of the processor one small request takes: `python -m tests.bench.instructions`. It wants valgrind.

valgrind counts instructions, which are the same however busy the machine is. An application is called directly, a few hundred times in a
loop; the same loop around an application that does nothing is taken off. `--check` compares with the file beside this module, and fails
where a row has grown by more than 3 %; `--write` writes that file again. Counts of another Python are other counts: the file says of which
it is, and `--check` says so instead of comparing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from oip_asgi import OIPApp
from oip_asgi.grpc import OIPGRPCApp

from .in_process import answer_at_once, ask_often, over_http
from .models import Run, make_server
from .report import table
from .rows import GRPC, rows

ROWS: Final[dict[str, tuple[str, Run]]] = {
    "JSON 1x4, inline": ("JSON 1x4", "inline"),
    "JSON 1x4, async": ("JSON 1x4", "async"),
    "JSON 1x4, def": ("JSON 1x4", "thread"),
    "JSON 1x784, inline": ("JSON 1x784", "inline"),
    "binary 1x4, inline": ("binary 1x4", "inline"),
    "gRPC 1x4 over ASGI, inline": ("gRPC 1x4", "inline"),
}
"""By name: a row of the benchmark, and how its model runs."""

KEPT: Final = Path(__file__).parent / "instructions.json"
MOST_GROWTH: Final = 0.03
"""What a new release of a dependency may move by itself."""

_REQUESTS: Final = 100
_WARM: Final = 50
_BEGIN: Final = "getppid"
_END: Final = "getpgrp"
"""Functions of libc that nobody else calls: callgrind begins to count at the first, and writes its counts at the second."""


_STEADY: Final = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The threads of a BLAS library spin while they wait, which is counted too."""


def python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}"


def count() -> dict[str, int]:
    """The instructions of each row, for one request.

    Raises:
        RuntimeError: valgrind is not there, or the loop failed in it.
    """
    if shutil.which("valgrind") is None:
        raise RuntimeError("valgrind is not installed: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as folder:
        counts = ["--tool=callgrind", f"--callgrind-out-file={folder}/counts", f"--zero-before={_BEGIN}", f"--dump-before={_END}"]
        command = ["valgrind", "-q", *counts, "--", sys.executable, "-m", "tests.bench.instructions", "--run-rows"]
        ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **_STEADY}, check=False)
        if ran.returncode:
            raise RuntimeError(f"the loop failed under valgrind:\n{ran.stderr}")
        totals = [_total(Path(folder) / f"counts.{place}") for place in range(1, len(ROWS) + 3)]
    _, empty, *full = totals
    return {name: round((total - empty) / _REQUESTS) for name, total in zip(ROWS, full, strict=True)}


def _total(dump: Path) -> int:
    return next(int(line.split()[1]) for line in dump.read_text().splitlines() if line.startswith(("summary:", "totals:")))


def run_rows() -> None:
    """What runs under valgrind: the empty application first, then each row."""
    plain, *_ = rows(["JSON 1x4"])

    async def run(app: Any, row: Any) -> None:
        await ask_often(app, row, _WARM)
        gc.collect()
        gc.disable()  # when it runs next depends on what was imported
        os.getppid()
        await ask_often(app, row, _REQUESTS)
        os.getpgrp()
        gc.enable()

    asyncio.run(run(answer_at_once, plain))  # not counted: the first section holds what the process does once
    asyncio.run(run(answer_at_once, plain))
    for name, how in ROWS.values():
        [row] = rows([name])
        server = make_server(how)
        app = OIPGRPCApp(server) if row.transport == GRPC else OIPApp(server)
        server.start()
        asyncio.run(run(app, over_http(row)))
        server.stop()


def compare(found: dict[str, int], kept: dict[str, Any]) -> list[str]:
    """The rows that have grown too much, each as a sentence."""
    before = kept["instructions"]
    return [
        f"{name}: {found[name]:,} instructions, {found[name] / before[name] - 1:+.1%} of the {before[name]:,} in {KEPT.name}"
        for name in before
        if found[name] > before[name] * (1 + MOST_GROWTH)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.instructions", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="fail where a row has grown")
    choice.add_argument("--write", action="store_true", help="keep these counts")
    choice.add_argument("--run-rows", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.run_rows:
        run_rows()
        return
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {"python": "", "instructions": {}}
    if parsed.check and kept["python"] != python():
        print(f"nothing to compare with: {KEPT.name} has the counts of {kept['python']}, and this is {python()}")
        return
    found = count()
    lines = [[name, f"{instructions:,}", f"{kept['instructions'].get(name, 0):,}"] for name, instructions in found.items()]
    print(python(), table(["one request", "instructions", "kept"], lines), sep="\n")
    if parsed.write:
        KEPT.write_text(json.dumps({"python": python(), "instructions": found}, indent=2) + "\n")
    if parsed.check and (grown := compare(found, kept)):
        sys.exit("\n".join(grown))


if __name__ == "__main__":
    main()
