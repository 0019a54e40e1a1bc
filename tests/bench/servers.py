"""The servers of the benchmark: how each is started, and which floor it is compared with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..processes import free_port, serving
from .load import Target
from .machine import on_core


@dataclass(frozen=True)
class Server:
    """A server that can be started.

    Args:
        name: What the table calls it.
        what: One line for the reader of the table.
        command: From a free port to the command that serves on it.
        prefix: Where the protocol is mounted.
        floor: The name of the server that it is compared with; None for a floor itself.
        ready: The path behind the mount that answers 200 once the server serves.
        environment: Variables for its process.
        is_peer: Whether it is another project's, whose failures are worth a line in the table and no more.
    """

    name: str
    what: str
    command: Callable[[int], Sequence[str]]
    prefix: str = ""
    floor: str | None = "echo"
    ready: str = "/health/live"
    environment: Mapping[str, str] = field(default_factory=dict)
    is_peer: bool = False

    @contextmanager
    def started(self, core: int, log: Path) -> Iterator[Running]:
        """Run the server on one core until the block ends."""
        port = free_port()
        with ExitStack() as stack:
            with on_core(core):
                served = stack.enter_context(serving(self.command(port), port, log, self.environment, self.prefix + self.ready))
            yield Running(self, Target(port, self.prefix), served.process.pid)


@dataclass(frozen=True)
class Running:
    """A server that runs."""

    server: Server
    target: Target
    pid: int


def _own(way: str, *flags: str) -> Callable[[int], Sequence[str]]:
    return lambda port: [sys.executable, "-m", "tests.bench.serve", way, str(port), *flags]


OURS: Final = (
    Server("echo", "the floor: a bare ASGI callable that sends back what it read", _own("echo"), floor=None),
    Server("inline", 'OIPApp, a def with run="inline"', _own("inline")),
    Server("async", "OIPApp, an async def", _own("async")),
    Server("thread", "OIPApp, a def in a worker thread", _own("thread")),
    Server("inline, not fast", "as inline, without the extra [fast]", _own("inline", "--without-fast")),
    Server("thread, not fast", "as thread, without the extra [fast]", _own("thread", "--without-fast")),
    Server("mounted echo", "the floor mounted in Starlette", _own("mounted echo"), "/v2", floor=None),
    Server("mounted", "OIPApp mounted in Starlette, inline", _own("mounted"), "/v2", floor="mounted echo"),
    Server("middleware", "OIPMiddleware around Starlette, inline", _own("middleware"), "/v2"),
    Server("gunicorn echo", "a bare WSGI callable that sends back what it read, under gunicorn", _own("gunicorn echo"), floor=None),
    Server("gunicorn", "OIPWSGIApp under gunicorn", _own("gunicorn"), floor="gunicorn echo"),
)
