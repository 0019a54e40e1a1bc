"""`--check` of the recipes beside this file: runs the two commands of a recipe in an empty directory, then asks what they serve."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

SECONDS = 120
"""How long a server may take to import its libraries and load its model."""


def check(recipe: str, ask: Callable[[str], bool]) -> int:
    """Train and serve a recipe, on a free port, and ask it.

    Args:
        recipe: The recipe's file.
        ask: Asks the server at an address, prints what it sees, and says whether it is right. It is called in the model's directory.

    Returns:
        What the process exits with: 0 if the answers are right.
    """
    file = Path(recipe).resolve()
    with TemporaryDirectory() as directory, chdir(directory):
        subprocess.run([sys.executable, file], check=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        serve = ["uvicorn", "--factory", "--app-dir", str(file.parent), "--port", str(port), "--log-level", "warning"]
        with subprocess.Popen([sys.executable, "-m", *serve, f"{file.stem}:make_app"]) as server:
            try:
                wait_until_ready(server, f"http://127.0.0.1:{port}")
                is_right = ask(f"http://127.0.0.1:{port}")
            finally:
                server.terminate()
    print("The answers are", "right." if is_right else "wrong.")
    return 0 if is_right else 1


def wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    """Return once the server answers, which it does when its models are loaded.

    Raises:
        httpx2.HTTPStatusError: A model could not be loaded; the server has logged why.
        RuntimeError: The server ended, or took too long.
    """
    end = time.monotonic() + SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            answer = httpx2.get(f"{url}/v2/health/ready", timeout=SECONDS)
        except httpx2.TransportError:
            time.sleep(0.1)
        else:
            answer.raise_for_status()
            return
    raise RuntimeError("the server did not become ready")
