"""How long calls may take, and what becomes of those that take longer: over ASGI and over WSGI."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp
from tests.support.inside import before_decoding, before_encoding, is_idle, wait_until_idle
from tests.support.limited import INFER, Awaiting, Blocking, serve
from tests.support.talk import Talk, until
from tests.support.ways import Request, over_asgi, over_wsgi

STARTED = 0.9
"""Seconds of a timeout behind which a model in a thread must have begun, on a machine that others keep busy too."""
WITH_TIMEOUT = b'{"inputs":[],"parameters":{"timeout":%d}}'

pytestmark = pytest.mark.usefixtures("nothing_is_logged_as_an_error")


def test_an_async_model_that_takes_too_long_is_cancelled_and_awaited() -> None:
    model = Awaiting()
    server = serve(model, timeout=0.02)

    async def main() -> None:
        status, body = await Talk(server).answer()
        assert (status, body) == (504, {"error": TOO_LATE.format("0.02")})
        assert model.events == ["cleaned up"]
        assert is_idle(server)
        model.leave.set()
        assert (await Talk(server).answer())[0] == 200

    asyncio.run(main())


TOO_LATE = "model 'm' did not answer within {} seconds, the shorter of its own timeout and the request's"


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_an_async_model_that_does_not_heed_its_end(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def model() -> int:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("while cleaning up") from None
        return 1

    server = serve(model, timeout=0.01)

    async def main() -> None:
        talk = Talk(server)
        assert (await talk.answer())[0] == 504
        assert talk.task.cancelling() == 0  # the host's task goes on as if nothing had been

    asyncio.run(main())
    assert is_idle(server)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == ["model 'm' failed on a request, after its timeout"] * (how == "raises")
    caplog.clear()


def test_what_a_model_raises_when_its_client_has_gone_is_not_late(caplog: pytest.LogCaptureFixture) -> None:
    entered, leave = threading.Event(), threading.Event()

    def model() -> int:
        entered.set()
        assert leave.wait(20)
        raise ValueError("nobody hears it")

    server = serve(model, timeout=60)

    async def main() -> None:
        talk = Talk(server)
        await asyncio.to_thread(entered.wait, 20)
        talk.go()
        await asyncio.wait_for(talk.task, 20)
        leave.set()

    asyncio.run(main())
    server.stop()
    [record] = caplog.records
    assert record.getMessage() == "model 'm' failed on a request, when nobody waited for its answer any more"
    caplog.clear()


def test_a_thread_that_takes_too_long_keeps_its_place_until_it_ends(blocking: Blocking) -> None:
    server = serve(blocking, timeout=STARTED, max_concurrency=1, max_queue=0)

    async def main() -> None:
        assert (await Talk(server).answer())[0] == 504
        assert (await Talk(server).answer())[0] == 503
        blocking.leave.set()
        await until(lambda: is_idle(server))
        assert (await Talk(server).answer())[0] == 200

    asyncio.run(main())
    assert blocking.most == 1


def test_under_wsgi_a_thread_that_takes_too_long(blocking: Blocking) -> None:
    server = serve(blocking, timeout=STARTED, max_concurrency=1, max_queue=0)
    way = over_wsgi(OIPWSGIApp(server), "")
    answer = way(INFER)
    assert (answer.status, json.loads(answer.body)) == (504, {"error": TOO_LATE.format(STARTED)})
    assert way(INFER).status == 503
    blocking.leave.set()
    wait_until_idle(server, "m")
    assert way(INFER).status == 200
    server.stop()


def test_under_wsgi_an_async_model_that_takes_too_long_is_cancelled_and_awaited() -> None:
    model = Awaiting()
    server = serve(model, timeout=0.02)
    assert over_wsgi(OIPWSGIApp(server), "")(INFER).status == 504
    assert model.events == ["cleaned up"]
    assert is_idle(server)
    server.stop()


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


@pytest.mark.parametrize("wsgi", [False, True])
def test_time_in_the_queue_counts_and_what_timed_out_there_never_starts(wsgi: bool, blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, allow_timeout_override=True)
    body = WITH_TIMEOUT % 20_000
    way = over_wsgi(OIPWSGIApp(server), "")

    async def main() -> None:
        first = Talk(server)
        await until(lambda: blocking.started == 1)
        if wsgi:
            answer = await asyncio.to_thread(way, Request("POST", INFER.path, (), body))
            status, told = answer.status, json.loads(answer.body)
        else:
            status, told = await Talk(server, body=body).answer()
        waited = ": the request still waited for its turn, and had not begun to run"
        assert (status, told) == (504, {"error": TOO_LATE.format("0.02") + waited})
        blocking.leave.set()
        assert (await first.answer())[0] == 200

    asyncio.run(main())
    assert blocking.started == 1
    assert is_idle(server)


@pytest.mark.parametrize(("timeout", "asked", "seconds"), [(5, 20_000, "0.02"), (0.02, 5_000_000, "0.02"), (None, 20_000, "0.02")])
def test_a_request_can_only_shorten_the_timeout(timeout: float | None, asked: int, seconds: str) -> None:
    server = serve(Awaiting(), timeout=timeout, allow_timeout_override=True)

    async def main() -> None:
        assert await Talk(server, body=WITH_TIMEOUT % asked).answer() == (504, {"error": TOO_LATE.format(seconds)})

    asyncio.run(main())


def test_a_call_that_ended_too_late_is_not_answered_though_nobody_was_awake_to_stop_it() -> None:
    entered = threading.Event()

    def model() -> int:
        entered.set()
        time.sleep(0.2)
        return 1

    server = serve(model, timeout=0.1, max_concurrency=1, max_queue=0)

    async def main() -> None:
        talk = Talk(server)
        await until(entered.is_set)
        time.sleep(0.4)  # noqa: ASYNC251  (the event loop is kept busy)
        assert (await talk.answer())[0] == 504

    asyncio.run(main())
    server.stop()
    assert is_idle(server)


LONG = b'{"inputs":[{"name":"x","shape":[20000],"datatype":"INT32","data":[%b1234567]}]}' % (b"1234567," * 19_999)


@pytest.mark.slow
@pytest.mark.parametrize("wsgi", [False, True])
@pytest.mark.parametrize("what", ["decoding", "encoding"])
def test_decoding_and_encoding_hold_the_slot_and_count_into_the_timeout(what: str, wsgi: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()

    def takes_long(*_: object) -> None:
        entered.set()
        assert leave.wait(20)

    (before_decoding if what == "decoding" else before_encoding)(monkeypatch, takes_long)
    server = serve(lambda x: x, timeout=STARTED, max_concurrency=1, max_queue=0)
    ask = over_wsgi(OIPWSGIApp(server), "") if wsgi else over_asgi(OIPApp(server), "")
    request = Request("POST", INFER.path, (), LONG)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, request)
        assert entered.wait(20)
        assert ask(request).status == 503
        answer = first.result(20)
        assert (answer.status, json.loads(answer.body)) == (504, {"error": TOO_LATE.format(STARTED)})
        assert ask(request).status == 503  # its thread goes on, and keeps the slot
    leave.set()
    wait_until_idle(server, "m")
    assert ask(request).status == 200
    server.stop()
