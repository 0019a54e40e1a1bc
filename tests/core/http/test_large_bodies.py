"""Bodies that come in many chunks and leave in many messages: laid out once, never there twice, and converted off the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceRequest, InferenceServer, OIPApp, Tensor
from tests.support.inside import before_decoding, before_encoding
from tests.support.inside.http import Response
from tests.support.inside.values import Buffer
from tests.support.talk import Talk

MIB = 2**20
MESSAGE = 2**17
"""The most bytes in each message of a long answer."""

JSON_HEAD = "Inference-Header-Content-Length"


@pytest.mark.parametrize(("size", "messages"), [(MIB, 1), (MIB + 1, 9)])
def test_an_answer_is_one_message_up_to_a_mebibyte(size: int, messages: int) -> None:
    parts: list[Buffer] = [b"a" * 1000, memoryview(b"b" * (size - 1000))]
    sent = list(Response(200, [], parts, size).messages())
    assert b"".join(body for body, _ in sent) == b"".join(parts)
    assert [more for _, more in sent] == [True] * (messages - 1) + [False]
    assert messages == 1 or max(len(body) for body, _ in sent) <= MESSAGE


class Exchange:
    """One binary request to an application, sent in chunks, whose answer is looked at as it comes."""

    def __init__(self, array: Any, *, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        own, body = InferenceRequest([Tensor("x", array)], parameters={"binary_data_output": True}).to_http(binary=True)
        pieces = [body[start : start + 2**16] for start in range(0, len(body), 2**16)]
        self.length = len(body)
        self._headers = [*headers, *((name.lower().encode(), value.encode()) for name, value in own.items())]
        self._left = [{"type": "http.request", "body": piece, "more_body": True} for piece in reversed(pieces)]
        self._left[0]["more_body"] = False
        self.sizes: list[int] = []
        self.data = b""

    async def run(self, app: OIPApp) -> None:
        headers = [*self._headers, (b"content-length", b"%d" % self.length)]
        scope: Any = {"type": "http", "method": "POST", "path": "/models/m/infer", "headers": headers}
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Any:
        return self._left.pop()

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            return
        assert type(message["body"]) is bytes
        self.sizes.append(len(message["body"]))
        self.data = (self.data + message["body"])[-64:]


def test_a_large_tensor_is_in_memory_once_from_the_socket_to_the_socket() -> None:
    async def scenario() -> None:
        server = InferenceServer()
        is_aligned: list[bool] = []

        @server.model("m")
        async def model(x: np.ndarray) -> np.ndarray:
            is_aligned.append(x.flags.aligned)
            return x

        array = np.arange(4 * MIB, dtype="<f4")
        exchange = Exchange(array)
        tracemalloc.start()
        try:
            await exchange.run(OIPApp(server))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert is_aligned == [True]
        assert max(exchange.sizes) <= MESSAGE
        assert exchange.data == array[-16:].tobytes()
        assert peak < 1.2 * exchange.length

    asyncio.run(scenario())


@pytest.mark.parametrize("elements", [2**15, 2 * MIB])
def test_an_input_from_several_chunks_can_be_written_to_by_nobody(elements: int) -> None:
    server = InferenceServer()
    calls: list[int] = []

    @server.model("m", run="inline")
    def model(x: np.ndarray) -> np.ndarray:
        with pytest.raises(ValueError, match="WRITEABLE"):
            x.flags.writeable = True
        calls.append(1)
        return x

    asyncio.run(Exchange(np.zeros(elements, "f4")).run(OIPApp(server)))
    assert calls == [1]


@pytest.mark.parametrize("run", ["async", "inline", "thread"])
def test_many_numbers_are_converted_off_the_event_loop(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def model(x: np.ndarray) -> np.ndarray:
        return x

    async def scenario() -> None:
        server, ran_in = InferenceServer(), list[str]()
        if run == "async":
            server.register("m", model)
        else:
            server.register("m", lambda x: x, run=run)  # type: ignore[arg-type]
        before_decoding(monkeypatch, lambda: ran_in.append(threading.current_thread().name))
        before_encoding(monkeypatch, lambda _: ran_in.append(threading.current_thread().name))
        data = list(range(20_000))
        body = json.dumps({"inputs": [{"name": "x", "shape": [20_000], "datatype": "INT32", "data": data}]})
        status, answer = await Talk(server, body=body.encode()).answer()
        assert (status, answer["outputs"][0]["data"]) == (200, data)
        assert ran_in == ["oip_asgi worker", "oip_asgi worker"]
        server.stop()

    asyncio.run(scenario())


def test_a_long_text_of_an_async_model_is_written_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    server = InferenceServer()
    ran_in: list[str] = []
    before_encoding(monkeypatch, lambda _: ran_in.append(threading.current_thread().name))

    @server.model("m")
    async def model(length: np.ndarray) -> str:
        return "a" * int(length[0])

    async def scenario() -> None:
        for length, of in ((10, "MainThread"), (100_000, "oip_asgi worker")):
            body = {"inputs": [{"name": "length", "shape": [1], "datatype": "INT32", "data": [length]}]}
            status, answer = await Talk(server, body=json.dumps(body).encode()).answer()
            assert (status, answer["outputs"][0]["data"], ran_in.pop()) == (200, ["a" * length], of)
        server.stop()

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [True, False])
def test_many_inputs_that_are_echoed_take_twelve_times_their_text(is_async: bool) -> None:
    async def echo_async(**inputs: Any) -> dict[str, Any]:
        return inputs

    server, count = InferenceServer(), 10_000
    server.register("m", echo_async if is_async else lambda **inputs: inputs)
    items = ",".join(f'{{"name":"{place}","shape":[1],"datatype":"FP32","data":[{place}]}}' for place in range(count))
    body = f'{{"inputs":[{items}]}}'.encode()

    async def main() -> Any:
        tracemalloc.start()
        try:
            talk = Talk(server, body=body)
            await talk.task
            assert tracemalloc.get_traced_memory()[1] < 12 * len(body)
        finally:
            tracemalloc.stop()
        return await talk.answer()

    _, answer = asyncio.run(main())
    assert [(output["name"], output["data"]) for output in answer["outputs"]] == [(str(place), [place]) for place in range(count)]
