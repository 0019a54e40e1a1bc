"""`python -m tests.lab.bench.costs [PYTHON ...]`: what the package costs by itself, in one table with a column for each interpreter.

Instructions of small requests, by valgrind; and what `from oip_asgi import InferenceServer, OIPApp` takes once numpy and Starlette are
imported: the least milliseconds of CPU of several processes, which take turns, and mebibytes of resident memory. Each interpreter needs
what `tox -e bench` installs, but for the servers.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from .report import table

MOST_MILLISECONDS: Final = 130
"""The goal for the import."""

_IMPORTS: Final = """
import json, resource, sys, time
import numpy
from starlette.applications import Starlette
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
before, modules, since = resident(), len(sys.modules), time.process_time()
from oip_asgi import InferenceServer, OIPApp
seconds = time.process_time() - since
assert "werkzeug" not in sys.modules, "werkzeug is for the WSGI side only"
print(json.dumps({"ms": seconds * 1000, "MiB": resident() - before, "modules": len(sys.modules) - modules}))
"""
_COUNTS: Final = "import json; from tests.lab.bench.instructions import count; print(json.dumps(count()))"
_VERSION: Final = "import json, platform; print(json.dumps(platform.python_version()))"


def _ask(python: str, code: str) -> Any:
    return json.loads(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=_with_bytecode()).stdout)


@cache
def _with_bytecode() -> dict[str, str]:
    """The environment, in which what is compiled is kept, as where the package is installed."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.costs", description=__doc__)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], help="interpreters, this one if left out")
    parser.add_argument("--imports", action="store_true", help="only what the import costs")
    parser.add_argument("--rounds", type=int, default=15, help="processes of each interpreter that import the package")
    parsed = parser.parse_args(arguments)
    rounds = [[_ask(python, _IMPORTS) for python in parsed.pythons] for _ in range(parsed.rounds)]
    imports = [min(each, key=lambda found: float(found["ms"])) for each in zip(*rounds, strict=True)]
    lines = [
        [f"import, ms (goal: {MOST_MILLISECONDS} at most)", *(f"{found['ms']:.0f}" for found in imports)],
        ["import, modules of any package", *(str(found["modules"]) for found in imports)],
        ["memory after the import, MiB more", *(f"{found['MiB']:.1f}" for found in imports)],
    ]
    if not parsed.imports:
        counts = [_ask(python, _COUNTS) for python in parsed.pythons]
        lines = [[f"{name}, instructions", *(f"{each[name]:,}" for each in counts)] for name in counts[0]] + lines
    print(table(["what", *(f"Python {_ask(python, _VERSION)}" for python in parsed.pythons)], lines))


if __name__ == "__main__":
    main()
