"""The servers of the benchmark: how each is started, which floor it is compared with, and what it is measured on where nobody chooses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from tests.support.processes import free_port, running

from . import grpc_client
from .load import Target
from .machine import on_core
from .rows import GRPC, HTTP, Row


@dataclass(frozen=True)
class Server:
    """A server that can be started.

    Args:
        name: What the table calls it.
        what: One line for the reader of the table.
        command: From free ports for HTTP and gRPC to the command that serves on them.
        floors: For each transport that it speaks, the name of the server that it is compared with: its own for a floor.
        prefix: Where the protocol is mounted over HTTP.
        rows: The rows that it is measured on where nobody chooses, as patterns of their names.
        connections: The numbers of connections, likewise.
        lacks: The rows that it has no model for, as patterns of their names.
        is_peer: Whether it is another project's, whose failures are worth a line in the table and no more.
        own_rows: What it is asked in the place of some rows, by their names, where it does not speak the protocol.
        most_calls: After how many calls of gRPC it closes a connection; None where it does not.
    """

    name: str
    what: str
    command: Callable[[int, int], Sequence[str]]
    floors: Mapping[str, str]
    prefix: str = ""
    rows: Sequence[str] = ("*",)
    connections: Sequence[int] = (1, 8, 64)
    lacks: Sequence[str] = ()
    is_peer: bool = False
    own_rows: Mapping[str, Row] = field(default_factory=dict)
    most_calls: int | None = None

    def asked(self, row: Row) -> Row:
        """What it is asked in this row."""
        return self.own_rows.get(row.name, row)

    def is_floor(self, row: Row) -> bool:
        """Whether others are compared with it."""
        return self.floors.get(row.transport) == self.name

    def serves(self, row: Row) -> bool:
        """Whether it speaks the row's transport and has its model."""
        return row.transport in self.floors and not any(fnmatch(row.name, pattern) for pattern in self.lacks)

    def is_measured(self, row: Row, connections: int) -> bool:
        """Whether it is, where nobody chooses."""
        return connections in self.connections and any(fnmatch(row.name, pattern) for pattern in self.rows)

    @contextmanager
    def started(self, core: int, log: Path) -> Iterator[Running]:
        """Run the server on one core until the block ends, which begins when it answers."""
        port, grpc_port = free_port(), free_port()
        # what a server leaves behind goes with the log
        environment = {"TMPDIR": str(log.parent)}
        with ExitStack() as stack:
            with on_core(core):
                command = self.command(port, grpc_port)
                process = stack.enter_context(running(command, log, environment, f"{self.prefix}/health/live", port))
            if HTTP in self.floors:
                process.wait_until_ready()
            else:
                grpc_client.wait_until_ready(grpc_port)
            yield Running(self, Target(port, grpc_port, self.prefix, self.most_calls), process.process.pid, log)


@dataclass(frozen=True)
class Running:
    """A server that runs."""

    server: Server
    target: Target
    pid: int
    log: Path

    def note(self) -> str:
        """What belongs beside a failure: who it was, and the end of what it printed."""
        return f"by the server {self.server.name!r}, which printed:\n{self.log.read_text(errors='replace')[-2000:] or 'nothing'}"


def _own(way: str) -> Callable[[int, int], Sequence[str]]:
    return lambda port, _: [sys.executable, "-m", "tests.lab.bench.serve", way, str(port)]


def _own_grpc(way: str) -> Callable[[int, int], Sequence[str]]:
    return lambda _, port: [sys.executable, "-m", "tests.lab.bench.serve", way, str(port)]


_ECHO: Final = {HTTP: "echo"}
_FEW: Final = ("JSON 1x4", "binary 1x4", "binary 1x150528")

OURS: Final = (
    Server("echo", "the floor: a bare ASGI callable that sends back what it read", _own("echo"), _ECHO),
    Server("inline", 'OIPApp, a def with run="inline"', _own("inline"), _ECHO),
    Server("async", "OIPApp, an async def", _own("async"), _ECHO),
    Server("thread", "OIPApp, a def in a worker thread", _own("thread"), _ECHO),
    Server("middleware", "OIPMiddleware around Starlette, inline", _own("middleware"), _ECHO, "/v2", _FEW, [8]),
    Server("mounted echo", "the floor, mounted in Starlette", _own("mounted echo"), {HTTP: "mounted echo"}, "/v2", _FEW, [8]),
    Server("mounted", "OIPApp mounted in Starlette, inline", _own("mounted"), {HTTP: "mounted echo"}, "/v2", _FEW, [8]),
    Server(
        "gunicorn echo", "a bare WSGI callable that sends back what it read", _own("gunicorn echo"), {HTTP: "gunicorn echo"}, "", _FEW, [8]
    ),
    Server("gunicorn", "OIPWSGIApp under gunicorn", _own("gunicorn"), {HTTP: "gunicorn echo"}, "", _FEW, [8]),
    Server("gRPC echo", "a bare handler of grpc.aio that sends back what it read", _own_grpc("gRPC echo"), {GRPC: "gRPC echo"}),
    Server("gRPC", "add_to_server on grpc.aio, inline", _own_grpc("gRPC"), {GRPC: "gRPC echo"}),
)


PEERS: Final = ("Triton", "MLServer", "KServe")
"""The other servers of the protocol."""


def peers(*flags: str) -> list[Server]:
    """The other servers of the protocol, as far as variables such as TRITON_PYTHON name the Python of an environment that has one.

    Args:
        flags: What their commands are given beside the ports.
    """
    found = []
    for name, what, lacks in (
        ("Triton", "Triton with a model in its Python backend", ["frame*", "clicks*"]),
        ("MLServer", "MLServer with a custom runtime, without worker processes", []),
        ("KServe", "KServe's ModelServer with a custom model", []),
    ):
        if python := peer_python(name):
            found.append(
                Server(name, what, peer(python, name, *flags), {HTTP: "echo", GRPC: "gRPC echo"}, "/v2", lacks=lacks, is_peer=True)
            )
    return found


def peer_python(name: str) -> str | None:
    """The Python of the environment that has this server; None where no variable names one, or it could not be made."""
    python = os.environ.get(f"{name.upper()}_PYTHON", "")
    return python if Path(python).is_file() else None


def missing_peers(names: Sequence[str]) -> list[str]:
    """The variables that name a Python which is not there."""
    variables = [f"{name.upper()}_PYTHON" for name in names]
    return [variable for variable in variables if variable in os.environ and not Path(os.environ[variable]).is_file()]


def peer(python: str, name: str, *flags: str) -> Callable[[int, int], Sequence[str]]:
    """The command of another server, run by the Python of its own environment."""
    module = f"{__package__}.peers.serve_{name.lower()}"
    return lambda port, grpc_port: [python, "-m", module, str(port), str(grpc_port), *flags]
