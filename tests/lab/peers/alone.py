"""Counts what Triton answers to the corpus by itself: `TRITON_PYTHON=... python -m tests.lab.peers.alone`. It takes some minutes.

It is started again after each request that ends its process, or the process of the model. What only this package promises is left out.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from http.client import HTTPException
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tests.lab.peers.asking import GRPCAsker, HTTPAsker, Triton, find_triton, running_triton
from tests.lab.peers.corpus import Call, grpc_corpus, http_corpus, make_zeros_row
from tests.lab.peers.triton_models import models
from tests.support.grpc_ways import MESSAGES
from tests.table.row import Row

OWN: Final = (
    "any parameter is",
    "a NUL b",
    "content_type",
    "deep",
    "byte order mark",
    "authorization",
    "traceparent",
    "parameter p is",
    "parameter a",
    "parameter below 64 bits",
    "parameter of 30 digits",
)
"""Words in the names of rows that this package refuses by limits of its own, or by its content types."""

FAULTS: Final = ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "DATA_LOSS", "CANCELLED")
"""The codes of gRPC that tell a client of a bad request that the server is at fault: those that HTTP calls 5xx."""


def rows() -> Iterator[tuple[str, Row]]:
    """The requests for inference, with the model that must run for them."""
    for row in http_corpus():
        model = row.request.path.removeprefix("/models/").partition("/")[0]
        is_own = row.status != 200 and any(word in row.name for word in OWN)
        if "/infer" in row.request.path and row.status in (200, 400, 404, 405, 415) and not is_own:
            yield model if model in models() else "one", row


def calls() -> Iterator[tuple[str, Call]]:
    for call in grpc_corpus():
        try:
            model = MESSAGES["ModelInfer.request"].FromString(call.content).model_name
        except Exception:
            model = ""
        if not any(word in call.name for word in OWN):
            yield model if model in models() else "one", call


def ask_http(triton: Triton, row: Row) -> str:
    with HTTPAsker(triton.served.port) as asker:
        try:
            status = asker.ask(row.request).status
        except (OSError, HTTPException):
            return "no answer"
    if row.status == 200:
        return "good: 200" if status == 200 else "good: refused"
    return {2: "accepted", 4: "4xx", 5: "5xx"}[status // 100]


def ask_grpc(triton: Triton, call: Call) -> str:
    with GRPCAsker(triton.grpc) as asker:
        code, _ = asker.ask(call)
    if call.code == "OK":
        return "good: 200" if code == "OK" else "good: refused"
    return "accepted" if code == "OK" else "5xx" if code in FAULTS else "4xx"


def count(python: str, log: Path, sent: Sequence[tuple[str, Any]], ask: Callable[[Triton, Any], str]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for model, group in groupby(sorted(sent, key=lambda pair: pair[0]), key=lambda pair: pair[0]):
        ready = make_zeros_row(model)
        with ExitStack() as stack:
            triton = stack.enter_context(running_triton(python, log, model))
            if ask_http(triton, ready) != "good: 200":
                sys.exit(f"{model} does not answer")
            for _, row in group:
                found = ask(triton, row)
                if found in ("5xx", "no answer") and ask_http(triton, ready) != "good: 200":
                    found = "killed"
                    stack.close()
                    triton = stack.enter_context(running_triton(python, log, model))
                counted[found] += 1
                if found not in ("4xx", "good: 200"):
                    sys.stderr.write(f"{found}: {row.name}\n")
    return counted


def main() -> None:
    python = find_triton()
    if python is None:
        sys.exit("TRITON_PYTHON does not name the Python of an environment with pytriton")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "triton.log"
        sys.stdout.write(f"HTTP: {dict(count(python, log, list(rows()), ask_http))}\n")
        sys.stdout.write(f"gRPC: {dict(count(python, log, list(calls()), ask_grpc))}\n")


if __name__ == "__main__":
    main()
