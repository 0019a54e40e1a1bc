"""The way of one small request through the package: `python -m tests.lab.bench.walks`. It prints calls, files, and lines of the files.

A reader has to know these files to follow the request, and a processor runs these calls. That a generator or coroutine goes on counts as a
call, as it costs one. `--calls` names the calls in their order.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np

import oip_asgi
from oip_asgi import InferenceServer, OIPApp
from oip_asgi.grpc import OIPGRPCApp

from .in_process import ask, ask_together, over_http
from .models import Run, make_identity_server
from .report import table
from .rows import Row, rows

PACKAGE: Final = Path(oip_asgi.__file__).parent
_WARM: Final = 50
_TIMES: Final = 5
"""Threads wake each other when they like, the more so on a busy machine, so a walk is the shortest of so many."""


@dataclass(frozen=True)
class Walk:
    """The functions of the package that were called, as file and name, in their order."""

    calls: Sequence[tuple[str, str]]

    @property
    def files(self) -> list[str]:
        return sorted({file for file, _ in self.calls})

    @property
    def lines(self) -> int:
        return sum((PACKAGE / file).read_text().count("\n") for file in self.files)


class Recorder:
    """Notes which functions of the package are called, in each thread that starts after it."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, str]] | None = None

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if self._calls is not None and event == "call" and code.co_filename.startswith(str(PACKAGE)):
            self._calls.append((str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname))

    @contextmanager
    def recording(self) -> Iterator[list[tuple[str, str]]]:
        calls: list[tuple[str, str]] = []
        self._calls = calls
        try:
            yield calls
        finally:
            self._calls = None


def _json(run: Run) -> Callable[[Recorder], Walk]:
    return lambda recorder: _walk_over_asgi(
        recorder, OIPApp, rows(["JSON 1x4"]), make_identity_server("inline" if run == "inline" else "thread")
    )


def _grpc(recorder: Recorder) -> Walk:
    return _walk_over_asgi(recorder, OIPGRPCApp, [over_http(row) for row in rows(["gRPC 1x4"])], make_identity_server("thread"))


def _batch(recorder: Recorder) -> Walk:
    server = InferenceServer("walks", "1")

    @server.model("identity", max_batch_size=3, max_batch_delay=5)
    def identity(x: np.ndarray) -> np.ndarray:
        return x

    return _walk_over_asgi(recorder, OIPApp, rows(["JSON 1x4"]) * 3, server)


def _stream(recorder: Recorder) -> Walk:
    server = InferenceServer("walks", "1")

    @server.model("count")
    def count(to: int) -> Iterator[int]:
        yield from range(to)

    row = Row("stream", "POST", "/models/count/generate_stream", {}, b'{"to": 3}', lambda _: None, [1])
    return _walk_over_asgi(recorder, OIPApp, [row], server)


def _walk_over_asgi(recorder: Recorder, make: Callable[[InferenceServer], Any], requests: Sequence[Row], server: InferenceServer) -> Walk:
    app = make(server)

    async def run() -> Walk:
        for _ in range(_WARM):
            await ask_together(app, requests)
        with recorder.recording() as calls:
            await (ask(app, requests[0]) if len(requests) == 1 else ask_together(app, requests))
        return Walk(list(calls))

    server.start()
    try:
        return asyncio.run(run())
    finally:
        server.stop()


def _flask(recorder: Recorder) -> Walk:
    from flask import Flask

    from oip_asgi.flask import blueprint

    server, [row] = make_identity_server("thread"), rows(["JSON 1x4"])
    app = Flask(__name__)
    app.register_blueprint(blueprint(server, "/v2"))

    def ask_flask() -> None:
        body = {"wsgi.input": io.BytesIO(row.body), "CONTENT_LENGTH": str(len(row.body))}
        request = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": f"/v2{row.path}",
            "SERVER_NAME": "a",
            "SERVER_PORT": "80",
            "wsgi.url_scheme": "http",
        }
        for _ in app({**request, **body}, lambda *_: None):  # type: ignore[arg-type]
            pass

    server.start()
    for _ in range(_WARM):
        ask_flask()
    with recorder.recording() as calls:
        ask_flask()
    server.stop()
    return Walk(list(calls))


WALKS: Final[dict[str, Callable[[Recorder], Walk]]] = {
    "JSON, inline": _json("inline"),
    "JSON, def under ASGI": _json("thread"),
    "JSON, def in Flask": _flask,
    "gRPC over ASGI, def": _grpc,
    "three JSON requests, one batch": _batch,
    "generate_stream, def, 3 items": _stream,
}


def record(name: str) -> Walk:
    """One of the walks, when everything is warm."""
    recorder = Recorder()
    before, before_in_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(recorder.note)
    sys.setprofile(recorder.note)
    try:
        return min((WALKS[name](recorder) for _ in range(_TIMES)), key=lambda walk: (len(walk.files), len(walk.calls)))
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench.walks", description=__doc__)
    parser.add_argument("--calls", action="store_true", help="name the calls")
    parsed = parser.parse_args(arguments)
    walks = {name: record(name) for name in WALKS}
    lines = [[name, str(len(walk.calls)), str(len(walk.files)), f"{walk.lines:,}"] for name, walk in walks.items()]
    print(table(["one request", "calls", "files", "lines of these files"], lines))
    if parsed.calls:
        for name, walk in walks.items():
            print("", name, *(f"  {file}: {function}" for file, function in walk.calls), sep="\n")


if __name__ == "__main__":
    main()
