"""Where models run, when they load, and what they are told to be ready: over ASGI and over WSGI."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest

from oip_asgi import InferenceServer, OIPApp, OIPWSGIApp
from oip_asgi._runtime.threads import WorkerThreads
from tests.support.asking import ask, error, get, outputs
from tests.support.ways import Answer, Request, Way, over_asgi, over_wsgi

INFER = Request("POST", "/models/m/infer", (), b'{"inputs":[]}')
READY = Request("GET", "/health/ready")

ways = pytest.mark.parametrize("way", [lambda s: over_asgi(OIPApp(s), ""), lambda s: over_wsgi(OIPWSGIApp(s), "")], ids=["ASGI", "WSGI"])


async def send(app: Any, request: Request) -> tuple[int, Any]:
    """One request over ASGI on the running event loop."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": request.body}]

    async def receive() -> Any:
        return messages.pop()

    async def record(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": request.method, "path": request.path, "headers": []}
    await app(scope, receive, record)
    return sent[0]["status"], json.loads(b"".join(message["body"] for message in sent[1:]))


def test_a_def_runs_in_a_worker_thread_and_health_answers_meanwhile() -> None:
    server = InferenceServer()
    entered, leave = threading.Event(), threading.Event()

    @server.model("m")
    def blocks() -> int:
        entered.set()
        assert leave.wait(10)
        return threading.get_ident()

    async def main() -> None:
        app = OIPApp(server)
        async with anyio.create_task_group() as group:
            answers: list[Any] = []

            async def infer() -> None:
                answers.append(await send(app, INFER))

            group.start_soon(infer)
            await anyio.to_thread.run_sync(entered.wait)
            assert await send(app, Request("GET", "/health/live")) == (200, {"live": True})
            assert await send(app, READY) == (200, {"ready": True, "live": True})
            assert answers == []
            leave.set()
        [(status, body)] = answers
        assert status == 200
        assert body["outputs"][0]["data"] != [threading.get_ident()]

    asyncio.run(main())


def test_inline_and_async_run_on_the_event_loop() -> None:
    server = InferenceServer()
    server.register("m", lambda: threading.get_ident(), run="inline")

    @server.model("async")
    async def model() -> int:
        assert asyncio.get_running_loop()
        return threading.get_ident()

    assert outputs(ask(server, "m")) == outputs(ask(server, "async")) == {"output_0": [threading.get_ident()]}


def test_a_def_sees_the_context_variables_of_its_request() -> None:
    variable: ContextVar[int] = ContextVar("variable")
    server = InferenceServer()
    server.register("m", lambda: variable.get())

    async def main() -> Any:
        variable.set(7)
        return await send(OIPApp(server), INFER)

    _, body = asyncio.run(main())
    assert body["outputs"][0]["data"] == [7]


def test_the_threads_are_the_servers_own() -> None:
    server = InferenceServer(worker_threads=2)
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

    async def main() -> None:
        hosts_own = anyio.to_thread.current_default_thread_limiter()
        hosts_own.total_tokens = 1
        await hosts_own.acquire_on_behalf_of("the host")
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(send, OIPApp(server), INFER)

    asyncio.run(main())
    assert most == [2]


def test_health_does_not_wait_behind_models() -> None:
    server = InferenceServer(worker_threads=1)
    entered, leave = threading.Event(), threading.Event()

    @server.model("m", ready=lambda: True)
    def model() -> int:
        entered.set()
        assert leave.wait(10)
        return 1

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(send, OIPApp(server), INFER)
            await anyio.to_thread.run_sync(entered.wait)
            assert await send(OIPApp(server), READY) == (200, {"ready": True, "live": True})
            leave.set()

    asyncio.run(main())


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


def test_a_thread_that_the_system_refuses_takes_no_place_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = WorkerThreads(2)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="can't start"):
                threads.submit(int)
    ran: list[str] = []
    threads.submit(partial(ran.append, "first")).result(20)
    assert ran == ["first"]
    threads.stop()


def test_the_background_loop_survives_a_fork() -> None:
    server = InferenceServer()

    @server.model("m")
    async def model() -> int:
        return os.getpid()

    way = over_wsgi(OIPWSGIApp(server), "")
    assert outputs(way(INFER)) == {"output_0": [os.getpid()]}
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, way(INFER).body)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert json.loads(pipe.read())["outputs"][0]["data"] == [child]
    assert os.waitpid(child, 0)[1] == 0
    server.stop()


# Loading


def server_of(names: list[str], load: Callable[[str], Any]) -> InferenceServer:
    """A server of several models, whose `load` is told which it is."""
    server = InferenceServer()
    for name in names:
        server.register(name, lambda: 1, load=partial(load, name))
    return server


def loading_server(load: Callable[[], Any], **arguments: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", lambda: 1, load=load, **arguments)
    return server


@ways
@pytest.mark.parametrize("is_async", [False, True])
def test_load_runs_once_before_the_first_request(way: Callable[[InferenceServer], Way], is_async: bool) -> None:
    loaded: list[int] = []

    async def load_async() -> None:
        loaded.append(1)

    server = loading_server(load_async if is_async else lambda: loaded.append(1))
    send_request = way(server)
    assert send_request(Request("GET", "/health/live")).status == 200
    assert send_request(Request("GET", "/models/m")).status == 200
    assert loaded == []
    assert send_request(INFER).status == 200
    assert send_request(READY).status == 200
    assert loaded == [1]
    server.stop()


@ways
def test_readiness_loads_too(way: Callable[[InferenceServer], Way]) -> None:
    loaded: list[int] = []
    send_request = way(loading_server(lambda: loaded.append(1)))
    assert send_request(Request("GET", "/models/m/ready")).body == b'{"name":"m","ready":true}'
    assert loaded == [1]


@ways
@pytest.mark.parametrize("how", ["raises", "returns a coroutine"])
def test_a_load_that_fails(way: Callable[[InferenceServer], Way], how: str, caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    async def coroutine() -> None: ...

    def load() -> Any:
        attempts.append(1)
        if how == "raises":
            raise RuntimeError("the disk is gone")
        return coroutine()

    server = loading_server(load)
    server.register("other", lambda: 2)
    send_request = way(server)
    for _ in range(2):
        assert error(send_request(INFER)) == (503, "model 'm' is not ready: its load failed, see the server's log")
        assert (send_request(READY).status, send_request(READY).body) == (503, b'{"ready":false,"live":true}')
        assert send_request(Request("GET", "/models/m/ready")).body == b'{"name":"m","ready":false}'
    assert send_request(Request("GET", "/models/other/ready")).status == 200
    assert outputs(send_request(Request("POST", "/models/other/infer", (), INFER.body))) == {"output_0": [2]}
    assert attempts == [1]
    assert [record.getMessage() for record in caplog.records] == ["model 'm': load= raised, so it will never be ready"]
    assert ("the disk is gone" if how == "raises" else "returned a coroutine") in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_fifty_concurrent_first_requests_load_once(is_async: bool) -> None:
    loaded: list[int] = []
    waiting = 0

    def load() -> None:
        loaded.append(1)
        while waiting < 50:
            threading.Event().wait(0.001)

    async def load_async() -> None:
        loaded.append(1)
        while waiting < 50:
            await asyncio.sleep(0.001)

    server = loading_server(load_async if is_async else load)

    async def main() -> list[Any]:
        async def one() -> Any:
            nonlocal waiting
            waiting += 1
            return await send(OIPApp(server), INFER)

        return await asyncio.gather(*[one() for _ in range(50)])

    assert [status for status, _ in asyncio.run(main())] == [200] * 50
    assert loaded == [1]


def test_threads_of_wsgi_wait_for_the_first_to_load() -> None:
    loaded: list[int] = []
    started = threading.Barrier(8)

    def load() -> None:
        loaded.append(1)
        started.wait(10)

    way = over_wsgi(OIPWSGIApp(loading_server(load)), "")
    answers: list[Answer] = []

    def one() -> None:
        answers.append(way(INFER))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(7):
        threading.Thread(target=started.wait, args=(10,)).start()
    for thread in threads:
        thread.join(10)
    assert [answer.status for answer in answers] == [200] * 8
    assert loaded == [1]


def test_while_the_host_starts_requests_are_told_that_models_are_loading() -> None:
    entered, leave = threading.Event(), threading.Event()

    def load() -> None:
        entered.set()
        assert leave.wait(10)

    server = loading_server(load)
    starting = threading.Thread(target=server.start)
    starting.start()
    assert entered.wait(10)
    assert error(ask(server, "m")) == (503, "model 'm' is not ready: it is still loading")
    assert get(server, "/health/ready") == (503, {"ready": False, "live": True})
    assert get(server, "/health/live") == (200, {"live": True})
    leave.set()
    starting.join(10)
    assert get(server, "/health/ready") == (200, {"ready": True, "live": True})
    server.stop()


@pytest.mark.parametrize("names", [["m"], ["m", "n"]])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_load_goes_on_when_the_request_that_began_it_is_cancelled(names: list[str], is_async: bool) -> None:
    loaded: list[str] = []
    leave = threading.Event()

    def load(name: str) -> None:
        loaded.append(name)
        assert leave.wait(10)

    async def load_async(name: str) -> None:
        loaded.append(name)
        while not leave.is_set():
            await asyncio.sleep(0.001)

    server = server_of(names, load_async if is_async else load)

    async def main() -> None:
        first = asyncio.create_task(send(OIPApp(server), INFER))
        while len(loaded) < len(names):
            await asyncio.sleep(0.001)
        second = asyncio.create_task(send(OIPApp(server), INFER))
        await asyncio.sleep(0.001)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        gc.collect()
        await asyncio.sleep(0.01)
        assert not second.done()
        leave.set()
        assert (await second)[0] == 200

    asyncio.run(main())
    assert sorted(loaded) == names
    server.stop()


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("names", [["m"], ["m", "n"]])
def test_loads_whose_event_loop_ends_are_taken_up_by_the_next(names: list[str], has_begun: bool) -> None:
    loaded: list[str] = []

    async def load(name: str) -> None:
        loaded.append(name)
        if len(loaded) <= len(names) and has_begun:
            await asyncio.sleep(3600)

    server = server_of(names, load)

    async def ends() -> None:
        first = asyncio.create_task(send(OIPApp(server), INFER))
        await asyncio.sleep(0)
        while has_begun and len(loaded) < len(names):
            await asyncio.sleep(0)
        assert not first.done()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # as the end of a loop does

    async def loads() -> None:
        assert (await send(OIPApp(server), INFER))[0] == 200
        assert (await send(OIPApp(server), READY))[0] == 200

    asyncio.run(ends())
    assert loaded == (names if has_begun else [])
    asyncio.run(loads())
    assert loaded == names * (2 if has_begun else 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python tells of the tasks that are left there
@pytest.mark.parametrize("names", [["m"], ["m", "n"]])
@pytest.mark.parametrize("is_async", [False, True])
def test_loads_whose_event_loop_is_closed_under_them_are_taken_up_by_the_next(names: list[str], is_async: bool) -> None:
    loaded: list[str] = []
    leave = threading.Event()

    def load(name: str) -> None:
        loaded.append(name)
        assert len(loaded) > len(names) or leave.wait(10)

    async def load_async(name: str) -> None:
        loaded.append(name)
        if len(loaded) <= len(names):
            await asyncio.sleep(3600)

    server = server_of(names, load_async if is_async else load)
    loop = asyncio.new_event_loop()
    with pytest.raises(TimeoutError):
        loop.run_until_complete(asyncio.wait_for(send(OIPApp(server), INFER), 0.1))
    loop.close()
    assert sorted(loaded) == names
    assert asyncio.run(asyncio.wait_for(send(OIPApp(server), INFER), 10))[0] == 200
    assert asyncio.run(asyncio.wait_for(send(OIPApp(server), READY), 10))[0] == 200
    assert sorted(loaded) == sorted(names * 2)
    leave.set()
    server.stop()
    gc.collect()


def test_lifespan_and_start_load_each_time_they_begin() -> None:
    loaded: list[str] = []
    server = loading_server(lambda: loaded.append(threading.current_thread().name))
    server.register("late", lambda: 1, load=lambda: loaded.append("late"))

    async def main() -> None:
        async with server.lifespan():
            assert len(loaded) == 2
            async with server.lifespan():
                assert (await send(OIPApp(server), INFER))[0] == 200
            assert (await send(OIPApp(server), INFER))[0] == 200
            assert len(loaded) == 2

    asyncio.run(main())
    assert "MainThread" not in loaded
    server.start()
    assert len(loaded) == 4
    assert {"MainThread", "late"} == set(loaded[2:])
    server.register("later", lambda: 1, load=lambda: loaded.append("later"))
    assert ask(server, "later").status == 200
    server.stop()
    server.stop()
    assert loaded[4:] == ["later"]


def test_two_event_loops_one_after_the_other() -> None:
    server = loading_server(lambda: None)

    async def main() -> Any:
        return await send(OIPApp(server), INFER)

    assert asyncio.run(main())[0] == asyncio.run(main())[0] == 200


@ways
@pytest.mark.parametrize("is_async", [False, True])
def test_ready_is_asked_at_each_check(way: Callable[[InferenceServer], Way], is_async: bool) -> None:
    state: list[Any] = [1]

    def ready() -> Any:
        return state[0]

    async def ready_async() -> Any:
        return state[0]

    server = InferenceServer()
    server.register("m", lambda: 1, ready=ready_async if is_async else ready)
    send_request = way(server)
    assert send_request(READY).status == 200
    state[0] = None
    assert (send_request(READY).status, send_request(READY).body) == (503, b'{"ready":false,"live":true}')
    answer = send_request(Request("GET", "/models/m/ready"))
    assert (answer.status, answer.body) == (503, b'{"name":"m","ready":false}')
    assert send_request(Request("HEAD", "/models/m/ready")).status == 503
    assert send_request(INFER).status == 200
    server.stop()


def test_a_ready_that_raises_counts_as_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()
    server.register("m", lambda: 1, ready=lambda: 1 / 0)
    with caplog.at_level(logging.ERROR, "oip_asgi"):
        assert get(server, "/health/ready") == (503, {"ready": False, "live": True})
    assert "ZeroDivisionError" in caplog.text


def test_an_empty_server_is_not_ready_unless_it_says_so() -> None:
    assert get(InferenceServer(), "/health/ready") == (503, {"ready": False, "live": True})
    assert get(InferenceServer(ready_when_empty=True), "/health/ready") == (200, {"ready": True, "live": True})
    assert get(InferenceServer(), "") == (200, {"name": "oip_asgi", "version": "0.1.0", "extensions": ["binary_tensor_data"]})


def test_a_model_that_exits_the_interpreter_is_not_caught() -> None:
    server = InferenceServer()

    @server.model("m", run="inline")
    def model() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(server, "m")


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

    assert error(way(server)(INFER)) == (500, "model 'm' failed: see the server's log")
    assert "CancelledWithin" in caplog.text
    server.stop()


def test_trio_runs_it_too() -> None:
    loaded: list[int] = []
    server = loading_server(lambda: loaded.append(1))

    async def main() -> list[Any]:
        answers: list[Any] = []

        async def one() -> None:
            answers.append(await send(OIPApp(server), INFER))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(one)
        return answers

    assert [status for status, _ in anyio.run(main, backend="trio")] == [200] * 3
    assert loaded == [1]


@pytest.mark.parametrize(("elements", "messages"), [(60_000, 1), (100_000, 13)])
def test_large_answers_leave_in_few_messages(elements: int, messages: int) -> None:
    server = InferenceServer()
    array = np.zeros(elements)
    server.register("m", lambda: (array, array))
    sent: list[Any] = []

    async def main() -> None:
        body = b'{"inputs":[],"parameters":{"binary_data_output":true}}'

        async def receive() -> Any:
            return {"type": "http.request", "body": body}

        async def record(message: Any) -> None:
            sent.append(message)

        await OIPApp(server)({"type": "http", "method": "POST", "path": INFER.path, "headers": []}, receive, record)

    asyncio.run(main())
    sizes = [len(message["body"]) for message in sent[1:]]
    assert sum(sizes) == 16 * elements + int(dict(sent[0]["headers"])[b"inference-header-content-length"])
    assert len(sizes) == messages
    assert messages == 1 or max(sizes) <= 2**17
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
