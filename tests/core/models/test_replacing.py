"""Models that take the place of another, versions, models that are unregistered, and what is said to those who need a name."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from oip_asgi import Access, InferenceError, InferenceResponse, InferenceServer, OIPApp, Tensor, TensorSpec
from tests.support.asking import ask, error, get, outputs
from tests.support.running import Gate
from tests.support.talk import Talk, until


def test_a_model_takes_the_place_of_another() -> None:
    server = InferenceServer()
    unloaded = threading.Event()
    server.register("m", lambda: 1, version="1", load=lambda: None, unload=unloaded.set)
    server.register("m", lambda: 2, version="2")
    assert outputs(ask(server, "m/versions/1")) == {"output_0": [1]}
    server.register("m", lambda: 3, version="1", replace=True)
    assert unloaded.wait(20)
    assert [outputs(ask(server, f"m/versions/{version}")) for version in "12"] == [{"output_0": [3]}, {"output_0": [2]}]
    assert get(server, "/models/m")[1]["versions"] == ["1", "2"]
    server.register("new", lambda: 4, replace=True)
    assert outputs(ask(server, "new")) == {"output_0": [4]}


def test_a_model_that_cannot_be_one_replaces_none() -> None:
    server = InferenceServer()
    server.register("m", lambda: 1)
    with pytest.raises(TypeError, match="cannot be called"):
        server.register("m", 5, replace=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both with a version and without"):
        server.register("m", lambda: 2, version="1", replace=True)
    assert outputs(ask(server, "m")) == {"output_0": [1]}


def test_calls_that_run_or_wait_end_with_the_old_model() -> None:
    server = InferenceServer()
    gate = Gate(1)
    unloaded = threading.Event()
    server.register("m", gate, max_concurrency=1, unload=unloaded.set)

    async def main() -> list[Any]:
        running, waiting = Talk(server), Talk(server)
        await until(lambda: gate.entered.is_set() and waiting.asked == 1)
        await asyncio.sleep(0.05)
        server.register("m", lambda: 2, replace=True)  # also where an event loop runs, as in a notebook
        assert (await Talk(server).answer())[1]["outputs"][0]["data"] == [2]
        assert not unloaded.is_set()
        gate.leave.set()
        answers = [await talk.answer() for talk in (running, waiting)]
        await asyncio.to_thread(unloaded.wait, 20)
        return answers

    assert [(status, body["outputs"][0]["data"]) for status, body in asyncio.run(main())] == [(200, [1]), (200, [1])]
    assert unloaded.is_set()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("irs", "expected 'double', 'iris'; did you mean 'iris'?"),
        ("Iris", "expected 'double', 'iris'; did you mean 'iris'?"),
        ("zzz", "expected 'double', 'iris'"),
        ("iris" * 1000, "expected 'double', 'iris'"),
    ],
)
def test_the_error_for_an_unknown_model_names_the_nearest(name: str, text: str) -> None:
    server = InferenceServer()
    server.register("double", lambda x: x)
    server.register("iris", lambda x: x)
    status, told = error(ask(server, name, x=np.zeros(1)))
    assert (status, told.startswith("Request for unknown model: '")) == (404, True)
    assert told.endswith(f" is not found: {text}")


@pytest.mark.parametrize("option", ["models", "batch", "workers"])
def test_the_error_for_an_unknown_option_names_all(option: str) -> None:
    unknown: dict[str, Any] = {option: 1}
    for take in (InferenceServer, partial(InferenceServer().register, "m", lambda x: x)):
        with pytest.raises(TypeError, match=f"{option}= is not an option: the options are "):
            take(**unknown)


@pytest.mark.parametrize("taken", [lambda server: server, OIPApp], ids=["server", "application"])
def test_a_server_is_made_in_each_process(taken: Any) -> None:
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="an InferenceServer has threads and cannot be pickled: make it in each process"):
            copied(taken(InferenceServer()))


def test_a_request_that_a_new_model_refuses_is_counted_for_that() -> None:
    server, body = InferenceServer(), b'{"inputs":[]}'
    server.register("m", lambda: 1)

    def fails() -> None:
        raise ValueError

    async def main() -> Any:
        talk = Talk(server, body=body[:3], ends=False)
        await asyncio.sleep(0.05)
        server.register("m", load=fails, replace=True)
        talk.say(body[3:])
        return await talk.answer()

    assert asyncio.run(main())[0] == 503
    outcomes = get(server, "/models/m/docs/state.json")[1]["outcomes"]
    assert {how: count for how, count in outcomes.items() if count} == {"busy": 1}


@pytest.mark.parametrize("action", ["generate", "infer"])
def test_a_request_is_read_as_what_it_began_with_declares(action: str) -> None:
    """A long body is decoded when its turn has come, and by then the model may have another declaration."""
    entered, leave, loads = threading.Event(), threading.Event(), list[int]()

    def first(x: Any, factor: float = 2.0) -> Any:
        entered.set()
        assert leave.wait(20)
        return x[:1] * factor

    def load() -> Any:
        loads.append(1)
        return first if len(loads) == 1 else lambda x: x[:1] * 1000

    server = InferenceServer()
    server.register("m", load=load, max_concurrency=1)
    numbers = [1.5] * 9000
    tensors = [
        {"name": "x", "datatype": "FP64", "shape": [len(numbers)], "data": numbers},
        {"name": "factor", "datatype": "FP64", "shape": [1], "data": [5]},
    ]
    body = json.dumps({"x": numbers, "factor": 5} if action == "generate" else {"inputs": tensors}).encode()

    async def main() -> Any:
        talks = [Talk(server, body=body, action=action) for _ in range(2)]
        await until(lambda: entered.is_set() and all(talk.asked for talk in talks))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(server.load("m"), 20)
        leave.set()
        return [(await talk.answer())[1] for talk in talks]

    answers = asyncio.run(main())
    assert [answer.get("output_0") or answer["outputs"][0]["data"][0] for answer in answers] == [7.5, 7.5]


class LoadingVersion:
    """A `load=` that fails while `fails` is true."""

    def __init__(self) -> None:
        self.fails = True

    def load(self) -> Any:
        if self.fails:
            raise RuntimeError("the disk is gone")
        return lambda x: x + 1


def test_a_version_that_does_not_serve_leaves_requests_that_name_none_to_the_one_below() -> None:
    server, loading = InferenceServer(), LoadingVersion()
    server.register("m", lambda x: x, version="1")
    server.register("m", load=loading.load, version="2", inputs=[TensorSpec("x", "FP64", [-1])])
    assert error(ask(server, "m", x=[1.5]))[0] == 503  # the request that loads it
    assert outputs(ask(server, "m", x=[1.5])) == {"output_0": [1.5]}
    assert get(server, "/models/m/ready") == (200, {"name": "m", "ready": True})
    assert error(ask(server, "m/versions/2", x=[1.5]))[0] == 503
    loading.fails = False
    server.load_sync("m", version="2")
    assert outputs(ask(server, "m", x=[1.5])) == {"output_0": [2.5]}
    assert get(server, "/models/m")[1]["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1]}]
    server.unload_sync("m", "2")
    assert server.infer_sync("m", {"x": [1.5]})["output_0"].tolist() == [1.5]
    server.unload_sync("m", "1")
    assert error(ask(server, "m", x=[1.5])) == (503, "model 'm' version '2' is not ready: it was unloaded")


def test_requests_wait_for_the_highest_version_that_a_request_loads() -> None:
    server, go_on = InferenceServer(), threading.Event()
    server.register("m", lambda: 1, version="1")
    server.register("m", lambda: 2, version="2", load=lambda: go_on.wait(20) and None)

    async def main() -> Any:
        talks = [Talk(server) for _ in range(3)]
        await until(lambda: all(talk.asked for talk in talks) or [model.state for model in server.models()][1] == "loading")
        go_on.set()
        return [(await talk.answer())[1]["outputs"][0]["data"] for talk in talks]

    assert asyncio.run(main()) == [[2], [2], [2]]


def answer_as(version: Any, name: str = "") -> InferenceResponse:
    return InferenceResponse([Tensor("y", np.ones(1))], model_name=name, model_version=version)


@pytest.mark.parametrize(
    ("response", "registered", "told"),
    [
        (answer_as("2"), None, "2"),
        (answer_as(2), None, "2"),
        (answer_as("2", "m"), None, "2"),
        (answer_as("2"), "1", "1"),
        (answer_as("2", "another model"), None, None),  # as it was answered to a call from this one
        (answer_as(None), None, None),
    ],
)
def test_the_version_of_a_response(response: InferenceResponse, registered: str | None, told: str | None) -> None:
    server = InferenceServer()
    server.register("m", lambda: response, version=registered)
    for _ in range(2):
        found = server.infer_sync("m", {})
        assert (found.model_name, found.model_version) == ("m", told)


def test_models_that_share_calls_or_stream_tell_their_version_too() -> None:
    server = InferenceServer()

    def tell(x: Any) -> InferenceResponse:
        return InferenceResponse([Tensor("y", x)], model_version=str(len(x)))

    def stream(x: Any) -> Iterator[InferenceResponse]:
        for version in x:
            yield InferenceResponse([Tensor("y", x)], model_version=str(version))

    server.register("shared", tell, max_batch_size=8, max_batch_delay=0.05)
    server.register("stream", stream)

    async def main() -> list[str | None]:
        responses = await asyncio.gather(*[server.infer("shared", {"x": [1]}) for _ in range(3)])
        return [response.model_version for response in responses]

    assert asyncio.run(main()) == ["3"] * 3
    assert [response.model_version for response in server.infer_stream_sync("stream", {"x": [4, 5]})] == ["4", "5"]


class Gated:
    """A `load=` that waits until it may return, and an `unload=`. Each notes its calls."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.loaded: list[int] = []
        self.unloaded: list[int] = []

    def load(self) -> Any:
        number = len(self.loaded)
        self.loaded.append(number)
        self.entered.set()
        assert self.leave.wait(20)
        return lambda: number

    def unload(self, function: Any) -> None:
        self.unloaded.append(function())


def test_a_load_of_all_versions_ends_with_404_for_those_that_are_gone() -> None:
    gated, server, loaded = Gated(), InferenceServer(), list[str]()
    server.register("m", version="1", load=gated.load)
    server.register("m", lambda: 2, version="2", load=lambda: loaded.append("2"))

    async def main() -> None:
        loading = asyncio.create_task(server.load("m"))
        await until(gated.entered.is_set)
        await server.unregister("m", "2")
        gated.leave.set()
        with pytest.raises(InferenceError, match="model 'm' version '2' is not found: it was unregistered") as refused:
            await loading
        assert refused.value.status == 404

    asyncio.run(main())
    assert loaded == []
    assert [(status.version, status.state) for status in server.models()] == [("1", "ready")]


@pytest.mark.parametrize("waits_for", ["its body", "a question", "a load", "a load, as the new one does"])
def test_a_request_on_its_way_is_answered_by_what_replaces_its_model(waits_for: str) -> None:
    began = threading.Event()

    async def may(_: Access) -> bool:
        began.set()
        await asyncio.sleep(0.1)
        return True

    async def load() -> None:
        began.set()
        await asyncio.sleep(0.1)

    server, body = InferenceServer(authorize=may if waits_for == "a question" else None), b'{"inputs":[]}'
    server.register("m", lambda: 1, load=load if "load" in waits_for else None)

    async def main() -> Any:
        talk = Talk(server, body=body[:3], ends=False)
        if waits_for == "its body":
            await until(lambda: talk.asked == 2)
        else:
            talk.say(body[3:])
            await until(began.is_set)
        server.register("m", lambda: 2, load=load if "new one" in waits_for else None, replace=True)
        await asyncio.sleep(0)
        if waits_for == "its body":
            talk.say(body[3:])
        return await talk.answer()

    status, document = asyncio.run(main())
    assert (status, document["outputs"][0]["data"]) == (200, [2])


@pytest.mark.parametrize("version", [None, "2"])
@pytest.mark.parametrize("end", ["unregister", "unload"])
def test_a_load_ends_with_404_if_its_model_is_unregistered_and_is_unloaded_if_it_is_unloaded(version: str | None, end: str) -> None:
    gated, server = Gated(), InferenceServer()
    server.register("m", load=gated.load, unload=gated.unload, version=version)
    called = "model 'm' version '2'" if version else "model 'm'"
    text = f"{called} is not found: it was unregistered" if end == "unregister" else f"{called} was unloaded while it was loading"

    async def main() -> None:
        loads = [asyncio.create_task(server.load("m", version))]
        await until(gated.entered.is_set)
        if end == "unregister":  # what waits for an unload would load the model again after it
            loads.append(asyncio.create_task(asyncio.to_thread(server.load_sync, "m", version)))
            loads += [asyncio.create_task(server.load("m", version)) for _ in range(2)]
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(getattr(server, end)("m", version))
        await until(lambda: [status.state for status in server.models()] in ([], ["unloading"]))
        assert not gone.done()
        if end == "unload":
            assert (await Talk(server, path="/models/m/ready").answer())[0] == 503
        gated.leave.set()
        await gone
        errors = await asyncio.gather(*loads, return_exceptions=True)
        assert {(getattr(error, "status", None), str(error)) for error in errors} == {(404 if end == "unregister" else 503, text)}

    asyncio.run(main())
    assert (gated.loaded, gated.unloaded) == ([0], [0])
    assert [status.state for status in server.models()] == ([] if end == "unregister" else ["unloaded"])
    server.stop()
