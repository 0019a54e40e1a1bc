"""How long calls may take and what becomes of those that take longer, over ASGI and over WSGI; and how clients are seen to go, of whose
calls tests/adapters/test_races.py tells the rest."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from oip_asgi import Access, InferenceError, InferenceServer, OIPApp, OIPWSGIApp
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


def test_an_async_model_that_raises_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def model() -> int:
        try:
            return await asyncio.sleep(3600, 1)
        except asyncio.CancelledError:
            raise ValueError("while cleaning up") from None

    assert over_asgi(OIPApp(serve(model, timeout=0.01)), "")(INFER).status == 504
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["model 'm' failed on a request, after its timeout"]
    caplog.clear()


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


def test_under_wsgi_time_in_the_queue_counts_and_what_timed_out_there_never_starts(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, allow_timeout_override=True)
    ask = over_wsgi(OIPWSGIApp(server), "")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, INFER)
        block_until(lambda: blocking.started == 1)
        answer = ask(Request("POST", INFER.path, (), WITH_TIMEOUT % 20_000))
        waited = ": the request still waited for its turn, and had not begun to run"
        assert (answer.status, json.loads(answer.body)) == (504, {"error": TOO_LATE.format("0.02") + waited})
        blocking.leave.set()
        assert first.result(20).status == 200
    assert blocking.started == 1


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


@pytest.mark.parametrize("pieces", [1, 3])
async def test_no_part_of_a_body_is_taken_for_a_client_that_goes(pieces: int) -> None:
    """While somebody is asked, clients are watched by the messages that they send."""

    async def may(access: Access) -> bool:
        await asyncio.sleep(0.15)
        return True

    server = InferenceServer(authorize=may)
    server.register("m", lambda x: x.sum())
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[3],"data":[1.5,1.5,1.5]}]}'
    talk = Talk(server, body=None)
    step = -(-len(body) // pieces)
    for start in range(0, len(body), step):
        talk.say(body[start : start + step], ends=start + step >= len(body))
    assert (await talk.answer())[1]["outputs"][0]["data"] == [4.5]


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


async def test_a_short_call_is_not_watched() -> None:
    async def model() -> int:
        await asyncio.sleep(0)
        return 1

    server = serve(model)
    server.register("thread", lambda: 1)
    for name in ("m", "thread"):
        talk = Talk(server, name)
        talk.go()
        assert (await talk.answer())[0] == 200
        assert talk.asked == 1


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
