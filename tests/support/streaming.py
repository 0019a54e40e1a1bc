"""Generators that note what becomes of them, and a client of their streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np

from oip_asgi import InferenceResponse, InferenceServer, Tensor
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


async def take(server: InferenceServer, body: bytes = BODY) -> list[Any]:
    """What a client gets that reads all of it."""
    talk = listen(server, body)
    await asyncio.wait_for(talk.task, 20)
    return numbers(talk)


def numbers(talk: Talk) -> list[Any]:
    """The numbers that have come, and the texts of errors."""
    return [event.get("output_0", event.get("error")) for event in talk.events]


def of_kind(kind: str, generator: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Any]:
    """A generator, or an asynchronous one of the same items."""

    async def awaiting(n: Any) -> AsyncIterator[Any]:
        made: Any = generator(n)
        with closing(made):
            for item in made:
                yield item

    return generator if kind == "def" else awaiting


def _each(*values: Any, dtype: str = "i8") -> list[Any]:
    return [np.array([value], dtype) for value in values]


def _written_over() -> Iterator[Any]:
    buffer = np.zeros(5000)
    for number in range(4):
        buffer[:] = number
        yield buffer


ITEMS: dict[str, Callable[[], Iterable[Any]]] = {
    "integers": lambda: _each(0, -5, 2**62, 7),
    "the largest integers": lambda: _each(2**64 - 1, 2**64 - 2, 0, dtype="u8"),
    "numbers": lambda: _each(1.5, np.nan, np.inf, -np.inf, -0.0, 1e300, dtype="f8"),
    "half precision": lambda: _each(1.5, 2.5, np.nan, 65504, dtype="f2"),
    "booleans": lambda: _each(True, False, True, dtype="?"),
    "lists": lambda: [np.array([number, np.nan, np.inf]) for number in range(4)],
    "lists of lists": lambda: [np.full((2, 3), number) for number in range(4)],
    "nothing": lambda: [np.empty((0, 2)) for _ in range(4)],
    "no dimensions": lambda: [np.array(number) for number in range(4)],
    "every second element": lambda: [np.arange(number, number + 6)[::-2] for number in range(4)],
    "the other byte order": lambda: _each(1, 2, 3, 4, dtype=">i8"),
    "many": lambda: [np.full(5000, number, "u1") for number in range(4)],
    "other shapes": lambda: [*_each(1, 2, 3), *(np.arange(size) for size in (2, 2, 2, 1, 1, 0, 0, 0))],
    "other dtypes": lambda: [*_each(1, 2, 3), *_each(1, 2, 3, dtype="f4"), *_each(4, 5, 6)],
    "mappings": lambda: [{"y": np.array([number])} for number in range(4)],
    "other names": lambda: [*({"y": each} for each in _each(1, 2, 3)), *({"z": each} for each in _each(1, 2, 3)), *_each(1, 2, 3)],
    "several outputs": lambda: [{"y": np.array([number]), "z": np.array([number])} for number in range(4)],
    "an output that comes and goes": lambda: [{"y": one, **more} for one in _each(1, 2, 3) for more in ({}, {}, {"z": one})],
    "an odd name": lambda: [{'a "%d" %b é\\': np.array([number])} for number in range(4)],
    "texts": lambda: ["to", "be", 'a "quote" \\ \n\t\u2028 é 😀 %d', "", "or"],
    "a long text": lambda: ["to", "be", "or", "x" * 5000, "not"],
    "texts by name": lambda: [{"y": text} for text in ("to", "be", "or", "not")],
    "texts and numbers": lambda: ["to", "be", "or", *_each(1, 2, 3), "not", *_each(4), "to"],
    "lists of texts": lambda: [["to"], ["be"], ["or"], ["not", "to"]],
    "Python's numbers": lambda: [1, 2, 3, 4.5],
    "responses with parameters": lambda: [
        *_each(1, 2, 3), *(InferenceResponse([Tensor("output_0", each)], {"a": 1}) for each in _each(4, 5, 6)), *_each(7)
    ],
    "tensors with parameters": lambda: [InferenceResponse([Tensor("y", each, {"a": 1})]) for each in _each(4, 5, 6)],
    "an array that is written over": _written_over,
}  # fmt: skip
"""Items of streams, by what is special about them."""


def both_kinds(make: Callable[[], Iterable[Any]]) -> dict[str, Callable[[Any], Any]]:
    """Generators of some items, of each kind."""

    def blocking(n: Any) -> Iterator[Any]:
        yield from make()

    return {kind: of_kind(kind, blocking) for kind in KINDS}


def alone(make: Callable[[], Iterable[Any]], place: int) -> Callable[[Any], Any]:
    """A plain model that answers with one of some items."""

    def model(n: Any) -> Any:
        return next(islice(make(), place, None))

    return model
