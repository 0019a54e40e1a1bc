"""What requests of several threads and event loops share, with threads that take turns at nearly every instruction."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oip_asgi import InferenceError, InferenceServer
from tests.support.batch_models import make_server
from tests.support.batch_rounds import Servers, play
from tests.support.metrics import is_idle
from tests.support.talk import block_until

ONE = np.ones((1, 1), "f4")


pytestmark = pytest.mark.usefixtures("often_switching")


def together(*works: Callable[[], object]) -> None:
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=[work], daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert raised == []


def test_no_more_calls_run_than_may_and_all_slots_go_back() -> None:
    server = InferenceServer()
    inside: list[None] = []
    most: list[int] = []

    def model(x: np.ndarray) -> np.ndarray:
        inside.append(None)
        most.append(len(inside))
        inside.pop()
        return x

    server.register("m", model, max_concurrency=2, max_queue=3)

    def ask() -> None:
        for _ in range(100):
            try:
                server.infer_sync("m", {"x": ONE})
            except InferenceError as error:
                if error.status != 503:
                    raise

    async def ask_often() -> None:
        for _ in range(30):
            asks = [asyncio.create_task(server.infer("m", {"x": ONE})) for _ in range(5)]
            await asyncio.sleep(0)
            asks[0].cancel()
            for error in await asyncio.gather(*asks, return_exceptions=True):
                assert not isinstance(error, Exception) or (isinstance(error, InferenceError) and error.status == 503)

    together(ask, ask, ask, lambda: asyncio.run(ask_often()), lambda: asyncio.run(ask_often()))
    assert max(most) <= 2
    block_until(lambda: is_idle(server))


@pytest.mark.parametrize(("is_async", "options"), [(False, {"max_batch_delay": 0.0}), (True, {"max_batch_delay": 0.001})])
def test_requests_of_a_batch_that_give_up_at_any_moment_lose_no_slot(is_async: bool, options: Any) -> None:
    server = InferenceServer()

    def model(x: np.ndarray) -> np.ndarray:
        return x

    async def model_async(x: np.ndarray) -> np.ndarray:
        await asyncio.sleep(0)
        return x

    server.register("m", model_async if is_async else model, max_batch_size=4, max_concurrency=2, allow_timeout_override=True, **options)
    dice = random.Random(1)

    def make_parameters() -> dict[str, Any]:
        return {"timeout": dice.randrange(1, 3000)}

    def ask() -> None:
        for _ in range(60):
            try:
                server.infer_sync("m", {"x": ONE}, parameters=make_parameters())
            except InferenceError as error:
                if error.status != 504:
                    raise

    async def ask_often() -> None:
        for _ in range(20):
            asks = [server.infer("m", {"x": ONE}, parameters=make_parameters()) for _ in range(4)]
            for error in await asyncio.gather(*asks, return_exceptions=True):
                assert not isinstance(error, Exception) or (isinstance(error, InferenceError) and error.status == 504)

    together(ask, ask, ask, lambda: asyncio.run(ask_often()), lambda: asyncio.run(ask_often()))
    block_until(lambda: is_idle(server))
    assert server.infer_sync("m", {"x": ONE})["output_0"].tolist() == [[1.0]]


def test_batches_of_several_loops_and_threads_stay_apart() -> None:
    servers = Servers(make_server(is_batched=True, delay=0.001, max_concurrency=2))
    for seed in range(4):
        play(servers, random.Random(seed), most=10)
    servers.batched.stop()


@pytest.fixture(scope="module", params=[0.0, 0.003], ids=["no delay", "a delay"])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    logging.getLogger("oip_asgi").setLevel(logging.CRITICAL)
    servers = Servers(make_server(is_batched=True, delay=request.param))
    yield servers
    servers.batched.stop()
    logging.getLogger("oip_asgi").setLevel(logging.NOTSET)
    assert servers.executions() < servers.answered  # some did share calls, or this has shown nothing


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dice=st.randoms(use_true_random=False))
def test_each_answer_is_that_of_the_model_without_batches(servers: Servers, dice: random.Random) -> None:
    play(servers, dice)
