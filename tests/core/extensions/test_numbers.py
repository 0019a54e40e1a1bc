"""`server.statistics()`: what each model has done, for code of the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oip_asgi import Histogram, InferenceServer, ModelNumbers, ResponseCache, TensorSpec
from tests.support.asking import ask, error


def count(server: InferenceServer, name: str) -> ModelNumbers:
    [numbers] = [each for each in server.statistics() if each.name == name]
    return numbers


def test_a_model_says_what_it_has_done() -> None:
    server = InferenceServer()

    @server.model("m", version="2", inputs=[TensorSpec("x", "INT64", [-1], maximum=9)], out_of_range="flag", cache=ResponseCache())
    def double(x: Any) -> Any:
        if x[0] == 0:
            raise ValueError("zero")
        return x * 2

    before = count(server, "m")
    assert (before.version, before.is_ready, before.inference_count, before.out_of_range) == ("2", True, 0, {"x": 0})
    for value in (1, 1, 10, 0, 1.5):
        ask(server, "m", x=[value])
    assert error(ask(server, "nobody"))[0] == 404
    after = count(server, "m")
    assert after.outcomes == {"ok": 3, "invalid": 1, "busy": 0, "timeout": 0, "cancelled": 0, "failed": 1}
    assert (after.inference_count, after.execution_count, after.cache_hits, after.out_of_range) == (2, 3, 1, {"x": 1})
    assert (after.waiting, after.running, after.load_seconds, after.first_responses) == (0, 0, None, None)
    assert {outcome: sum(seconds.counts) for outcome, seconds in after.durations.items()} == {"ok": 3, "failed": 1}
    assert after.queues is not None
    assert after.rows is not None
    assert (sum(after.queues.counts), after.rows.counts[0], after.rows.sum) == (3, 3, 3)
    assert len(after.queues.counts) == len(after.queues.bounds) + 1
    assert set(Histogram.SECONDS) <= set(after.queues.bounds)
    assert count(server, "").outcomes["invalid"] == 1
    assert before.outcomes["ok"] == 0
    with pytest.raises(AttributeError):
        after.waiting = 1  # type: ignore[misc]  # a frozen struct


def test_a_stream_a_batch_and_a_model_that_is_not_loaded_yet() -> None:
    server = InferenceServer()

    @server.model("stream")
    def stream() -> Any:
        yield 1

    server.register("later", load=lambda: lambda: 1)
    server.register("batched", lambda x: x, max_batch_size=4)
    for _ in server.infer_stream_sync("stream", {}):
        pass
    server.infer_sync("batched", {"x": np.array([1.0, 2.0])})
    first = count(server, "stream").first_responses
    assert first is not None
    assert sum(first.counts) == 1
    assert (count(server, "later").is_ready, count(server, "later").cache_hits) == (None, None)
    assert (count(server, "batched").inference_count, count(server, "batched").execution_count) == (2, 1)
    server.load_sync("later")
    assert count(server, "later").is_ready is True
    assert count(server, "later").load_seconds is not None
