"""Sends malformed requests to this package, and to Triton, MLServer and KServe where variables such as TRITON_PYTHON name their Python.

python -m tests.lab.bench.refused [--keep] [--names]

Each request is a row of the table of requests (tests/table) that contradicts the protocol or JSON, with one mistake. Left out are mistakes
that are refused by a limit or a content type of this package's own, and repetitions: one datatype of each kind is enough. The models return
their input. A server that ends, or that has lost its model, is started again.
"""

from __future__ import annotations

import re
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Final

from oip_asgi import InferenceServer
from tests.lab.peers.alone import OWN
from tests.lab.peers.asking import HTTPAsker
from tests.support.processes import Served, free_port, running
from tests.support.ways import Request
from tests.table.body_rows import binary_rows
from tests.table.json_rows import document_rows, element_rows, tensor_rows
from tests.table.row import Row, infer, inputs, tensor

from .figures import keep
from .report import table
from .servers import PEERS, peer, peer_python

NAMES: Final = {"FP32": "[1,2]", "INT32": "[1,2]", "BOOL": "[true,false]", "BYTES": '["a","b"]'}
"""The datatypes of the models, and good data."""

OURS: Final = "oip_asgi"
KINDS: Final = ("refused, 4xx", "accepted", "answered 5xx", "no answer", "crashed")

_LIMITS: Final = (*OWN, "1000001", "1001", "65 dimensions", "64 long dimensions", "shared memory", "content type")
"""Words in the names of rows that are refused by limits, content types or extensions of this package."""


def malformed_rows() -> list[Row]:
    """The requests, in the order of the table."""
    elements = [row for row in element_rows() if row.name.split()[0] in NAMES and row.name.endswith("in [2]")]
    rows = [*document_rows(), *tensor_rows(), *elements, *binary_rows()]
    chosen = [row for row in rows if row.status == 400 and row.request.path == "/models/echo/infer"]
    return [_name_model(row) for row in chosen if not any(word in row.name for word in _LIMITS)]


def _name_model(row: Row) -> Row:
    """The row for the model of its datatype."""
    found = re.search(rb'"datatype": ?"(\w+)"', row.request.body)
    datatype = found[1].decode() if found and found[1].decode() in NAMES else "FP32"
    return replace(row, request=_say_type(replace(row.request, path=f"/models/echo-{datatype}/infer")))


def _say_type(request: Request) -> Request:
    """The request with its Content-Type, without which KServe refuses even good ones."""
    is_json = "inference-header-content-length" not in dict(request.headers)
    return replace(request, headers=(*request.headers, ("content-type", "application/json" if is_json else "application/octet-stream")))


server = InferenceServer("refused")
for _datatype in NAMES:
    server.register(f"echo-{_datatype}", lambda x: x)


def commands() -> dict[str, Callable[[int], Sequence[str]]]:
    """Of each server that is here: from a port to the command that serves there."""
    found: dict[str, Callable[[int], Sequence[str]]] = {
        OURS: lambda port: ["python", "-m", "oip_asgi", "tests.lab.bench.refused:server", "--port", str(port)]
    }
    models = [f"echo-{datatype}" for datatype in NAMES]
    for name in PEERS:
        if (python := peer_python(name)) is None:
            print(f"left out: {name.upper()}_PYTHON does not name a Python that is there", file=sys.stderr)
        elif name == "Triton":
            found[name] = lambda port, python=python: [  # type: ignore[misc]
                *(python, "-W", "ignore", "-m", "tests.lab.peers.triton_models", str(port), str(free_port())),
                *models,
            ]
        else:
            found[name] = lambda port, python=python, name=name: peer(python, name, "--echo")(port, free_port())  # type: ignore[misc]
    return found


def ask(served: Served, row: Row) -> int | None:
    """The status of the answer; None if there is none."""
    try:
        with HTTPAsker(served.port) as asker:
            return asker.ask(row.request).status
    except (OSError, HTTPException):
        return None


def is_alive(served: Served) -> bool:
    """Whether each model answers a good request."""
    good = [_say_type(infer(f"echo-{datatype}", inputs(tensor(datatype, [2], data)))) for datatype, data in NAMES.items()]
    return [ask(served, Row("good", request, 200)) for request in good] == [200] * len(good)


def count(command: Callable[[int], Sequence[str]], rows: Sequence[Row], log: Path, told: Callable[[str, Row], object]) -> Counter[str]:
    """What a server answers to the rows, by kind."""
    found: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    with ExitStack() as stack:

        def start() -> Served:
            stack.close()
            port = free_port()
            served = stack.enter_context(running(command(port), log, port=port))
            served.wait_until_ready()
            if not is_alive(served):
                sys.exit(f"it does not answer good requests, and printed:\n{log.read_text(errors='replace')[-2000:]}")
            return served

        served = start()
        for row in rows:
            status = ask(served, row)
            kind = "no answer" if status is None else {2: "accepted", 4: "refused, 4xx"}.get(status // 100, "answered 5xx")
            if kind in ("no answer", "answered 5xx") and not is_alive(served):
                kind, served = "crashed", start()
            found[kind] += 1
            told(kind, row)
    return found


def main() -> None:
    parser = ArgumentParser("python -m tests.lab.bench.refused", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="write kept/refused.json and refused.png")
    parser.add_argument("--names", action="store_true", help="print what each server does not refuse")
    options = parser.parse_args()
    rows, values = malformed_rows(), {}
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands().items():

            def tell(kind: str, row: Row, name: str = name) -> None:
                if options.names and kind != KINDS[0]:
                    print(f"{name}, {kind}: {row.name}", file=sys.stderr, flush=True)

            values[name] = dict(count(command, rows, Path(folder, f"{name}.log"), tell))
    print(table([f"{len(rows)} malformed requests", *KINDS], [[name, *map(str, found.values())] for name, found in values.items()]))
    if options.keep:
        keep("refused", "python -m tests.lab.bench.refused --keep", values)


if __name__ == "__main__":
    main()
