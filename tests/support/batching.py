"""A server whose one model can be held, so that requests come together in a batch: for tests of batches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from oip_asgi import InferenceError, InferenceResponse, InferenceServer
from tests.support.metrics import is_idle, waiting_calls
from tests.support.talk import block_until, until

HOLD = "hold"
"""The request parameter of the request that holds the model. Others never share a call with it."""


class Held:
    """A model `m` with one slot, which the first request holds until it is let go.

    Args:
        function: What answers the others.
        is_async: Whether it is a coroutine function.
    """

    def __init__(self, function: Callable[..., Any] = lambda x: x * 2, *, is_async: bool = False, **options: Any) -> None:
        self.sizes: list[int] = []
        self.first = np.zeros((1, 1))
        """The input of the request that holds the model."""
        self.leave = threading.Event()
        self.holds = threading.Event()
        self.server = InferenceServer()

        def model(x: Any) -> Any:
            if not self.holds.is_set():
                self.holds.set()
                assert self.leave.wait(20)
                return x
            self.sizes.append(len(x))
            return function(x)

        async def model_async(x: Any) -> Any:
            if not self.holds.is_set():
                self.holds.set()
                while not self.leave.is_set():
                    await asyncio.sleep(0.001)
                return x
            self.sizes.append(len(x))
            return await function(x)

        options = {"max_batch_size": 8, "max_concurrency": 1, **options}
        self.server.register("m", model_async if is_async else model, allow_timeout_override=True, **options)

    async def together(self, *asks: Any) -> list[asyncio.Task[InferenceResponse]]:
        """Begin requests, each an array or the keywords of `server.infer`, that all wait while another holds the model; then let it go."""
        tasks = await self.waiting(*asks)
        self.leave.set()
        await asyncio.wait([*tasks, self.holder])  # which may hear later that its thread has ended
        return tasks

    async def waiting(self, *asks: Any) -> list[asyncio.Task[InferenceResponse]]:
        """The same, and the model is still held."""
        holder = asyncio.create_task(self.server.infer("m", {"x": self.first}, parameters={HOLD: True}))
        await until(self.holds.is_set)
        tasks = []
        for place, ask in enumerate(asks):
            options = ask if isinstance(ask, dict) else {"inputs": {"x": ask}}
            tasks.append(asyncio.create_task(self.server.infer("m", **options)))
            await until(lambda wanted=place + 1: waiting_calls(self.server, "m") == wanted)
        holder.add_done_callback(lambda task: task.result())
        self.holder = holder
        return tasks


def rows(*values: float, dtype: str = "f4") -> Any:
    """An array of one column."""
    return np.array(values, dtype).reshape(-1, 1)


def told(task: asyncio.Task[InferenceResponse]) -> Any:
    """The only output as a list, or the status and the text of the error."""
    try:
        return task.result().outputs[0].array.ravel().tolist()
    except InferenceError as error:
        return error.status, str(error)


def play(held: Held, *asks: Any) -> list[Any]:
    """What each of some requests is told that waited together."""

    async def main() -> list[Any]:
        return [told(task) for task in await held.together(*asks)]

    answers = asyncio.run(main())
    block_until(lambda: is_idle(held.server))
    return answers
