"""Models that call each other, whose slots are taken: a call within a call waits for a slot, but not for ever."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.inside import wait_for_turns
from tests.support.metrics import is_idle, waiting_calls
from tests.support.talk import block_until, until

LEAF = 0
"""The input of a call that calls no other."""

REFUSED = (
    "{0!r} calls {1!r}: the last call got no slot of model {1!r} until its caller's deadline, or for {2} seconds without one: give these "
    "models a larger max_concurrency, or do not let them call each other"
)

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
@pytest.mark.parametrize(("names", "options"), [("ab", {}), ("abc", {"max_batch_size": 4})])
def test_calls_that_wait_for_each_other_are_refused_after_a_while(
    is_async: bool, names: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_turns(monkeypatch, 0.2)
    answers = Ring(names, is_async, **options).ask(*names)
    refused = [answer for answer in answers if isinstance(answer, InferenceError)]
    assert refused  # all, if they wait from the same moment on
    assert {error.status for error in refused} == {503}
    texts = {REFUSED.format(name, following, 0.2) for name, following in zip(names, names[1:] + names[0], strict=True)}
    assert {str(error) for error in refused} <= texts
    assert all(answer == [[1]] for answer in answers if answer not in refused)


@sharing
def test_a_call_within_one_waits_until_the_deadline_of_its_caller(options: Any) -> None:
    server, leave = InferenceServer(), threading.Event()
    told: list[InferenceError] = []

    @server.model("inner", max_concurrency=1, **options)
    def inner(x: Any) -> Any:
        leave.wait(20)
        return x

    @server.model("outer", timeout=0.3)
    def outer(x: Any) -> Any:
        try:
            return server.infer_sync("inner", {"x": x})["output_0"]
        except InferenceError as error:
            told.append(error)
            raise

    async def main() -> None:
        first = asyncio.create_task(server.infer("inner", {"x": np.ones((1, 1))}))
        await until(lambda: not is_idle(server))
        with pytest.raises(InferenceError) as late:
            await server.infer("outer", {"x": np.ones((1, 2))})  # of another shape, so that no batch takes it along
        assert late.value.status in (503, 504)  # the model ends at the same time as its deadline passes
        await until(lambda: bool(told))
        leave.set()
        await first

    asyncio.run(main())
    assert [(error.status, str(error)) for error in told] == [(503, REFUSED.format("outer", "inner", 60))]
    block_until(lambda: is_idle(server))


@sharing
async def test_a_wait_for_a_call_that_comes_to_its_end_closes_no_circle(options: Any) -> None:
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

    asks = [server.infer(name, {"x": np.full((1, 1), value)}) for name, value in [("b", 2), ("a", 1), ("b", 1)]]
    assert ([answer["output_0"].tolist() for answer in await asyncio.wait_for(asyncio.gather(*asks), 20)]) == [[[2]], [[1]], [[1]]]


def test_waits_of_a_blocking_caller_close_a_circle_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_turns(monkeypatch, 0.2)
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
    assert 503 in answers.values()
