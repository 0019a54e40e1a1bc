"""Versions of a model: which one answers a request that names none, and which one a response names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceResponse, InferenceServer, Tensor, TensorSpec
from tests.support.asking import ask, error, get, outputs
from tests.support.talk import Talk, until


class Loading:
    """A `load=` that fails while `fails` is true."""

    def __init__(self) -> None:
        self.fails = True

    def load(self) -> Any:
        if self.fails:
            raise RuntimeError("the disk is gone")
        return lambda x: x + 1


def test_a_version_that_does_not_serve_leaves_requests_that_name_none_to_the_one_below() -> None:
    server, loading = InferenceServer(), Loading()
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
