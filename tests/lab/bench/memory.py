"""The memory of one model in four web workers, as four copies and as one: `python -m tests.lab.bench.memory [--keep]`. Linux only.

The model is that of examples/shared_model, a table of 205 MB. Memory that processes share is divided between them. "Beyond the workers'
own" is what is left when four times the smallest web worker that has no model is taken off.
"""

from __future__ import annotations

import importlib
import os
import sys
from argparse import ArgumentParser
from typing import Any, Final

from tests.support.processes import ROOT, free_port

from .figures import keep
from .report import table

FOLDER: Final = ROOT / "examples/shared_model"


def measure() -> dict[str, dict[str, float | None]]:
    """The megabytes of each way."""
    sys.path.insert(0, str(FOLDER))  # as the example's own processes have it
    start: Any = importlib.import_module("start")
    with start.serving(free_port()) as (model, web, _):
        workers = [start.megabytes(pid) for pid in start.find_workers(web.pid)]
        own = min(workers)
        one = start.megabytes(model.pid) + sum(each - own for each in workers)
    port = free_port()
    with start.running("model_app:app", "--port", str(port), "--workers", str(start.WORKERS), socket=os.devnull) as web:
        start.wait_until_ready(f"http://127.0.0.1:{port}/v2", web)
        copies = sum(start.megabytes(pid) for pid in start.find_workers(web.pid)) - start.WORKERS * own
    return {"four copies": {"MB": round(copies)}, "one copy": {"MB": round(one)}}


def main() -> None:
    parser = ArgumentParser("python -m tests.lab.bench.memory", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="write kept/memory.json and memory.png")
    options = parser.parse_args()
    values = measure()
    print(table(["four workers", "memory beyond the workers' own"], [[name, f"{found['MB']} MB"] for name, found in values.items()]))
    if options.keep:
        keep("memory", "python -m tests.lab.bench.memory --keep", values)


if __name__ == "__main__":
    main()
