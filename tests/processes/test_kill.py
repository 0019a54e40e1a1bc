"""Servers that are told to end, and workers that are killed: what was accepted is answered, and the others serve on."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from tests.support.processes import stressed
from tests.support.sockets import read_answer
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


def sent(address: str) -> socket.socket:
    """A connection over which a request to the slow model has gone out in full, headed by what shows that the server has it."""
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(EMPTY)}\r\nExpect: 100-continue\r\n\r\n"
    connection.sendall(head.encode())
    assert connection.recv(1000).startswith(b"HTTP/1.1 100")  # the application reads the body: the request has been accepted
    connection.sendall(EMPTY)
    return connection


def answered(connection: socket.socket) -> int:
    with connection:
        answer = read_answer(connection)
    assert answer.status == 200, answer.body
    return int(json.loads(answer.body)["outputs"][0]["data"][0])


@pytest.mark.parametrize("name", ["uvicorn", "gunicorn"])
def test_sigterm_loses_no_request_that_was_accepted(name: str) -> None:
    with stressed(name) as (process, address):
        assert infer(address, "slow")
        connections = [sent(address) for _ in range(6)]
        process.terminate()
        with ThreadPoolExecutor(len(connections)) as pool:
            pids = {future.result() for future in as_completed([pool.submit(answered, each) for each in connections], 30)}
        assert len(pids) == 1
        assert process.wait(30) in (0, -signal.SIGTERM)
        with pytest.raises(OSError):  # noqa: PT011  (refused or reset, as systems have it)
            worker(address)


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
