"""When requests that wait begin the call that they share, and which they are. What each is told: tests/core/serving/test_batching.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oip_asgi import InferenceServer
from tests.support.batching import Held, rows, told
from tests.support.metrics import is_idle, waiting_calls
from tests.support.talk import until

LONG: dict[str, Any] = {"max_batch_delay": 60.0}


@pytest.mark.parametrize(
    ("options", "asks", "calls"),
    [
        pytest.param(LONG, [4, 4], [8], id="as many rows as may be"),
        pytest.param(LONG, [5, 5, 3], [5, 8], id="the next does not fit"),
        pytest.param({**LONG, "preferred_batch_sizes": [3, 6]}, [2, 1], [3], id="a preferred size"),
        pytest.param({**LONG, "preferred_batch_sizes": [2, 6]}, [3, 4], [7], id="above the largest preferred size"),
        pytest.param({"max_batch_delay": 0.1}, [1, 2], [3], id="the first of them is due"),
        pytest.param({"max_batch_delay": 0.1}, [1, 1, 1, 1, 1], [5], id="all came before it was due"),
    ],
)
def test_who_shares_a_call_and_when_it_begins(options: dict[str, Any], asks: list[int], calls: list[int]) -> None:
    server, sizes = InferenceServer(), list[int]()

    @server.model("m", max_batch_size=8, max_concurrency=1, **options)
    def model(x: Any) -> Any:
        sizes.append(len(x))
        return x

    async def main() -> None:
        asked = [asyncio.create_task(server.infer("m", {"x": rows(*[place] * count)})) for place, count in enumerate(asks)]
        await asyncio.wait_for(asyncio.gather(*asked), 20)
        assert [told(task) for task in asked] == [[place] * count for place, count in enumerate(asks)]

    asyncio.run(main())
    assert sizes == calls
    assert is_idle(server)


def test_who_goes_leaves_the_batch_to_the_others_and_the_slot_goes_on_where_nobody_is_left() -> None:
    held = Held()

    async def main() -> None:
        tasks = await held.waiting(rows(1), rows(2, 3), rows(4), {"inputs": {"x": rows(5)}, "parameters": {"mode": 1}})
        for place in (1, 3):
            tasks[place].cancel()
        await until(lambda: waiting_calls(held.server, "m") == 2)
        held.leave.set()
        await asyncio.wait([*tasks, held.holder])
        assert [told(task) for task in (tasks[0], tasks[2])] == [[2], [8]]
        assert (await held.server.infer("m", {"x": rows(6)}))["output_0"].tolist() == [[12]]

    asyncio.run(main())
    assert held.sizes == [2, 1]
    assert is_idle(held.server)
