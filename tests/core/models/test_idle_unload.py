"""`idle_unload=`: a model that nobody calls leaves the memory, counts as ready, and is loaded again by the next request."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, Loaded, LoadParameters, OIPApp, OIPWSGIApp, ResponseCache, TensorSpec
from tests.support.asking import ask, error, get, outputs
from tests.support.inside import is_idle, pass_idle_time, states
from tests.support.talk import Talk, block_until, until
from tests.support.ways import Request, asked_together, over_asgi, over_wsgi, ways_into

X = TensorSpec("x", "FP64", [-1, 2])
GOOD = np.array([[1.0, 2.0]])
INFER = Request("POST", "/models/m/infer", (), b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[1,2]}]}')
SOON = 0.2
LATE = 3600.0
"""Seconds. A request that is held up between the load and its call for as long as `idle_unload=` finds the model idle again, and loads it
once more. So tests that count loads say LATE, and let the time pass."""

IDLE = "unloaded: the next request loads it again"


class Weights:
    """What a load makes, in the form of each kind of model."""

    def plain(self, x: Any) -> Any:
        return x

    async def awaited(self, x: Any) -> Any:
        return x

    def yielded(self, x: Any) -> Iterator[Any]:
        yield x

    async def yielded_async(self, x: Any) -> AsyncIterator[Any]:
        yield x


KINDS: dict[str, tuple[Callable[[Weights], Callable[..., Any]], dict[str, Any]]] = {
    "def": (lambda weights: weights.plain, {}),
    "inline": (lambda weights: weights.plain, {"run": "inline"}),
    "async def": (lambda weights: weights.awaited, {}),
    "stream": (lambda weights: weights.yielded, {}),
    "async stream": (lambda weights: weights.yielded_async, {}),
    "batch": (lambda weights: weights.plain, {"max_batch_size": 4}),
    "cache": (lambda weights: weights.plain, {"cache": ResponseCache(max_bytes=1000)}),
}


class Loads:
    """A model `m` that may be idle: what its loads have made, and what its unloads were called with."""

    def __init__(self, kind: str = "def", *, seconds: float = LATE, **options: Any) -> None:
        self.made: list[weakref.ref[Weights]] = []
        self.unloads: list[Any] = []
        self.fails = False
        self.server = InferenceServer(model_control=True)
        find, more = KINDS[kind]

        def load(parameters: LoadParameters) -> Loaded:
            self.parameters = parameters
            if self.fails:
                raise RuntimeError("no memory")
            weights = Weights()
            self.made.append(weakref.ref(weights))
            return Loaded(find(weights), ready=lambda: weights is not None)

        self.server.register("m", load=load, unload=self.unload, inputs=[X], idle_unload=seconds, **more, **options)

    def unload(self, function: Any) -> None:
        self.unloads.append(weakref.ref(function.__self__))

    @property
    def state(self) -> str:
        return states(self.server)["m"]

    def wait(self) -> None:
        """Wait until nobody has called it for long."""
        block_until(self.become_idle)

    def become_idle(self) -> bool:
        """Whether it is idle, as nobody has called it for long."""
        pass_idle_time(self.server)
        return self.state == "idle"


def become_idle(server: InferenceServer) -> bool:
    """Whether all models are idle, as nobody has called them for long."""
    pass_idle_time(server)
    return {*states(server).values()} == {"idle"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_leaves_the_memory_and_is_loaded_again_from_threads_and_loops(kind: str) -> None:
    loads = Loads(kind)
    server = loads.server
    for number in (1, 2):
        [response] = server.infer_stream_sync("m", {"x": GOOD})
        assert response.outputs[0].array.tolist() == [[1.0, 2.0]]
        assert len(loads.made) == number
        loads.wait()
        gc.collect()  # an instance of Weights is in no cycle, but the generator of a stream may be
        assert [made() for made in loads.made] == [None] * number
        assert len(loads.unloads) == number

    async def main() -> None:
        async with server.lifespan(), aclosing(server.infer_stream("m", {"x": GOOD})) as items:
            assert [item.outputs[0].array.tolist() async for item in items] == [[[1.0, 2.0]]]
            await until(loads.become_idle)
            assert (len(loads.made), len(loads.unloads)) == (3, 3)
            assert [item.outputs[0].array.tolist() async for item in server.infer_stream("m", {"x": GOOD})] == [[[1.0, 2.0]]]
            assert is_idle(server)

    asyncio.run(main())
    assert (len(loads.made), len(loads.unloads)) == (4, 4)
    assert states(server) == {"m": "registered"}


PROBES = (
    *("/health/live", "/health/ready", "/models/m/ready", "/models/m", "/models/m/config", "/models/m/stats", "/models/stats", "/models"),
    *("/openapi.json", "/models/m/openapi.json", "/docs/state.json", "/models/m/docs/state.json", ""),
)


@pytest.mark.parametrize("way", ["OIPApp", "Starlette install", "OIPWSGIApp"])
def test_probes_do_not_wake_it_and_a_request_does_over_every_way(way: str) -> None:
    loads = Loads()
    ask = ways_into(loads.server)[way]
    assert ask(INFER).status == 200
    loads.wait()
    before = {path: ask(Request("GET", path)).status for path in PROBES}
    assert {status for path, status in before.items() if "state.json" not in path and path} == {200}
    index = ask(Request("POST", "/repository/index"))
    assert json.loads(index.body) == [{"name": "m", "state": "READY", "reason": IDLE}]
    only_ready = ask(Request("POST", "/repository/index", (), b'{"ready":true}'))
    assert json.loads(only_ready.body) == json.loads(index.body)
    assert (loads.state, len(loads.made)) == ("idle", 1)
    assert [(status.state, status.reason) for status in loads.server.models()] == [("idle", IDLE)]
    assert outputs(ask(INFER)) == {"output_0": [1.0, 2.0]}
    assert len(loads.made) == 2


def test_it_keeps_its_numbers_as_it_counts_as_ready() -> None:
    loads = Loads()
    for count in (1, 2):
        ask(loads.server, "m", x=GOOD)
        loads.wait()
        [stats] = get(loads.server, "/models/m/stats")[1]["model_stats"]
        assert stats["inference_count"] == count
    loads.server.unload_sync("m")
    assert get(loads.server, "/models/m/stats")[1]["model_stats"][0]["inference_count"] == 0


def test_it_is_loaded_once_for_all_requests_that_wait_and_is_ready_meanwhile() -> None:
    loads, begun, release = 0, threading.Event(), threading.Event()

    def load() -> Callable[..., Any]:
        nonlocal loads
        loads += 1
        if loads > 1:
            begun.set()
            assert release.wait(20)
        return lambda x: x

    server = InferenceServer()
    server.register("m", load=load, inputs=[X], idle_unload=LATE)
    server.infer_sync("m", {"x": GOOD})
    block_until(lambda: become_idle(server))
    way = over_wsgi(OIPWSGIApp(server), "")
    with ThreadPoolExecutor(1) as thread:
        statuses = thread.submit(asked_together, way, INFER)
        assert begun.wait(20)
        assert [get(server, path)[0] for path in ("/health/ready", "/models/m/ready", "/models/m")] == [200] * 3
        [status] = server.models()
        assert status.state == "loading"
        assert status.reason == "loading again: nobody had called it, and requests wait for that"
        release.set()
        assert statuses.result(60) == [200] * 8
    assert loads == 2


def test_it_is_never_unloaded_under_a_call_that_runs_and_the_time_counts_from_the_end_of_the_last() -> None:
    begun, release, unloads = threading.Event(), threading.Event(), list[float]()

    def load() -> Callable[..., Any]:
        def wait(x: Any) -> Any:
            begun.set()
            assert release.wait(20)
            return x

        return wait

    server = InferenceServer()
    server.register("m", load=load, unload=lambda: unloads.append(time.monotonic()), inputs=[X], idle_unload=SOON)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(server.infer_sync, "m", {"x": GOOD})
        assert begun.wait(20)
        time.sleep(2 * SOON)
        assert (states(server), unloads) == ({"m": "ready"}, [])
        ended = time.monotonic()
        release.set()
        first.result(20)
    block_until(lambda: unloads)
    assert unloads[0] - ended >= SOON


def test_a_load_that_fails_then_is_answered_503_and_the_next_request_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oip_asgi")
    loads = Loads()
    server = loads.server
    ask(server, "m", x=GOOD)
    loads.wait()
    loads.fails = True
    text = "model 'm' is not ready: its load failed, see the server's log; the next request tries again"
    for _ in range(2):
        assert error(ask(server, "m", x=GOOD)) == (503, text)
        with pytest.raises(InferenceError, match="the next request tries again"):
            server.infer_sync("m", {"x": GOOD})
    assert get(server, "/health/ready")[0] == 200
    assert [(status.state, status.reason) for status in server.models()] == [
        ("idle", "load failed, see the server's log: the next request tries again")
    ]
    loads.fails = False
    assert outputs(ask(server, "m", x=GOOD)) == {"output_0": [1.0, 2.0]}
    assert [(status.state, status.reason) for status in server.models()] in ([("ready", "")], [("idle", IDLE)])
    texts = [record.getMessage() for record in caplog.records if record.name == "oip_asgi"]
    assert texts[1] == "nobody has called model 'm' for 3600 s, so it is unloaded: the next request loads it again"
    assert texts.count("model 'm': load= raised, so the next request tries again") == 4


def test_it_is_warmed_up_again_and_with_the_parameters_of_its_last_load() -> None:
    calls = []

    def load(parameters: LoadParameters) -> Callable[..., Any]:
        def note(x: Any) -> Any:
            calls.append((parameters.parameters.get("size"), x.tolist()))
            return x

        return note

    server = InferenceServer()
    server.register("m", load=load, inputs=[X], idle_unload=LATE, warm_up=True)
    server.load_sync("m", parameters=LoadParameters(parameters={"size": "large"}))
    block_until(lambda: become_idle(server))
    server.infer_sync("m", {"x": GOOD})
    assert calls == [("large", [[0.0, 0.0]]), ("large", [[0.0, 0.0]]), ("large", [[1.0, 2.0]])]


def test_hooks_run_on_the_event_loop_that_has_loaded_it_while_that_runs_and_elsewhere_after_its_end() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def load() -> Callable[..., Any]:
        loops.append(asyncio.get_running_loop())
        return lambda x: x

    async def unload() -> None:
        loops.append(asyncio.get_running_loop())

    server = InferenceServer()
    server.register("m", load=load, unload=unload, inputs=[X], idle_unload=LATE)

    async def infer(*, waits: bool) -> None:
        await server.infer("m", {"x": GOOD})
        if waits:
            await until(lambda: become_idle(server))

    asyncio.run(infer(waits=True))
    assert loops[0] is loops[1]
    asyncio.run(infer(waits=False))
    block_until(lambda: become_idle(server))
    assert len(loops) == 4
    assert loops[2] is not loops[3]
    server.stop()


def test_a_load_that_calls_its_own_model_is_refused() -> None:
    server, errors = InferenceServer(), list[str]()

    def load() -> Callable[..., Any]:
        with pytest.raises(InferenceError) as refused:
            server.infer_sync("m", {"x": GOOD})
        errors.append(str(refused.value))
        return lambda x: x

    server.register("m", load=load, inputs=[X], idle_unload=LATE)
    for _ in range(2):
        server.infer_sync("m", {"x": GOOD})
        block_until(lambda: become_idle(server))
    assert errors == ["model 'm' is not ready: it is still loading"] * 2


def test_a_model_that_is_idle_may_be_loaded_unloaded_unregistered_and_stopped() -> None:
    loads = Loads()
    server = loads.server
    gc.disable()  # what it held is free without the collector
    try:
        server.infer_sync("m", {"x": GOOD})
        loads.wait()
        assert loads.made[0]() is None
    finally:
        gc.enable()
    for end in ("load", "unload", "start", "stop", "unregister"):
        server.infer_sync("m", {"x": GOOD})
        loads.wait()
        if end == "load":
            server.load_sync("m")
            assert len(loads.made) == 3
            loads.wait()
        elif end == "start":
            server.start()
            loads.wait()
            server.start()
            assert loads.state == "idle"
            server.stop()
        elif end == "unload":
            server.unload_sync("m")
            assert loads.state == "unloaded"
            assert error(ask(server, "m", x=GOOD)) == (503, "model 'm' is not ready: it was unloaded")
            server.load_sync("m")
        elif end == "stop":
            server.stop()
            assert loads.state == "registered"
        else:
            server.unregister_sync("m")
            assert states(server) == {}
    assert len(loads.unloads) == len(loads.made)


@pytest.mark.slow
@pytest.mark.parametrize("is_idle", [True, False])
def test_an_unload_that_goes_on_after_the_stop_does_not_keep_the_model_unloaded(*, is_idle: bool) -> None:
    may_end, has_begun = threading.Event(), threading.Event()

    def unload(_: Any) -> None:
        has_begun.set()
        assert may_end.wait(20)

    server = InferenceServer(shutdown_timeout=0.1)
    server.register("m", load=lambda: lambda x: x, unload=unload, inputs=[X], idle_unload=0.05 if is_idle else None)
    server.infer_sync("m", {"x": GOOD})
    if is_idle:
        assert has_begun.wait(20)
    server.stop()
    assert has_begun.is_set()
    server.start()
    [status] = server.models()
    assert (status.state, status.reason) == ("idle", IDLE)
    with ThreadPoolExecutor(1) as waiting:
        answer = waiting.submit(server.infer_sync, "m", {"x": GOOD})
        time.sleep(0.05)
        assert not answer.done()
        may_end.set()
        assert answer.result(20)["output_0"].tolist() == GOOD.tolist()
    server.stop()


def test_a_request_whose_body_comes_after_the_model_was_unloaded_waits_for_its_load() -> None:
    loads = Loads()

    async def main() -> None:
        talk = Talk(loads.server, body=INFER.body[:5], ends=False)
        await until(lambda: talk.unread == 0 and loads.become_idle())
        talk.say(INFER.body[5:])
        assert (await talk.answer())[0] == 200
        assert len(loads.made) == 2

    asyncio.run(main())


def test_requests_that_come_when_it_is_unloaded_are_answered() -> None:
    """Each comes about when the model has been idle for as long as it may."""
    loads = Loads(seconds=0.005)

    def ask_often(number: int) -> list[int]:
        way = over_wsgi(OIPWSGIApp(loads.server), "") if number else over_asgi(OIPApp(loads.server), "")
        statuses = []
        for place in range(50):
            statuses.append(way(INFER).status)
            time.sleep(0.005 + (place % 5 - 2) * 0.0005)
        return statuses

    with ThreadPoolExecutor(2) as threads:
        assert [set(statuses) for statuses in threads.map(ask_often, range(2))] == [{200}, {200}]
    block_until(lambda: loads.state == "idle")
    assert len(loads.made) == len(loads.unloads) > 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of forks beside threads, which is the point
def test_a_process_that_is_forked_unloads_what_it_has_got() -> None:
    """gunicorn --preload loads before it forks."""
    loads = Loads(seconds=1)
    loads.server.infer_sync("m", {"x": GOOD})
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            block_until(lambda: loads.state == "idle")
            os.write(writer, b"%d" % len(loads.unloads))
            loads.server.infer_sync("m", {"x": GOOD})
            block_until(lambda: loads.state == "idle")
            os.write(writer, b"%d" % len(loads.unloads))
        finally:  # the tests go on in the parent alone
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"12"
    assert os.waitpid(child, 0)[1] == 0
    block_until(lambda: loads.state == "idle")
    loads.server.stop()


def test_a_default_version_that_is_idle_answers_and_no_other() -> None:
    server = InferenceServer()
    for version in ("1", "2"):
        server.register("m", load=lambda version=version: lambda x: x * int(version), version=version, inputs=[X], idle_unload=SOON)
    server.infer_sync("m", {"x": GOOD})
    block_until(lambda: [status.state for status in server.models()] == ["registered", "idle"])
    assert server.infer_sync("m", {"x": GOOD}).model_version == "2"
    block_until(lambda: [status.state for status in server.models()] == ["registered", "idle"])
    server.unload_sync("m", "2")
    server.infer_sync("m", {"x": GOOD}, version="1")
    block_until(lambda: [status.state for status in server.models()] == ["idle", "unloaded"])
    assert server.infer_sync("m", {"x": GOOD}).model_version == "1"
    server.stop()


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"function": abs}, ValueError, "model 'm': idle_unload= is for models that can be loaded again: say load= too"),
        (
            {"function": abs, "load": print},
            ValueError,
            "model 'm': idle_unload= would free nothing: leave the function out, and let load= return it, or say what unload= frees",
        ),
        (
            {"load": print, "idle_unload": 0},
            ValueError,
            "model 'm': idle_unload=0 must be a positive number of seconds, or None for no limit",
        ),
    ],
)
def test_what_cannot_be_unloaded_is_refused(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as refused:
        InferenceServer().register("m", **{"idle_unload": 1.0, **options})
    assert str(refused.value) == text
