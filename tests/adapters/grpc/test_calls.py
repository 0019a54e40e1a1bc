"""gRPC calls that are cancelled, have a deadline, wait in a queue, or wait for a model to load."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2

from oip_asgi import InferenceServer
from tests.support.grpc_demo import health_of, logged
from tests.support.grpc_ways import Client, Serving, blocking, wire_request
from tests.support.inside import break_encoding
from tests.support.metrics import is_idle, waiting_calls
from tests.support.talk import block_until

ways_out = pytest.mark.parametrize("way_out", ["cancelled", pytest.param("deadline", marks=pytest.mark.slow)])


class Held:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class Blocked:
    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.release = threading.Event()
        self.times = self.ended = 0

    def __call__(self) -> Any:
        self.times += 1
        self.begun.release()
        assert self.release.wait(30)
        self.ended += 1
        return np.array([1])


def leave(call: Any, way_out: str) -> None:
    if way_out == "cancelled":
        call.cancel()


@ways_out
def test_a_call_whose_client_has_gone_cancels_an_async_model(serving: Serving, way_out: str, caplog: pytest.LogCaptureFixture) -> None:
    server, held = InferenceServer(), Held()
    server.register("held", held)
    with serving(server) as address:
        call = Client(address).begin("ModelInfer", wire_request("held"), timeout=2 if way_out == "deadline" else 30)
        assert held.begun.wait(30)
        assert not held.cancelled.is_set()
        leave(call, way_out)
        assert held.cancelled.wait(30)
    assert not logged(caplog)


@ways_out
def test_a_queued_call_whose_client_has_gone_never_starts(serving: Serving, way_out: str, caplog: pytest.LogCaptureFixture) -> None:
    server, blocked = InferenceServer(), Blocked()
    server.register("blocked", blocked, max_concurrency=1)
    with serving(server) as address:
        client = Client(address)
        first = client.begin("ModelInfer", wire_request("blocked"))
        assert blocked.begun.acquire(timeout=30)
        second = client.begin("ModelInfer", wire_request("blocked"), timeout=1 if way_out == "deadline" else 30)
        block_until(lambda: waiting_calls(server, "blocked") == 1)
        leave(second, way_out)
        block_until(lambda: waiting_calls(server, "blocked") == 0)
        blocked.release.set()
        assert first.result().outputs[0].name == "output_0"
        assert client.ask("ModelInfer", wire_request("blocked")).outputs[0].name == "output_0"
    assert blocked.times == 2
    assert not logged(caplog)


@ways_out
def test_a_blocking_server_leaves_a_model_with_a_timeout_to_itself_once_its_client_has_gone(way_out: str) -> None:
    """Or all its threads would be held by models that nobody waits for."""
    server, blocked = InferenceServer(), Blocked()
    server.register("blocked", blocked, timeout=60)
    with blocking(server, executor=ThreadPoolExecutor(1)) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("blocked"), timeout=1 if way_out == "deadline" else 30)
        assert blocked.begun.acquire(timeout=30)
        leave(call, way_out)
        assert client.ask("ServerLive", timeout=10).live is True
        blocked.release.set()
        block_until(lambda: is_idle(server))


def test_a_model_in_its_thread_holds_up_nothing_else_and_ends_after_its_call(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    server, blocked = InferenceServer(), Blocked()
    server.register("slow", blocked)
    with serving(server) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("slow"))
        assert blocked.begun.acquire(timeout=30)
        assert client.ask("ServerReady").ready is True
        assert not call.done()
        call.cancel()
        assert client.ask("ServerLive").live is True
        blocked.release.set()
        block_until(lambda: blocked.ended == 1)
        assert client.ask("ModelInfer", wire_request("slow")).outputs[0].name == "output_0"
    assert not logged(caplog)


def test_probes_that_give_up_let_models_load_all_the_same(serving: Serving) -> None:
    server, loaded, release = InferenceServer(), list[str](), threading.Event()
    for name in ("m", "n"):

        async def load(name: str = name) -> None:
            loaded.append(name)
            while not release.is_set():
                await asyncio.sleep(0.001)

        server.register(name, lambda: 1, load=load)
    with serving(server) as address:
        client = Client(address)
        assert (client.ask("ServerLive").live, loaded) == (True, [])  # they load before the first call that needs one
        health = health_of(client)
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as passed:
                health.Check(health_pb2.HealthCheckRequest(), timeout=0.2)
            assert passed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        waiting = client.begin("ModelInfer", wire_request("m"))
        release.set()
        assert waiting.result().outputs[0].name == "output_0"
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
    assert sorted(loaded) == ["m", "n"]


@pytest.mark.parametrize("is_async", [False, True])
def test_replies_of_a_model_that_uses_its_memory_again_are_not_mixed(serving: Serving, is_async: bool) -> None:
    memory = np.zeros(100_000, "<i4")

    def model(x: np.ndarray) -> np.ndarray:
        memory[:] = x[0]
        return np.lib.stride_tricks.sliding_window_view(memory, 1)

    async def model_async(x: np.ndarray) -> np.ndarray:
        return model(x)

    server, described = InferenceServer(), {"name": "x", "datatype": "INT32", "shape": [1]}
    server.register("m", model_async if is_async else model, max_concurrency=1)
    with serving(server) as address:
        client = Client(address)
        calls = [client.begin("ModelInfer", wire_request("m", [described], [bytes([number, 0, 0, 0])])) for number in range(40)]
        for number, call in enumerate(calls):
            [data] = call.result().raw_output_contents
            assert set(np.frombuffer(data, "<i4").tolist()) == {number}
            assert len(data) == memory.nbytes


def test_what_the_package_itself_gets_wrong_is_logged_and_answered(
    serving: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_encoding(monkeypatch)
    server = InferenceServer()
    server.register("m", lambda: 1)
    with serving(server) as address:
        refusal = Client(address).refusal("ModelInfer", wire_request("m"))
    assert refusal == ("INTERNAL", "internal error: see the server's log")
    assert [record.getMessage() for record in logged(caplog)] == ["an error of oip_asgi itself, please report it"]
