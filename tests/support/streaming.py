"""Generators that note what becomes of them, and a client of their streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from oip_asgi import InferenceServer
from tests.support.talk import Talk

BODY = b'{"n": 3}'


class Noted:
    """Generators of numbers, by kind, and what they have noted.

    Args:
        silent_after: Behind which item they are silent until `go_on` is set; -1 for none.
    """

    def __init__(self, silent_after: int = -1) -> None:
        self.made = 0
        self.ended: list[str] = []
        self.threads: list[str] = []
        self.go_on = threading.Event()
        self._silent_after = silent_after

    def blocking(self, n: Any) -> Iterator[int]:
        try:
            for number in range(int(n[0])):
                if number == self._silent_after + 1 and self._silent_after >= 0:
                    assert self.go_on.wait(20)
                self.made += 1
                yield number
        except GeneratorExit:
            self.ended.append("closed")
            raise
        finally:
            self.threads.append(threading.current_thread().name)
            self.ended.append("finally")

    async def awaiting(self, n: Any) -> AsyncIterator[int]:
        try:
            for number in range(int(n[0])):
                if number == self._silent_after + 1 and self._silent_after >= 0:
                    await asyncio.to_thread(self.go_on.wait, 20) if self.go_on.is_set() else await asyncio.sleep(20)
                self.made += 1
                yield number
        except GeneratorExit:
            self.ended.append("closed")
            raise
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)  # cleaning up may await
            self.ended.append("cancelled")
            raise
        finally:
            self.ended.append("finally")


KINDS: dict[str, Callable[[Noted], Any]] = {"def": lambda noted: noted.blocking, "async def": lambda noted: noted.awaiting}


def serve_stream(function: Any, **options: Any) -> InferenceServer:
    """A server of one model, called m."""
    server = InferenceServer()
    server.register("m", function, **options)
    return server


def listen(server: InferenceServer, body: bytes = BODY, **options: Any) -> Talk:
    """Ask for a stream of it."""
    return Talk(server, body=body, action="generate_stream", **options)


def numbers(talk: Talk) -> list[Any]:
    """The numbers that have come, and the texts of errors."""
    return [event.get("output_0", event.get("error")) for event in talk.events]
