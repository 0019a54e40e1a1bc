"""The response cache: equal requests are answered once, different ones never by each other's response, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from oip_asgi import (
    InferenceContext,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InferenceServer,
    OIPApp,
    RequestOutput,
    ResponseCache,
    Tensor,
    TensorSpec,
)
from tests.support.asking import ask, error, get, outputs
from tests.support.metrics import is_idle, outcomes
from tests.support.talk import block_until, until
from tests.support.ways import Request, over_asgi

Array: TypeAlias = npt.NDArray[Any]


class Counted:
    """A server with a model that counts its calls."""

    def __init__(self, kind: str = "thread", **options: Any) -> None:
        self.calls: list[Any] = []
        self.server = InferenceServer()
        options = {"cache": ResponseCache(), **options}

        def model(**inputs: Array) -> Any:
            self.calls.append({name: array.tolist() for name, array in inputs.items()})
            return {name: array.copy() for name, array in inputs.items()}

        async def model_async(**inputs: Array) -> Any:
            return model(**inputs)

        self.server.register("m", model_async if kind == "async" else model, run="inline" if kind == "inline" else "thread", **options)

    def statistics(self) -> dict[str, Any]:
        [stats] = get(self.server, "/models/m/stats")[1]["model_stats"]
        counted = {name: duration["count"] for name, duration in stats["inference_stats"].items()}
        return {**counted, "inferences": stats["inference_count"], "executions": stats["execution_count"]}


@pytest.mark.parametrize("kind", ["thread", "inline", "async"])
def test_an_equal_request_is_answered_from_memory(kind: str) -> None:
    counted = Counted(kind)
    for number in range(3):
        answer = ask(counted.server, "m", {"id": str(number)}, x=[1.5, 2])
        assert outputs(answer) == {"x": [1.5, 2]}
        assert json.loads(answer.body)["id"] == str(number)
    assert counted.calls == [{"x": [1.5, 2]}]
    assert counted.statistics() == {
        "success": 3, "fail": 0, "queue": 3, "compute_input": 1, "compute_infer": 1, "compute_output": 1, "cache_hit": 2, "cache_miss": 1,
        "inferences": 1, "executions": 1,
    }  # fmt: skip
    assert outcomes(counted.server) == {"ok": 3}
    assert get(counted.server, "/models/m/config")[1]["response_cache"] == {"enable": True}
    counted.server.stop()


def test_each_form_is_encoded_anew() -> None:
    counted = Counted()
    words = np.array([b"a", b"bc"], object)
    asked: list[Any] = [None, {"binary_data_output": True}, {"timeout": 10**9, "priority": 3, "sequence_id": 4}]
    heads = []
    for parameters in asked:
        answer = ask(counted.server, "m", {} if parameters is None else {"parameters": parameters}, x=["a", "bc"])
        assert answer.status == 200
        heads.append(answer.body)
    assert heads[0] == heads[2]
    assert heads[1].endswith(b"\1\0\0\0a\2\0\0\0bc")
    response = counted.server.infer_sync("m", {"x": words})
    response["x"][0] = b"changed"
    response.outputs[0].parameters["mine"] = 1
    assert counted.server.infer_sync("m", {"x": words})["x"].tolist() == [b"a", b"bc"]
    assert counted.server.infer_sync("m", {"x": words}).outputs[0].parameters == {}
    classes = {"outputs": [{"name": "n", "parameters": {"classification": 1}}]}
    assert outputs(ask(counted.server, "m", classes, n=[1, 9])) == {"n": ["9:1"]}
    assert outputs(ask(counted.server, "m", {"outputs": [{"name": "n"}]}, n=[1, 9])) == {"n": [1, 9]}
    assert len(counted.calls) == 2


def test_every_way_to_ask_a_plain_model_shares_its_responses() -> None:
    counted = Counted(inputs=[TensorSpec("x", "INT64", [-1])])
    send = over_asgi(OIPApp(counted.server), "")
    body = b'{"inputs":[{"name":"x","datatype":"INT64","shape":[2],"data":[1,2]}]}'
    for path in ("infer", "infer_stream", "generate", "generate_stream"):
        answer = send(Request("POST", f"/models/m/{path}", (), body))
        assert (answer.status, b"[1,2]" in answer.body) == (200, True)
    assert send(Request("POST", "/models/m/generate", (), b'{"x":[1,2]}')).body == b'{"model_name":"m","x":[1,2]}'
    assert [r["x"].tolist() for r in counted.server.infer_stream_sync("m", {"x": [1, 2]})] == [[1, 2]]
    assert counted.calls == [{"x": [1, 2]}]


def test_requests_that_differ_do_not_share_a_response() -> None:
    counted = Counted()
    zeros, x = np.zeros((2, 3), "f4"), np.ones(1)
    strings: list[list[bytes]] = [[b"ab", b"c"], [b"a", b"bc"], [b"abc", b""], [b"", b"abc"]]  # where elements end
    asks: list[dict[str, Any]] = [
        *({"inputs": {"x": array}} for array in (zeros, np.zeros((3, 2), "f4"), np.zeros((6,), "f4"), np.zeros((2, 3), "i4"))),
        *({"inputs": {"x": array}} for array in (np.zeros((2, 3), "u4"), np.full((2, 3), -0.0, "f4"), np.zeros((2, 0), "f4"))),
        *({"inputs": {"x": np.array(elements, object)}} for elements in strings),
        {"inputs": {"y": zeros}},
        {"inputs": {"x": zeros, "y": np.zeros(1, "f4")}},
        *({"inputs": {"x": x}, "parameters": each} for each in ({}, {"p": True}, {"p": 1}, {"p": 1.0}, {"p": "1"}, {"q": 1})),
        *({"inputs": {"x": Tensor("x", x, {"unit": "m"})}, "parameters": each} for each in ({}, {"p": 1})),
        *({"inputs": {"x": x, "y": x}, "outputs": names} for names in (["x"], [RequestOutput("x", {"content_type": "np"})])),
    ]
    for asked in asks:
        response = counted.server.infer_sync("m", **asked)
        for output in response.outputs:
            given = asked["inputs"][output.name]
            array = given.array if isinstance(given, Tensor) else given
            assert (output.array.dtype, output.array.ravel().tolist()) == (array.dtype, array.ravel().tolist())
    assert len(counted.calls) == len(asks)


def test_large_inputs_and_outputs_are_hashed_decoded_and_encoded_in_worker_threads() -> None:
    counted = Counted("async")
    large = list(range(200_000))
    for _ in range(2):
        assert outputs(ask(counted.server, "m", x=large)) == {"x": large}
    assert len(counted.calls) == 1
    counted.server.stop()


def test_errors_are_not_kept() -> None:
    raised: list[Exception] = [InferenceError("not now", status=422), RuntimeError()]
    calls: list[int] = []

    def fails(x: Array) -> Array:
        calls.append(1)
        if raised:
            raise raised.pop(0)
        return x

    server = InferenceServer()
    server.register("m", fails, cache=ResponseCache())
    assert [ask(server, "m", x=[1]).status for _ in range(4)] == [422, 500, 200, 200]
    assert len(calls) == 3


def test_a_response_ages() -> None:
    seen = False
    for _ in range(20):  # a busy machine may take longer for two requests
        counted, since = Counted(cache=ResponseCache(ttl=0.3)), time.monotonic()
        calls = [(ask(counted.server, "m", x=[1]).status, len(counted.calls))[1] for _ in range(2)]
        if time.monotonic() - since < 0.3:
            assert calls == [1, 1]
            seen = True
            break
    assert seen
    time.sleep(0.3)
    assert outputs(ask(counted.server, "m", x=[1])) == {"x": [1]}
    assert len(counted.calls) == 2


def test_the_least_used_goes_first() -> None:
    small = Counted(cache=ResponseCache(max_bytes=16_000))
    x = np.zeros(1)
    for number in (*range(15), 0, 15):  # each takes a little more than 1,000 bytes
        small.server.infer_sync("m", {"x": x + number})
    assert len(small.calls) == 16
    small.server.infer_sync("m", {"x": x})  # used lately, so it stayed
    assert len(small.calls) == 16
    small.server.infer_sync("m", {"x": x + 1})
    assert len(small.calls) == 17
    for _ in range(2):
        small.server.infer_sync("m", {"x": np.zeros(200)})  # more than an eighth
    assert len(small.calls) == 18 + 1


def test_loading_again_and_unloading_empty_the_cache() -> None:
    numbers = iter(range(1, 9))

    def load() -> Callable[[Array], Array]:
        number = next(numbers)
        return lambda x: np.full(10**6, x[0] + number)

    def answer() -> float:
        return float(server.infer_sync("m", {"x": np.zeros(1)})["output_0"][0])

    server = InferenceServer()
    server.register("m", load=load, cache=ResponseCache(max_bytes=10**9))
    for expected in (1, 2):
        assert [answer(), answer()] == [expected, expected]
        server.load_sync("m")
    tracemalloc.start()
    try:
        assert answer() == 3
        kept = tracemalloc.get_traced_memory()[0]
        server.unload_sync("m")
        assert kept - tracemalloc.get_traced_memory()[0] > 7 * 10**6
    finally:
        tracemalloc.stop()
    server.load_sync("m")
    assert answer() == 4


@pytest.mark.parametrize("takes", [{"request": InferenceRequest}, {"x": Any, "context": InferenceContext}])
def test_what_sees_more_than_tensors_is_refused(takes: dict[str, Any]) -> None:
    function: Any = (lambda request: request) if "request" in takes else (lambda x, context: x)
    function.__annotations__ = takes
    server = InferenceServer()
    with pytest.raises(TypeError, match="takes an InferenceRequest or an InferenceContext"):
        server.register("m", function, cache=ResponseCache())
    server.register("m", load=lambda: function, cache=ResponseCache())
    assert error(ask(server, "m", x=[1]))[0] == 503


def test_options_that_cannot_be_right_are_refused() -> None:
    def stream(x: Array) -> Iterator[Array]:
        yield x

    server = InferenceServer()
    wrong: Any
    with pytest.raises(ValueError, match="the answers of a generator are not cached"):
        server.register("m", stream, cache=ResponseCache())
    for wrong in (True, {}, ResponseCache):
        with pytest.raises(TypeError, match="must be a ResponseCache"):
            server.register("m", lambda x: x, cache=wrong)
    for wrong in (0, -1, 1.5, True, "1"):
        with pytest.raises(ValueError, match="max_bytes="):
            ResponseCache(wrong)
    for wrong in (0, -1, float("inf"), float("nan"), True, "1"):
        with pytest.raises(ValueError, match="ttl="):
            ResponseCache(ttl=wrong)


# Single flight


class Gated:
    """A server with a model whose calls wait for the test."""

    def __init__(self, kind: str = "async", **options: Any) -> None:
        self.calls = 0
        self.open = threading.Event()
        self.raises: list[BaseException] = []
        self.server = InferenceServer()
        options = {"cache": ResponseCache(), "max_concurrency": 4, "max_queue": 4, "allow_timeout_override": True, **options}

        def answer(x: Array) -> Array:
            if self.raises:
                raise self.raises.pop()
            return x.copy()

        def model(x: Array) -> Array:
            self.calls += 1
            assert self.open.wait(30)
            return answer(x)

        async def model_async(x: Array) -> Array:
            self.calls += 1
            await until(self.open.is_set)
            return answer(x)

        self.server.register("m", model_async if kind == "async" else model, **options)

    async def ask(self, value: float = 1.0, **more: Any) -> Any:
        return (await self.server.infer("m", {"x": np.array([value])}, **more))["output_0"].tolist()

    async def begin(self, *asks: dict[str, Any]) -> list[asyncio.Task[Any]]:
        """Ask, and wait until one call more runs."""
        wanted = self.calls + 1
        tasks = [asyncio.create_task(self.ask(**more)) for more in asks]
        await self.begun(wanted)
        return tasks

    async def begun(self, calls: int) -> None:
        await until(lambda: self.calls == calls)

    async def end(self, calls: int) -> None:
        """After it, the model was called so often."""
        assert self.calls == calls
        await asyncio.to_thread(self.server.stop)


EQUAL: dict[str, Any] = {}
SHORT: dict[str, Any] = {"parameters": {"timeout": 20_000}}
kinds = pytest.mark.parametrize("kind", ["thread", "async"])


@kinds
async def test_equal_requests_at_the_same_time_call_the_function_once(kind: str) -> None:
    gated = Gated(kind)
    tasks = await gated.begin(*({"id": str(number)} for number in range(6)))
    other = await gated.begin({"value": 2})
    gated.open.set()
    assert await asyncio.gather(*tasks, *other) == [[1]] * 6 + [[2]]
    await gated.end(calls=2)


async def test_a_response_that_is_too_large_to_keep_still_answers_those_that_wait() -> None:
    gated = Gated(cache=ResponseCache(max_bytes=100))
    tasks = await gated.begin(*[EQUAL] * 3)
    gated.open.set()
    assert await asyncio.gather(*tasks) == [[1]] * 3
    assert gated.calls == 1
    assert await gated.ask() == [1]
    await gated.end(calls=2)


@pytest.mark.parametrize("is_late", [False, True], ids=["cancelled", "late"])
async def test_when_the_first_ends_another_one_takes_its_place(is_late: bool) -> None:
    gated = Gated()
    first, *others = await gated.begin(SHORT if is_late else EQUAL, *[EQUAL] * 3)
    if not is_late:
        first.cancel()
    await gated.begun(2)
    gated.open.set()
    assert await asyncio.gather(*others) == [[1]] * 3
    assert first.cancelled() or "did not answer within 0.02 seconds" in str(first.exception())
    await gated.end(calls=2)


async def test_one_that_waits_may_be_cancelled_or_late_and_the_others_go_on() -> None:
    gated = Gated()
    first, second, third, late = await gated.begin(EQUAL, EQUAL, EQUAL, SHORT)
    second.cancel()
    with pytest.raises(InferenceError, match=r"did not answer within 0\.02 seconds") as caught:
        await late
    assert caught.value.status == 504
    gated.open.set()
    assert [await first, await third] == [[1]] * 2
    assert second.cancelled()
    assert outcomes(gated.server) == {"ok": 2, "cancelled": 1, "timeout": 1}
    await gated.end(calls=1)


@kinds
async def test_when_the_first_fails_the_others_run_by_themselves(kind: str) -> None:
    gated = Gated(kind)
    gated.raises = [InferenceError("the first", status=422)]
    tasks = await gated.begin(*[EQUAL] * 4)
    gated.open.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(str(each) for each in found) == ["[1.0]"] * 3 + ["the first"]
    await gated.end(calls=4)


async def test_the_first_passes_its_deadline_and_its_late_response_is_kept() -> None:
    gated = Gated("thread")
    # long enough for a thread of a busy machine to begin: a call that has not begun at its deadline never does
    [first] = await gated.begin({"parameters": {"timeout": 700_000}})
    with pytest.raises(InferenceError, match="did not answer within"):
        await first
    gated.open.set()
    await until(lambda: is_idle(gated.server))
    assert await gated.ask() == [1]
    await gated.end(calls=1)


async def test_those_that_wait_are_as_many_as_may_run_and_wait() -> None:
    gated = Gated(max_concurrency=1, max_queue=2)
    tasks = await gated.begin(*[EQUAL] * 4)  # the first is in its slot
    with pytest.raises(InferenceError, match="is busy: 1 call runs and 2 wait, which is all it takes") as caught:
        await gated.ask()
    assert caught.value.status == 503
    gated.open.set()
    assert await asyncio.gather(*tasks) == [[1]] * 4
    assert await gated.ask() == [1]
    await gated.end(calls=1)


async def test_what_is_kept_is_answered_while_all_slots_are_taken() -> None:
    gated = Gated(max_concurrency=1, max_queue=0)
    gated.open.set()
    await gated.ask(1.0)
    gated.open.clear()
    [running] = await gated.begin({"value": 2.0})
    assert await gated.ask(1.0) == [1]
    with pytest.raises(InferenceError, match="is busy"):
        await gated.ask(3.0)
    gated.open.set()
    assert await running == [2]
    assert await gated.ask(3.0) == [3]  # the one that was refused left nothing behind
    await gated.end(calls=3)


def test_a_model_that_calls_itself_with_equal_inputs_does_not_wait_for_itself() -> None:
    server = InferenceServer()
    depth: list[int] = []

    def model(x: Array) -> Array:
        depth.append(1)
        return x.copy() if len(depth) == 3 else server.infer_sync("m", {"x": x})["output_0"]

    server.register("m", model, cache=ResponseCache(), max_concurrency=4)
    for _ in range(2):
        assert server.infer_sync("m", {"x": np.ones(1)})["output_0"].tolist() == [1]
        assert len(depth) == 3


@pytest.mark.parametrize("is_stopped", [False, True])
def test_threads_and_event_loops_share_a_flight_also_when_the_server_stops(is_stopped: bool) -> None:
    gated = Gated("thread")
    with ThreadPoolExecutor(6) as threads:
        blocking = [threads.submit(gated.server.infer_sync, "m", {"x": np.array([1.0])}) for _ in range(3)]
        awaiting = [threads.submit(asyncio.run, gated.ask()) for _ in range(2)]
        block_until(lambda: gated.calls == 1)
        time.sleep(0.05)
        stopped = threads.submit(gated.server.stop) if is_stopped else None
        gated.open.set()
        assert [each.result(30)["output_0"].tolist() for each in blocking] == [[1]] * 3
        assert [each.result(30) for each in awaiting] == [[1]] * 2
        if stopped is not None:
            stopped.result(30)
    assert gated.calls == 1
    gated.server.stop()


def test_many_threads_at_random_never_get_another_ones_response() -> None:
    server = InferenceServer()
    calls: list[int] = []

    def model(x: Array) -> Array:
        calls.append(1)
        return np.array([x[0] * 2])

    server.register("m", model, cache=ResponseCache(max_bytes=16_000, ttl=0.005), max_queue=1000)

    def run(seed: int) -> bool:
        numbers = np.random.default_rng(seed).integers(0, 30, 100).tolist()
        return all(server.infer_sync("m", {"x": np.array([n])})["output_0"].tolist() == [2 * n] for n in numbers)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(run, range(8)))
    [stats] = get(server, "/models/m/stats")[1]["model_stats"]
    counts = {name: duration["count"] for name, duration in stats["inference_stats"].items()}
    assert counts["success"] == 800 == counts["cache_hit"] + counts["cache_miss"]
    assert counts["cache_miss"] == stats["inference_count"] == len(calls)
    server.stop()


def test_declared_outputs_and_labels_of_a_kept_response() -> None:
    server = InferenceServer()
    spec = TensorSpec("y", "FP32", [-1], labels=["a", "b"])
    server.register("m", lambda x: x, outputs=[spec], cache=ResponseCache())
    asked = {"outputs": [{"name": "y", "parameters": {"classification": 1}}]}
    for _ in range(2):
        assert outputs(ask(server, "m", asked, x=np.array([1, 2], "f4"))) == {"y": ["2.000000:1:b"]}


@pytest.mark.parametrize("parameters", [{}, {"text": "x" * 10_000}], ids=["nothing", "parameters alone"])
def test_a_response_without_outputs_takes_room_too(parameters: dict[str, Any]) -> None:
    calls: list[int] = []
    server = InferenceServer()

    @server.model("m", cache=ResponseCache(max_bytes=100_000))
    def model(x: Array) -> Any:
        calls.append(int(x[0]))
        return InferenceResponse([], parameters)

    for number in (*range(300), 299):  # the last one is still there
        server.infer_sync("m", {"x": np.array([number])})
    assert len(calls) == 300
    server.infer_sync("m", {"x": np.array([0])})
    assert calls[300:] == [0]  # the first one went, as there was no room
    server.stop()
