"""The background event loop by itself: what is handed to it ends with a result, or because the loop was stopped, and never hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.inside import background_of
from tests.support.inside.runtime import BackgroundLoop

ROUNDS = 2000
ASKING = 4


def stop_while_running(background: BackgroundLoop, run: Callable[[], None], found: list[Any]) -> None:
    """Stop the loop again and again until threads that use it have ended."""
    threads = [threading.Thread(target=run, daemon=True) for _ in range(ASKING)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < end, "a run hangs"
        background.stop()
        if len(found) % 2:
            time.sleep(0.0001)


def serve_counting(begun: threading.Event) -> InferenceServer:
    """A model of an asynchronous generator that shows in which task each item is made."""
    server = InferenceServer()

    @server.model("m")
    async def m(n: int) -> AsyncIterator[int]:
        begun.set()
        for _ in range(n):
            yield id(asyncio.current_task())

    return server


# asyncio's own hook may queue the closing of a generator that a thread drops while its loop is being closed, and Python 3.13 warns of that
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_stream_that_races_a_stop_ends(often_switching: None) -> None:
    server = serve_counting(threading.Event())
    background = background_of(server)
    found: list[Any] = []

    def run() -> None:
        for _ in range(ROUNDS // ASKING // 4):
            try:
                found.append(len(list(server.infer_stream_sync("m", {"n": 2}))))
            except InferenceError as error:
                found.append(error.status)

    stop_while_running(background, run, found)
    assert set(found) == {2, 503}
    assert len(found) == ROUNDS // 4
    background.stop()
