"""Models of another server that is asked over gRPC."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceServer, OIPApp, TensorSpec
from oip_asgi.client import remote
from tests.support.asking import logged
from tests.support.grpc_ways import awaiting, blocking
from tests.support.talk import block_until

ENDED: list[str] = []


def make_far() -> InferenceServer:
    far = InferenceServer()
    far.register("same", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1, 2])], outputs=[TensorSpec("y", "FP32", [-1, 2])])
    far.register("texts", lambda names: names)

    @far.model("partly")
    def repeat(x: Any, names: list[str]) -> Any:
        return x * len(names)

    @far.model("looks", allow_timeout_override=True)
    def look(x: Any, context: InferenceContext) -> Any:
        return np.array(
            [f"{context.headers.get('authorization')} {context.headers.get('cookie')} {context.deadline < time.monotonic() + 9}"]
        )

    @far.model("looks for bytes")
    def look_for_bytes(context: InferenceContext) -> Any:
        return np.array([context.headers["x-bin"]])

    @far.model("speaks")
    def speak(x: Any) -> Any:
        raise InferenceError("the image has no face", status=int(x[0]))

    @far.model("waits")
    async def wait(x: Any) -> Any:
        try:
            await asyncio.sleep(60)
        finally:
            ENDED.append("waits")

    @far.model("refuses")
    async def refuse(n: Any) -> AsyncIterator[Any]:
        if n.size:
            raise InferenceError("no credit left", status=403)
        yield n

    @far.model("counts")
    async def count(n: Any) -> AsyncIterator[Any]:
        try:
            for number in range(n.item()):
                yield np.array([number])
        finally:
            ENDED.append("counts")

    return far


@pytest.fixture(scope="module", params=[awaiting, blocking], ids=["grpc.aio", "grpc"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.param(make_far()) as address:
        yield f"grpc://{address}"


Ask = Callable[[InferenceServer], Any]


def asked(url: str, model: str, ask: Ask, **options: Any) -> Any:
    async def run() -> Any:
        near = InferenceServer()
        near.register(model, load=remote(url, model, wait=0), **options)
        async with near.lifespan():
            return await ask(near)

    return asyncio.run(run())


def test_tensors_and_the_time_that_is_left_go(url: str) -> None:
    sent = np.array([[1, 2], [3, 4]], np.float32)

    async def ask(near: InferenceServer) -> Any:
        with pytest.raises(InferenceError, match="expected \\[-1, 2\\]"):
            await near.infer("same", {"x": sent[0]})
        return (await near.infer("same", {"x": sent}))["y"]

    assert np.array_equal(asked(url, "same", ask), sent)
    texts = asked(url, "texts", lambda near: near.infer("texts", {"names": ["a", "ü"]}))
    assert texts.as_("output_0", list[str]) == ["a", "ü"]
    # inputs that the metadata does not declare
    response = asked(url, "partly", lambda near: near.infer("partly", {"x": np.array([2], np.float32), "names": ["a", "b"]}))
    assert response["output_0"].tolist() == [4.0]
    response = asked(url, "looks", lambda near: near.infer("looks", {"x": [1.5]}), timeout=5)
    assert response.as_("output_0", list[str]) == ["None None True"]


def test_an_error_of_the_client_keeps_its_status(url: str) -> None:
    async def stream(near: InferenceServer) -> Any:
        return [response async for response in near.infer_stream("refuses", {"n": [1]})]

    cases: list[tuple[str, Ask, int, str]] = [
        ("speaks", lambda near: near.infer("speaks", {"x": [403]}), 403, "the image has no face"),
        ("speaks", lambda near: near.infer("speaks", {"x": [500]}), 502, "failed: its server answered"),
        ("refuses", stream, 403, "no credit left"),
    ]
    for model, ask, status, text in cases:
        with pytest.raises(InferenceError, match=text) as raised:
            asked(url, model, ask)
        assert raised.value.status == status


def test_a_binary_header_arrives_as_it_was_sent_and_what_cannot_be_sent_is_400(url: str) -> None:
    async def ask() -> list[Any]:
        near = InferenceServer()
        near.register("m", load=remote(url, "looks for bytes", forward=["x-bin", "authorization"], wait=0))
        headers = [(b"x-bin", b"AP9o")], [(b"x-bin", b"!")], [(b"x-bin", b"AP9o"), (b"authorization", b"Bearer \xe9")]
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(OIPApp(near)), base_url="http://near") as http:
            return [(await http.post("/models/m/infer", json={"inputs": []}, headers=each)).json() for each in headers]

    right, *wrong = asyncio.run(ask())
    assert right["outputs"][0]["data"] == ["AP9o"]
    assert wrong == [
        {"error": "the header x-bin cannot go over gRPC: expected base64"},
        {"error": "the header authorization cannot be passed on: expected printable ASCII"},
    ]


def test_a_stream_that_is_closed_and_a_call_that_is_late_end_there_too(url: str) -> None:
    ENDED.clear()

    async def ask(near: InferenceServer) -> Any:
        numbers = [response["output_0"].item() async for response in near.infer_stream("counts", {"n": np.array([3])})]
        stream = near.infer_stream("counts", {"n": np.array([10**6])})
        await anext(stream)
        await stream.aclose()
        return numbers

    assert asked(url, "counts", ask) == [0, 1, 2]
    block_until(lambda: ENDED == ["counts", "counts"])
    with pytest.raises(InferenceError) as raised:
        asked(url, "waits", lambda near: near.infer("waits", {"x": [1.5]}), timeout=0.3)
    assert raised.value.status == 504
    block_until(lambda: ENDED[2:] == ["waits"])


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_server_that_is_not_there_is_passed_over(host: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run(port: int) -> Any:
        near = InferenceServer()
        near.register("same", load=remote([f"grpc://{host}:{port}", url], "same", wait=0))
        async with near.lifespan():
            return (await near.infer("same", {"x": np.array([[1, 2]], np.float32)}))["y"].tolist()

    with socket.socket() as silent:  # its port is taken, and nobody listens there
        silent.bind(("127.0.0.1", 0))
        assert asyncio.run(run(silent.getsockname()[1])) == [[1.0, 2.0]]
    [record] = [each for each in logged(caplog) if "'waits'" not in each.message]  # the far server may only now log the late call of a test
    assert "cannot be reached: " in record.message
