"""What is sent equals what is counted, over every adapter: good, bad, late, refused and cancelled requests; and those that share calls."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from oip_asgi.grpc import OIPGRPCApp
from oip_asgi.prometheus import instrument
from tests.support.asking import get
from tests.support.grpc_asgi import call, frame
from tests.support.grpc_ways import MESSAGES, SERVICE, SERVINGS, Client, wire_request
from tests.support.limited import Blocking
from tests.support.metrics import is_idle, outcomes
from tests.support.streaming import KINDS, Noted, serve_stream
from tests.support.talk import Talk, block_until, until
from tests.support.ways import Request, Way, ways_into
from tests.table.row import infer, inputs, tensor

ROUNDS = 2
TOGETHER = 8
GRPC_STATUS = {"OK": 200, "INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504, "INTERNAL": 500}
OUTCOME = {200: "ok", 400: "invalid", 404: "invalid", 413: "invalid", 500: "failed", 502: "failed", 503: "busy", 504: "timeout"}

GOOD = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
BAD = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2]}]}
LARGE = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": list(range(30_000))}]}
"""Too large to be decoded before it has a slot."""
NONE: dict[str, Any] = {"inputs": []}

Sender = Callable[[str, dict[str, Any]], int]
"""Sends a request to a model, and gives the answer's status, by gRPC's code where it came so."""

STORM = [
    ("echo", GOOD),
    ("echo", BAD),
    ("echo", LARGE),
    ("echo", {**GOOD, "parameters": {"content_type": "odd"}}),
    ("inline", GOOD),
    ("awaited", GOOD),
    ("unknown", GOOD),
    ("raises", GOOD),
    ("speaks", GOOD),
    ("gateway", GOOD),
    ("late", NONE),
    ("full", NONE),
]


def make_server(blocking: Blocking) -> InferenceServer:
    server = InferenceServer(max_body_bytes=10**6)
    declared = [TensorSpec("x", "FP32", [-1])]
    server.register("echo", lambda x: x, inputs=declared)
    server.register("inline", lambda x: x, inputs=declared, run="inline")

    @server.model("awaited", inputs=declared)
    async def awaited(x: Any) -> Any:
        await asyncio.sleep(0)
        return x

    @server.model("raises", inputs=declared)
    def raises(x: Any) -> Any:
        raise ValueError("on purpose")

    @server.model("speaks", inputs=declared)
    def speaks(x: Any) -> Any:
        raise InferenceError("not this one", status=400)

    @server.model("gateway", inputs=declared)
    def gateway(x: Any) -> Any:
        raise InferenceError("behind me", status=500)

    @server.model("late", timeout=0.02)
    async def late() -> int:
        await asyncio.sleep(60)
        return 1

    server.register("full", blocking, max_concurrency=1, max_queue=0)
    return server


def over_http(way: Way) -> Sender:
    def send(model: str, body: dict[str, Any]) -> int:
        return way(Request("POST", f"/models/{model}/infer", (), json.dumps(body).encode())).status

    return send


def over_grpc(client: Client) -> Sender:
    def send(model: str, body: dict[str, Any]) -> int:
        tensors = [
            {"name": item["name"], "shape": item["shape"], "datatype": "FP32", "contents": {"fp32_contents": item["data"]}}
            for item in body["inputs"]
        ]
        parameters = {name: {"string_param": value} for name, value in body.get("parameters", {}).items()}
        error = client.begin("ModelInfer", wire_request(model, tensors, parameters=parameters)).exception()
        return GRPC_STATUS["OK" if error is None else error.code().name]

    return send


@pytest.fixture
def held() -> Iterator[Blocking]:
    model = Blocking()
    yield model
    model.leave.set()


def responses_of(server: InferenceServer, model: str = "m") -> dict[str, dict[str, int]]:
    [stats] = get(server, f"/models/{model}/stats")[1]["model_stats"]
    ends = ("success", "fail", "cancel", "empty_response")
    return {
        index: {end: ended[end]["count"] for end in ends if ended.get(end, {}).get("count")}
        for index, ended in stats["response_stats"].items()
    }


@pytest.mark.parametrize("name", ["OIPApp", "OIPApp, chunked", "OIPWSGIApp", *SERVINGS])
def test_what_is_sent_is_counted(name: str, held: Blocking) -> None:
    server = make_server(held)
    with ExitStack() as stack:
        stack.callback(server.stop)
        stack.callback(held.leave.set)
        send = over_grpc(Client(stack.enter_context(SERVINGS[name](server)))) if name in SERVINGS else over_http(ways_into(server)[name])
        threads = stack.enter_context(ThreadPoolExecutor(TOGETHER + 1))
        holds = threads.submit(send, "full", NONE)
        block_until(lambda: held.started == 1)
        requests = STORM * ROUNDS
        statuses = list(threads.map(lambda request: send(*request), requests))
        held.leave.set()
        sent = [*zip((model for model, _ in requests), statuses, strict=True), ("full", holds.result(30))]
    expected: dict[str, Counter[str]] = defaultdict(Counter)
    for model, status in sent:
        expected["" if model == "unknown" else model][OUTCOME[status]] += 1
    assert {model: outcomes(server, model) for model in expected} == expected
    assert expected == {
        "echo": {"ok": ROUNDS, "invalid": 3 * ROUNDS},
        "inline": {"ok": ROUNDS},
        "awaited": {"ok": ROUNDS},
        "raises": {"failed": ROUNDS},
        "speaks": {"invalid": ROUNDS},
        "gateway": {"failed": ROUNDS},
        "late": {"timeout": ROUNDS},
        "full": {"ok": 1, "busy": ROUNDS},
        "": {"invalid": ROUNDS},
    }
    for model, succeeded in (("echo", ROUNDS), ("speaks", 0)):
        [stats] = get(server, f"/models/{model}/stats")[1]["model_stats"]
        counts = [stats["inference_stats"][name]["count"] for name in ("queue", "success", "fail")]
        assert (stats["execution_count"], counts) == (ROUNDS, [ROUNDS, succeeded, ROUNDS - succeeded])


def test_what_is_refused_before_it_is_read_and_questions(held: Blocking) -> None:
    server = make_server(held)
    way = ways_into(server)["OIPApp"]
    for path in ("", "/models/unknown", "/models/unknown/ready", "/models/unknown/stats", "/models/echo", "/models/echo/ready"):
        way(Request("GET", path))
    assert way(Request("GET", "/models/echo/infer")).status == 405
    assert not any(outcomes(server, model) for model in ("echo", ""))  # of what is no inference
    assert way(Request("POST", "/models/echo/infer", (), b" " * (10**6 + 1))).status == 413
    with SERVINGS["grpc"](server) as address:
        assert Client(address).refusal("ModelInfer", b"\xff\xff")[0] == "INVALID_ARGUMENT"
    for action in ("infer_stream", "generate", "generate_stream"):
        assert way(Request("POST", f"/models/unknown/{action}", (), b"{}")).status == 404
    assert (outcomes(server, "echo"), outcomes(server, "")) == ({"invalid": 1}, {"invalid": 4})


def test_calls_from_python_are_counted(held: Blocking) -> None:
    server = make_server(held)
    values = {"x": np.array([1, 2], np.float32)}
    server.infer_sync("echo", values)
    for model, wrong in (("echo", {"y": values["x"]}), ("unknown", values)):
        with pytest.raises(InferenceError):
            server.infer_sync(model, wrong)
    with pytest.raises(InferenceError):
        list(server.infer_stream_sync("unknown", {}))
    assert (outcomes(server, "echo"), outcomes(server, "")) == ({"ok": 1, "invalid": 1}, {"invalid": 2})


@pytest.mark.parametrize("kind", KINDS)
def test_responses_of_streams_are_counted_by_their_index(kind: str) -> None:
    server = serve_stream(KINDS[kind](Noted()))
    assert len(list(server.infer_stream_sync("m", {"n": np.array([2])}))) == 2
    broken_off = server.infer_stream_sync("m", {"n": np.array([2])})
    next(iter(broken_off))
    broken_off.close()
    block_until(lambda: is_idle(server))
    assert responses_of(server) == {"0": {"success": 2}, "1": {"success": 1, "cancel": 1}, "2": {"empty_response": 1}}
    # a second answer of generate is a failed response
    assert ways_into(server)["OIPApp"](Request("POST", "/models/m/generate", (), b'{"n": 2}')).status == 400
    assert responses_of(server) == {"0": {"success": 3}, "1": {"success": 1, "cancel": 1, "fail": 1}, "2": {"empty_response": 1}}
    server.stop()


@pytest.mark.parametrize("way", ["blocks", "returns", "raises"])
def test_a_stream_that_a_client_leaves_while_its_next_item_is_made_is_counted_once(way: str) -> None:
    server = InferenceServer()
    go_on = threading.Event()

    def blocking() -> Iterator[int]:
        yield 1
        go_on.wait(20)
        yield 2

    async def awaiting() -> AsyncIterator[int]:
        yield 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if way == "raises":
                raise

    server.register("m", blocking if way == "blocks" else awaiting)
    server.register("late", awaiting, stream_timeout=0.5)

    async def main() -> None:
        talk = Talk(server, action="generate_stream")
        await until(lambda: len(talk.sent) > 1)
        talk.go()
        await asyncio.wait_for(asyncio.wait([talk.task]), 20)
        go_on.set()
        await until(lambda: is_idle(server))

    asyncio.run(main())
    assert responses_of(server) == {"0": {"success": 1}, "1": {"cancel": 1}}
    if way != "blocks":
        with pytest.raises(InferenceError, match="did not end its stream within"):
            list(server.infer_stream_sync("late", {}))
        assert responses_of(server, "late") == {"0": {"success": 1}, "1": {"fail": 1}}
    server.stop()


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_large_items_are_counted_when_they_are_encoded_and_the_end_is_a_computation_with_its_time(kind: str) -> None:
    """As Triton counts the end: the function ran once more, and no response came of it."""
    server = InferenceServer()
    items = [np.zeros(200_000), np.array([b"\xff"] * 200_000, object)]  # JSON cannot carry the second

    def blocking() -> Iterator[Any]:
        yield from items

    async def awaiting() -> AsyncIterator[Any]:
        for item in items:
            yield item

    async def slow_to_end() -> AsyncIterator[Any]:
        yield 1
        await asyncio.sleep(0.02)

    server.register("m", blocking if kind == "def" else awaiting)
    server.register("end", slow_to_end)
    answer = ways_into(server)["OIPApp"](Request("POST", "/models/m/generate_stream", (), b"{}"))
    assert (answer.status, answer.body.count(b"data: "), b"error" in answer.body) == (200, 2, True)
    assert responses_of(server) == {"0": {"success": 1}, "1": {"fail": 1}}
    assert len(list(server.infer_stream_sync("end", {}))) == 1
    [stats] = get(server, "/models/end/stats")[1]["model_stats"]
    first, end = stats["response_stats"]["0"], stats["response_stats"]["1"]
    assert {name for name, duration in first.items() if duration["count"] == 1} == {"compute_infer", "compute_output", "success"}
    assert {name for name, duration in end.items() if duration["count"] == 1} == {"compute_infer", "empty_response"}
    assert end["empty_response"]["ns"] >= 15_000_000
    assert first["success"]["ns"] == first["compute_infer"]["ns"] + first["compute_output"]["ns"] > 0
    server.stop()


def test_times_add_up(held: Blocking) -> None:
    server = make_server(held)
    send = over_http(ways_into(server)["OIPApp"])
    for model in ("echo", "inline", "awaited"):
        assert send(model, GOOD) == 200
        taken = get(server, f"/models/{model}/stats")[1]["model_stats"][0]["inference_stats"]
        stages = [taken[name] for name in ("queue", "compute_input", "compute_infer", "compute_output")]
        assert [stage["count"] for stage in stages] == [1, 1, 1, 1]
        assert all(stage["ns"] >= 0 for stage in stages)
        assert abs(sum(stage["ns"] for stage in stages) - taken["success"]["ns"]) < 10  # which are rounded


def test_a_model_that_is_unloaded_or_registered_again_counts_from_zero(held: Blocking) -> None:
    server = make_server(held)
    send = over_http(ways_into(server)["OIPApp"])
    assert send("echo", GOOD) == 200
    server.unload_sync("echo")
    assert outcomes(server, "echo") == {}
    assert send("echo", GOOD) == 503
    server.load_sync("echo")
    assert send("echo", GOOD) == 200
    assert outcomes(server, "echo") == {"busy": 1, "ok": 1}
    server.unregister_sync("echo")
    assert send("echo", GOOD) == 404
    server.register("echo", lambda x: x)
    assert send("echo", GOOD) == 200
    assert (outcomes(server, "echo"), outcomes(server, "")) == ({"ok": 1}, {"invalid": 1})


NumberSender = Callable[[float], float]
"""Sends one row with a number, and gives the number that comes back."""


def body_of(number: float) -> bytes:
    return inputs(tensor("FP32", [1, 1], f"[{number}]"))


class Sized:
    """A server whose model doubles, is only called for `max_batch_size` rows at once, or in a minute, and notes for how many."""

    def __init__(self, **options: Any) -> None:
        self.sizes: list[int] = []
        self.server = InferenceServer()
        spec = [TensorSpec("x", "FP32", [-1, 1])]
        self.server.register("m", self.model, inputs=spec, outputs=[TensorSpec("y", "FP32", [-1, 1])], max_batch_delay=60.0, **options)

    def model(self, x: Any) -> Any:
        self.sizes.append(len(x))
        if (x < 0).any():
            raise ValueError("on purpose")
        return x * 2


def message(number: float) -> Any:
    return wire_request("m", [{"name": "x", "datatype": "FP32", "shape": [1, 1]}], [np.float32(number).tobytes()])


def value_of(response: Any) -> float:
    return float(np.frombuffer(response.raw_output_contents[0], "<f4")[0])


def list_senders(server: InferenceServer, stack: ExitStack) -> list[NumberSender]:
    def over_http(way: Way) -> NumberSender:
        return lambda number: float(json.loads(way(infer("m", body_of(number))).body)["outputs"][0]["data"][0])

    def over_grpc(serving: Any) -> NumberSender:
        client = Client(stack.enter_context(serving(server)))
        return lambda number: value_of(client.ask("ModelInfer", message(number)))

    def over_grpc_app(number: float) -> float:
        got = asyncio.run(call(OIPGRPCApp(server), f"/{SERVICE}/ModelInfer", frame(message(number).SerializeToString())))
        return value_of(MESSAGES["ModelInferResponse"].FromString(got.messages[0]))

    def from_python(number: float) -> float:
        return float(server.infer_sync("m", {"x": np.full((1, 1), number, "f4")})["y"][0, 0])

    return [*map(over_http, ways_into(server).values()), *map(over_grpc, SERVINGS.values()), over_grpc_app, from_python]


def test_all_adapters_feed_one_batch() -> None:
    with ExitStack() as stack:
        number = len(list_senders(InferenceServer(), stack))
        sized = Sized(max_batch_size=number)
        threads = stack.enter_context(ThreadPoolExecutor(number))
        answers = [threads.submit(send, place) for place, send in enumerate(list_senders(sized.server, stack))]
        assert [answer.result(30) for answer in answers] == [2 * place for place in range(number)]
    assert sized.sizes == [number]


def test_the_numbers_tell_batches_from_requests_and_count_calls_that_fail() -> None:
    sized = Sized(max_batch_size=3)
    registry = CollectorRegistry()
    instrument(sized.server, registry)
    way = ways_into(sized.server)["OIPApp"]
    with ThreadPoolExecutor(3) as threads:
        for number, status in ((1, 200), (-1, 500)):
            assert [answer.status for answer in threads.map(way, [infer("m", body_of(number))] * 3, timeout=30)] == [status] * 3
    sized.server.infer_sync("m", {"x": np.ones((5, 1), "f4")})
    [told] = get(sized.server, "/models/m/stats")[1]["model_stats"]
    assert (told["inference_count"], told["execution_count"]) == (8, 6)  # a batch that failed, and each of its requests alone
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in told["batch_stats"]] == [(1, 0), (3, 1), (5, 1)]
    counts = {name: told["inference_stats"][name]["count"] for name in ("success", "fail", "queue", "compute_infer", "compute_output")}
    assert counts == {"success": 4, "fail": 3, "queue": 7, "compute_infer": 4, "compute_output": 4}
    labels = {"server": "oip_asgi", "model": "m", "version": ""}
    assert registry.get_sample_value("oip_executions_total", labels) == 6
    assert registry.get_sample_value("oip_inferences_total", labels) == 8
    assert registry.get_sample_value("oip_batch_rows_sum", labels) == 14
    assert registry.get_sample_value("oip_batch_rows_bucket", {**labels, "le": "4.0"}) == 5
    assert registry.get_sample_value("oip_requests_total", {**labels, "outcome": "ok"}) == 4
