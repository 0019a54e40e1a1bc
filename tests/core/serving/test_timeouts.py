"""How long calls may take, and what becomes of those that take longer: over ASGI, over WSGI and under trio."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from typing import Any

import anyio
import pytest

from oip_asgi import InferenceError, InferenceRequest, InferenceServer, OIPApp, OIPWSGIApp
from tests.support.inside import before_encoding, is_idle, wait_until_idle
from tests.support.limited import INFER, Awaiting, Blocking, serve
from tests.support.talk import EMPTY, Talk, until
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
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": EMPTY}

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        await OIPApp(server)({"type": "http", "method": "POST", "path": INFER.path, "headers": []}, receive, send)
        assert sent[0]["status"] == 504
        assert task.cancelling() == 0  # the host's task goes on as if nothing had been

    asyncio.run(main())
    assert is_idle(server)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == ["model 'm' failed on the request with id None, after its timeout"] * (
        how == "raises"
    )
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
@pytest.mark.parametrize("way", ["ASGI", pytest.param("trio", marks=pytest.mark.trio), "WSGI"])
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
    if way == "trio":
        statuses: list[int] = []
        anyio.run(answer_status, server, request, statuses, backend="trio")
        assert statuses == [504]
    else:
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


async def answer_status(server: InferenceServer, request: Request, statuses: list[int]) -> None:
    """Ask from any event loop, as a client that stays."""
    messages = [{"type": "http.request", "body": request.body}]

    async def receive() -> Any:
        return messages.pop() if messages else await anyio.sleep_forever()

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    await OIPApp(server)({"type": "http", "method": request.method, "path": request.path, "headers": []}, receive, send)


@pytest.mark.parametrize("wsgi", [False, True])
def test_time_in_the_queue_counts_and_what_timed_out_there_never_starts(wsgi: bool, blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1)
    body = WITH_TIMEOUT % 20_000
    way = over_wsgi(OIPWSGIApp(server), "")

    async def main() -> None:
        first = Talk(server)
        await until(lambda: blocking.started == 1)
        if wsgi:
            status = (await asyncio.to_thread(way, Request("POST", INFER.path, (), body))).status
        else:
            status = (await Talk(server, body=body).answer())[0]
        assert status == 504
        blocking.leave.set()
        assert (await first.answer())[0] == 200

    asyncio.run(main())
    assert blocking.started == 1
    assert is_idle(server)


@pytest.mark.parametrize(("timeout", "asked", "seconds"), [(5, 20_000, "0.02"), (0.02, 5_000_000, "0.02"), (None, 20_000, "0.02")])
def test_a_request_can_only_shorten_the_timeout(timeout: float | None, asked: int, seconds: str) -> None:
    server = serve(Awaiting(), timeout=timeout)

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


@pytest.mark.slow
@pytest.mark.parametrize("wsgi", [False, True])
def test_a_call_that_ended_in_time_is_answered_even_if_its_encoding_takes_longer(wsgi: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()

    def encode_late(request: InferenceRequest) -> None:
        entered.set()
        assert leave.wait(20)

    before_encoding(monkeypatch, encode_late)
    server = serve(lambda: 7, timeout=STARTED)
    timer = threading.Timer(2 * STARTED, leave.set)  # behind the deadline

    async def main() -> tuple[int, Any]:
        return await Talk(server).answer()

    timer.start()
    if wsgi:
        answer = over_wsgi(OIPWSGIApp(server), "")(INFER)
        status, body = answer.status, json.loads(answer.body)
    else:
        status, body = asyncio.run(main())
    assert (status, body["outputs"][0]["data"]) == (200, [7])
    assert entered.is_set()
    timer.join()
    server.stop()


@pytest.mark.trio
def test_a_timeout_under_trio() -> None:
    cleaned: list[int] = []

    async def model() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(1)

    leave = threading.Event()
    server = serve(model, timeout=0.02)
    server.register("thread", lambda: leave.wait(20), timeout=STARTED, max_concurrency=1, max_queue=0)
    server.register("quick", lambda: 1, timeout=20)
    statuses: list[int] = []

    async def main() -> None:
        for name in ("m", "thread", "thread", "quick"):
            await answer_status(server, Request("POST", f"/models/{name}/infer", (), EMPTY), statuses)

    anyio.run(main, backend="trio")
    leave.set()
    assert statuses == [504, 504, 503, 200]
    assert cleaned == [1]
    server.stop()
