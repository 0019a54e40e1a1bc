"""`warm_up=`: what was loaded is called with examples before it serves, and a load whose calls fail has failed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, Loaded, TensorSpec
from tests.support.asking import get, states
from tests.support.talk import until

X = TensorSpec("x", "FP64", [-1, 2])
CALLS: list[Any] = []


def has_counted_nothing(server: InferenceServer) -> bool:
    state = get(server, "/models/m/docs/state.json")[1]
    return not any(state["outcomes"].values()) and state["running"] == 0


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def note(x: Any) -> Any:
    CALLS.append((np.asarray(x).tolist(), threading.current_thread() is threading.main_thread()))
    return x


def plain(x: Any) -> Any:
    return note(x)


async def awaited(x: Any) -> Any:
    return note(x)


def yielded(x: Any) -> Iterator[Any]:
    yield note(x)
    yield x


async def yielded_async(x: Any) -> AsyncIterator[Any]:
    yield note(x)


KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any], bool]] = {
    "def": (plain, {}, False),
    "inline": (plain, {"run": "inline"}, True),
    "async def": (awaited, {}, True),
    "stream": (yielded, {}, False),
    "async stream": (yielded_async, {}, True),
    "batch": (plain, {"max_batch_size": 4}, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_called_as_a_request_calls_it_and_not_counted(kind: str) -> None:
    function, options, is_on_loop = KINDS[kind]

    server = InferenceServer()
    server.register("m", function, inputs=[X], warm_up=True, **options)
    assert (states(server), CALLS) == ({"m": "registered"}, [])

    async def main() -> None:
        async with server.lifespan():
            assert states(server) == {"m": "ready"}
            assert [([[0.0, 0.0]], is_on_loop)] == CALLS

    asyncio.run(main())
    assert has_counted_nothing(server)


def test_the_example_of_a_spec_is_sent_and_what_load_returns_is_called() -> None:
    server = InferenceServer()
    specs = [TensorSpec("x", "FP64", [-1, 2], example=[1, 2]), TensorSpec("text", "BYTES", [1], content_type="str")]

    def load() -> Loaded:
        def answer(x: Any, text: Any, note: float = 2.0) -> Any:
            CALLS.append((x.tolist(), text, note))
            return x

        return Loaded(answer, inputs=specs)

    server.register("m", load=load, warm_up=True)
    server.load_sync("m")
    assert CALLS == [([[1.0, 2.0]], ["text"], 2.0)]


@pytest.mark.parametrize("calls", [[{"x": [[3.0, 4.0]]}], ({"x": np.ones((2, 2))}, {"x": [[5.0, 6.0]]})])
def test_the_calls_of_a_list_are_made_in_turn_at_each_load(calls: Sequence[Mapping[str, Any]]) -> None:
    server = InferenceServer()
    server.register("m", plain, inputs=[X], load=lambda: None, warm_up=calls)
    for _ in range(2):
        server.load_sync("m")
    assert [call for call, _ in CALLS] == [np.asarray(call["x"]).tolist() for call in calls] * 2


def fail(x: Any) -> Any:
    raise ValueError("no such device")


def slow(x: Any) -> Any:
    time.sleep(0.2)
    return x


@pytest.mark.parametrize(("function", "why"), [(fail, "m' failed: see the server's log"), (slow, "m' did not answer within 0.05 seconds")])
def test_a_load_whose_call_fails_has_failed_and_what_was_loaded_is_unloaded(
    function: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, unloaded = InferenceServer(), list[Any]()
    server.register("m", load=lambda: function, unload=unloaded.append, inputs=[X], warm_up=True, timeout=0.05)
    with pytest.raises(InferenceError, match="failed to load 'm'"):
        server.load_sync("m")
    assert (states(server), unloaded) == ({"m": "failed"}, [function])
    assert has_counted_nothing(server)
    assert f"a call of warm_up= failed: model '{why}" in caplog.text


def test_a_load_that_is_cancelled_within_its_call_serves_nothing_and_is_unloaded() -> None:
    async def wait(x: Any) -> Any:
        note(x)
        await asyncio.sleep(20)

    async def main() -> None:
        server, unloaded = InferenceServer(), list[Any]()
        server.register("m", load=lambda: wait, unload=unloaded.append, inputs=[X], warm_up=True)
        loading = asyncio.create_task(server.load("m"))
        await until(lambda: bool(CALLS))
        for task in asyncio.all_tasks() - {loading, asyncio.current_task()}:
            task.cancel()
        with pytest.raises(InferenceError, match="its load was cancelled"):
            await loading
        await until(lambda: states(server) == {"m": "registered"})  # the load itself ends after who waits for it
        assert unloaded == [wait]

    asyncio.run(main())


def test_a_reload_is_proven_before_it_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    server, functions = InferenceServer(), [plain, fail, slow]
    server.register("m", load=lambda: functions.pop(0), inputs=[X], warm_up=True)
    server.load_sync("m")
    with pytest.raises(InferenceError):
        server.load_sync("m")
    assert states(server) == {"m": "ready"}
    assert server.infer_sync("m", {"x": [[1.0, 2.0]]}).outputs[0].array.tolist() == [[1.0, 2.0]]
    assert "so what was loaded before still serves" in caplog.text
    server.load_sync("m")
    assert server.infer_sync("m", {"x": [[1.0, 2.0]]}).outputs[0].array.tolist() == [[1.0, 2.0]]
    assert len(CALLS) == 2


def test_undeclared_inputs_have_no_example(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()
    server.register("m", plain, warm_up=True)
    with pytest.raises(InferenceError):
        server.load_sync("m")
    text = "model 'm': warm_up=True needs declared inputs: write inputs=, or the inputs of a call, warm_up=[{...}]"
    assert text in caplog.text


@pytest.mark.parametrize("wrong", ["yes", [1], {"x": [1.0]}])
def test_anything_else_is_refused_at_registration(wrong: Any) -> None:
    text = r"""^model 'm': warm_up=.* must be True, or a list with the inputs of each call, such as \[\{"x": \[1.0, 2.0\]\}\]$"""
    with pytest.raises(TypeError, match=text):
        InferenceServer().register("m", plain, warm_up=wrong)
