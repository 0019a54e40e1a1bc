"""The slots of a model: first come, first served; who gives up in the queue is passed over, and every slot goes back.

At random, from threads and event loops: tests/core/serving/test_threads_that_meet.py.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from tests.support.metrics import is_idle, waiting_calls
from tests.support.talk import until


@pytest.mark.parametrize("most", [1, 2])
def test_who_gives_up_in_the_queue_is_passed_over(most: int) -> None:
    server, leave, order = InferenceServer(), threading.Event(), list[int]()

    def model(x: Any) -> Any:
        order.append(int(x[0]))
        assert leave.wait(20)
        return x

    server.register("m", model, max_concurrency=most, max_queue=4)

    async def main() -> None:
        asked: list[asyncio.Task[Any]] = []
        for place in range(most + 4):
            asked.append(asyncio.create_task(server.infer("m", {"x": np.array([place])})))
            await until(lambda: len(order) + waiting_calls(server, "m") == len(asked))
        with pytest.raises(InferenceError, match="is busy"):
            await server.infer("m", {"x": np.array([9])})
        for task in (asked[most], asked[-1]):
            task.cancel()
        await until(lambda: waiting_calls(server, "m") == 2)
        leave.set()
        await asyncio.wait(asked)
        assert [task.cancelled() for task in asked] == [False] * most + [True, False, False, True]

    asyncio.run(main())
    assert sorted(order[:most]) == list(range(most))
    assert sorted(order[most:]) == [most + 1, most + 2]
    assert is_idle(server)
