"""One copy of a model for four web workers: starts the model process, waits until it is ready, starts the workers, and ends both.

pip install 'oip_asgi[client]' httpx2 starlette uvicorn
python examples/shared_model/start.py            serves on http://127.0.0.1:8000
python examples/shared_model/start.py --check    serves on a free port, sends requests, counts copies by memory, and ends; Linux only

If one of the two ends, the other one is ended too, so that what started this starts both again: systemd, Docker or Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import numpy as np

from oip_asgi.client import AsyncClient, Client, ConnectionFailed

FOLDER = Path(__file__).parent
WORKERS = 4
REQUESTS = 400
SECONDS = 60
"""How long the model may take to be loaded, and the workers to start."""


@contextmanager
def running(*words: str, socket: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run uvicorn until the block ends."""
    command = [sys.executable, "-m", "uvicorn", *words, "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=FOLDER, env={**os.environ, "MODEL_SOCKET": socket})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SECONDS
    with Client(url, timeout=5) as client:
        while process.poll() is None and time.monotonic() < end:
            with suppress(ConnectionFailed):
                if client.is_ready():
                    return
            time.sleep(0.1)
    raise SystemExit(f"{url} did not become ready")


@contextmanager
def serving(port: int) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], str]]:
    """The model process, the web workers, and the URL of the model process."""
    with TemporaryDirectory() as folder:
        socket = f"{folder}/model.sock"
        with running("model_app:app", "--uds", socket, socket=socket) as model:
            wait_until_ready(f"http+unix://{socket}/v2", model)
            with running("web_app:app", "--port", str(port), "--workers", str(WORKERS), socket=socket) as web:
                wait_until_ready(f"http://127.0.0.1:{port}/v2", web)
                yield model, web, f"http+unix://{socket}/v2"


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with suppress(KeyboardInterrupt), serving(8000) as (model, web, _):
        print("serves on http://127.0.0.1:8000", flush=True)
        while model.poll() is None and web.poll() is None:
            time.sleep(0.5)
        sys.exit("the model process or the web server ended")


# What --check does


def megabytes(process: int) -> float:
    """The memory of a process; what it shares with others is divided between them."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def find_workers(parent: int) -> list[int]:
    """The processes that answer: those of uvicorn's children that have its application in memory."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


async def ask(url: str) -> int:
    """Ask many times at once, and count the right answers."""

    async def ask_one(client: AsyncClient, number: int) -> bool:
        words = np.array([number, number + 1])
        response = await client.infer("embed", {"word": words})
        return bool(np.allclose(response["embedding"], np.add.outer(words, np.arange(256) / 1000)))

    async with AsyncClient(url) as client:
        return sum(await asyncio.gather(*(ask_one(client, number) for number in range(REQUESTS))))


def report(model: int, workers: Sequence[int]) -> float:
    """Print the memory of each process, and return what all take beyond the workers' own."""
    of_workers = sorted(map(megabytes, workers))
    print(f"model process {megabytes(model):.0f} MB, {len(workers)} web workers {', '.join(f'{each:.0f}' for each in of_workers)} MB")
    return megabytes(model) + sum(each - of_workers[0] for each in of_workers)


def check() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with serving(port) as (model, web, model_url):
        right = asyncio.run(ask(f"http://127.0.0.1:{port}/v2"))
        alike = httpx2.get(f"http://127.0.0.1:{port}/similarity?a=3&b=3").json()["similarity"]
        with Client(model_url) as client:
            [numbers] = client.statistics("embed")
        print(f"{right} of {REQUESTS} answers are right; {numbers['inference_count']} rows in {numbers['execution_count']} calls")
        workers = find_workers(web.pid)
        above = report(model.pid, workers)
        print(f"above the workers' own: {above:.0f} MB, for a model of 205 MB")
        wrong = httpx2.post(f"http://127.0.0.1:{port}/v2/models/embed/infer", content=json.dumps({"inputs": []}))
        print("a request without its input is", wrong.status_code)
    if right != REQUESTS or abs(alike - 1) > 1e-6 or len(workers) != WORKERS or above > 350 or wrong.status_code != 400:
        raise SystemExit("That is not what this example is about.")
    print("One copy of the model answers all workers.")


if __name__ == "__main__":
    check() if "--check" in sys.argv else main()
