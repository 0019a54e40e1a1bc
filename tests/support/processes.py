"""Real servers in processes of their own, on a free port of the loopback, ended when the test is done with them."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2

ROOT = Path(__file__).parents[2]
SECONDS = 60
"""How long a server may take to answer first: it imports scikit-learn on a machine that others use too."""

# httpx2 reads the certificates of all authorities for each call else: 30 ms that no server here needs
get, head, post = partial(httpx2.get, verify=False), partial(httpx2.head, verify=False), partial(httpx2.post, verify=False)


def documented(example: Path) -> list[str]:
    """The lines of a script's docstring that are set in, as commands are."""
    text = ast.get_docstring(ast.parse(example.read_text())) or ""
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """Different ones: the same port may be free twice."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def environment(more: Mapping[str, str] = {}) -> dict[str, str]:
    """This process's, with the scripts of its own virtual environment first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **more}


def with_variable(variable: str) -> list[str]:
    """The command lines of all processes that have been started with a variable in their environment, written NAME=VALUE. Linux only."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (directory / "environ").read_bytes().split(b"\0"):
                found.append((directory / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or is another user's
            continue
    return found


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    ready: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self) -> None:
        end = time.monotonic() + SECONDS
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log.read_text()}")
            try:
                if get(f"{self.url}{self.ready}", timeout=SECONDS).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            assert time.monotonic() < end, f"the server did not become ready:\n{self.log.read_text()}"
            time.sleep(0.05)

    def ask_to_end(self) -> None:
        """What an operator or Kubernetes does."""
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def running(
    command: Sequence[str], log: Path, env: Mapping[str, str] = {}, ready: str = "/v2/health/ready", port: int | None = None
) -> Iterator[Served]:
    """Run a server's command until the block ends, which may begin before the server answers.

    Args:
        command: Its words. PORT in them stands for the port, and the word `python` for this Python.
        log: The file for what it prints.
        env: What its environment has beside this process's.
        ready: The path that answers 200 when it is ready.
        port: The port where it serves; None for a free one.
    """
    port = port or free_port()
    words = [sys.executable if word == "python" else word.replace("PORT", str(port)) for word in command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        served = Served(process, port, log, ready)
        try:
            yield served
        finally:
            served.ask_to_end()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the session is the server's own
                process.wait(15)


@contextmanager
def serving(
    command: Sequence[str], log: Path, env: Mapping[str, str] = {}, ready: str = "/v2/health/ready", port: int | None = None
) -> Iterator[Served]:
    """The same, but the block begins when the server answers."""
    with running(command, log, env, ready, port) as served:
        served.wait_until_ready()
        yield served


@contextmanager
def serving_module(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `python -m` until the block ends, with a module of the tests that prints its address once its port listens; gives the address."""
    with subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "the server process ended before it served"
            yield process, address
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def stressed(server: str, workers: int = 1, threads: int = 16) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """Run the application of `tests.support.stressed` in "uvicorn", or in "gunicorn" with workers and threads; gives its address too."""
    if server == "uvicorn":
        return serving_module("tests.support.stressed")
    return serving_module("tests.support.gunicorned", str(free_port()), str(workers), str(threads))
