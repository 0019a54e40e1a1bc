"""`InferenceServer.observe`: what an observer hears of each inference; no request waits for it, and what does not fit is counted."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceRequest, InferenceServer, Observation, OIPApp, ResponseCache, TensorSpec
from tests.support.asking import ask, described, error, logged, outputs
from tests.support.grpc_asgi import ASGI_CLIENTS
from tests.support.grpc_ways import SERVINGS, Client, wire_request
from tests.support.hearing import Hearing
from tests.support.inside import limit_threads
from tests.support.streaming import KINDS, of_kind
from tests.support.ways import Answer, Request, over_asgi

BODY = json.dumps({"id": "7", "inputs": described(x=np.array([1, 2], np.float32)), "parameters": {"who": "me"}}).encode()


@pytest.fixture
def hearing() -> Hearing:
    return Hearing()


@pytest.fixture
def server(hearing: Hearing) -> Iterator[InferenceServer]:
    made = InferenceServer()
    made.observe(hearing)
    yield made
    made.stop()


def test_all_there_is_to_know_of_an_inference(server: InferenceServer, hearing: Hearing) -> None:
    server.register("double", lambda x: x * 2, version="3")
    before = time.time()
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/double/infer", (), BODY))
    assert answer.status == 200
    heard = hearing.wait_for_one()
    assert (heard.model, heard.version, heard.id, heard.error, heard.responses) == ("double", "3", "7", None, 1)
    assert heard.request["x"].tolist() == [1, 2]
    assert heard.request.parameters == {"who": "me"}
    assert heard.response["output_0"].tolist() == [2, 4]
    assert heard.response.model_name == "double"
    assert 0 < heard.seconds < 10
    assert before <= heard.at <= time.time()
    assert heard.transport["path"] == "/models/double/infer"
    assert heard.inputs_sha256 is None


def test_over_grpc_and_from_python(server: InferenceServer, hearing: Hearing) -> None:
    server.register("m", lambda x: x)
    message = wire_request("m", [{"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [3]}}], id="7")
    for serving in SERVINGS.values():
        with serving(server) as address:
            Client(address).ask("ModelInfer", message)
            assert hearing.wait_for_one().transport.invocation_metadata() is not None
    for make_client in ASGI_CLIENTS.values():
        server.start()
        make_client(server).ask("ModelInfer", message)
        server.stop()  # one that is started again is observed again
        heard = hearing.wait_for_one()
        assert (heard.id, heard.request["x"].tolist(), heard.transport is None) == ("7", [3], False)
    server.infer_sync("m", {"x": [3]}, id="8")
    asyncio.run(server.infer("m", {"x": [3]}, id="9"))
    assert [(heard.id, heard.transport) for heard in hearing.wait(2)] == [("8", None), ("9", None)]


def test_errors_are_heard_with_their_status_and_cause(server: InferenceServer, hearing: Hearing) -> None:
    @server.model("m", inputs=[TensorSpec("x", "FP32", [-1])])
    def fails(x: Any) -> Any:
        raise KeyError("secret")

    @server.model("speaks")
    def speaks() -> Any:
        raise InferenceError("no face", status=422, headers={"x-why": "dark"})

    def hear(model: str = "m", /, **arrays: Any) -> Any:
        refused = error(ask(server, model, **arrays))
        heard = hearing.wait_for_one()
        assert (heard.error.status, str(heard.error)) == refused
        return heard

    heard = hear(x=np.array([1], np.float32))
    assert (heard.error.status, repr(heard.error.__cause__), heard.error.__traceback__) == (500, "KeyError('secret')", None)
    assert (heard.request["x"].tolist(), heard.response, heard.responses) == ([1], None, 0)
    refused = error(ask(server, "m", {"id": "7"}, x=np.array([1], np.int64)))
    heard = hearing.wait_for_one()
    assert (heard.error.status, str(heard.error), heard.id, heard.request, heard.response) == (400, refused[1], "7", None, None)
    heard = hear("speaks")
    assert (heard.error.status, heard.error.headers) == (422, {"x-why": "dark"})
    assert error(ask(server, "unknown"))[0] == 404  # which is not heard
    server.unload_sync("m")
    heard = hear(x=[1])
    assert (heard.error.status, heard.request, heard.id, heard.seconds) == (503, None, None, 0.0)


def count(x: Any) -> Iterator[Any]:
    for each in range(x.item()):
        yield np.array([each])
    if x > 3:
        raise RuntimeError("too many")


def test_cached_answers_are_heard_once_for_each_request(server: InferenceServer, hearing: Hearing) -> None:
    calls = list[int]()

    @server.model("m", cache=ResponseCache())
    def double(x: Any) -> Any:
        calls.append(1)
        return x * 2

    for _ in range(3):
        assert outputs(ask(server, "m", x=np.array([1], np.float32))) == {"output_0": [2.0]}
    assert len(calls) == 1
    assert [heard.response["output_0"].tolist() for heard in hearing.wait(3) if heard.response is not None] == [[2], [2], [2]]


async def test_each_request_of_a_batch_is_heard_with_its_own_rows(server: InferenceServer, hearing: Hearing) -> None:
    calls = list[int]()

    @server.model("m", max_batch_size=4, max_batch_delay=5.0)
    def tenfold(x: Any) -> Any:
        calls.append(len(x))
        return x * 10

    await asyncio.gather(*(server.infer("m", {"x": np.array([[each]], np.float32)}, id=str(each)) for each in range(4)))
    assert calls == [4]
    heard = sorted(hearing.wait(4), key=lambda each: str(each.id))
    assert [(each.id, each.request and each.request["x"].tolist()) for each in heard] == [(str(n), [[n]]) for n in range(4)]
    assert [each.response and each.response["output_0"].tolist() for each in heard] == [[[10 * n]] for n in range(4)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_heard_once_at_its_end(server: InferenceServer, hearing: Hearing, kind: str) -> None:
    server.register("m", of_kind(kind, count), inputs=[TensorSpec("x", "INT64", [])])

    async def take(x: int, most: int) -> Any:
        async with aclosing(server.infer_stream("m", {"x": np.array(x)})) as items:
            async for _ in items:
                assert hearing.heard == []
                most -= 1
                if not most:
                    break
        return hearing.wait_for_one()

    heard = asyncio.run(take(3, 9))
    assert (heard.error, heard.response["output_0"].tolist(), heard.responses) == (None, [0], 3)
    heard = asyncio.run(take(0, 9))
    assert (heard.error, heard.response, heard.responses) == (None, None, 0)
    heard = asyncio.run(take(3, 2))
    assert (heard.error.status, heard.response["output_0"].tolist(), heard.responses) == (499, [0], 2)
    assert heard.error.__cause__ is None  # the model has raised nothing
    with pytest.raises(InferenceError):
        asyncio.run(take(4, 9))
    heard = hearing.wait_for_one()
    assert (heard.error.status, repr(heard.error.__cause__), heard.responses) == (500, "RuntimeError('too many')", 4)
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/generate_stream", (), b'{"x":2}'))
    assert (answer.body.count(b"data:"), hearing.wait_for_one().responses) == (2, 2)


@dataclass
class Point:
    x: float
    y: float


@dataclass
class Counted:
    """Made of the request once, not of columns again."""

    x: int

    def __post_init__(self) -> None:
        self.x += 1


class Pair(TypedDict, total=False):
    name: str
    age: int


SOME = b'[{"name":"Ann"}, {"age":7,"name":"\xc3\xa9"}]'
"""Rows that can be no columns."""


def ask_rows(takes: Any, body: bytes, hearing: Hearing | None, *, payload: bool = True) -> Answer:
    def model(rows: Any) -> list[float]:
        return [float(len(row)) if type(row) is dict else float(row.x) for row in rows]

    model.__annotations__["rows"] = list[takes]
    server = InferenceServer()
    server.register("m", model)
    if hearing is not None:
        server.observe(hearing, payload=payload)
    answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/generate", (), body))
    server.stop()
    return answer


@pytest.mark.parametrize(
    ("takes", "body", "heard"),
    [
        (Point, b'[{"x":1,"y":2}]', {"x": [1], "y": [2]}),
        (Point, b'{"x":1,"y":2}', {"x": [1], "y": [2]}),
        (Counted, b'[{"x":1}]', {"x": [2]}),
        (Counted, b'{"x":1}', {"x": [2]}),
        (Pair, SOME, {"rows": [b'{"name":"Ann"}', '{"age":7,"name":"\u00e9"}'.encode()]}),
    ],
)
def test_rows_of_classes_are_heard_as_columns_and_the_answer_is_the_same(takes: Any, body: bytes, heard: Any, hearing: Hearing) -> None:
    answer = ask_rows(takes, body, hearing)
    assert answer == ask_rows(takes, body, None)
    assert answer.status == 200
    request = hearing.wait_for_one().request
    assert {tensor.name: tensor.array.tolist() for tensor in request.inputs} == heard
    if takes is Pair:
        assert (request.inputs[0].datatype, request.inputs[0].parameters) == ("BYTES", {"content_type": "pd_json"})


def test_the_digest_of_rows_that_can_be_no_columns_is_that_of_their_json(hearing: Hearing) -> None:
    def digest(body: bytes) -> Any:
        assert ask_rows(Pair, body, hearing, payload=False).status == 200
        return hearing.wait_for_one().inputs_sha256

    assert digest(SOME) == digest(SOME.replace(b":", b" : "))
    assert len({digest(SOME), digest(SOME.replace(b"Ann", b"Bob")), hashlib.sha256(b"").hexdigest()}) == 3


def test_rows_that_can_be_no_columns_are_refused_where_a_model_needs_columns() -> None:
    def model(rows: Any) -> list[float]:
        return [0.0 for _ in rows]

    def with_request(rows: Any, request: Any) -> list[float]:
        return [0.0 for _ in rows]

    model.__annotations__["rows"] = with_request.__annotations__["rows"] = list[Pair]
    with_request.__annotations__["request"] = InferenceRequest
    server = InferenceServer()
    server.register("cached", model, cache=ResponseCache(1000))
    server.register("columns", with_request)
    text = "the rows can be no columns, which this model needs: rows[0] has no 'age'"
    for name, expected in (("cached", (200, [{"output_0": 0.0}] * 2)), ("columns", (400, {"error": text}))):
        answer = over_asgi(OIPApp(server), "")(Request("POST", f"/models/{name}/generate", (), SOME))
        assert (answer.status, json.loads(answer.body)) == expected


def test_neither_the_model_nor_the_caller_changes_what_is_heard(server: InferenceServer, hearing: Hearing) -> None:
    @server.model("writes")
    def writes(x: Any) -> Any:
        x = x.copy()
        x += 1
        return x

    @server.model("whole")
    def whole(request: InferenceRequest, context: InferenceContext) -> Any:
        request.inputs[0].name = "other"
        request.inputs.clear()
        context.parameters["more"] = 1
        return np.array([1])

    leave = threading.Event()
    server.observe(lambda _: leave.wait(10))
    server.register("m", lambda x: x)
    given = np.zeros(100_000, np.float32)
    for model in ("writes", "whole", "m"):
        answered = server.infer_sync(model, {"x": given})
        given[:], answered.outputs[0].array[:] = 5, 6
    leave.set()
    server.stop()
    heard: Any = hearing.wait(3)
    assert [each.request["x"].max() for each in heard] == [0, 5, 5]
    assert [each.response["output_0"].max() for each in heard] == [1, 1, 5]


@pytest.mark.parametrize("options", [{}, {"cache": ResponseCache()}, {"max_batch_size": 2}])
def test_an_observer_changes_no_arrays(options: dict[str, Any]) -> None:
    """Neither those of other observers, nor those that the cache keeps, nor those that are being sent."""
    tried: list[str] = []
    server = InferenceServer()
    server.register("m", lambda x: {"y": x * 2, "t": np.array([[b"a"]], object)}, **options)

    def writes(observation: Observation) -> None:
        assert observation.request is not None
        assert observation.response is not None
        for tensor in observation.request.inputs + observation.response.outputs:
            try:
                tensor.array[:] = 7
            except ValueError:
                tried.append(tensor.name)

    server.observe(writes)
    body = json.dumps({"inputs": described(x=np.array([[1.0]]))}).encode()
    for _ in range(2):
        answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), body))
        assert json.loads(answer.body)["outputs"][0]["data"] == [2.0]
        answered = server.infer_sync("m", {"x": np.array([[1.0]])})
        assert answered["y"].flags.writeable  # it is the caller's own
    server.stop()
    assert tried == ["x", "y", "t"] * 4


def test_what_it_raises_is_logged_once(server: InferenceServer, hearing: Hearing, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: Observation) -> None:
        raise SystemExit("in the observer")

    async def fails_async(_: Observation) -> None:
        raise ValueError("in the coroutine")

    server.register("m", lambda: 1)
    server.observe(fails)
    server.observe(fails_async)
    server.start()
    for _ in range(3):
        assert ask(server, "m").status == 200
    server.stop()
    assert len(hearing.wait(3)) == 3
    first, second = sorted(logged(caplog), key=lambda record: record.getMessage())
    assert first.levelno == logging.ERROR
    assert "fails failed; if it fails again, that is not logged" in first.getMessage()
    assert "fails_async failed" in second.getMessage()
    assert "in the observer" in str(first.exc_text)
    assert "in the coroutine" in str(second.exc_text)


@pytest.mark.parametrize(("model", "is_async"), [("plain", False), ("async", True), ("batch", False), ("slow", True)])
def test_calls_that_observers_make_are_not_heard(server: InferenceServer, hearing: Hearing, model: str, is_async: bool) -> None:
    """Each would make another, without end."""

    @server.model("async")
    async def answer(x: Any) -> Any:
        return x

    server.register("plain", lambda x: x)
    server.register("batch", lambda x: x, max_batch_size=4)
    server.register("slow", lambda x: x, timeout=20)
    called = threading.Event()
    x = {"x": np.array([[1.0]])}

    def asks(_: Observation) -> None:
        server.infer_sync(model, x)
        called.set()

    async def asks_async(_: Observation) -> None:
        await server.infer(model, x)
        called.set()

    server.observe(asks_async if is_async else asks)
    server.infer_sync("plain", x, id="first")
    assert called.wait(10)
    time.sleep(0.05)
    server.infer_sync("plain", x, id="second")
    server.stop()
    assert [heard.id for heard in hearing.heard] == ["first", "second"]


def test_models_and_sample() -> None:
    server, one, late, some = InferenceServer(), Hearing(), Hearing(), Hearing()
    server.register("a", lambda: 1, run="inline")
    server.observe(one, models=["a"])
    server.observe(late, models=["b"])
    server.observe(some, sample=0.25, max_queue=5000)
    server.register("b", lambda: 1, run="inline")
    server.start()
    for _ in range(600):
        server.infer_sync("a", {})
    server.infer_sync("b", {})
    server.stop()
    assert {heard.model for heard in one.heard} == {"a"}
    assert [heard.model for heard in late.heard] == ["b"]
    assert 80 < len(some.heard) < 220


def test_whether_a_request_is_of_the_sample_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server, hearing, numbers = InferenceServer(), Hearing(), iter([0.5, 0.1, 0.5, 0.1])
    monkeypatch.setattr("random.random", lambda: next(numbers))
    server.register("m", lambda x: x, inputs=[TensorSpec("x", "FP64", [-1])])
    server.observe(hearing, sample=0.25)
    for value in (1.0, 2.0):
        server.infer_sync("m", {"x": np.array([value])})
        with pytest.raises(InferenceError, match="expected FP64"):
            server.infer_sync("m", {"x": np.array([b"text"], object)})
    server.stop()
    assert [heard.error is None for heard in hearing.heard] == [False, False]  # the refused ones
    assert next(numbers, None) is None


def test_without_payload_there_is_a_digest() -> None:
    server, hearing = InferenceServer(), Hearing()
    server.register("m", lambda x, n: x)
    server.observe(hearing, payload=False)
    x, n = np.array([[1.5, 2]], np.float32), np.array([b"ab"], object)
    server.infer_sync("m", {"x": x, "n": n}, parameters={"who": "me"})
    heard = hearing.wait_for_one()
    text = b'["n","BYTES",[1]]\n\x02\x00\x00\x00ab["x","FP32",[1,2]]\n' + x.tobytes()
    assert heard.inputs_sha256 == hashlib.sha256(text).hexdigest()
    assert (heard.request.inputs, heard.request.parameters, heard.response.outputs) == ([], {"who": "me"}, [])
    with pytest.raises(InferenceError):
        server.infer_sync("m", {"y": x})
    assert hearing.wait_for_one().inputs_sha256 is None
    server.stop()


def test_neither_warm_up_nor_output_options_are_heard(server: InferenceServer, hearing: Hearing) -> None:
    specs: Any = {"inputs": [TensorSpec("x", "FP32", [-1])], "outputs": [TensorSpec("y", "FP32", [-1])]}
    server.register("m", lambda x: x, **specs, warm_up=True, load=lambda: None)
    server.start()
    asked = {"id": "real", "outputs": [{"name": "y", "parameters": {"classification": 1}}]}
    assert outputs(ask(server, "m", asked, x=np.array([1, 3], np.float32))) == {"y": ["3.000000:1"]}
    heard = hearing.wait_for_one()
    assert (heard.id, heard.response["y"].tolist()) == ("real", [1, 3])


def yields(observation: Observation) -> Iterator[Observation]:
    yield observation


async def yields_later(observation: Observation) -> AsyncIterator[Observation]:
    yield observation


@pytest.mark.parametrize(
    ("observe", "kind", "text"),
    [
        (lambda server: server.observe(3), TypeError, "observe: function=3 must be a callable"),
        (lambda server: server.observe(Hearing), TypeError, "must be a callable, which takes an Observation: no class, and nothing with"),
        (lambda server: server.observe(yields), TypeError, "observe: function=<function yields at .*: no class, and nothing with yield"),
        (lambda server: server.observe(yields_later), TypeError, "observe: function=<function yields_later at "),
        (lambda server: server.observe(print, [""]), ValueError, r"observe: models=\[''\] must be a list of names of models"),
        (lambda server: server.observe(print, ["\ud800"]), ValueError, "must be a list of names of models"),
        (lambda server: server.observe(print, models="churn"), ValueError, "observe: models='churn' must be a list of names of models"),
        (lambda server: server.observe(print, sample=0), ValueError, "observe: sample=0 must be a number above 0, and 1 at most"),
        (lambda server: server.observe(print, max_queue=0), ValueError, "observe: max_queue=0 must be an integer, 1 or more"),
        (lambda server: server.observe(print, payload=1), TypeError, "observe: payload=1 must be True or False"),
    ],
)
def test_wrong_arguments(observe: Callable[[InferenceServer], None], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        observe(InferenceServer())


def test_a_request_does_not_wait_and_the_log_tells_of_what_does_not_fit_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave, entered, got, passed = threading.Event(), threading.Event(), list[str | None](), 0.0
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed)

    def slow(observation: Observation) -> None:
        entered.set()
        assert leave.wait(10)
        got.append(observation.id)

    server = InferenceServer()
    server.register("m", lambda: 1, run="inline")
    server.observe(slow, max_queue=2)
    server.infer_sync("m", {}, id="0")
    assert entered.wait(10)
    for each in range(1, 13):
        server.infer_sync("m", {}, id=str(each))
        if each == 11:
            passed = 61.0
    name = f"{test_a_request_does_not_wait_and_the_log_tells_of_what_does_not_fit_once_a_minute.__name__}.<locals>.slow"
    assert [record.getMessage() for record in logged(caplog)] == [
        f"the observer {name} is too slow: {dropped} dropped, as only 2 may wait: make it quicker, or observe with sample= or a larger "
        "max_queue="
        for dropped in ("1 observation was", "9 observations were")
    ]
    server.infer_sync("m", {})
    passed = 0.0  # else the deadline of `stop` would have passed
    leave.set()
    server.start()
    server.stop()
    assert got == ["0", "1", "2"]
    assert " is too slow: 1 observation was dropped, as only 2 may wait" in logged(caplog)[-1].getMessage()


def test_it_has_one_thread_and_coroutines_the_background_loop() -> None:
    threads, loops = set[int](), set[object]()
    server = InferenceServer()
    server.register("m", lambda: threading.get_ident())

    async def observe_async(_: Observation) -> None:
        await asyncio.sleep(0)
        loops.add((threading.get_ident(), id(asyncio.get_running_loop())))

    server.observe(lambda _: threads.add(threading.get_ident()))
    server.observe(observe_async)
    models = {outputs(ask(server, "m"))["output_0"][0] for _ in range(3)}
    server.start()
    server.stop()
    assert len(threads) == len(loops) == 1
    assert threads.isdisjoint({threading.get_ident(), *models})


@pytest.mark.parametrize("blocks", ["the observer", "a hook"])
def test_the_stop_waits_no_longer_than_the_timeout(blocks: str, caplog: pytest.LogCaptureFixture) -> None:
    leave, has_begun = threading.Event(), threading.Event()
    server = InferenceServer(shutdown_timeout=0.05)
    limit_threads(server, 1)
    server.register("m", lambda: 1)
    server.observe((lambda _: leave.wait(20)) if blocks == "the observer" else print, max_queue=2)

    def load() -> object:
        has_begun.set()
        leave.wait(20)
        return lambda x: x

    async def main() -> float:
        async with server.lifespan():
            for _ in range(3 if blocks == "a hook" else 6):
                await server.infer("m", {})
            if blocks == "a hook":
                server.register("loads", load=load)
                loading = asyncio.create_task(server.load("loads"))
                await asyncio.to_thread(has_begun.wait, 10)
            begun = time.monotonic()
        if blocks == "a hook":
            loading.cancel()
        return time.monotonic() - begun

    try:
        assert asyncio.run(main()) < 15
    finally:
        leave.set()
    if blocks == "the observer":  # how many had no room depends on when it began
        *_, before, last = [record.getMessage().partition(" is too slow: ")[2] for record in logged(caplog)]
        assert (" dropped, as only 2 may wait: " in before, last) == (True, "2 observations were dropped, as the server stops")


FORKED = """
import atexit, os, sys, time
from oip_asgi import InferenceServer

server = InferenceServer()
server.register("m", lambda: 1)

def observe(observation):
    time.sleep(0.05)
    print(observation.id, "here" if os.getpid() == here else "elsewhere", flush=True)

server.observe(observe)
atexit.register(server.stop)
here = os.getpid()
server.infer_sync("m", {}, id="before")
child = os.fork()
here = os.getpid()
server.infer_sync("m", {}, id="after" if child else "child")
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks there")
def test_after_a_fork_each_process_hands_over_its_own_at_its_end() -> None:
    """As where gunicorn forks its workers with --preload, and `atexit` stops the server."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.splitlines()) == ["after here", "before here", "child here"]
    assert done.stderr == ""


def test_a_stream_that_the_garbage_collector_ends_is_heard_wherever_that_happens() -> None:
    """From Python 3.12 on, the collector may run within any line, and what it closes is observed too."""
    leave, asked = threading.Event(), threading.Event()
    server = InferenceServer(shutdown_timeout=0.1)
    server.register("m", lambda: 1, run="inline")
    server.observe(lambda _: leave.wait(20), max_queue=1)

    def trace(frame: Any, _: str, __: Any) -> Any:
        """Call the model in each line of the module that has the queue."""
        if not frame.f_code.co_filename.endswith("observers.py"):
            return None
        server.infer_sync("m", {})
        return trace

    def ask_often() -> None:
        sys.settrace(trace)
        for _ in range(3):
            server.infer_sync("m", {})
        sys.settrace(None)
        asked.set()

    threading.Thread(target=ask_often, daemon=True).start()
    assert asked.wait(20)
    leave.set()
    server.stop()
