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

from oip_asgi import InferenceResponse, InferenceServer
from tests.support.grpc_demo import health_of, logged
from tests.support.grpc_ways import Client, Serving, blocking, made, wire_request
from tests.support.inside import before_encoding_of_grpc, wait_until_idle, waiting_calls
from tests.support.talk import block_until


class Held:
    """An async model that says when it has begun, waits for ever, and says when it is cancelled."""

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


def test_a_cancelled_call_cancels_an_async_model(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    server, held = InferenceServer(), Held()
    server.register("held", held)
    with serving(server) as address:
        call = Client(address).begin("ModelInfer", wire_request("held"))
        assert held.begun.wait(30)
        assert not held.cancelled.is_set()
        call.cancel()
        assert held.cancelled.wait(30)
    assert not logged(caplog)


@pytest.mark.slow
def test_a_deadline_cancels_an_async_model(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    server, held = InferenceServer(), Held()
    server.register("held", held)
    with serving(server) as address:
        code, _ = Client(address).refusal("ModelInfer", wire_request("held"), timeout=2)
        assert code == "DEADLINE_EXCEEDED"
        assert held.begun.is_set()
        assert held.cancelled.wait(30)
    assert not logged(caplog)


class Blocked:
    """A model that holds its thread until it is let go, and counts how often it has begun."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.release = threading.Event()
        self.times = 0

    def __call__(self) -> Any:
        self.times += 1
        self.begun.release()
        assert self.release.wait(30)
        return np.array([1])


@pytest.mark.parametrize("way_out", ["cancelled", pytest.param("deadline", marks=pytest.mark.slow)])
def test_a_queued_call_whose_client_has_gone_never_starts(serving: Serving, way_out: str, caplog: pytest.LogCaptureFixture) -> None:
    server, blocked = InferenceServer(), Blocked()
    server.register("blocked", blocked, max_concurrency=1)
    with serving(server) as address:
        client = Client(address)
        first = client.begin("ModelInfer", wire_request("blocked"))
        assert blocked.begun.acquire(timeout=30)
        second = client.begin("ModelInfer", wire_request("blocked"), timeout=1 if way_out == "deadline" else 30)
        block_until(lambda: waiting_calls(server, "blocked") == 1)
        if way_out == "cancelled":
            second.cancel()
        block_until(lambda: waiting_calls(server, "blocked") == 0)
        blocked.release.set()
        assert first.result().outputs[0].name == "output_0"
        assert client.ask("ModelInfer", wire_request("blocked")).outputs[0].name == "output_0"
    assert blocked.times == 2
    assert not logged(caplog)


def test_a_call_that_is_cancelled_while_its_model_loads_never_starts(serving: Serving) -> None:
    server, load, model = InferenceServer(), Blocked(), Blocked()

    def load_blocked() -> None:
        load()

    server.register("blocked", model, load=load_blocked)
    with serving(server) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("blocked"))
        assert load.begun.acquire(timeout=30)
        call.cancel()
        assert client.ask("ServerLive").live is True  # the server has heard of what was before
        load.release.set()
        block_until(lambda: client.ask("ModelReady", made("ModelReadyRequest", name="blocked")).ready)
        model.release.set()
        assert client.ask("ModelInfer", wire_request("blocked")).outputs[0].name == "output_0"
    assert (load.times, model.times) == (1, 1)


@pytest.mark.parametrize("way_out", ["cancelled", pytest.param("deadline", marks=pytest.mark.slow)])
def test_a_blocking_server_leaves_a_model_with_a_timeout_to_itself_once_its_client_has_gone(way_out: str) -> None:
    """Or all its threads would be held by models that nobody waits for."""
    server, blocked = InferenceServer(), Blocked()
    server.register("blocked", blocked, timeout=60)
    with blocking(server, executor=ThreadPoolExecutor(1)) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("blocked"), timeout=1 if way_out == "deadline" else 30)
        assert blocked.begun.acquire(timeout=30)
        if way_out == "cancelled":
            call.cancel()
        assert client.ask("ServerLive", timeout=10).live is True
        blocked.release.set()
        wait_until_idle(server, "blocked")


def test_a_cancelled_call_leaves_a_model_in_its_thread_to_end(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()
    server = InferenceServer()

    @server.model("slow")
    def slow() -> Any:
        begun.set()
        assert release.wait(30)
        ended.set()
        return np.array([1])

    with serving(server) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("slow"))
        assert begun.wait(30)
        call.cancel()
        assert client.ask("ServerLive").live is True
        release.set()
        assert ended.wait(30)
        assert client.ask("ModelInfer", wire_request("slow")).outputs[0].name == "output_0"
    assert not logged(caplog)


def test_a_blocking_model_does_not_hold_up_health(serving: Serving) -> None:
    begun, release = threading.Event(), threading.Event()
    server = InferenceServer()

    @server.model("slow")
    def slow() -> Any:
        begun.set()
        assert release.wait(30)
        return np.array([1])

    with serving(server) as address:
        client = Client(address)
        call = client.begin("ModelInfer", wire_request("slow"))
        assert begun.wait(30)
        assert client.ask("ServerReady").ready is True
        assert not call.done()
        release.set()
        assert call.result().outputs[0].name == "output_0"


@pytest.mark.parametrize("names", [["m"], ["m", "n"]])
def test_probes_that_give_up_let_a_model_load_all_the_same(serving: Serving, names: list[str]) -> None:
    loaded: list[str] = []
    release = threading.Event()
    server = InferenceServer()
    for name in names:

        async def load(name: str = name) -> None:
            loaded.append(name)
            while not release.is_set():
                await asyncio.sleep(0.001)

        server.register(name, lambda: 1, load=load)
    with serving(server) as address:
        client = Client(address)
        health = health_of(client)
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as passed:
                health.Check(health_pb2.HealthCheckRequest(), timeout=0.2)
            assert passed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        waiting = client.begin("ModelInfer", wire_request("m"))
        release.set()
        assert waiting.result().outputs[0].name == "output_0"
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
    assert sorted(loaded) == names


def test_models_load_before_the_first_call_that_needs_one(serving: Serving) -> None:
    loaded: list[int] = []
    server = InferenceServer()
    server.register("lazy", lambda: len(loaded), load=lambda: loaded.append(1))
    with serving(server) as address:
        client = Client(address)
        assert client.ask("ServerLive").live is True
        assert loaded == []
        for _ in range(2):
            assert client.ask("ModelInfer", wire_request("lazy")).outputs[0].shape == [1]
        assert loaded == [1]


def number_request(number: int) -> Any:
    return wire_request("m", [{"name": "x", "datatype": "INT32", "shape": [1]}], [number.to_bytes(4, "little")])


@pytest.mark.parametrize("is_async", [False, True])
def test_no_call_begins_while_the_reply_before_it_is_encoded(serving: Serving, is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is joined there may be memory that the model uses again."""
    begun = [threading.Event(), threading.Event()]
    overlaps: list[bool] = []

    def model(x: np.ndarray) -> np.ndarray:
        begun[x[0]].set()
        return x

    async def model_async(x: np.ndarray) -> np.ndarray:
        return model(x)

    def hook(response: InferenceResponse) -> None:
        if response.outputs[0].array[0] == 0:
            overlaps.append(begun[1].wait(0.2))

    before_encoding_of_grpc(monkeypatch, hook)
    server = InferenceServer()
    server.register("m", model_async if is_async else model, max_concurrency=1)
    with serving(server) as address:
        client = Client(address)
        first = client.begin("ModelInfer", number_request(0))
        assert begun[0].wait(30)
        second = client.begin("ModelInfer", number_request(1))
        assert [list(call.result().raw_output_contents) for call in (first, second)] == [[b"\0\0\0\0"], [b"\1\0\0\0"]]
    assert overlaps == [False]


@pytest.mark.parametrize("is_async", [False, True])
def test_replies_of_a_model_that_uses_its_memory_again_are_not_mixed(serving: Serving, is_async: bool) -> None:
    memory = np.zeros(100_000, "<i4")

    def model(x: np.ndarray) -> np.ndarray:
        memory[:] = x[0]
        return np.lib.stride_tricks.sliding_window_view(memory, 1)

    async def model_async(x: np.ndarray) -> np.ndarray:
        return model(x)

    server = InferenceServer()
    server.register("m", model_async if is_async else model, max_concurrency=1)
    with serving(server) as address:
        client = Client(address)
        calls = [client.begin("ModelInfer", number_request(number)) for number in range(40)]
        for number, call in enumerate(calls):
            [data] = call.result().raw_output_contents
            assert set(np.frombuffer(data, "<i4").tolist()) == {number}
            assert len(data) == memory.nbytes


def test_probes_do_not_wake_a_model_that_is_idle_and_a_call_does(serving: Serving) -> None:
    server, loads = InferenceServer(), list[int]()

    def load() -> Any:
        loads.append(1)
        return lambda: len(loads)

    server.register("m", load=load, inputs=[], idle_unload=0.2)
    with serving(server) as address:
        client = Client(address)
        client.ask("ModelInfer", wire_request("m"))
        block_until(lambda: server.models()[0].state == "idle")
        before = len(loads)
        assert client.ask("ServerReady").ready
        assert client.ask("ModelReady", made("ModelReady.request", name="m")).ready
        assert client.ask("ModelMetadata", made("ModelMetadata.request", name="m")).name == "m"
        assert health_of(client).Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        [entry] = client.ask("RepositoryIndex").models
        assert (entry.state, entry.reason) == ("READY", "unloaded: the next request loads it again")
        client.ask("ModelStatistics")
        assert (len(loads), server.models()[0].state) == (before, "idle")
        client.ask("ModelInfer", wire_request("m"))
        assert len(loads) > before
