"""How long calls may take and what becomes of those that take longer, over ASGI and over WSGI; and how clients are seen to go, of whose
calls tests/adapters/test_races.py tells the rest."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable

import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp
from tests.support.limited import INFER, Awaiting, Blocking, serve
from tests.support.metrics import is_idle
from tests.support.running import ways
from tests.support.talk import Talk, block_until, until
from tests.support.ways import Request, Way, over_asgi, over_wsgi

STARTED = 0.9
"""Seconds of a timeout behind which a model in a thread must have begun, on a machine that others keep busy too."""
WITH_TIMEOUT = b'{"inputs":[],"parameters":{"timeout":%d}}'
TOO_LATE = "model 'm' did not answer within {} seconds, the shorter of its own timeout and the request's"

pytestmark = pytest.mark.usefixtures("nothing_is_logged_as_an_error")


async def test_a_model_whose_client_has_gone_keeps_its_place_and_what_it_raises_is_not_late(caplog: pytest.LogCaptureFixture) -> None:
    entered, leave = threading.Event(), threading.Event()

    def model() -> int:
        entered.set()
        assert leave.wait(20)
        raise ValueError("nobody hears it")

    server = serve(model, timeout=60, max_concurrency=1, max_queue=0)
    talk = Talk(server)
    await asyncio.to_thread(entered.wait, 20)
    talk.go()
    assert await talk.answer() == (499, None)
    assert (await Talk(server).answer())[0] == 503
    leave.set()
    await asyncio.to_thread(server.stop)
    assert caplog.messages == ["model 'm' failed on a request, when nobody waited for its answer any more"]
    caplog.clear()


@ways
def test_a_thread_that_takes_too_long_keeps_its_place_until_it_ends(way: Callable[[InferenceServer], Way], blocking: Blocking) -> None:
    server = serve(blocking, timeout=STARTED, max_concurrency=1, max_queue=0)
    ask = way(server)
    answer = ask(INFER)
    assert (answer.status, json.loads(answer.body)) == (504, {"error": TOO_LATE.format(STARTED)})
    assert ask(INFER).status == 503
    blocking.leave.set()
    block_until(lambda: is_idle(server))
    assert ask(INFER).status == 200
    assert blocking.most == 1
    server.stop()


@pytest.mark.parametrize(("seconds", "asked"), [(5, 20_000), (0.02, 5_000_000), (None, 20_000)])
async def test_a_request_can_only_shorten_the_timeout(seconds: float | None, asked: int) -> None:
    server = serve(Awaiting(), timeout=seconds, allow_timeout_override=True)
    assert await Talk(server, body=WITH_TIMEOUT % asked).answer() == (504, {"error": TOO_LATE.format("0.02")})


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ASGI", "WSGI"])
@pytest.mark.parametrize("raised", [ValueError("too late"), InferenceError("for the client"), None])
def test_what_a_thread_raises_after_its_timeout_is_logged_once(
    raised: Exception | None, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def model() -> int:
        entered.set()
        assert leave.wait(20)
        if raised is not None:
            raise raised
        return 1

    server = InferenceServer()
    server.register("m", model, version="1", timeout=STARTED, max_concurrency=1, max_queue=0)
    request = Request("POST", INFER.path, (), b'{"inputs":[],"id":"a\\nb"}')
    assert (over_wsgi(OIPWSGIApp(server), "") if way == "WSGI" else over_asgi(OIPApp(server), ""))(request).status == 504
    assert entered.is_set()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    leave.set()
    server.stop()  # waits for the thread
    assert is_idle(server)
    late = caplog.records[1:]
    if isinstance(raised, ValueError):
        [record] = late
        assert record.levelno == logging.ERROR
        assert record.getMessage() == "model 'm' version '1' failed on the request with id 'a\\nb', after its timeout"
        assert record.exc_info is not None
        assert record.exc_info[1] is raised
    else:
        assert late == []
    caplog.clear()


async def test_a_call_that_ended_too_late_is_not_answered_though_nobody_was_awake_to_stop_it() -> None:
    entered = threading.Event()

    def model() -> int:
        entered.set()
        time.sleep(0.2)
        return 1

    server = serve(model, timeout=0.1, max_concurrency=1, max_queue=0)
    talk = Talk(server)
    await until(entered.is_set)
    time.sleep(0.4)  # noqa: ASYNC251  (the event loop is kept busy)
    assert (await talk.answer())[0] == 504
    await asyncio.to_thread(server.stop)
    assert is_idle(server)


async def test_what_waits_for_a_thread_and_is_given_up_never_starts(blocking: Blocking) -> None:
    server = InferenceServer(worker_threads=1)
    started: list[int] = []
    server.register("m", blocking)
    server.register("other", lambda: started.append(1))
    first = Talk(server)
    await until(lambda: blocking.started == 1)
    other = Talk(server, "other")
    other.go()
    assert await other.answer() == (499, None)
    blocking.leave.set()
    assert (await first.answer())[0] == 200
    await asyncio.to_thread(server.stop)
    assert started == []
    assert is_idle(server)


@pytest.mark.parametrize("what", ["raises", "says something else"])
async def test_a_server_that_cannot_tell_when_clients_go(what: str) -> None:
    model = Awaiting()
    server = serve(model)
    talk = Talk(server)
    await until(lambda: model.started == 1)
    if what == "raises":
        talk._messages.put_nowait(None)  # no message at all
    else:
        talk.say(b"more")
    await until(lambda: talk.asked == 2)
    model.leave.set()
    assert (await talk.answer())[0] == 200
