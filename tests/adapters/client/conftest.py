"""A server with a few models, asked by both clients, in this process and over a socket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp, OIPWSGIMiddleware, TensorSpec
from oip_asgi.client import Client
from oip_asgi.client.__main__ import main
from tests.support.asked import Asked, OnALoop
from tests.support.threads import serving
from tests.table.row_classes import register_streams

WAYS = ("Client, WSGI", "AsyncClient, ASGI", "Client, socket", "AsyncClient, socket", "Client, gRPC", "AsyncClient, gRPC")


def make_server() -> InferenceServer:
    server = InferenceServer("asked", "1.2.3", model_control=True, max_body_bytes=None)
    server.register("echo", lambda **inputs: inputs)

    @server.model(
        "spoken", inputs=[TensorSpec("names", "BYTES", [-1], content_type="str")], outputs=[TensorSpec("greetings", "BYTES", [-1])]
    )
    def spoken(names: list[str]) -> list[str]:
        return [f"good day, {name}" for name in names]

    @server.model("counts")
    def counts(n: Any) -> Iterator[Any]:
        for number in range(n.item()):
            if number == 3:
                raise InferenceError("no more than three", status=422)
            yield np.array([number])

    encoded = [TensorSpec(name, "BYTES", [-1], content_type=name) for name in ("base64", "pd_json")]
    server.register("encoded", lambda base64=None, pd_json=None: [repr(base64), repr(pd_json)], inputs=encoded)

    for version in ("1", "2"):
        server.register("versions", lambda version=version: np.array([int(version)]), version=version)
    server.register("org/a model", lambda x: x)
    register_streams(server)
    return server


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    with serving(OIPApp(make_server(), path="/v2")) as port:
        yield f"http://127.0.0.1:{port}/v2"


@pytest.fixture(scope="package")
def grpc_url() -> Iterator[str]:
    """The same over gRPC."""
    pytest.importorskip("grpc")
    from tests.support.grpc_ways import blocking

    with blocking(make_server()) as address:
        yield f"grpc://{address}"


@pytest.fixture(scope="package", params=WAYS)
def ask(request: pytest.FixtureRequest, url: str) -> Asked:
    client, way = request.param.split(", ")
    targets: dict[str, Callable[[], Any]] = {
        "WSGI": lambda: OIPWSGIMiddleware(OIPWSGIApp(InferenceServer()), make_server(), "/v2"),
        "ASGI": lambda: OIPApp(make_server(), path="/v2"),
        "socket": lambda: url,
        "gRPC": lambda: request.getfixturevalue("grpc_url"),
    }
    return Asked(targets[way](), awaited=client == "AsyncClient")


@pytest.fixture(params=[Client, OnALoop], ids=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Any:
    """What makes a client for a url: of either kind, asked alike."""
    return request.param


@dataclass
class Scored:
    status: int
    told: str
    out: Path

    @property
    def text(self) -> str:
        return self.out.read_text() if self.out.exists() else ""

    @property
    def refused(self) -> str:
        return self.out.with_suffix(f".refused{self.out.suffix}").read_text()

    @property
    def refusals(self) -> list[Any]:
        return [json.loads(line) for line in self.refused.splitlines()]

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def values(self) -> list[Any]:
        """The values of the column after the number of the row."""
        return [list(line.values())[1] for line in self.lines]

    @property
    def table(self) -> Any:
        return pytest.importorskip("pyarrow.parquet").read_table(self.out)


Score: TypeAlias = Callable[..., Scored]


@pytest.fixture
def score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Score:
    """Runs the command of the url `at` with a model, the text of a file, which is written unless it is None, and options."""

    def score(model: str, text: str | None, *more: str, at: str, rows: str = "rows.csv", out: str = "s.jsonl") -> Scored:
        if text is not None:
            (tmp_path / rows).write_text(text, newline="")
        status = main(["score", at, model, str(tmp_path / rows), "--out", str(tmp_path / out), *more])
        return Scored(status, capsys.readouterr().err, tmp_path / out)

    return score
