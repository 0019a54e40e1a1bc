"""Requests share calls whatever they come over: each adapter, several at once, one server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest

from oip_asgi import InferenceServer, TensorSpec
from oip_asgi.grpc import OIPGRPCApp
from oip_asgi.prometheus import instrument
from tests.support.asking import get
from tests.support.grpc_asgi import call, frame
from tests.support.grpc_ways import MESSAGES, SERVICE, SERVINGS, Client, wire_request
from tests.support.inside import is_idle, statistics_of
from tests.support.talk import Talk, block_until
from tests.support.ways import Request, ways_into

TOGETHER: Final = 4

Sender = Callable[[float], float]
"""Sends one row with a number, and gives the number that comes back."""


class Sized:
    """A server whose model doubles, is only called for `TOGETHER` rows at once, or in a minute, and notes for how many."""

    def __init__(self, **options: Any) -> None:
        self.sizes: list[int] = []
        self.server = InferenceServer()
        spec = [TensorSpec("x", "FP32", [-1, 1])]
        options = {"max_batch_size": TOGETHER, "max_batch_delay": 60.0, **options}
        self.server.register("m", self.model, inputs=spec, outputs=[TensorSpec("y", "FP32", [-1, 1])], **options)

    def model(self, x: Any) -> Any:
        self.sizes.append(len(x))
        return x * 2


def of_http(way: Any) -> Sender:
    def send(number: float) -> float:
        document = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [number]}]}
        answer = way(Request("POST", "/models/m/infer", (), json.dumps(document).encode()))
        [value] = json.loads(answer.body)["outputs"][0]["data"]
        return float(value)

    return send


def message(number: float) -> Any:
    return wire_request("m", [{"name": "x", "datatype": "FP32", "shape": [1, 1]}], [np.float32(number).tobytes()])


def value_of(response: Any) -> float:
    return float(np.frombuffer(response.raw_output_contents[0], "<f4")[0])


def of_grpc(client: Client) -> Sender:
    return lambda number: value_of(client.ask("ModelInfer", message(number)))


def of_grpc_app(server: InferenceServer) -> Sender:
    def send(number: float) -> float:
        got = asyncio.run(call(OIPGRPCApp(server), f"/{SERVICE}/ModelInfer", frame(message(number).SerializeToString())))
        return value_of(MESSAGES["ModelInferResponse"].FromString(got.messages[0]))

    return send


def of_python(server: InferenceServer) -> Sender:
    def send(number: float) -> float:
        return float(server.infer_sync("m", {"x": np.full((1, 1), number, "f4")})["y"][0, 0])

    return send


def sender_of(name: str, server: InferenceServer, stack: ExitStack) -> Sender:
    if name in SERVINGS:
        return of_grpc(Client(stack.enter_context(SERVINGS[name](server))))
    if name == "gRPC in the application":
        return of_grpc_app(server)
    if name == "server.infer_sync":
        return of_python(server)
    return of_http(ways_into(server)[name])


NAMES = [*ways_into(InferenceServer()), *SERVINGS, "gRPC in the application", "server.infer_sync"]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("kind", ["frame", "column"])
def test_a_categorical_column_has_the_categories_of_its_own_request(kind: str) -> None:
    server = InferenceServer()

    @server.model("names", max_batch_size=2, max_batch_delay=30)
    def names(df: pd.DataFrame) -> Any:
        made = pd.DataFrame({"name": df["name"].astype("category"), "again": df["name"]})
        return made if kind == "frame" else {"name": made["name"]}

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda name: server.infer_sync("names", {"name": [name]}), ["alice", "bob"]))
    for name, answer in zip(("alice", "bob"), answers, strict=True):
        assert answer["name"].tolist() == [name.encode()]
        assert json.loads(str(answer.outputs[0].parameters["pd_categories"]))["data"] == [name]


@pytest.mark.parametrize("name", NAMES)
def test_four_requests_are_one_call(name: str, stack: ExitStack) -> None:
    sized = Sized()
    send = sender_of(name, sized.server, stack)
    threads = stack.enter_context(ThreadPoolExecutor(TOGETHER))
    assert list(threads.map(send, range(TOGETHER), timeout=30)) == [0, 2, 4, 6]
    assert sized.sizes == [TOGETHER]


def test_all_adapters_feed_one_batch(stack: ExitStack) -> None:
    sized = Sized(max_batch_size=len(NAMES))
    sends = [sender_of(name, sized.server, stack) for name in NAMES]
    threads = stack.enter_context(ThreadPoolExecutor(len(NAMES)))
    answers = [threads.submit(send, place) for place, send in enumerate(sends)]
    assert [answer.result(30) for answer in answers] == [2 * place for place in range(len(NAMES))]
    assert sized.sizes == [len(NAMES)]


def test_a_client_that_goes_is_left_out_of_the_batch() -> None:
    sized = Sized()
    body = b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[%d]}]}'

    async def main() -> list[Any]:
        talks = [Talk(sized.server, body=body % place) for place in range(TOGETHER - 1)]
        await asyncio.sleep(0.05)  # longer than a client goes unwatched
        talks[1].go()
        await talks[1].task
        talks += [Talk(sized.server, body=body % place) for place in (7, 8)]
        return [(await talk.answer())[1]["outputs"][0]["data"] for place, talk in enumerate(talks) if place != 1]

    assert asyncio.run(main()) == [[0], [4], [14], [16]]
    assert sized.sizes == [TOGETHER]
    assert is_idle(sized.server)


def test_the_numbers_tell_batches_from_requests(stack: ExitStack) -> None:
    from prometheus_client import CollectorRegistry

    sized = Sized(max_batch_size=3)
    registry = CollectorRegistry()
    instrument(sized.server, registry)
    threads = stack.enter_context(ThreadPoolExecutor(3))
    ask = {"x": np.ones((1, 1), "f4")}
    assert len(list(threads.map(lambda _: sized.server.infer_sync("m", ask), range(3), timeout=30))) == 3
    sized.server.infer_sync("m", {"x": np.ones((5, 1), "f4")})
    [told] = get(sized.server, "/models/m/stats")[1]["model_stats"]
    assert (told["inference_count"], told["execution_count"]) == (8, 2)
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in told["batch_stats"]] == [(3, 1), (5, 1)]
    counts = {name: told["inference_stats"][name]["count"] for name in ("success", "fail", "queue", "compute_infer", "compute_output")}
    assert counts == {"success": 4, "fail": 0, "queue": 4, "compute_infer": 4, "compute_output": 4}
    labels = {"server": "oip_asgi", "model": "m", "version": ""}
    assert registry.get_sample_value("oip_executions_total", labels) == 2
    assert registry.get_sample_value("oip_inferences_total", labels) == 8
    assert registry.get_sample_value("oip_batch_rows_sum", labels) == 8
    assert registry.get_sample_value("oip_batch_rows_bucket", {**labels, "le": "4.0"}) == 1
    assert registry.get_sample_value("oip_requests_total", {**labels, "outcome": "ok"}) == 4


def test_calls_that_fail_are_executions_too(stack: ExitStack) -> None:
    sized = Sized(max_batch_size=2)
    sized.server.unregister_sync("m")

    def model(x: Any) -> Any:
        raise ValueError("on purpose")

    sized.server.register("m", model, max_batch_size=2, max_batch_delay=60.0)
    threads = stack.enter_context(ThreadPoolExecutor(2))
    way = ways_into(sized.server)["OIPApp"]
    body = b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}'
    assert [answer.status for answer in threads.map(way, [Request("POST", "/models/m/infer", (), body)] * 2)] == [500, 500]
    taken = statistics_of(sized.server, "m").snapshot()
    assert (taken.execution_count, taken.inference_count, taken.fail.count, taken.queue.count) == (1, 0, 2, 2)
    block_until(lambda: is_idle(sized.server))


def test_a_batch_has_its_configuration_over_grpc_too(stack: ExitStack) -> None:
    sized = Sized(preferred_batch_sizes=[2])
    client = Client(stack.enter_context(SERVINGS["grpc"](sized.server)))
    request = MESSAGES["ModelConfig.request"](name="m") if "ModelConfig.request" in MESSAGES else None
    config = client.ask("ModelConfig", request).config
    assert config.max_batch_size == TOGETHER
    assert list(config.input[0].dims) == [1]
    assert list(config.dynamic_batching.preferred_batch_size) == [2]
    assert config.dynamic_batching.max_queue_delay_microseconds == 60_000_000
