"""How many calls of a model run and wait, how long they may take, and when their places are given back: over ASGI and over WSGI."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp
from tests.support.asking import get
from tests.support.inside import limit_threads
from tests.support.limited import INFER, Awaiting, Blocking, serve
from tests.support.metrics import is_idle, outcomes
from tests.support.running import ways
from tests.support.talk import EMPTY, Talk, block_until, until
from tests.support.ways import Answer, Request, Way, asked_together, over_asgi, over_wsgi, ways_into

pytestmark = pytest.mark.usefixtures("nothing_is_logged_as_an_error")


async def test_a_full_house_is_refused_at_once_before_the_body_is_read(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=2, max_queue=1)
    inside = [Talk(server) for _ in range(3)]
    await until(lambda: blocking.started == 2 and not any(talk.task.done() for talk in inside))
    refused = Talk(server, body=None)
    status, body = await refused.answer()
    assert (status, body) == (503, {"error": "model 'm' is busy: 2 calls run and 1 waits, which is all it takes"})
    assert refused.header("retry-after") == "1"
    assert refused.asked == 0
    assert (await Talk(server, path="/health/ready").answer())[0] == 200
    blocking.leave.set()
    assert [(await talk.answer())[0] for talk in inside] == [200] * 3
    assert (await Talk(server).answer())[0] == 200
    assert (blocking.most, blocking.started) == (2, 4)
    assert is_idle(server)


async def test_a_house_that_fills_while_the_body_arrives(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=0)
    slow = Talk(server, body=EMPTY[:5], ends=False)
    await until(lambda: slow.asked == 2)
    quick = Talk(server)  # a slow body holds nothing
    await until(lambda: blocking.started == 1)
    slow.say(EMPTY[5:])
    assert (await slow.answer())[0] == 503
    blocking.leave.set()
    assert (await quick.answer())[0] == 200


async def test_first_come_first_served() -> None:
    order: list[int] = []
    leave = threading.Event()

    def model(x: Any) -> int:
        assert leave.wait(20)
        order.append(int(x[0]))
        return 1

    server = serve(model, max_concurrency=1)
    talks = []
    for number in range(9):
        text = b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[%d]}]}' % number
        talks.append(Talk(server, body=text))
        await asyncio.sleep(0)
    leave.set()
    for talk in talks:
        assert (await talk.answer())[0] == 200
    assert order == list(range(9))


async def test_a_bad_request_does_not_wait_in_the_queue(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=5)
    first = Talk(server)
    await until(lambda: blocking.started == 1)
    assert (await Talk(server, body=b"{").answer())[0] == 400
    assert not first.task.done()
    blocking.leave.set()
    await first.answer()
    assert is_idle(server)


ENDING_KINDS = ("def", "def with a timeout", "inline", "async def", "async def with a timeout")


@pytest.mark.parametrize(
    ("end", "way", "kind"),
    [
        *product((SystemExit, asyncio.CancelledError), ("ASGI", "WSGI"), ENDING_KINDS),
        *product((KeyboardInterrupt, GeneratorExit, StopIteration, StopAsyncIteration), ("ASGI",), ("def", "async def")),
    ],
)
def test_what_ends_threads_and_loops_is_a_failure_like_any_other(
    end: type[BaseException], way: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In threads other than the main one, where no signal arrives. What is on the host's event loop is the host's."""

    def blocks() -> None:
        raise end

    async def awaits() -> None:
        raise end

    async def one() -> int:
        return 1

    server = serve(
        awaits if kind.startswith("async") else blocks,
        run="inline" if kind == "inline" else "thread",
        max_concurrency=1,
        max_queue=0,
        timeout=20 if kind.endswith("timeout") else None,
    )
    server.register("next", one)
    ask = over_wsgi(OIPWSGIApp(server), "") if way == "WSGI" else over_asgi(OIPApp(server), "")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            answer = pool.submit(ask, INFER).result(20)
            assert (answer.status, json.loads(answer.body)) == (500, {"error": "model 'm' failed: see the server's log"})
        assert pool.submit(ask, Request("POST", "/models/next/infer", (), EMPTY)).result(20).status == 200
    assert is_idle(server)
    assert [end.__name__ in logging.Formatter().format(record) for record in caplog.records] == [True, True]
    caplog.clear()
    server.stop()


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize(("way", "run"), [("WSGI", "thread"), ("WSGI", "inline"), ("ASGI", "inline")])
def test_in_the_main_thread_it_may_be_a_signal_and_passes(end: type[BaseException], way: str, run: Literal["thread", "inline"]) -> None:
    def model() -> None:
        raise end

    server = serve(model, run=run, max_concurrency=1, max_queue=0)
    ask = over_wsgi(OIPWSGIApp(server), "") if way == "WSGI" else over_asgi(OIPApp(server), "")
    with pytest.raises(end):
        ask(INFER)
    assert is_idle(server)
    assert outcomes(server) == {"cancelled": 1}


def test_a_task_of_a_model_that_ends_the_background_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def quits() -> None:
        raise SystemExit

    async def model() -> int:
        task = asyncio.ensure_future(quits())
        await asyncio.wait([task])
        return int(isinstance(task.exception(), SystemExit))

    server = serve(model)
    ask = over_wsgi(OIPWSGIApp(server), "")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            assert json.loads(pool.submit(ask, INFER).result(20).body)["outputs"][0]["data"] == [1]
    server.stop()


def test_the_most_calls_that_run_unless_the_model_says_otherwise() -> None:
    async def model() -> int:
        return 1

    server = serve(model)
    server.register("thread", lambda: 1)
    counts = [get(server, f"/models/{name}/config")[1]["instance_group"][0]["count"] for name in ("m", "thread")]
    assert counts == [256, 40]


@pytest.mark.slow
def test_more_inputs_than_any_frame_has_columns_are_refused_before_they_are_arrays() -> None:
    server = serve(lambda **inputs: len(inputs))
    way = over_asgi(OIPApp(server), "")

    def ask(count: int) -> Answer:
        inputs = ",".join(f'{{"name":"{place}","datatype":"FP32","shape":[0],"data":[]}}' for place in range(count))
        return way(Request("POST", INFER.path, (), f'{{"inputs":[{inputs}]}}'.encode()))

    assert json.loads(ask(50_000).body)["outputs"][0]["data"] == [50_000]
    refused = ask(50_001)
    assert (refused.status, json.loads(refused.body)) == (400, {"error": "the request has 50001 inputs: expected 50000 at most"})
    outputs = ",".join(['{"name":"y"}'] * 50_001)
    refused = way(Request("POST", INFER.path, (), f'{{"inputs":[],"outputs":[{outputs}]}}'.encode()))
    assert (refused.status, json.loads(refused.body)) == (400, {"error": "the request has 50001 outputs: expected 50000 at most"})
    server.stop()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"max_concurrency": 0}, "max_concurrency=0 must be an integer, 1 or more"),
        ({"max_concurrency": 1.0}, "max_concurrency=1.0 must be an integer"),
        ({"max_concurrency": True}, "max_concurrency=True must be an integer"),
        ({"max_queue": -1}, "max_queue=-1 must be an integer, 0 or more"),
        ({"timeout": 0}, "timeout=0 must be a positive number of seconds"),
        ({"timeout": float("nan")}, "timeout=nan must be a positive number of seconds"),
        ({"timeout": float("inf")}, "timeout=inf must be a positive number of seconds"),
        ({"timeout": "1"}, "timeout='1' must be a positive number of seconds"),
        ({"timeout": 1, "run": "inline"}, "nothing can interrupt it"),
    ],
)
def test_limits_that_cannot_be(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        serve(lambda: 1, **arguments)


@pytest.mark.parametrize(
    ("name", "action", "size"), [("OIPApp", "infer", 1), ("OIPApp", "infer_stream", 50_000), ("OIPWSGIApp", "infer_stream", 1)]
)
def test_models_that_wait_run_many_at_once(name: str, action: str, size: int) -> None:
    meeting = threading.Barrier(8)
    server = InferenceServer()

    @server.model("infer")
    def waits(x: np.ndarray) -> np.ndarray:
        meeting.wait(20)  # for seven others
        return x[:1]

    @server.model("infer_stream")
    def items(x: np.ndarray) -> Iterator[np.ndarray]:
        meeting.wait(20)
        yield x[:1]

    data = ",".join(["1.5"] * size)
    body = f'{{"inputs":[{{"name":"x","shape":[{size}],"datatype":"FP32","data":[{data}]}}]}}'.encode()
    assert asked_together(ways_into(server)[name], Request("POST", f"/models/{action}/{action}", (), body)) == [200] * 8
    server.stop()


STARTED = 0.9
"""Seconds of a timeout after which a model in a thread must have begun, on a machine that others keep busy too."""
WITH_TIMEOUT = b'{"inputs":[],"parameters":{"timeout":%d}}'
TOO_LATE = "model 'm' did not answer within {} seconds, the shorter of its own timeout and the request's"


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
    server = InferenceServer()
    limit_threads(server, 1)
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
