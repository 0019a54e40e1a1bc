"""Starting several models at once, and stopping: what runs finishes, what is new is refused, and no thread or loop is left behind."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from oip_asgi import InferenceServer, OIPWSGIApp
from tests.support.asking import NOT_READY, ask, error, get
from tests.support.inside import break_encoding, is_stopping
from tests.support.metrics import is_idle, waiting_calls
from tests.support.running import Gate, as_async
from tests.support.talk import EMPTY, Talk, block_until, until
from tests.support.ways import Request, over_wsgi

INFER = Request("POST", "/models/m/infer", (), EMPTY)
STOPPING = "model 'm' is not ready: the server is stopping"


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("oip_asgi")]


@pytest.fixture(autouse=True)
def before() -> Iterator[set[threading.Thread]]:
    """No test here leaves a thread behind."""
    before = set(our_threads())  # idle ones of servers that other tests did not stop
    yield before
    assert set(our_threads()) <= before


# Loading


@pytest.mark.parametrize("how", ["thread", "async", "start"])
def test_models_load_at_the_same_time(how: str) -> None:
    server = InferenceServer()
    met = threading.Barrier(3)

    def load() -> None:
        met.wait(20)

    for name in "abc":
        server.register(name, lambda: 1, load=as_async(load) if how == "async" else load)

    async def main() -> None:
        async with server.lifespan():
            assert (await Talk(server, path="/health/ready").answer())[0] == 200

    if how == "start":
        server.start()
        assert get(server, "/health/ready")[0] == 200
        server.stop()
    else:
        asyncio.run(main())


def test_a_host_that_gives_up_starting_can_start_again() -> None:
    loaded: list[str] = []

    async def load() -> None:
        loaded.append("a")
        if loaded.count("a") == 1:
            await asyncio.sleep(3600)

    server = InferenceServer()
    server.register("a", lambda: 1, load=load)
    server.register("b", lambda: 1, load=lambda: loaded.append("b"))

    async def start() -> None:
        async with server.lifespan():
            pass

    async def main() -> None:
        task = asyncio.ensure_future(start())
        await until(lambda: sorted(loaded) == ["a", "b"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await start()

    asyncio.run(main())
    assert sorted(loaded) == ["a", "a", "b", "b"]


# Stopping


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_stop_waits_for_what_runs_and_refuses_what_is_new(kind: str) -> None:
    server = InferenceServer()
    gate = Gate(1)

    async def awaits() -> int:
        gate.entered.set()
        while not gate.leave.is_set():
            await asyncio.sleep(0.001)
        return 1

    server.register("m", awaits if kind == "async" else gate, max_concurrency=1)

    async def main() -> None:
        stop = asyncio.Event()

        async def host() -> None:
            async with server.lifespan():
                await stop.wait()

        hosting = asyncio.ensure_future(host())
        await asyncio.sleep(0)
        slow = Talk(server, body=EMPTY[:3], ends=False)
        running, queued = Talk(server), Talk(server)
        await until(lambda: gate.entered.is_set() and slow.asked == 2)
        stop.set()
        await until(lambda: is_stopping(server))
        new = Talk(server, body=None)
        assert await new.answer() == (503, {"error": STOPPING})
        assert (new.header("retry-after"), new.asked) == (None, 0)
        slow.say(EMPTY[3:])
        assert await slow.answer() == (503, {"error": STOPPING})
        why = "the server is stopping"
        assert await Talk(server, path="/health/ready").answer() == (503, {"ready": False, "live": True, "reason": why})
        assert await Talk(server, path="/models/m/ready").answer() == (503, {"name": "m", "ready": False, "reason": why})
        assert await Talk(server, path="/health/live").answer() == (200, {"live": True})
        assert not hosting.done()
        gate.leave.set()
        await hosting
        assert [(await talk.answer())[0] for talk in (running, queued)] == [200, 200]

    asyncio.run(main())


def test_a_thread_that_never_ends_is_left_behind_in_time(before: set[threading.Thread], caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer(shutdown_timeout=0.05)
    gate = Gate(1)
    server.register("m", gate, timeout=0.3)  # in which the thread must have begun
    way = over_wsgi(OIPWSGIApp(server), "")
    server.start()
    assert way(INFER).status == 504
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 5
    [thread] = set(our_threads()) - before
    assert thread.daemon
    gate.leave.set()
    thread.join(20)
    assert caplog.messages[-1] == "model 'm' still runs 0.05 seconds after the server was told to stop, so it is left behind"


def test_the_event_loop_goes_on_while_threads_are_waited_for() -> None:
    server = InferenceServer(shutdown_timeout=0.01)
    gate = Gate(1)
    server.register("m", gate, timeout=0.3)

    async def main() -> float:
        longest, since = 0.0, time.monotonic()

        async def beat() -> None:
            nonlocal longest, since
            while True:
                await asyncio.sleep(0.01)
                longest, since = max(longest, time.monotonic() - since), time.monotonic()

        async with server.lifespan():
            assert (await Talk(server).answer())[0] == 504
            beating = asyncio.create_task(beat())
            await asyncio.sleep(0)
        beating.cancel()
        return max(longest, time.monotonic() - since)

    assert asyncio.run(main()) < 0.7  # a thread that does not end is waited for a second
    [thread] = [thread for thread in our_threads() if thread.name == "oip_asgi worker"][-1:]
    gate.leave.set()
    thread.join(20)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_waits_when_the_time_is_up_never_starts(is_async: bool) -> None:
    server = InferenceServer(shutdown_timeout=0.05)
    begun: list[int] = []
    leave = threading.Event()

    def model() -> int:
        begun.append(1)
        assert leave.wait(20)
        return 1

    async def model_async() -> int:
        begun.append(1)
        await asyncio.sleep(3600)
        return 1

    server.register("m", model_async if is_async else model, max_concurrency=1)
    way = over_wsgi(OIPWSGIApp(server), "")
    answers: list[Any] = []
    asking = [threading.Thread(target=lambda: answers.append(way(INFER))) for _ in range(3)]
    for thread in asking:
        thread.start()
    block_until(lambda: begun and waiting_calls(server, "m") == 2)
    server.stop()
    leave.set()
    for thread in asking:
        thread.join(20)
    assert begun == [1]
    assert sorted(answer.status for answer in answers) == ([503] * 3 if is_async else [200, 503, 503])
    assert {error(answer) for answer in answers if answer.status == 503} == {(503, STOPPING)}
    block_until(lambda: is_idle(server))
    again = threading.Thread(target=lambda: answers.append(way(INFER)))
    again.start()  # the places are all there again
    block_until(lambda: len(begun) == 2)
    server.stop()
    again.join(20)


def test_a_process_ends_though_a_model_does_not() -> None:
    script = (
        "import threading, os\n"
        "from oip_asgi import InferenceServer, OIPWSGIApp\n"
        "from tests.support.ways import over_wsgi, Request\n"
        "server = InferenceServer(shutdown_timeout=0.01)\n"
        "server.register('m', lambda: threading.Event().wait(), timeout=0.01)\n"
        "answer = over_wsgi(OIPWSGIApp(server), '')(Request('POST', '/models/m/infer', (), b'{\"inputs\":[]}'))\n"
        "print(answer.status)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "504\n"
    assert "took more than 0.01 seconds" in done.stderr


# Logging


def raising(how: str, text: str) -> None:
    """Raise with a text that a client chose, wherever an exception may hold one."""
    error = ValueError(text)
    if how == "note":
        error = ValueError("bad")
        error.add_note(text)
    if how == "group":
        raise ExceptionGroup("several", [error])
    try:
        raise error
    except ValueError:
        if how == "cause":
            raise RuntimeError("on") from error
        if how == "context":
            raise RuntimeError("on")  # noqa: B904  (the context is the point)
        raise


@pytest.mark.parametrize("how", ["message", "note", "group", "cause", "context"])
def test_no_text_of_an_exception_can_be_taken_for_a_record(how: str) -> None:
    forged = "a\nERROR oip_asgi forged\r\x1b[31m \u2028\x85\udc80"
    server = InferenceServer()
    server.register("m", lambda: raising(how, forged))
    server.register("loads", lambda: 1, load=lambda: raising(how, forged))
    server.register("asks", lambda: 1, ready=lambda: raising(how, forged))
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    records: list[logging.LogRecord] = []
    handler.addFilter(lambda record: records.append(record) or True)  # type: ignore[func-returns-value]
    logger = logging.getLogger("oip_asgi")
    logger.addHandler(handler)
    try:
        assert ask(server, "m").status == 500
        assert get(server, "/models/loads/ready")[0] == 503
        assert get(server, "/models/asks/ready")[0] == 503
    finally:
        logger.removeHandler(handler)
        server.stop()
    lines = written.getvalue().splitlines()
    starts = [line for line in lines if not line.startswith("    ")]
    assert starts == [
        "ERROR oip_asgi model 'm' failed on a request",
        f"ERROR oip_asgi model 'loads': load= raised, so {NOT_READY}",
        "ERROR oip_asgi model 'asks': ready= raised, so it counts as not ready",
    ]
    assert all(line.isprintable() for line in lines)
    for escaped in ("ERROR oip_asgi forged\\r", "\\x1b[31m \\u2028", "\\x85", "\\udc80"):
        assert sum(escaped in line for line in lines) == 3
    for record in records:  # as those see it who make something else of exceptions
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], Exception)
        assert record.exc_info[2] is record.exc_info[1].__traceback__
        assert record.filename != "errors.py"  # the place that logs, not what lays out the text


@pytest.mark.parametrize("how", ["start", "lifespan"])
def test_a_start_during_a_stop_waits_for_its_end_and_loads_once(how: str) -> None:
    server = InferenceServer(shutdown_timeout=20)
    loaded: list[int] = []
    inside, leave = threading.Event(), threading.Event()

    def model() -> int:
        inside.set()
        leave.wait(20)
        return 1

    server.register("m", model, load=lambda: loaded.append(1))
    server.start()
    asking = threading.Thread(target=lambda: ask(server, "m"))
    asking.start()
    inside.wait(20)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    block_until(lambda: is_stopping(server))
    threading.Timer(0.2, leave.set).start()
    if how == "start":
        server.start()
        assert (ask(server, "m").status, loaded) == (200, [1, 1])
        server.stop()
    else:

        async def main() -> None:
            async with server.lifespan():
                answer = await asyncio.to_thread(ask, server, "m")
                assert (answer.status, loaded) == (200, [1, 1])

        asyncio.run(main())
    for thread in (asking, stopping):
        thread.join(20)


def test_a_timeout_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()

    @server.model("m", timeout=0.01)
    async def model() -> None:
        await asyncio.sleep(3600)

    assert ask(server, "m", {"id": "a\nb"}).status == 504
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.WARNING,
        "model 'm' took more than 0.01 seconds for the request with id 'a\\nb'",
    )


def test_what_the_core_itself_gets_wrong_is_logged_and_answered(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    break_encoding(monkeypatch)
    server = InferenceServer()
    server.register("m", lambda: 1)
    assert error(ask(server, "m")) == (500, "internal error: see the server's log")
    assert "an error of oip_asgi itself" in caplog.text
    server.stop()


# Draining


@pytest.mark.parametrize("has_load", [False, True])
def test_a_server_that_drains_is_not_ready_and_answers_all_else(caplog: pytest.LogCaptureFixture, has_load: bool) -> None:
    server = InferenceServer()
    server.register("m", lambda: 7, load=(lambda: None) if has_load else None)
    ask = over_wsgi(OIPWSGIApp(server), "")
    server.start()

    def statuses() -> list[int]:
        paths = ("/health/ready", "/models/m/ready", "/health/live", "/models/m")
        return [ask(Request("GET", path)).status for path in paths] + [ask(INFER).status]

    assert statuses() == [200] * 5
    with caplog.at_level(logging.INFO, "oip_asgi"):
        server.drain()
        server.drain()
        assert statuses() == [503, 503, 200, 200, 200]
        bodies = [json.loads(ask(Request("GET", path)).body) for path in ("/health/ready", "/models/m/ready")]
        why = "the server is draining"
        assert bodies == [{"ready": False, "live": True, "reason": why}, {"name": "m", "ready": False, "reason": why}]
        server.undrain()
        assert statuses() == [200] * 5
        server.undrain()
    told = [record.getMessage() for record in caplog.records if "drain" in record.getMessage()]
    assert told == ["the server drains: it is not ready until undrain()", "the server drains no longer"]
    server.drain()
    server.stop()  # which ends it too
    block_until(lambda: ask(Request("GET", "/health/ready")).status == 200)
    server.stop()
