"""What a model with `max_batch_size=` cannot be, and what is written to make it one; what metadata and configuration say of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pytest

from oip_asgi import InferenceContext, InferenceRequest, InferenceServer, TensorSpec
from oip_asgi.codecs import NumpyRequestCodec
from tests.support.asking import exactly, get


def stream(x: Any) -> Iterator[Any]:
    yield x


async def stream_async(x: Any) -> Any:
    yield x


def of_request(request: InferenceRequest) -> Any:
    return request


def of_context(x: Any, context: InferenceContext) -> Any:
    return x


def of_whole(x: Annotated[np.ndarray, NumpyRequestCodec]) -> Any:
    return x


def to_whole(x: Any) -> Annotated[np.ndarray, NumpyRequestCodec]:
    return np.asarray(x)


def identity(x: Any) -> Any:
    return x


CALLS = "max_batch_size= calls the function with the rows of several requests"
FIXED = [TensorSpec("x", "FP32", [4])]
FREE = [TensorSpec("x", "FP32", [-1, 4])]
SCALAR = [TensorSpec("x", "FP32", [])]
ONE_ROW = [TensorSpec("x", "FP32", [1, 4])]


LEAVE = "leave max_batch_size= out, or return arrays"
CODEC = "what the codec of whole requests 'np' makes: use arrays, a codec of tensors or a pandas.DataFrame, or leave max_batch_size= out"
ONE = "which belongs to one request: leave that parameter out, or max_batch_size="


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (stream, f"a generator answers one request: {LEAVE}"),
        (stream_async, f"a generator answers one request: {LEAVE}"),
        (of_request, f"it takes an InferenceRequest, {ONE}"),
        (of_context, f"it takes an InferenceContext, {ONE}"),
        (of_whole, f"it takes {CODEC}"),
        (to_whole, f"it returns {CODEC}"),
    ],
)
def test_a_function_that_cannot_share_calls_is_refused(function: Any, text: str) -> None:
    with pytest.raises(TypeError, match=exactly(f"model 'm': {CALLS}, but {text}")):
        InferenceServer().register("m", function, max_batch_size=32)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"inputs": FIXED}, f"{CALLS}, but input 'x' is declared with the shape [4]: declare [-1, 4]"),
        ({"inputs": ONE_ROW}, f"{CALLS}, but input 'x' is declared with the shape [1, 4]: declare [-1, 4]"),
        ({"inputs": SCALAR}, f"{CALLS}, but input 'x' is declared with the shape []: declare [-1]"),
        ({"outputs": FIXED}, f"{CALLS}, but output 'x' is declared with the shape [4]: declare [-1, 4]"),
        ({"max_batch_size": 0}, "max_batch_size=0 must be a number of rows, 1 or more, such as 32"),
        ({"max_batch_size": True}, "max_batch_size=True must be a number of rows, 1 or more, such as 32"),
        ({"max_batch_size": 2**31}, "max_batch_size=2147483648 must be a number of rows"),
        ({"max_batch_delay": -1}, "max_batch_delay=-1 must be a number of seconds, 0 or more, such as 0.002"),
        ({"max_batch_delay": float("nan")}, "max_batch_delay=nan must be a number of seconds"),
        (
            {"max_batch_size": None, "max_batch_delay": 0.1},
            "max_batch_delay= is for batches: say max_batch_size= too",
        ),
    ],
)
def test_options_that_no_batch_can_have_are_refused(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as refused:
        InferenceServer().register("m", identity, **{"max_batch_size": 32, **options})
    assert str(refused.value).startswith(f"model 'm': {text}")


def test_what_load_returns_is_looked_at_too(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()
    server.register("m", load=lambda: of_context, max_batch_size=32)
    server.start()
    assert server.models()[0].state == "failed"
    assert "but it takes an InferenceContext" in caplog.text


def test_a_queue_that_can_never_fill_a_batch_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()
    server.register("fits", identity, max_batch_size=32, max_concurrency=2, max_queue=30)
    assert caplog.records == []
    server.register("small", identity, max_batch_size=32, max_concurrency=1, max_queue=10)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "model 'small': at most 11 requests are let in, max_concurrency=1 and max_queue=10, so requests of one row never fill a batch of "
        "max_batch_size=32: raise max_queue"
    )


def test_a_delay_that_was_meant_in_milliseconds_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()
    server.register("m", identity, max_batch_size=32, max_batch_delay=1)
    assert caplog.records == []
    server.register("long", identity, max_batch_size=32, max_batch_delay=5)
    assert caplog.messages == [
        "model 'long': max_batch_delay=5 is in seconds, for which requests are held back: for milliseconds, write 0.005"
    ]


def test_configuration_and_metadata_agree_on_the_first_dimension() -> None:
    server = InferenceServer()
    server.register("m", identity, inputs=FREE, outputs=FREE, max_batch_size=32, max_batch_delay=0.002)
    server.register("plain", identity, inputs=FREE)
    status, config = get(server, "/models/m/config")
    assert status == 200
    assert config["max_batch_size"] == 32
    assert config["dynamic_batching"] == {"preferred_batch_size": [], "max_queue_delay_microseconds": 2000}
    assert [tensor["dims"] for tensor in (*config["input"], *config["output"])] == [[4], [4]]
    assert get(server, "/models/m")[1]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    plain = get(server, "/models/plain/config")[1]
    assert plain["max_batch_size"] == 0
    assert "dynamic_batching" not in plain
    assert plain["input"][0]["dims"] == [-1, 4]
