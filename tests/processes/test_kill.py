"""A worker that is killed: it comes back, and the others serve on. What a server that is told to end does is in matrix/check_servers."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from typing import Any

from tests.support.processes import stressed
from tests.support.talk import block_until

EMPTY = b'{"inputs":[]}'


def infer(address: str, model: str) -> Any:
    request = urllib.request.Request(f"http://{address}/v2/models/{model}/infer", EMPTY)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())["outputs"][0]["data"][0]


def worker(address: str) -> int:
    """The process that answers a new connection."""
    with urllib.request.urlopen(f"http://{address}/pid", timeout=30) as response:
        return int(response.read())


def test_a_killed_worker_comes_back_and_the_others_serve_on() -> None:
    with stressed("gunicorn", 2) as (process, address):
        seen: set[int] = set()
        block_until(lambda: seen.add(worker(address)) or len(seen) == 2)  # type: ignore[func-returns-value]
        victim = min(seen)
        failures: list[BaseException] = []
        answers: list[int] = []
        stop = threading.Event()

        def client() -> None:
            while not stop.is_set():
                try:
                    answers.append(infer(address, "slow"))
                except OSError as error:  # a connection of the victim's
                    failures.append(error)

        clients = [threading.Thread(target=client) for _ in range(4)]
        for each in clients:
            each.start()
        block_until(lambda: len(answers) >= 4)
        os.kill(victim, signal.SIGKILL)
        block_until(lambda: bool({worker_or_none(address)} - seen - {None}))  # a new one has taken its place
        count = len(answers)
        # the other one serves on, and the new one does beside it
        block_until(lambda: max(seen) in answers[count:] and bool(set(answers[count:]) - seen))
        stop.set()
        for each in clients:
            each.join(30)
        assert len(failures) <= len(clients)  # each client lost the one request that the victim had in hand, at most
        assert victim not in answers[count + len(clients) :]  # what it had answered before may have been noted late
        assert process.poll() is None


def worker_or_none(address: str) -> int | None:
    try:
        return worker(address)
    except (OSError, urllib.error.URLError):
        return None
