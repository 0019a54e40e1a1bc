"""Requests share calls whatever they come over: each adapter, several at once, one server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prometheus_client import CollectorRegistry

from oip_asgi import InferenceServer, TensorSpec
from oip_asgi.grpc import OIPGRPCApp
from oip_asgi.prometheus import instrument
from tests.support.asking import get
from tests.support.grpc_asgi import call, frame
from tests.support.grpc_ways import MESSAGES, SERVICE, SERVINGS, Client, wire_request
from tests.support.talk import Talk
from tests.support.ways import Way, ways_into
from tests.table.row import infer, inputs, tensor

Sender = Callable[[float], float]
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


def list_senders(server: InferenceServer, stack: ExitStack) -> list[Sender]:
    """One for each adapter."""

    def over_http(way: Way) -> Sender:
        return lambda number: float(json.loads(way(infer("m", body_of(number))).body)["outputs"][0]["data"][0])

    def over_grpc(serving: Any) -> Sender:
        client = Client(stack.enter_context(serving(server)))
        return lambda number: value_of(client.ask("ModelInfer", message(number)))

    def over_grpc_app(number: float) -> float:
        got = asyncio.run(call(OIPGRPCApp(server), f"/{SERVICE}/ModelInfer", frame(message(number).SerializeToString())))
        return value_of(MESSAGES["ModelInferResponse"].FromString(got.messages[0]))

    def from_python(number: float) -> float:
        return float(server.infer_sync("m", {"x": np.full((1, 1), number, "f4")})["y"][0, 0])

    return [*map(over_http, ways_into(server).values()), *map(over_grpc, SERVINGS.values()), over_grpc_app, from_python]


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


def test_all_adapters_feed_one_batch() -> None:
    with ExitStack() as stack:
        number = len(list_senders(InferenceServer(), stack))
        sized = Sized(max_batch_size=number)
        threads = stack.enter_context(ThreadPoolExecutor(number))
        answers = [threads.submit(send, place) for place, send in enumerate(list_senders(sized.server, stack))]
        assert [answer.result(30) for answer in answers] == [2 * place for place in range(number)]
    assert sized.sizes == [number]


def test_a_client_that_goes_is_left_out_of_the_batch() -> None:
    sized = Sized(max_batch_size=4)

    async def main() -> list[Any]:
        talks = [Talk(sized.server, body=body_of(place)) for place in range(3)]
        await asyncio.sleep(0.05)  # longer than a client goes unwatched
        talks[1].go()
        await talks[1].task
        talks += [Talk(sized.server, body=body_of(place)) for place in (7, 8)]
        return [(await talk.answer())[1]["outputs"][0]["data"] for place, talk in enumerate(talks) if place != 1]

    assert asyncio.run(main()) == [[0], [4], [14], [16]]
    assert sized.sizes == [4]


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
    assert (told["inference_count"], told["execution_count"]) == (8, 3)
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in told["batch_stats"]] == [(3, 1), (5, 1)]
    counts = {name: told["inference_stats"][name]["count"] for name in ("success", "fail", "queue", "compute_infer", "compute_output")}
    assert counts == {"success": 4, "fail": 3, "queue": 7, "compute_infer": 4, "compute_output": 4}
    labels = {"server": "oip_asgi", "model": "m", "version": ""}
    assert registry.get_sample_value("oip_executions_total", labels) == 3
    assert registry.get_sample_value("oip_inferences_total", labels) == 8
    assert registry.get_sample_value("oip_batch_rows_sum", labels) == 11
    assert registry.get_sample_value("oip_batch_rows_bucket", {**labels, "le": "4.0"}) == 2
    assert registry.get_sample_value("oip_requests_total", {**labels, "outcome": "ok"}) == 4


def test_a_batch_has_its_configuration_over_grpc_too() -> None:
    sized = Sized(max_batch_size=4, preferred_batch_sizes=[2])
    with SERVINGS["grpc"](sized.server) as address:
        config = Client(address).ask("ModelConfig", MESSAGES["ModelConfig.request"](name="m")).config
    assert config.max_batch_size == 4
    assert list(config.input[0].dims) == [1]
    assert list(config.dynamic_batching.preferred_batch_size) == [2]
    assert config.dynamic_batching.max_queue_delay_microseconds == 60_000_000
