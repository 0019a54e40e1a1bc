"""Headers that a model gives to its answer, and `Server-Timing`: over HTTP, with streams, and as initial metadata over gRPC."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceServer, OIPApp, OIPWSGIApp, ResponseCache
from tests.support.asking import ask, described, get, outputs
from tests.support.grpc_asgi import ASGI_CLIENTS
from tests.support.grpc_ways import MESSAGES, SERVICE, SERVINGS, Client, wire_request
from tests.support.talk import Talk
from tests.support.ways import Answer, Request, over_asgi, over_wsgi, send_asgi

TIMING = re.compile(r"queue;dur=(\d+\.\d{3}), decode;dur=(\d+\.\d{3}), run;dur=(\d+\.\d{3}), encode;dur=(\d+\.\d{3})")


def post(server: InferenceServer, path: str, body: bytes = b"{}") -> Answer:
    return over_asgi(OIPApp(server), "")(Request("POST", path, (), body))


def make_server(**options: Any) -> InferenceServer:
    server = InferenceServer(**options)

    @server.model("m")
    def costs(x: Any, context: InferenceContext) -> Any:
        context.response_headers["X-Cost"] = str(len(x))
        return x

    @server.model("async")
    async def costs_async(context: InferenceContext) -> Any:
        context.response_headers["x-cost"] = "2"
        return np.ones(1)

    @server.model("def stream")
    def stream(context: InferenceContext) -> Iterator[Any]:
        context.response_headers["x-cost"] = "3"
        context.response_headers["cache-control"] = "no-store"
        yield np.ones(1)
        context.response_headers["x-trace"] = "late"

    @server.model("async stream")
    async def stream_async(context: InferenceContext) -> AsyncIterator[Any]:
        context.response_headers["x-cost"] = "4"
        yield np.ones(1)

    return server


def give_headers(give: Callable[[InferenceContext], None], **options: Any) -> InferenceServer:
    server = InferenceServer(**options)

    @server.model("m")
    def gives(context: InferenceContext) -> Any:
        give(context)
        return 1

    return server


def test_they_are_a_mapping_and_an_error_has_its_own() -> None:
    def give(context: InferenceContext) -> None:
        headers = context.response_headers
        headers.update({"X-Cost": "1", "x-trace": "2"})
        headers["x-COST"] = "3"
        assert (dict(headers), headers["x-Cost"], "X-TRACE" in headers, len(headers)) == ({"x-cost": "3", "x-trace": "2"}, "3", True, 2)
        del headers["X-Trace"]

    def refuse(context: InferenceContext) -> None:
        context.response_headers["x-cost"] = "1"
        raise InferenceError("no", status=422, headers={"x-trace": "2"})

    answer = ask(give_headers(give), "m")
    assert (answer.headers["x-cost"], "x-trace" in answer.headers, "server-timing" in answer.headers) == ("3", False, False)
    assert give_headers(give).infer_sync("m", {}).outputs[0].array.tolist() == [1]  # calls from Python ignore them
    answer = ask(give_headers(refuse), "m")
    assert (answer.status, answer.headers.get("x-cost"), answer.headers["x-trace"]) == (422, None, "2")


@pytest.mark.parametrize(("model", "cost"), [("async", "2"), ("def stream", "3"), ("async stream", "4")])
def test_generate_and_streams_before_the_first_item(model: str, cost: str, caplog: pytest.LogCaptureFixture) -> None:
    server, path = make_server(), f"/models/{model.replace(' ', '%20')}"
    actions = ["infer_stream", "generate_stream"] + ["generate"] * (model != "def stream")
    for action in actions:
        answer = post(server, f"{path}/{action}", b'{"inputs":[]}' if action == "infer_stream" else b"{}")
        assert (answer.status, answer.headers["x-cost"]) == (200, cost), action
    if model == "def stream":  # which writes another after the first item
        assert "x-trace" not in answer.headers
        assert answer.body.endswith(b'data: {"error":"model \'def stream\' failed: see the server\'s log"}\n\n')
        assert "response header x-trace is too late, as the head of the answer has left: write it before the first item" in caplog.text


def test_a_header_of_a_model_takes_the_place_of_a_streams_own() -> None:
    async def main() -> Any:
        talk = Talk(make_server(), "def stream", b"{}", action="generate_stream")
        await talk.task
        return talk.sent[0]["headers"]

    headers = asyncio.run(main())
    assert [value for name, value in headers if name == b"cache-control"] == [b"no-store"]
    assert (b"content-type", b"text/event-stream; charset=utf-8") in headers


WRONG = [
    ("Connection", "close", "'Connection' cannot be written: it belongs to one connection, which proxies"),
    ("content-length", "1", "'content-length' cannot be written: it says how the body is written, which the"),
    ("grpc-status", "0", "'grpc-status' cannot be written: it belongs to gRPC itself"),
    ("x-bin", "0", "'x-bin' cannot be written: gRPC has bytes under such a name"),
    ("x y", "0", '\'x y\' cannot be written: expected a name of letters, digits, "-", "_" and "."'),
    ("x", 3, "x is 3: expected a str of printable ASCII without spaces around it"),
]


@pytest.mark.parametrize(("name", "value", "why"), WRONG)
def test_the_log_says_which_header_and_why(caplog: pytest.LogCaptureFixture, name: str, value: Any, why: str) -> None:
    server = give_headers(lambda context: context.response_headers.update({name: value}))
    assert ask(server, "m").status == 500
    assert f"response header {why}" in caplog.text


def test_each_request_of_a_batch_has_its_timing() -> None:
    server, calls = InferenceServer(server_timing=True), list[int]()

    @server.model("m", max_batch_size=3, max_batch_delay=5.0)
    def notes(x: Any) -> Any:
        calls.append(len(x))
        return x

    app = OIPApp(server)
    body = json.dumps({"inputs": described(x=[[1.0]])}).encode()

    async def main() -> list[Answer]:
        return await asyncio.gather(*(send_asgi(app, Request("POST", "/models/m/infer", (), body)) for _ in range(3)))

    answers = asyncio.run(main())
    assert calls == [3]
    assert all(TIMING.fullmatch(answer.headers["server-timing"]) for answer in answers)


MESSAGE = wire_request("m", [{"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [3]}}])


@pytest.mark.parametrize("serving", SERVINGS.values(), ids=SERVINGS)
def test_they_are_initial_metadata_over_grpc(serving: Any) -> None:
    server = make_server(server_timing=True)
    server.register("plain", lambda: 1)
    with serving(server) as address:
        client = Client(address)
        metadata = dict(client.begin("ModelInfer", MESSAGE).initial_metadata())
        assert metadata["x-cost"] == "1"
        assert TIMING.fullmatch(metadata["server-timing"])
        assert set(dict(client.begin("ModelInfer", wire_request("plain")).initial_metadata())) == {"server-timing"}
        assert client.ask("ModelInfer", MESSAGE).model_name == "m"
        assert dict(client.begin("ServerLive").initial_metadata()) == {}
        # many requests have one head
        stream: Any = client.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", response_deserializer=MESSAGES["ModelStreamInferResponse"].FromString
        )
        call: Any = stream(iter([MESSAGE.SerializeToString()]), timeout=30)
        [answer] = call
        assert (answer.error_message, answer.infer_response.model_name) == ("", "m")
        assert "x-cost" not in dict(call.initial_metadata())
        client.channel.close()


@pytest.mark.parametrize("make_client", ASGI_CLIENTS.values(), ids=ASGI_CLIENTS)
def test_they_are_headers_of_grpc_over_asgi(make_client: Any) -> None:
    client = make_client(make_server(server_timing=True))
    got = client.got("ModelInfer", MESSAGE)
    assert got.headers["x-cost"] == "1"
    assert TIMING.fullmatch(got.headers["server-timing"])


def durations(answer: Answer) -> list[float]:
    found = TIMING.fullmatch(answer.headers["server-timing"])
    assert found, answer.headers
    return [float(text) for text in found.groups()]


def test_server_timing_says_where_the_time_went() -> None:
    server = InferenceServer(server_timing=True)

    @server.model("sleeps", max_concurrency=1)
    async def sleeps() -> Any:
        await asyncio.sleep(0.05)
        return 1

    @server.model("streams")
    async def streams(x: np.ndarray) -> AsyncIterator[Any]:
        await asyncio.sleep(0.05)
        yield x[0]

    server.register("cached", lambda x: x, cache=ResponseCache())
    server.register("inline", lambda x: x, run="inline")
    queue, decode, run, encode = durations(ask(server, "sleeps"))
    assert 45 < run < 5000
    assert (queue < 45, decode < 45, encode < 45) == (True, True, True)
    for length in (1, 50_000):  # a thread decodes the long one
        _, decode, run, _ = durations(post(server, "/models/streams/generate_stream", json.dumps({"x": [1.0] * length}).encode()))
        assert 45 < run < 5000
    assert decode > 0
    assert get(server, "/models/streams/stats")[1]["model_stats"][0]["execution_count"] == 2
    for _ in range(2):
        answer = ask(server, "cached", x=[1.0])
        assert outputs(answer) == {"output_0": [1.0]}
        queue, _, run, _ = durations(answer)
    assert (queue, run) == (0, 0)
    assert durations(ask(server, "inline", x=[1.0]))[2] < 50
    assert durations(ask(server, "inline", x=[1.0] * 50_000))[1] > 0
    assert "server-timing" not in ask(server, "unknown").headers
    sleep = Request("POST", "/models/sleeps/infer", (), b'{"inputs":[]}')
    durations(over_wsgi(OIPWSGIApp(server), "")(sleep))

    async def two() -> list[Answer]:
        app = OIPApp(server)
        return await asyncio.gather(*(send_asgi(app, sleep) for _ in range(2)))

    waits = sorted(durations(answer)[0] for answer in asyncio.run(two()))
    assert waits[0] < 40 < waits[1]
    server = give_headers(lambda context: context.response_headers.update({"Server-Timing": "gpu;dur=1"}), server_timing=True)
    assert re.fullmatch(f"gpu;dur=1, {TIMING.pattern}", ask(server, "m").headers["server-timing"])  # after what the model wrote
