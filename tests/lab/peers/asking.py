"""Runs Triton with the models of the corpus, sends the corpus to a server, and judges the answers of this package."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import grpc

from tests.lab.peers.corpus import LENGTH, Call, make_zeros_row
from tests.lab.peers.triton_models import models
from tests.support.grpc_ways import MESSAGES, SERVICE
from tests.support.processes import Served, free_ports, running
from tests.support.ways import Request
from tests.table.row import Row

SECONDS: Final = 60
"""How long an answer may take: none of these requests computes anything."""

UVICORN: Final = b"Invalid HTTP request received."
"""What uvicorn answers itself to what is no HTTP, such as an unknown method."""


class Triton(NamedTuple):
    """A running Triton, and the address of its gRPC."""

    served: Served
    grpc: str

    def is_alive(self) -> bool:
        """Whether each of its models answers: they are processes of their own, and said to be ready even if they are dead."""
        with HTTPAsker(self.served.port) as asker:
            return [asker.ask(make_zeros_row(model).request).status for model in models()] == [200] * len(models())


def find_triton() -> str | None:
    """The Python that has Triton, if there is one."""
    python = os.environ.get("TRITON_PYTHON")
    return python if python is not None and list(Path(python).parents[1].glob("lib/python*/site-packages/pytriton")) else None


@contextmanager
def running_triton(python: str, log: Path, *only: str) -> Iterator[Triton]:
    """Run it, with all models of the corpus or only some."""
    port, grpc_port = free_ports(2)
    command = [python, "-W", "ignore", "-m", "tests.lab.peers.triton_models", "PORT", str(grpc_port), *only]
    with running(command, log, port=port) as served:
        served.wait_until_ready()
        yield Triton(served, f"127.0.0.1:{grpc_port}")


class HTTPAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class HTTPAsker:
    """Asks over one connection as long as the server keeps it."""

    def __init__(self, port: int, prefix: str = "/v2") -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self.prefix = prefix

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.connection.close()

    def ask(self, request: Request) -> HTTPAnswer:
        """Raises OSError or HTTPException if there is no answer."""
        self.connection.putrequest(request.method, self.prefix + request.path, skip_accept_encoding=True)
        for name, value in request.headers:
            self.connection.putheader(name, value.encode("latin-1"))
        if request.body or request.method == "POST":
            self.connection.putheader("content-length", str(len(request.body)))
        self.connection.endheaders(request.body or None)
        answer = self.connection.getresponse()
        return HTTPAnswer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


VERSION = b',"model_version":"1"'
"""What Triton says of its models, and `remote` passes on; the corpus says nothing of it."""


def judge_http(row: Row, answer: HTTPAnswer) -> str:
    """What is wrong with an answer of this package; empty if nothing is."""
    if row.status != 200 and (answer.status, answer.body) == (400, UVICORN):
        return ""
    if answer.status != row.status:
        return f"{row}: answered {answer.status} {answer.body!r:.300}, expected {row.status}"
    if row.status == 200:
        expected = dict(row.headers).get(LENGTH)
        body = answer.body.replace(VERSION, b"", 1)
        length = None if expected is None else str(int(answer.headers.get(LENGTH, 0)) - (len(answer.body) - len(body)))
        right = body == row.body and length == expected
        return "" if right else f"{row}: answered {answer.body!r:.300}, expected {row.body!r:.300}"
    if row.request.method == "HEAD":
        return "" if not answer.body else f"{row}: HEAD has a body"
    document = json.loads(answer.body)
    if list(document) != ["error"] or answer.headers["content-type"] != "application/json":
        return f"{row}: answered {answer.body!r:.300}, expected an error"
    return ""


class GRPCAsker:
    """Asks over one channel."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.channel.close()

    def ask(self, call: Call) -> tuple[str, Any]:
        """The code, and the response message or the text of the error."""
        read = MESSAGES.get(f"{call.method}.response", MESSAGES["ModelInfer.response"]).FromString
        ask: Any = self.channel.unary_unary(f"/{SERVICE}/{call.method}", response_deserializer=read)
        done = ask.future(call.content, timeout=SECONDS)
        error = done.exception()
        return ("OK", done.result()) if error is None else (error.code().name, error.details())


def judge_grpc(call: Call, code: str, response: Any) -> str:
    """What is wrong with an answer of this package; empty if nothing is."""
    if code != call.code:
        return f"{call.name}: answered {code} {str(response)!r:.300}, expected {call.code}"
    if code != "OK":
        return "" if response else f"{call.name}: the error has no text"
    outputs = dict(zip((output.name for output in response.outputs), response.raw_output_contents, strict=True))
    return "" if outputs == call.answer else f"{call.name}: answered {outputs}, expected {call.answer}"
