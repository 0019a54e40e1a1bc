"""The servers of the benchmark: how each is started, and which floor it is compared with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.support.processes import free_port, running

from . import grpc_client
from .load import Target
from .machine import on_core
from .rows import GRPC, HTTP, IN_THREADS, Row, by_hand

Command = Callable[[int, int], Sequence[str]]
"""From free ports for HTTP and gRPC to the command that serves on them."""


@dataclass(frozen=True)
class Server:
    """A server that can be started.

    Args:
        name: What the table calls it.
        what: One line for the reader of the table.
        command: What starts it.
        floors: For each transport that it speaks, the name of the server that it is compared with: its own for a floor.
        prefix: Where the protocol is mounted over HTTP.
        lacks: The rows that it has no model for, as patterns of their names.
        is_peer: Whether it is another project's, whose failures are worth a line in the table and no more.
        own_rows: What it is asked in the place of some rows, by their names, where it does not speak the protocol.
        most_calls: After how many calls of gRPC it closes a connection; None where it does not.
        ready: The path over HTTP that answers 200 when it is ready.
    """

    name: str
    what: str
    command: Command
    floors: Mapping[str, str]
    prefix: str = ""
    lacks: Sequence[str] = ()
    is_peer: bool = False
    own_rows: Mapping[str, Row] = field(default_factory=dict)
    most_calls: int | None = None
    ready: str = "/health/live"

    def asked(self, row: Row) -> Row:
        """What it is asked in this row."""
        return self.own_rows.get(row.name, row)

    def is_floor(self, row: Row) -> bool:
        """Whether others are compared with it."""
        return self.floors.get(row.transport) == self.name

    def serves(self, row: Row) -> bool:
        """Whether it speaks the row's transport and has its model."""
        return row.transport in self.floors and not any(fnmatch(row.name, pattern) for pattern in self.lacks)

    @contextmanager
    def started(self, core: int, log: Path) -> Iterator[Running]:
        """Run the server on one core until the block ends, which begins when it answers."""
        port, grpc_port = free_port(), free_port()
        # what a server leaves behind goes with the log
        environment = {"TMPDIR": str(log.parent)}
        with ExitStack() as stack:
            with on_core(core):
                command = self.command(port, grpc_port)
                process = stack.enter_context(running(command, log, environment, f"{self.prefix}{self.ready}", port))
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


HOSTS: Final = {
    "uvicorn": "uvicorn with uvloop and httptools",
    "uvicorn, h11": "uvicorn with asyncio and h11, as `pip install uvicorn` leaves it",
    "zttp": "uvicorn with uvloop and zttp",
    "gunicorn": "gunicorn's ASGI worker",
    "granian": "granian with uvloop, one worker",
    "pyvoy": "pyvoy with uvloop",
}

WSGI_HOSTS: Final = {
    "gunicorn, WSGI": "gunicorn with eight threads",
    "granian, WSGI": "granian with eight threads, one worker",
}
"""Servers that run a blocking model in the thread of its request."""

PEERS: Final = {
    "Triton": "Triton with models in its Python backend",
    "MLServer": "MLServer with custom runtimes, without worker processes",
    "KServe": "KServe's ModelServer with custom models",
}
"""The other servers of the protocol."""

_FLOORS: Final = {HTTP: "echo"}
_GRPC_FLOOR: Final = "gRPC echo"


def _served(host: str, app: str) -> Command:
    return lambda port, _: [sys.executable, "-m", f"{__package__}.serve", host, app, str(port)]


def _served_grpc(host: str, app: str) -> Command:
    return lambda _, port: [sys.executable, "-m", f"{__package__}.serve", host, app, str(port)]


def _ours(name: str, what: str, host: str, app: str, *, is_peer: bool = False) -> Server:
    return Server(name, what, _served(host, app), _FLOORS, lacks=() if app in ("echo", "def", "WSGI") else IN_THREADS, is_peer=is_peer)


def all_servers() -> list[Server]:
    """This package, what is written by hand, and others', all on uvicorn where they are ASGI applications; then those of gRPC."""
    hand = by_hand()
    found = [
        _ours("echo", "the floor: a bare ASGI callable that sends back what it read", "uvicorn", "echo"),
        _ours("def", "OIPApp, a plain def in a worker thread", "uvicorn", "def"),
        _ours("inline", 'OIPApp, a def with run="inline"', "uvicorn", "inline"),
        _ours("async", "OIPApp, an async def", "uvicorn", "async"),
    ]
    what, lacks = "FastAPI with pydantic, written by hand: JSON of its own", ["*binary*", "JSON 1000x1000"]
    found.append(Server("FastAPI", what, _served("uvicorn", "FastAPI"), _FLOORS, own_rows=hand, lacks=lacks))
    if python := peer_python("LitServe"):
        what, lacks = "LitServe, one worker process for each model: JSON of its own", [*lacks, *IN_THREADS]
        found.append(Server("LitServe", what, peer(python, "LitServe"), _FLOORS, own_rows=hand, lacks=lacks, is_peer=True))
    return [*found, *_grpc_servers(), *_peers()]


def _grpc_servers() -> list[Server]:
    """The echo, and this package on grpcio and on each server of ASGI that is installed."""
    found = [
        Server(_GRPC_FLOOR, "the floor: a bare handler of grpc.aio", _served_grpc("grpcio", "echo"), {GRPC: _GRPC_FLOOR}),
        Server("add_to_server", "add_to_server on grpc.aio, inline", _served_grpc("grpcio", "gRPC"), {GRPC: _GRPC_FLOOR}),
    ]
    for name, host, most in (("pyvoy", "pyvoy", None), ("uvicorn", "zttp, HTTP/2", 4000)):  # zttp closes a connection after 4,096
        if is_installed(host):
            command = _served_grpc(host, "gRPC")
            found.append(Server(f"oip_asgi, {name}", f"OIPGRPCApp on {host}", command, {GRPC: _GRPC_FLOOR}, most_calls=most))
    return found


def _peers() -> list[Server]:
    """The other servers of the protocol, as far as variables such as TRITON_PYTHON name the Python of an environment that has one."""
    found = []
    for name, what in PEERS.items():
        if python := peer_python(name):
            lacks = [*IN_THREADS, *(["frame*", "clicks*"] if name == "Triton" else [])]
            floors = {**_FLOORS, GRPC: _GRPC_FLOOR}
            found.append(Server(name, what, peer(python, name), floors, "/v2", lacks=lacks, is_peer=True))
    return found


def host_servers() -> list[Server]:
    """This package on the servers that are installed."""
    found = [_ours("echo", "the floor: a bare ASGI callable on uvicorn", "uvicorn", "echo")]
    for host, what in HOSTS.items():
        if is_installed(host):
            for suffix, app, model in (("", "def", "a plain def"), (", async", "async", "an async def")):
                found.append(_ours(host + suffix, f"{what}: {model}", host, app, is_peer=host != "uvicorn"))
    for host, what in WSGI_HOSTS.items():
        if is_installed(host):
            found.append(_ours(host, f"{what}: OIPWSGIApp, a plain def", host, "WSGI", is_peer=True))
    return found


def is_installed(host: str) -> bool:
    """Whether this environment has the server."""
    return find_spec(host.partition(",")[0]) is not None


def peer_python(name: str) -> str | None:
    """The Python of the environment that has this server; None where no variable names one, or it could not be made."""
    python = os.environ.get(f"{name.upper()}_PYTHON", "")
    return python if Path(python).is_file() else None


def missing_peers() -> list[str]:
    """The variables that name a Python which is not there."""
    variables = [f"{name.upper()}_PYTHON" for name in ("LitServe", *PEERS)]
    return [variable for variable in variables if variable in os.environ and not Path(os.environ[variable]).is_file()]


def peer(python: str, name: str, *flags: str) -> Command:
    """The command of another server, run by the Python of its own environment, with flags beside the ports."""
    module = f"{__package__}.peers.serve_{name.lower()}"
    return lambda port, grpc_port: [python, "-m", module, str(port), str(grpc_port), *flags]
