"""Bodies: large ones are in memory once, and converted off the event loop; those that no answer needs are received all the same."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceRequest, InferenceServer, OIPApp, OIPWSGIApp, Tensor
from tests.support.inside import before_decoding, before_encoding
from tests.support.inside.http import Response
from tests.support.inside.values import Buffer
from tests.support.talk import Talk, until
from tests.support.ways import Answer, Request, over_asgi

MIB = 2**20
MESSAGE = 2**17
"""The most bytes in each message of a long answer."""


@pytest.mark.parametrize(("size", "messages"), [(MESSAGE, 1), (MESSAGE + 1, 2), (MIB, 8)])
def test_a_long_answer_leaves_in_messages(size: int, messages: int) -> None:
    parts: list[Buffer] = [b"a" * 1000, memoryview(b"b" * (size - 1000))]
    sent = list(Response(200, [], parts, size).messages())
    assert b"".join(body for body, _ in sent) == b"".join(parts)
    assert [more for _, more in sent] == [True] * (messages - 1) + [False]
    assert max(len(body) for body, _ in sent) <= MESSAGE


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


LIMIT = 1000


def make_server() -> InferenceServer:
    server = InferenceServer(max_body_bytes=LIMIT)
    server.register("echo", lambda x: x)
    return server


def sent_in_chunks(method: str, path: str, headers: Sequence[tuple[bytes, bytes]], chunks: int, size: int = 100) -> tuple[int, str, int]:
    """The status, the error, and how many chunks were received."""

    async def ask() -> tuple[int, str, int]:
        talk = Talk(make_server(), body=None, path=path, method=method, headers=headers)
        for left in reversed(range(chunks)):
            talk.say(b" " * size, ends=not left)
        await asyncio.wait_for(talk.task, 20)  # it would wait for more than there is
        return talk.status, json.loads(talk.body).get("error", "") if talk.body else "", talk.asked

    return asyncio.run(ask())


ANNOUNCED, CHUNKED = (b"content-length", b"500"), (b"transfer-encoding", b"chunked")


@pytest.mark.parametrize("header", [ANNOUNCED, CHUNKED])
def test_an_unread_body_is_received(header: tuple[bytes, bytes]) -> None:
    asked: list[tuple[str, str, list[tuple[bytes, bytes]], int]] = [
        ("POST", "/models/nope/infer", [], 404),
        ("POST", "/nowhere", [], 404),
        ("POST", "/models", [], 405),
        ("DELETE", "/models/echo/infer", [], 405),
        ("GET", "/health/live", [], 200),
        ("POST", "/models/echo/infer", [(b"content-encoding", b"br")], 415),
        ("POST", "/models/echo/infer", [(b"inference-header-content-length", b"x")], 400),
    ]
    for method, path, more, status in asked:
        assert sent_in_chunks(method, path, [header, *more], 5)[::2] == (status, 5), (method, path)


@pytest.mark.parametrize(
    ("headers", "chunks", "received"),
    [
        ([], 1, 0),  # there is no body
        ([(b"content-length", b"0")], 1, 0),
        ([ANNOUNCED, (b"expect", b"100-continue")], 5, 0),  # nor will there be one before it is read
        ([(b"content-length", b"1001")], 11, 0),  # too large to be worth it
        ([(b"content-length", b"x")], 5, 0),
        ([CHUNKED], 50, 11),  # grown too large
    ],
)
def test_what_is_not_received(headers: list[tuple[bytes, bytes]], chunks: int, received: int) -> None:
    status, error, found = sent_in_chunks("POST", "/models/nope/infer", headers, chunks)
    assert (status, found) == (404, received)
    assert error.startswith("Request for unknown model: 'nope' is not found")


def test_a_body_is_received_once_and_not_after_all_if_it_was_refused() -> None:
    for headers, chunks, expected, text in (
        ([ANNOUNCED], 5, (400, 5), "not valid JSON"),
        ([CHUNKED], 50, (413, 11), f"larger than {LIMIT} bytes"),
        ([(b"content-length", b"1001")], 50, (413, 0), f"larger than {LIMIT} bytes"),
    ):
        status, error, received = sent_in_chunks("POST", "/models/echo/infer", headers, chunks)
        assert (status, received) == expected
        assert text in error


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({"CONTENT_LENGTH": "500"}, 100),
        ({"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}, 0),
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, 600),  # nobody can tell where it ends
        ({}, 600),
    ],
)
def test_under_wsgi_too(more: dict[str, Any], left: int) -> None:
    stream = BytesIO(b" " * 600)
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/models/nope/infer", "wsgi.input": stream, **more}
    started: list[str] = []

    def start_response(status: str, headers: object, exc_info: object = None) -> Callable[[bytes], object]:
        started.append(status)
        return lambda data: None

    b"".join(OIPWSGIApp(make_server())(environ, start_response))
    assert started == ["404 Not Found"]
    assert len(stream.read()) == left


def peak_of(server: InferenceServer, body: bytes, *headers: tuple[str, str]) -> tuple[Answer, int]:
    """The answer to a body, and the most memory that it took."""
    way = over_asgi(OIPApp(server), "", chunk=2**16)
    way(Request("GET", "/health/live"))
    tracemalloc.start()
    try:
        answer = way(Request("POST", "/models/echo/infer", headers, body))
        return answer, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_costs_no_more_than_the_limit_and_gzip_members_are_few(coding: str) -> None:
    server, limit = InferenceServer(max_body_bytes=2_000_000), 2_000_000
    server.register("echo", lambda x: x)
    compress = gzip.compress if coding == "gzip" else zlib.compress
    answer, peak = peak_of(server, compress(bytes(50 * limit), 9), ("content-encoding", coding))
    assert (answer.status, peak < 3 * limit) == (413, True)
    answer, _ = peak_of(server, gzip.compress(b"") * 10_001, ("content-encoding", "gzip"))
    assert (answer.status, b"more than 10000 members" in answer.body) == (400, True)


@pytest.mark.parametrize("size", [MIB + 1, 4 * MIB, 4 * MIB + 1, 9 * MIB])
@pytest.mark.parametrize("is_announced", [False, True])
def test_a_long_body_is_what_came(size: int, is_announced: bool) -> None:
    server, seen = InferenceServer(), list[bool]()

    @server.model("echo", run="inline")
    def model(x: np.ndarray) -> np.ndarray:
        seen.append(x.flags.aligned and x.tobytes() == whole.tobytes())
        return x[:1]

    whole = np.random.default_rng(0).integers(0, 2**63, size // 8)
    headers, body = InferenceRequest([Tensor("x", whole)]).to_http(binary=True)
    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    given.append((b"content-length", b"%d" % len(body)) if is_announced else CHUNKED)

    async def ask() -> None:
        for piece in (2**16, MIB - 1, 5 * MIB):
            talk = Talk(server, "echo", body=None, headers=given)
            for start in range(0, len(body), piece):
                talk.say(body[start : start + piece], ends=start + piece >= len(body))
            assert (await talk.answer())[0] == 200

    asyncio.run(ask())
    assert seen == [True] * 3


def test_no_announced_length_is_believed_at_once_where_there_is_no_limit() -> None:
    server = InferenceServer(max_body_bytes=None)
    server.register("echo", lambda x: x)

    async def ask() -> int:
        given = [(b"content-length", b"%d" % (400 * MIB)), (b"inference-header-content-length", b"13")]
        talk = Talk(server, "echo", body=None, headers=given)
        await until(lambda: talk.asked)
        tracemalloc.start()
        for piece in (b"a", b"b"):
            talk.say(piece * 1000, ends=False)
        await until(lambda: talk.unread == 0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        talk.go()
        await talk.task
        return peak

    assert asyncio.run(ask()) < MIB
