"""Where models run, and where content types are read: on the event loop, in worker threads; over ASGI and over WSGI."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, OIPWSGIApp
from oip_asgi.codecs import DatetimeCodec, PandasCodec
from tests.support.asking import ask, outputs
from tests.support.inside import limit_threads
from tests.support.running import INFER, READY, send, ways
from tests.support.talk import Talk
from tests.support.ways import Request, Way, over_asgi, over_wsgi


def test_a_def_runs_in_a_worker_thread_and_health_answers_meanwhile() -> None:
    server = InferenceServer()
    limit_threads(server, 1)
    entered, leave = threading.Event(), threading.Event()
    variable: ContextVar[int] = ContextVar("variable")

    @server.model("m", ready=lambda: True)
    def blocks() -> list[int]:
        entered.set()
        assert leave.wait(10)
        return [threading.get_ident(), variable.get()]

    @server.model("long")
    async def count(x: Any) -> int:
        return len(x)

    long = json.dumps({"inputs": [{"name": "x", "shape": [9000], "datatype": "BYTES", "data": ["abc"] * 9000}]}).encode()

    async def main() -> Any:
        app = OIPApp(server)
        variable.set(7)
        asking = asyncio.create_task(send(app, INFER))
        await asyncio.to_thread(entered.wait, 10)
        assert await send(app, Request("GET", "/health/live")) == (200, {"live": True})
        assert await send(app, READY) == (200, {"ready": True, "live": True})
        assert (await send(app, Request("POST", "/models/long/infer", (), long)))[0] == 200  # which another thread reads
        assert not asking.done()
        leave.set()
        return (await asking)[1]["outputs"][0]["data"]

    thread, seen = asyncio.run(main())
    assert thread != threading.get_ident()
    assert seen == 7  # the context variable of its request


def test_inline_and_async_run_on_the_event_loop() -> None:
    async def model() -> int:
        return threading.get_ident()

    server = InferenceServer()
    server.register("m", lambda: threading.get_ident(), run="inline")
    server.register("async", model)
    assert outputs(ask(server, "m")) == outputs(ask(server, "async")) == {"output_0": [threading.get_ident()]}


async def test_the_threads_are_the_servers_own() -> None:
    server = InferenceServer()
    limit_threads(server, 2)
    lock, running, most = threading.Lock(), [0], [0]
    all_in = threading.Barrier(2)

    @server.model("m")
    def model() -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        all_in.wait(10)
        with lock:
            running[0] -= 1
        return 1

    hosts_own = anyio.to_thread.current_default_thread_limiter()
    hosts_own.total_tokens = 1
    await hosts_own.acquire_on_behalf_of("the host")
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(send, OIPApp(server), INFER)
    assert most == [2]


@pytest.mark.parametrize("calls", [1, 50])
async def test_as_many_threads_as_one_model_may_have_calls(calls: int) -> None:
    server, all_in = InferenceServer(), threading.Barrier(calls)
    server.register("m", lambda: all_in.wait(20) >= 0, max_concurrency=calls)
    server.register("narrow", lambda: 1, max_concurrency=1)
    answers = await asyncio.gather(*(server.infer("m", {}) for _ in range(calls)))
    assert [answer["output_0"].tolist() for answer in answers] == [[True]] * calls
    await asyncio.to_thread(server.stop)


def test_under_wsgi_a_def_runs_where_it_is_called_and_async_on_one_background_loop() -> None:
    before = set(threading.enumerate())
    server = InferenceServer()
    server.register("m", lambda: threading.get_ident())
    loops: set[Any] = set()

    @server.model("async")
    async def model() -> str:
        loops.add(asyncio.get_running_loop())
        return threading.current_thread().name

    way = over_wsgi(OIPWSGIApp(server), "")
    assert outputs(way(INFER)) == {"output_0": [threading.get_ident()]}
    for _ in range(2):
        assert outputs(way(Request("POST", "/models/async/infer", (), INFER.body))) == {"output_0": ["oip_asgi"]}
    assert len(loops) == 1
    server.stop()
    assert "oip_asgi" not in {thread.name for thread in set(threading.enumerate()) - before}
    assert loops.pop().is_closed()
    assert outputs(way(Request("POST", "/models/async/infer", (), INFER.body))) == {"output_0": ["oip_asgi"]}
    server.stop()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # which is the point
def test_the_background_loop_and_the_threads_survive_a_fork() -> None:
    server = InferenceServer()

    @server.model("thread", timeout=5)
    def in_a_thread() -> int:
        time.sleep(0.01)  # so each call has a thread of its own
        return os.getpid()

    @server.model("m")
    async def model() -> int:
        return os.getpid()

    way = over_wsgi(OIPWSGIApp(server), "")
    requests = [INFER, *[Request("POST", "/models/thread/infer", (), INFER.body)] * 8]

    def found() -> set[int]:
        with ThreadPoolExecutor(9) as pool:
            return {outputs(answer)["output_0"][0] for answer in pool.map(way, requests)}

    assert found() == {os.getpid()}
    child = os.fork()
    if child == 0:
        try:
            os._exit(found() != {os.getpid()})
        finally:
            os._exit(2)  # it raised
    assert os.waitpid(child, 0)[1] == 0
    server.stop()


@ways
@pytest.mark.parametrize("how", ["awaits", "raises", "raises later"])
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_model_that_is_cancelled_by_nobody_of_ours(
    way: Callable[[InferenceServer], Way], how: str, timeout: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    server = InferenceServer()

    @server.model("m", timeout=timeout)
    async def model() -> None:
        if how == "awaits":
            task = asyncio.create_task(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(task.cancel)
            await task
        if how == "raises later":
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    assert way(server)(INFER).status == 500
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is asyncio.CancelledError
    assert "in model\n" in caplog.text
    server.stop()


@pytest.mark.parametrize(("elements", "messages"), [(8_000, 1), (100_000, 13)])
async def test_large_answers_leave_in_few_messages(elements: int, messages: int) -> None:
    server = InferenceServer()
    array = np.zeros(elements)
    server.register("m", lambda: (array, array))
    talk = Talk(server, body=b'{"inputs":[],"parameters":{"binary_data_output":true}}')
    await talk.task
    sent = talk.sent
    sizes = [len(message["body"]) for message in sent[1:]]
    assert sum(sizes) == 16 * elements + int(dict(sent[0]["headers"])[b"inference-header-content-length"])
    assert len(sizes) == messages
    assert max(sizes) <= 2**17
    assert sent[1]["body"].startswith(b'{"model_name"')


def test_what_a_model_raises_has_nothing_to_do_with_what_it_has_handled() -> None:
    server = InferenceServer(debug=True)
    contexts: list[BaseException | None] = []

    @server.model("m", timeout=30)
    async def handles() -> int:
        with suppress(RuntimeError):
            await asyncio.to_thread(fails)
        try:
            raise ValueError
        except ValueError as error:
            contexts.append(error.__context__)
        return 1

    def fails() -> None:
        raise RuntimeError

    assert over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer", (), b'{"inputs":[]}')).status == 200
    assert contexts == [None]


WAYS = ("async", "inline", "batch", "stream")
"""What a function does on the event loop that gives a result."""


def register_result(server: InferenceServer, way: str, result: Any) -> None:
    """The model `m`, which gives a result for as many rows."""

    async def answer(x: Any) -> Any:
        return result

    async def stream(x: Any) -> AsyncIterator[Any]:
        yield result

    options: dict[str, dict[str, Any]] = {"inline": {"run": "inline"}, "batch": {"max_batch_size": 1000}}
    function = {"inline": lambda x: result, "stream": stream}.get(way, answer)
    server.register("m", function, **options.get(way, {}))


def to_frame(result: Any) -> Any:
    """A dict as a data frame, where there is pandas."""
    return pytest.importorskip("pandas").DataFrame(result) if isinstance(result, dict) else result


async def ask_result(server: InferenceServer, way: str, result: Any, asked: str | None) -> tuple[int, Any]:
    x = {"name": "x", "shape": [len(result)], "datatype": "INT64", "data": [0] * len(result)}
    document = {"inputs": [x], "outputs": [{"name": "output_0", "parameters": {"content_type": asked}}] if asked else []}
    action = "infer_stream" if way == "stream" else "infer"
    talk = Talk(server, body=json.dumps(document).encode(), action=action)
    await talk.task
    return talk.status, json.loads(talk.body.removeprefix(b"data: "))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("result", "asked", "thread"),
    [
        ({"a": range(10)}, None, "MainThread"),
        ({"a": range(100)}, None, "oip_asgi worker"),
        (["2020-01-01T00:00:00"], "datetime", "oip_asgi worker"),
    ],
    ids=["a short frame", "a long frame", "what the client asks for"],
)
async def test_results_that_take_long_to_convert_become_responses_in_a_worker_thread(
    way: str, result: Any, asked: str | None, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, ran_in, result = InferenceServer(), list[str](), to_frame(result)
    codec, name = (PandasCodec, "encode_response") if asked is None else (DatetimeCodec, "encode_input")
    encode = getattr(codec, name)

    def spied(*args: Any, **options: Any) -> Any:
        ran_in.append(threading.current_thread().name)
        return encode(*args, **options)

    monkeypatch.setattr(codec, name, spied)
    register_result(server, way, result)
    status, answered = await ask_result(server, way, result, asked)
    assert (status, answered["outputs"][0]["shape"]) == (200, [len(result)])
    assert ran_in == [thread]
    server.stop()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("result", "asked", "status"),
    [
        ({"a": [object()] * 100}, None, 500),
        (np.arange(3), "datetime", 400),
    ],
    ids=["a long frame that is none", "a content type that it cannot have"],
)
async def test_a_result_that_a_worker_thread_cannot_convert_is_no_answer(way: str, result: Any, asked: str | None, status: int) -> None:
    server, result = InferenceServer(), to_frame(result)
    register_result(server, way, result)
    assert (await ask_result(server, way, result, asked))[0] == status
    server.stop()
