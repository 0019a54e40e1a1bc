"""The servers of this benchmark: this package in its three ways, what a user writes by hand, other projects', and other servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ..rows import HTTP
from ..servers import PEERS as PROTOCOL_PEERS
from ..servers import Server, peer, peer_python, peers
from .rows import IN_THREADS, by_hand
from .serve import is_installed

PEERS: Final = ("LitServe", *PROTOCOL_PEERS)
"""All that may be measured where its environment is."""

FLOORS: Final = {HTTP: "echo"}

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


def _command(host: str, app: str) -> Callable[[int, int], Sequence[str]]:
    return lambda port, _: [sys.executable, "-m", f"{__package__}.serve", host, app, str(port)]


def _ours(name: str, what: str, host: str, app: str, *, is_peer: bool = False) -> Server:
    return Server(name, what, _command(host, app), FLOORS, lacks=() if app in ("echo", "def", "WSGI") else IN_THREADS, is_peer=is_peer)


def real_servers() -> list[Server]:
    """This package, what is written by hand, and others', all on uvicorn where they are ASGI applications."""
    hand = by_hand()
    binary = ["*binary"]
    found = [
        _ours("echo", "the floor: a bare ASGI callable that sends back what it read", "uvicorn", "echo"),
        _ours("def", "OIPApp, a plain def in a worker thread", "uvicorn", "def"),
        _ours("inline", 'OIPApp, a def with run="inline"', "uvicorn", "inline"),
        _ours("async", "OIPApp, an async def", "uvicorn", "async"),
        Server(
            "FastAPI",
            "FastAPI with pydantic, written by hand: JSON of its own",
            _command("uvicorn", "FastAPI"),
            FLOORS,
            "",
            own_rows=hand,
            lacks=binary,
        ),
    ]
    if python := peer_python("LitServe"):
        what = "LitServe, one worker process for each model: JSON of its own"
        found.append(
            Server("LitServe", what, peer(python, "LitServe"), FLOORS, "", own_rows=hand, lacks=[*binary, *IN_THREADS], is_peer=True)
        )
    return found + [replace(server, lacks=[*server.lacks, *IN_THREADS]) for server in peers("--real") if server.is_peer]


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


def missing_hosts() -> list[str]:
    """The servers that are not installed."""
    return [host for host in (*HOSTS, *WSGI_HOSTS) if not is_installed(host)]
