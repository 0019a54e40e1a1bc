"""When models load, and what readiness says of them: over ASGI and over WSGI."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp
from tests.support.asking import NOT_READY, ask, error, get, outputs, states
from tests.support.running import INFER, READY, Gate, as_async, send, ways
from tests.support.talk import until
from tests.support.ways import Request, Way, asked_together, over_wsgi


def loading_server(load: Callable[[], Any], **arguments: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", lambda: 1, load=load, **arguments)
    return server


@ways
@pytest.mark.parametrize(
    ("how", "is_async"),
    [
        *((how, False) for how in ("raises", "returns a coroutine", "finds no next one", "asks its own model")),
        *product((GeneratorExit, asyncio.CancelledError), (False, True)),
    ],
)
def test_a_load_that_fails(
    way: Callable[[InferenceServer], Way], how: str | type[BaseException], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    async def coroutine() -> None: ...

    def load() -> Any:
        attempts.append(1)
        if isinstance(how, type):
            raise how
        if how == "raises":
            raise RuntimeError("the disk is gone")
        if how == "finds no next one":
            return next(iter(()))
        if how == "asks its own model":
            return server.infer_sync("m", {})  # which would wait for this load for ever
        return coroutine()

    async def load_async() -> Any:
        load()

    server = loading_server(load_async if is_async else load)
    server.register("other", lambda: 2)
    send_request = way(server)
    for _ in range(2):
        refused = send_request(INFER)
        assert error(refused) == (503, "model 'm' is not ready: its load failed, see the server's log")
        assert "retry-after" not in refused.headers
        failed = b'{"ready":false,"live":true,"models":[{"name":"m","state":"UNAVAILABLE","reason":"load failed, see the server\'s log"}]}'
        assert (send_request(READY).status, send_request(READY).body) == (503, failed)
        assert send_request(Request("GET", "/models/m/ready")).body == b'{"name":"m","ready":false}'
    assert send_request(Request("GET", "/models/other/ready")).status == 200
    assert outputs(send_request(Request("POST", "/models/other/infer", (), INFER.body))) == {"output_0": [2]}
    assert attempts == [1]
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"model 'm': load= raised, so {NOT_READY}")
    assert message.endswith(": it returned a coroutine: register the async def itself") is (how == "returns a coroutine")
    assert ("the disk is gone" if how == "raises" else getattr(how, "__name__", "")) in caplog.text
    server.stop()


@pytest.mark.parametrize("is_async", [False, True])
def test_models_whose_loads_ask_each_other_fail_to_load(is_async: bool) -> None:
    server = InferenceServer()

    def load(other: str) -> Any:
        server.infer_sync(other, {})

    async def load_async(other: str) -> Any:
        await server.infer(other, {})

    for name, other in ("ab", "ba"):
        server.register(name, load=partial(load_async if is_async else load, other))
    with pytest.raises(InferenceError, match="model 'a' is not ready: its load failed"):
        server.infer_sync("a", {})
    assert [model.state for model in server.models()] == ["failed", "failed"]


@pytest.mark.parametrize("reloads", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_loads_that_begin_apart_and_ask_each_other_fail(is_async: bool, reloads: bool) -> None:
    server, both, begun, statuses = InferenceServer(), threading.Barrier(2, timeout=20), set[str](), list[int]()

    def wait_for_both(other: str) -> None:
        if other not in begun:  # else it is loaded once more, as the other one has failed
            begun.add(other)
            both.wait()

    def load(other: str) -> Any:
        wait_for_both(other)
        return server.load_sync(other) if reloads else server.infer_sync(other, {})

    async def load_async(other: str) -> Any:
        await asyncio.to_thread(wait_for_both, other)
        return await (server.load(other) if reloads else server.infer(other, {}))

    def ask(name: str) -> None:
        try:
            server.infer_sync(name, {})
        except InferenceError as error:
            statuses.append(error.status)

    for name, other in ("ab", "ba"):
        server.register(name, load=partial(load_async if is_async else load, other))
    threads = [threading.Thread(target=ask, args=[name], daemon=True) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert statuses == [503, 503]
    assert [model.state for model in server.models()] == ["failed", "failed"]


def test_what_a_load_has_started_may_load_the_model_later() -> None:
    """As a task that watches the file does."""
    loads: list[int] = []

    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []
        loaded = asyncio.Event()

        async def load_again() -> None:
            await loaded.wait()
            await server.load("m")

        async def load() -> Any:
            loads.append(1)
            if len(loads) == 1:
                tasks.append(asyncio.create_task(load_again()))
            return lambda: len(loads)

        server = InferenceServer()
        server.register("m", load=load)
        await server.load("m")
        loaded.set()
        await asyncio.gather(*tasks)
        assert (await server.infer("m", {}))["output_0"].tolist() == [2]

    asyncio.run(main())


def test_a_model_may_give_itself_up() -> None:
    server, unloaded = InferenceServer(), threading.Event()

    def model() -> int:
        server.unload_sync("m")
        return 1

    server.register("m", model, unload=unloaded.set)
    assert server.infer_sync("m", {})["output_0"].tolist() == [1]
    assert unloaded.wait(20)
    assert [model.state for model in server.models()] == ["unloaded"]


@ways
@pytest.mark.parametrize("is_async", [False, True])
def test_first_requests_that_come_together_load_once(way: Callable[[InferenceServer], Way], is_async: bool) -> None:
    loaded: list[int] = []

    def load() -> None:
        loaded.append(1)
        time.sleep(0.1)

    server = loading_server(as_async(load) if is_async else load)
    assert asked_together(way(server), INFER) == [200] * 8
    assert loaded == [1]
    server.stop()


def test_while_the_host_starts_answers_say_that_models_are_loading() -> None:
    gate = Gate()
    server = loading_server(gate)
    starting = threading.Thread(target=server.start)
    starting.start()
    assert gate.entered.wait(10)
    answer = ask(server, "m")
    assert error(answer) == (503, "model 'm' is not ready: it is still loading")
    assert answer.headers["retry-after"] == "1"
    assert get(server, "/health/ready") == (503, {"ready": False, "live": True, "models": [{"name": "m", "state": "LOADING"}]})
    assert get(server, "/health/live") == (200, {"live": True})
    gate.leave.set()
    starting.join(10)
    assert get(server, "/health/ready") == (200, {"ready": True, "live": True})
    server.stop()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("asks", ["load", "request"])
def test_a_load_goes_on_where_its_caller_leaves(asks: str, is_async: bool) -> None:
    gate, loaded = Gate(), list[int]()

    def load() -> None:
        loaded.append(1)
        gate()

    server = loading_server(as_async(load) if is_async else load)

    async def main() -> None:
        first = asyncio.create_task(server.load("m") if asks == "load" else send(OIPApp(server), INFER))
        await until(gate.entered.is_set)
        assert states(server) == {"m": "loading"}
        second = asyncio.create_task(send(OIPApp(server), INFER))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        gc.collect()
        await asyncio.sleep(0.01)
        assert not second.done()
        gate.leave.set()
        assert (await second)[0] == 200

    asyncio.run(main())
    assert (loaded, states(server)) == ([1], {"m": "ready"})
    server.stop()


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_load_whose_event_loop_ends_is_taken_up_by_the_next(has_begun: bool) -> None:
    loaded: list[int] = []

    async def load() -> None:
        loaded.append(1)
        if len(loaded) == 1 and has_begun:
            await asyncio.sleep(3600)

    server = loading_server(load)

    async def ends() -> None:
        first = asyncio.create_task(send(OIPApp(server), INFER))
        await asyncio.sleep(0)
        while has_begun and not loaded:
            await asyncio.sleep(0)
        assert not first.done()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # as the end of a loop does

    async def loads() -> None:
        assert (await send(OIPApp(server), INFER))[0] == 200
        assert (await send(OIPApp(server), READY))[0] == 200

    asyncio.run(ends())
    assert loaded == [1] * has_begun
    asyncio.run(loads())
    assert loaded == [1] * (1 + has_begun)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python tells of the tasks that are left there
@pytest.mark.parametrize("is_async", [False, True])
def test_a_load_whose_event_loop_is_closed_under_it_is_taken_up_by_the_next(is_async: bool) -> None:
    loaded: list[int] = []
    leave = threading.Event()

    def load() -> None:
        loaded.append(1)
        assert len(loaded) > 1 or leave.wait(10)

    async def load_async() -> None:
        loaded.append(1)
        if len(loaded) == 1:
            await asyncio.sleep(3600)

    server = loading_server(load_async if is_async else load)
    loop = asyncio.new_event_loop()
    with pytest.raises(TimeoutError):
        loop.run_until_complete(asyncio.wait_for(send(OIPApp(server), INFER), 0.1))
    loop.close()
    assert loaded == [1]
    assert asyncio.run(asyncio.wait_for(send(OIPApp(server), INFER), 10))[0] == 200
    assert asyncio.run(asyncio.wait_for(send(OIPApp(server), READY), 10))[0] == 200
    assert loaded == [1, 1]
    leave.set()
    server.stop()
    gc.collect()


@ways
def test_a_request_loads_only_the_model_that_it_asks_for(way: Callable[[InferenceServer], Way]) -> None:
    loaded: list[str] = []
    server = InferenceServer()
    for name in ("m", "n"):
        server.register(name, lambda: 1, load=partial(loaded.append, name))
    send_request = way(server)
    for path in ("/health/live", "/models/m", "/models/n"):
        assert send_request(Request("GET", path)).status == 200
    assert loaded == []
    assert [send_request(INFER).status for _ in range(2)] == [200, 200]
    assert loaded == ["m"]
    assert states(server) == {"m": "ready", "n": "registered"}
    assert send_request(Request("GET", "/models/m/ready")).status == 200
    assert loaded == ["m"]
    for _ in range(2000):  # which asks for all of them, and does not wait where that holds a thread
        if send_request(READY).status == 200:
            break
        time.sleep(0.01)
    assert loaded == ["m", "n"]
    server.stop()


@pytest.mark.parametrize("how", ["start", "lifespan"])
def test_a_start_waits_for_what_a_request_loads(how: str) -> None:
    entered, leave = threading.Event(), threading.Event()
    loaded: list[int] = []

    def load() -> None:
        entered.set()
        assert leave.wait(10)
        loaded.append(1)

    async def live() -> None:
        async with server.lifespan():
            is_loaded.append(states(server)["m"])
            await asyncio.to_thread(asking.join, 10)  # before the server forgets what it has loaded

    server = loading_server(load)
    is_loaded: list[str] = []
    asking = threading.Thread(target=over_wsgi(OIPWSGIApp(server), ""), args=[INFER])
    asking.start()
    assert entered.wait(10)
    starting = threading.Thread(target=server.start if how == "start" else lambda: asyncio.run(live()))
    starting.start()
    starting.join(0.05)
    assert starting.is_alive()
    leave.set()
    starting.join(10)
    asking.join(10)
    assert loaded == [1]
    assert is_loaded == ["ready"] * (how == "lifespan")
    server.stop()


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
    says_no = b'{"ready":false,"live":true,"models":[{"name":"m","state":"UNAVAILABLE","reason":"it is not ready, as the log says"}]}'
    assert (send_request(READY).status, send_request(READY).body) == (503, says_no)
    answer = send_request(Request("GET", "/models/m/ready"))
    assert (answer.status, answer.body) == (503, b'{"name":"m","ready":false}')
    assert send_request(Request("HEAD", "/models/m/ready")).status == 503
    assert send_request(INFER).status == 200
    server.stop()


def test_readiness_names_every_model_that_is_not_ready_and_none_with_authorize() -> None:
    for authorize in (None, lambda _: True):
        server = InferenceServer(authorize=authorize)
        server.register("works", lambda: 1)
        server.register("says no", lambda: 1, version="2", ready=lambda: False)
        server.register("unloaded", lambda: 1)
        for name in ("fails", "fails too"):
            server.register(name, lambda: 1, load=lambda: 1 / 0)
        server.register("says no too", lambda: 1, ready=lambda: False)
        server.unload_sync("unloaded")
        server.start()
        expected: dict[str, Any] = {"ready": False, "live": True}
        if authorize is None:
            reason = "load failed, see the server's log"
            expected["models"] = [
                {"name": "says no", "version": "2", "state": "UNAVAILABLE", "reason": "it is not ready, as the log says"},
                {"name": "fails", "state": "UNAVAILABLE", "reason": reason},
                {"name": "fails too", "state": "UNAVAILABLE", "reason": reason},
                {"name": "says no too", "state": "UNAVAILABLE", "reason": "it is not ready, as the log says"},
            ]
        assert get(server, "/health/ready") == (503, expected)
        server.stop()


def test_an_empty_server_is_not_ready_and_alive() -> None:
    assert get(InferenceServer(), "/health/ready") == (503, {"ready": False, "live": True})
    assert get(InferenceServer(), "/health/live") == (200, {"live": True})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of forks beside threads, which is the point
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize("began", ["start", "request", "reload"])
def test_a_load_that_a_fork_has_left_behind_begins_again(is_async: bool, began: str) -> None:
    """gunicorn --preload, with a thread that loads, forks while it loads."""
    server, parent = InferenceServer(), os.getpid()
    begun, release, is_first = threading.Event(), threading.Event(), [began == "reload"]

    def load() -> None:
        if os.getpid() == parent and not (is_first and is_first.pop()):
            begun.set()
            assert release.wait(20)

    server.register("m", os.getpid, load=as_async(load) if is_async else load, inputs=[])
    way = over_wsgi(OIPWSGIApp(server), "")
    if began == "reload":
        assert outputs(way(INFER)) == {"output_0": [parent]}
    tell: dict[str, Any] = {"start": server.start, "request": partial(way, INFER), "reload": partial(server.load_sync, "m")}
    thread = threading.Thread(target=tell[began])
    thread.start()
    assert begun.wait(20)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if began == "reload":
                server.load_sync("m")
            os.write(writer, way(INFER).body)
        finally:  # the tests go on in the parent alone
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert b'"data":[%d]' % child in pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    release.set()
    thread.join(20)
    assert states(server) == {"m": "ready"}
    server.stop()


@pytest.mark.parametrize("is_async", [False, True])
def test_each_start_loads_and_the_end_unloads(is_async: bool) -> None:
    events: list[str] = []
    server = InferenceServer()
    for name in ("m", "late"):
        load, unload = (partial(events.append, f"{what} {name}") for what in ("load", "unload"))
        server.register(name, lambda: 1, load=load, unload=unload)

    async def live() -> None:
        async with server.lifespan():
            async with server.lifespan():  # of a host within a host
                assert states(server) == {"m": "ready", "late": "ready"}
            assert (await send(OIPApp(server), INFER))[0] == 200

    def run() -> None:
        if is_async:
            asyncio.run(live())
            return
        server.start()
        assert ask(server, "m").status == 200
        server.stop()
        server.stop()

    for number in (1, 2):
        run()
        assert sorted(events) == sorted(["load m", "load late", "unload m", "unload late"] * number)
        assert states(server) == {"m": "registered", "late": "registered"}
    server.start()
    server.register("later", lambda: 1, load=partial(events.append, "load later"))
    assert ask(server, "later").status == 200
    server.stop()
    assert events.count("load later") == 1
