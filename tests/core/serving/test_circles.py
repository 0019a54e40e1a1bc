"""Models that call each other, whose slots are taken: what would wait for ever is refused, and what would not is not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.inside import is_idle, waiting_calls
from tests.support.talk import block_until, until

LEAF = 0
"""The input of a call that calls no other."""

REFUSED = "the last call would wait for ever, as the calls that hold all slots of model {0!r} wait for those that it is made within"

models = pytest.mark.parametrize("is_async", [False, True], ids=["def", "async"])
sharing = pytest.mark.parametrize("options", [{}, {"max_batch_size": 4}], ids=["alone", "batches"])


class Ring:
    """Models of one slot, each of which calls the next one, as soon as all of them run.

    Args:
        names: The models.
        is_async: Whether they are coroutine functions.
        options: Those of each.
    """

    def __init__(self, names: str, is_async: bool, **options: Any) -> None:
        self.server = InferenceServer()
        self.names = names
        self.running: set[str] = set()
        for name, following in zip(names, names[1:] + names[0], strict=True):
            made = self._awaited(name, following) if is_async else self._called(name, following)
            self.server.register(name, made, **{"max_concurrency": 1, **options})

    def _called(self, name: str, following: str) -> Any:
        def model(x: Any) -> Any:
            if (x == LEAF).all():
                return x
            self.running.add(name)
            block_until(lambda: len(self.running) == len(self.names))
            return self.server.infer_sync(following, {"x": np.full_like(x, LEAF)})["output_0"] + x

        return model

    def _awaited(self, name: str, following: str) -> Any:
        async def model(x: Any) -> Any:
            if (x == LEAF).all():
                return x
            self.running.add(name)
            while len(self.running) < len(self.names):
                await asyncio.sleep(0.001)
            return (await self.server.infer(following, {"x": np.full_like(x, LEAF)}))["output_0"] + x

        return model

    def ask(self, *names: str) -> list[Any]:
        """Ask models at the same time. Returns the output of each, or its error."""

        async def main() -> list[Any]:
            asks = [self.server.infer(name, {"x": np.ones((1, 1), "i4")}) for name in names]
            return await asyncio.wait_for(asyncio.gather(*asks, return_exceptions=True), 20)

        answers = [answer if isinstance(answer, Exception) else answer["output_0"].tolist() for answer in asyncio.run(main())]
        block_until(lambda: is_idle(self.server))
        return answers


@models
@sharing
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_a_wait_that_closes_a_circle_is_refused_and_the_others_go_on(is_async: bool, options: Any, names: str) -> None:
    answers = Ring(names, is_async, **options).ask(*names)
    refused = [answer for answer in answers if isinstance(answer, InferenceError)]
    assert refused  # two threads may close it at the same moment
    assert all(error.status == 500 for error in refused)
    texts = [REFUSED.format(following) for following in names]
    assert all(any(text in str(error) for text in texts) for error in refused)
    assert all(
        str(error).endswith("give one of these models a larger max_concurrency, or do not let them call each other") for error in refused
    )
    assert all(answer == [[1]] for answer in answers if answer not in refused)
    assert len(refused) == 1 or not is_async


@sharing
def test_a_wait_for_a_call_that_comes_to_its_end_closes_no_circle(options: Any) -> None:
    server = InferenceServer()
    ring = {"a", "b"}

    async def call(name: str, following: str, x: Any) -> Any:
        ring.discard(name)
        await until(lambda: not ring)
        return (await server.infer(following, {"x": np.full_like(x, LEAF)}))["output_0"] + x

    @server.model("a", max_concurrency=1, **options)
    async def a(x: Any) -> Any:
        return x if (x == LEAF).all() else await call("a", "b", x)

    @server.model("b", max_concurrency=2, **options)
    async def b(x: Any) -> Any:
        if (x == 2).all():
            await until(lambda: waiting_calls(server, "a") == waiting_calls(server, "b") == 1)
            return x
        return x if (x == LEAF).all() else await call("b", "a", x)

    async def main() -> list[Any]:
        asks = [server.infer(name, {"x": np.full((1, 1), value)}) for name, value in [("b", 2), ("a", 1), ("b", 1)]]
        return [answer["output_0"].tolist() for answer in await asyncio.wait_for(asyncio.gather(*asks), 20)]

    assert asyncio.run(main()) == [[[2]], [[1]], [[1]]]


def test_waits_of_a_blocking_caller_close_a_circle_too() -> None:
    ring = Ring("ab", is_async=False)
    answers: dict[str, Any] = {}

    def ask(name: str) -> None:
        try:
            answers[name] = ring.server.infer_sync(name, {"x": np.ones((1, 1), "i4")})["output_0"].tolist()
        except InferenceError as error:
            answers[name] = error.status

    threads = [threading.Thread(target=ask, args=[name], daemon=True) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(answers) == ["a", "b"]
    assert 500 in answers.values()
