"""Models that come and go while requests run: from Python, and over ASGI beside it."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, Loaded, LoadParameters, ModelStatus, OIPApp, TensorSpec
from tests.support.asking import NOT_READY, ask, error, get, outputs
from tests.support.running import INFER, Gate, send
from tests.support.talk import Talk, block_until, until

INPUTS = [TensorSpec("x", "FP32", [-1])]
OUTPUTS = [TensorSpec("y", "FP32", [-1])]


class Weights:
    """What a load makes: some memory, and a number that its answers tell."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.memory = np.zeros(2**20)

    def __call__(self, x: Any) -> Any:
        return x + self.number


class Factory:
    """A `load=` that makes other weights each time, and notes them; and an `unload=` that notes whose they were."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Weights]] = []
        self.let_go: list[int] = []
        self.fails = False

    def load(self) -> Weights:
        if self.fails:
            raise RuntimeError("a secret of the disk")
        weights = Weights(len(self.made) + 1)
        self.made.append(weakref.ref(weights))
        return weights

    def unload(self, weights: Weights) -> None:
        self.let_go.append(weights.number)

    def alive(self) -> list[int]:
        """The numbers of the weights that are still in memory."""
        return [weights.number for made in self.made if (weights := made()) is not None]

    def has_only(self, number: int) -> bool:
        """Whether all weights before these were let go, and are not in memory."""
        return self.let_go == list(range(1, number)) and self.alive() == [number]

    def server(self, **options: Any) -> InferenceServer:
        server = InferenceServer()
        server.register("m", load=self.load, unload=self.unload, inputs=INPUTS, outputs=OUTPUTS, **options)
        return server


def told(server: InferenceServer) -> float:
    """Which weights answer."""
    [number] = outputs(ask(server, "m", x=np.zeros(1, "f4")))["y"]
    return float(number)


def state(server: InferenceServer) -> tuple[str, str]:
    [status] = server.models()
    return status.state, status.reason


@contextmanager
def without_collector() -> Iterator[None]:
    """What is let go goes at once, not at the next garbage collection."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_what_load_returns_answers_and_goes_from_memory_when_it_is_unloaded() -> None:
    factory = Factory()
    server = factory.server()
    assert state(server) == ("registered", "not loaded yet")
    assert get(server, "/models/m") == (
        200,
        {
            "name": "m",
            "platform": "python",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
        },
    )
    with without_collector():
        assert told(server) == 1
        assert (state(server), factory.alive()) == (("ready", ""), [1])
        server.unload_sync("m")
        assert (state(server), factory.let_go) == (("unloaded", "unloaded"), [1])
        block_until(lambda: factory.alive() == [])  # the worker thread of the last call lets it go after the answer
    assert error(ask(server, "m", x=np.zeros(1, "f4"))) == (503, "model 'm' is not ready: it was unloaded")
    assert get(server, "/models/m")[0] == 200
    assert get(server, "/models/m/ready") == (503, {"name": "m", "ready": False})
    assert get(server, "/health/ready")[0] == 200
    server.load_sync("m")
    assert told(server) == 2


def test_a_reload_replaces_the_callable_and_frees_the_one_before() -> None:
    factory = Factory()
    server = factory.server()
    with without_collector():
        for number in (1, 2, 3):
            server.load_sync("m")
            assert told(server) == number
            block_until(partial(factory.has_only, number))


def test_metadata_is_that_of_what_answers() -> None:
    def first(x: np.ndarray[Any, Any]) -> Any: ...
    def second(words: list[str], more: np.ndarray[Any, Any]) -> Any: ...

    made = [first, second]
    server = InferenceServer()
    server.register("m", load=lambda: made.pop(0))
    assert get(server, "/models/m")[1]["inputs"] == []
    server.load_sync("m")
    assert error(ask(server, "m"))[1].startswith("missing input 'x'")
    server.load_sync("m")
    assert error(ask(server, "m"))[1].startswith("missing input 'more', 'words'")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failing_reload_leaves_what_was_loaded_before(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    factory = Factory()
    server = factory.server()
    assert told(server) == 1
    factory.fails = True
    with pytest.raises(InferenceError, match=r"^failed to load 'm': see the server's log$") as failed:
        asyncio.run(server.load("m")) if is_async else server.load_sync("m")
    assert failed.value.status == 500
    assert repr(failed.value.__cause__) == "RuntimeError('a secret of the disk')"
    assert state(server) == ("ready", "load failed, see the server's log: what was loaded before still serves")
    assert (told(server), get(server, "/health/ready")[0], factory.let_go) == (1, 200, [])
    assert [record.getMessage() for record in caplog.records] == ["model 'm': load= raised, so what was loaded before still serves"]
    factory.fails = False
    server.load_sync("m")
    assert (state(server), told(server)) == (("ready", ""), 2)


def test_a_failed_load_counts_against_readiness_until_one_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    factory = Factory()
    factory.fails = True
    server = factory.server()
    server.register("other", lambda: 1)
    with pytest.raises(InferenceError):
        server.load_sync("m")
    assert [status.state for status in server.models()] == ["failed", "ready"]
    assert get(server, "/health/ready")[0] == 503
    server.unload_sync("m")  # given up on purpose
    assert get(server, "/health/ready")[0] == 200
    factory.fails = False
    server.load_sync("m")
    assert (told(server), get(server, "/health/ready")[0]) == (1, 200)
    assert [record.getMessage() for record in caplog.records] == [f"model 'm': load= raised, so {NOT_READY}"]


BESIDE = (
    "load= returned 'weights' beside a registered function, so nobody would call it: return None, or leave the function out, as in "
    "server.register('m', load=...)"
)


@pytest.mark.parametrize(
    ("function", "made", "text"),
    [
        (None, None, "load= returned None: return the function that answers, such as model.predict, or register one beside load="),
        (None, 7, "load= returned 7: return the function that answers, such as model.predict, or register one beside load="),
        (None, Weights, "Weights is a class: register an instance, or one of its methods"),
        (None, lambda x, *, y: x, "input"),
        (lambda x: x, "weights", BESIDE),
    ],
)
def test_what_load_returns_must_be_a_model(function: Any, made: Any, text: str, caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()
    server.register("m", function, load=lambda: made, inputs=INPUTS)
    with pytest.raises(InferenceError):
        server.load_sync("m")
    assert state(server)[0] == "failed"
    assert text in caplog.text


def test_what_can_never_be_loaded_is_refused_at_once() -> None:
    server = InferenceServer()
    with pytest.raises(TypeError, match="nothing to call: register a function, or load=, a function that returns one"):
        server.register("m")
    with pytest.raises(TypeError, match="load= has 2 parameters without a default"):
        server.register("m", load=lambda a, b: None)
    with pytest.raises(TypeError, match="unload= has a parameter for what load= returned, but the function is registered"):
        server.register("m", lambda: 1, unload=lambda function: None)
    with pytest.raises(TypeError, match="unload=5 must be a callable"):
        server.register("m", lambda: 1, unload=5)  # type: ignore[arg-type]
    assert server.models() == []


def test_a_call_ends_on_what_it_began_with_and_that_goes_after_it() -> None:
    factory = Factory()
    entered, leave = threading.Event(), threading.Event()

    def load() -> Any:
        weights = factory.load()

        def slow(x: Any) -> Any:
            if weights.number == 1:
                entered.set()
                assert leave.wait(20)
            return weights(x)

        slow.number = weights.number  # type: ignore[attr-defined]
        return slow

    server = InferenceServer()
    server.register("m", load=load, unload=factory.unload, inputs=INPUTS, outputs=OUTPUTS)
    answers: list[float] = []
    first = threading.Thread(target=lambda: answers.append(told(server)))
    with without_collector():
        first.start()
        assert entered.wait(20)
        server.load_sync("m")
        assert told(server) == 2
        assert (factory.let_go, factory.alive()) == ([], [1, 2])
        leave.set()
        first.join(20)
        assert answers == [1]
        block_until(lambda: factory.let_go == [1])
        block_until(lambda: factory.alive() == [2])


def test_unloading_refuses_what_waits_and_lets_finish_what_runs() -> None:
    entered, leave = threading.Event(), threading.Event()
    events: list[str] = []

    def model() -> int:
        entered.set()
        assert leave.wait(20)
        events.append("ended")
        return 1

    server = InferenceServer()
    server.register("m", model, unload=lambda: events.append("unload"), max_concurrency=1)

    async def main() -> None:
        running = Talk(server)
        await asyncio.to_thread(entered.wait)
        waiting = Talk(server)
        await asyncio.sleep(0.02)
        unloading = asyncio.create_task(server.unload("m"))
        assert await waiting.answer() == (503, {"error": "model 'm' is not ready: it was unloaded"})
        assert state(server) == ("unloading", "")
        assert (await send(OIPApp(server), INFER))[0] == 503
        assert not unloading.done()
        leave.set()
        await unloading
        assert (await running.answer())[0] == 200

    asyncio.run(main())
    assert (events, state(server)) == (["ended", "unload"], ("unloaded", "unloaded"))


def test_a_body_that_stalls_holds_up_neither_an_unload_nor_a_reload() -> None:
    server, factory = InferenceServer(), Factory()
    server.register("m", load=factory.load, unload=factory.unload)

    async def main() -> None:
        await server.load("m")
        body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}'
        slow = [Talk(server, body=body[:9], ends=False) for _ in range(3)]
        await until(lambda: all(talk.asked == 2 for talk in slow))
        await asyncio.wait_for(server.load("m"), 20)
        await until(lambda: factory.let_go == [1])
        slow[0].say(body[9:])
        assert (await slow[0].answer())[1]["outputs"][0]["data"] == [3]
        await asyncio.wait_for(server.unload("m"), 20)
        assert factory.let_go == [1, 2]
        slow[1].say(body[9:])
        assert await slow[1].answer() == (503, {"error": "model 'm' is not ready: it was unloaded"})
        await server.unregister("m")
        slow[2].say(body[9:])
        assert await slow[2].answer() == (404, {"error": "model 'm' is not found: it was unregistered"})

    asyncio.run(main())


def test_a_thread_that_goes_on_after_its_timeout_keeps_what_it_began_with() -> None:
    gate = Gate(1)
    let_go: list[int] = []
    server = InferenceServer()
    server.register("m", load=lambda: gate, unload=lambda: let_go.append(1), timeout=0.5)
    assert ask(server, "m").status == 504
    unloading = threading.Thread(target=server.unload_sync, args=["m"])
    unloading.start()
    unloading.join(0.1)
    assert unloading.is_alive()
    assert (state(server), let_go) == (("unloading", ""), [])
    gate.leave.set()
    unloading.join(20)
    assert (state(server), let_go) == (("unloaded", "unloaded"), [1])


def test_models_are_registered_and_unregistered_while_requests_run() -> None:
    server = InferenceServer()
    server.register("m", lambda: 1, version="1")
    stop = threading.Event()
    statuses: set[int] = set()

    def request() -> None:
        while not stop.is_set():
            statuses.add(ask(server, "m").status)

    asking = [threading.Thread(target=request) for _ in range(2)]
    for thread in asking:
        thread.start()
    for number in range(60):
        server.register("m", lambda: 2, version=str(number + 2))
        server.register(f"other {number}", lambda: 2)
        server.unregister_sync(f"other {number}")
    stop.set()
    for thread in asking:
        thread.join(20)
    assert statuses == {200}
    assert len(server.models()) == 61
    server.unregister_sync("m", "61")
    assert get(server, "/models/m/versions/61")[0] == 404
    assert get(server, "/models/m")[1]["versions"] == [str(number) for number in range(1, 61)]
    server.unregister_sync("m")
    text = "Request for unknown model: 'm' is not found: no model is registered: server.model and server.register do that"
    assert error(ask(server, "m")) == (404, text)
    server.register("m", lambda: 3)
    assert outputs(ask(server, "m")) == {"output_0": [3]}


def test_the_server_says_what_it_serves() -> None:
    server = InferenceServer("shop")
    assert repr(server) == "<InferenceServer 'shop': no models>"
    server.register("m", lambda: 1, version="1")
    server.register("m", lambda: 1, version="2", load=lambda: None)
    assert repr(server) == "<InferenceServer 'shop': <model 'm' version '1': ready>, <model 'm' version '2': registered>>"
    assert server.models() == [ModelStatus("m", "1", "ready", ""), ModelStatus("m", "2", "registered", "not loaded yet")]
    server.load_sync("m")
    server.unload_sync("m", "1")
    assert [status.state for status in server.models()] == ["unloaded", "ready"]


def test_the_server_says_what_its_models_take_and_with_which_options_it_was_made() -> None:
    server = InferenceServer("shop", max_body_bytes=5)
    x, y = TensorSpec("x", "FP32", [-1]), TensorSpec("y", "FP32", [-1])
    server.register("declared", lambda x: x, inputs=[x], outputs=[y])
    server.register("loaded", load=lambda: Loaded(lambda x: x, inputs=[x]))
    assert [(list(status.inputs), list(status.outputs)) for status in server.models()] == [([], []), ([x], [y])][::-1]
    server.load_sync("loaded")
    assert list(server.models()[1].inputs) == [x]
    assert (server.options.name, server.options.max_body_bytes, server.options.shutdown_timeout) == ("shop", 5, 10.0)
    with pytest.raises(AttributeError):
        server.options.max_body_bytes = 6  # type: ignore[misc]  # a frozen struct


def test_a_function_beside_load_is_unloaded_once_and_not_by_a_reload(caplog: pytest.LogCaptureFixture) -> None:
    events: list[str] = []

    async def unload() -> None:
        events.append("unload")
        raise RuntimeError("still in use")

    server = InferenceServer()
    server.register("m", lambda: 1, load=lambda: events.append("load"), unload=unload)
    server.load_sync("m")
    server.load_sync("m")
    assert outputs(ask(server, "m")) == {"output_0": [1]}
    server.unload_sync("m")
    server.unload_sync("m")
    assert (events, state(server)) == (["load", "load", "unload"], ("unloaded", "unloaded"))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.ERROR, "model 'm': unload= raised")]


def test_a_load_with_a_parameter_gets_what_was_sent() -> None:
    got: list[Any] = []

    def one(sent: LoadParameters) -> Any:
        got.append(sent)
        return lambda: 1

    server = InferenceServer()
    server.register("m", load=one)
    server.register("none", load=lambda other=1: lambda: other)
    sent = LoadParameters({"backend": "onnx"}, {"1/model.onnx": b"bytes"})
    server.load_sync("m", parameters=sent)
    assert got.pop() is sent
    server.load_sync("m")
    assert not got.pop()
    with pytest.raises(InferenceError, match="model 'none' takes no parameters: its load= has no parameter for them") as refused:
        server.load_sync("none", parameters=sent)
    assert refused.value.status == 400


@pytest.mark.parametrize("name", ["load", "unload", "unregister", "infer"])
def test_what_is_unknown_is_not_found_and_what_blocks_refuses_to_block_an_event_loop(name: str) -> None:
    server = InferenceServer()
    more: list[Any] = [{}] if name == "infer" else []
    server.register("m", lambda: 1, version="1")

    async def main() -> None:
        with pytest.raises(RuntimeError, match=rf"server.{name}_sync would block the event loop .*: write await server.{name}\(...\)"):
            getattr(server, f"{name}_sync")("m", *more)
        for args in (["n", *more], ["m", *more, "2"]):
            with pytest.raises(InferenceError, match="Request for unknown model") as unknown:
                await getattr(server, name)(*args)
            assert unknown.value.status == 404

    asyncio.run(main())
    with pytest.raises(InferenceError, match="Request for unknown model"):
        getattr(server, f"{name}_sync")("n", *more)
