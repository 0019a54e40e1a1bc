"""How many calls run and wait, how long they may take, and what becomes of them when the client goes: over ASGI and over WSGI."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp
from oip_asgi._core.rest import body as rest
from tests.support.talk import EMPTY, Talk, until
from tests.support.ways import Answer, Request, over_asgi, over_wsgi

INFER = Request("POST", "/models/m/infer", (), EMPTY)
STARTED = 0.9
"""Seconds of a timeout behind which a model in a thread must have begun, on a machine that others keep busy too."""
WITH_TIMEOUT = b'{"inputs":[],"parameters":{"timeout":%d}}'


class Blocking:
    """A model that blocks until it is let go, and counts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.started = self.running = self.most = self.ended = 0
        self.leave = threading.Event()
        self.pause = 0.0

    def __call__(self) -> int:
        with self.lock:
            self.started += 1
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.leave.wait(20)
        threading.Event().wait(self.pause)
        with self.lock:
            self.running -= 1
            self.ended += 1
        return 1


class Awaiting:
    """The same as a coroutine, which notes how it ends."""

    def __init__(self) -> None:
        self.started = 0
        self.events: list[str] = []
        self.leave = asyncio.Event()

    async def __call__(self) -> int:
        self.started += 1
        try:
            await self.leave.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)  # cleaning up awaits too, and is not cancelled a second time
            self.events.append("cleaned up")
            raise
        return 1


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    model = Blocking()
    yield model
    model.leave.set()


@pytest.fixture(autouse=True)
def _nothing_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test here makes a mistake of a model's, so nothing may be logged as one: neither by us, nor by asyncio."""
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def serve(model: Any, **arguments: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", model, **arguments)
    return server


def is_empty(server: InferenceServer) -> bool:
    """Whether no call runs or waits."""
    return all(model.gate.empty().done() for model in server.core.models)


# Concurrency and queue


def test_a_full_house_is_refused_at_once_before_the_body_is_read(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=2, max_queue=1)

    async def main() -> None:
        inside = [Talk(server) for _ in range(3)]
        await until(lambda: blocking.started == 2 and not any(talk.task.done() for talk in inside))
        refused = Talk(server, body=None)
        status, body = await refused.answer()
        assert (status, body) == (503, {"error": "model 'm' is busy: 2 calls run and 1 wait, which is all it takes"})
        assert refused.header("retry-after") == "1"
        assert refused.asked == 0
        assert (await Talk(server, path="/health/ready").answer())[0] == 200
        blocking.leave.set()
        assert [(await talk.answer())[0] for talk in inside] == [200] * 3
        assert (await Talk(server).answer())[0] == 200

    asyncio.run(main())
    assert (blocking.most, blocking.started) == (2, 4)
    assert is_empty(server)


def test_a_house_that_fills_while_the_body_arrives(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=0)

    async def main() -> None:
        slow = Talk(server, body=EMPTY[:5], ends=False)
        await until(lambda: slow.asked == 2)
        quick = Talk(server)  # a slow body holds nothing
        await until(lambda: blocking.started == 1)
        slow.say(EMPTY[5:])
        assert (await slow.answer())[0] == 503
        blocking.leave.set()
        assert (await quick.answer())[0] == 200

    asyncio.run(main())


def test_under_wsgi_the_same_bounds(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=1)
    way = over_wsgi(OIPWSGIApp(server), "")
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(way, INFER) for _ in range(3)]
        refused = next(future for future in iter_done(answers))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert way(Request("GET", "/health/ready")).status == 200
        blocking.leave.set()
        assert sorted(future.result(20).status for future in answers) == [200, 200, 503]
    assert (blocking.most, blocking.started) == (1, 2)
    assert is_empty(server)


def iter_done(futures: list[Any]) -> Iterator[Answer]:
    from concurrent.futures import as_completed

    return (future.result() for future in as_completed(futures, 20))


def test_first_come_first_served() -> None:
    order: list[int] = []
    leave = threading.Event()

    def model(x: Any) -> int:
        assert leave.wait(20)
        order.append(int(x[0]))
        return 1

    server = serve(model, max_concurrency=1)

    async def main() -> None:
        talks = []
        for number in range(9):
            text = b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[%d]}]}' % number
            talks.append(Talk(server, body=text))
            await asyncio.sleep(0)
        leave.set()
        for talk in talks:
            assert (await talk.answer())[0] == 200

    asyncio.run(main())
    assert order == list(range(9))


def test_a_bad_request_does_not_wait_in_the_queue(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=5)

    async def main() -> None:
        first = Talk(server)
        await until(lambda: blocking.started == 1)
        assert (await Talk(server, body=b"{").answer())[0] == 400
        assert not first.task.done()
        blocking.leave.set()
        await first.answer()

    asyncio.run(main())
    assert is_empty(server)


def test_several_event_loops_and_threads_share_one_gate() -> None:
    blocking = Blocking()
    blocking.leave.set()

    blocking.pause = 0.0005  # so that calls meet
    server = serve(blocking, max_concurrency=3, max_queue=1000)
    way = over_wsgi(OIPWSGIApp(server), "")

    async def many() -> None:
        answers = await asyncio.gather(*[Talk(server).answer() for _ in range(60)])
        assert {status for status, _ in answers} == {200}

    threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(3)]
    threads += [threading.Thread(target=lambda: [way(INFER) for _ in range(60)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (blocking.started, blocking.ended) == (360, 360)
    assert blocking.most == 3
    assert is_empty(server)


@pytest.mark.parametrize("run", ["async", "inline"])
def test_places_of_what_runs_on_the_loop_are_given_back(run: str) -> None:
    async def model() -> int:
        return 1

    server = (
        serve(model, max_concurrency=1, max_queue=0) if run == "async" else serve(lambda: 1, run="inline", max_concurrency=1, max_queue=0)
    )

    async def main() -> None:
        for _ in range(5):
            assert (await Talk(server).answer())[0] == 200

    asyncio.run(main())
    assert is_empty(server)


def test_a_call_that_raises_gives_its_place_back(caplog: pytest.LogCaptureFixture) -> None:
    def model() -> None:
        raise ValueError("no")

    server = serve(model, max_concurrency=1, max_queue=0)

    async def main() -> None:
        for _ in range(3):
            assert (await Talk(server).answer())[0] == 500

    asyncio.run(main())
    assert is_empty(server)
    caplog.clear()


ENDS = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration, StopAsyncIteration]


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("ASGI", "def"),
        ("ASGI", "def with a timeout"),
        ("WSGI", "def"),
        ("WSGI", "def with a timeout"),
        ("WSGI", "async def"),
        ("WSGI", "async def with a timeout"),
    ],
)
@pytest.mark.parametrize("end", ENDS)
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
        awaits if kind.startswith("async") else blocks, max_concurrency=1, max_queue=0, timeout=20 if kind.endswith("timeout") else None
    )
    server.register("next", one)
    ask = over_wsgi(OIPWSGIApp(server), "") if way == "WSGI" else over_asgi(OIPApp(server), "")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            answer = pool.submit(ask, INFER).result(20)
            assert (answer.status, json.loads(answer.body)) == (500, {"error": "model 'm' failed: see the server's log"})
        assert pool.submit(ask, Request("POST", "/models/next/infer", (), EMPTY)).result(20).status == 200
    assert is_empty(server)
    assert [end.__name__ in logging.Formatter().format(record) for record in caplog.records] == [True, True]
    caplog.clear()
    server.stop()


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_in_the_main_thread_it_may_be_a_signal_and_passes(end: type[BaseException]) -> None:
    def model() -> None:
        raise end

    server = serve(model, max_concurrency=1, max_queue=0)
    with pytest.raises(end):
        over_wsgi(OIPWSGIApp(server), "")(INFER)
    assert is_empty(server)


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


def test_more_inputs_than_any_frame_has_columns_are_refused_before_they_are_arrays() -> None:
    server = serve(lambda **inputs: len(inputs))
    way = over_asgi(OIPApp(server), "")

    def ask(count: int) -> Answer:
        inputs = ",".join(f'{{"name":"{place}","datatype":"FP32","shape":[0],"data":[]}}' for place in range(count))
        return way(Request("POST", INFER.path, (), f'{{"inputs":[{inputs}]}}'.encode()))

    assert json.loads(ask(100_000).body)["outputs"][0]["data"] == [100_000]
    refused = ask(100_001)
    assert (refused.status, json.loads(refused.body)) == (400, {"error": "the request has 100001 inputs: expected 100000 at most"})
    outputs = ",".join(['{"name":"y"}'] * 100_001)
    refused = way(Request("POST", INFER.path, (), f'{{"inputs":[],"outputs":[{outputs}]}}'.encode()))
    assert (refused.status, json.loads(refused.body)) == (400, {"error": "the request has 100001 outputs: expected 100000 at most"})
    server.stop()


# Timeouts


def test_an_async_model_that_takes_too_long_is_cancelled_and_awaited() -> None:
    model = Awaiting()
    server = serve(model, timeout=0.02)

    async def main() -> None:
        status, body = await Talk(server).answer()
        assert (status, body) == (504, {"error": TOO_LATE.format("0.02")})
        assert model.events == ["cleaned up"]
        assert is_empty(server)
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
    assert is_empty(server)
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
        await until(lambda: is_empty(server))
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
    assert server.core.models.find("m", None).gate.empty().result(20) is None
    assert way(INFER).status == 200
    server.stop()


def test_under_wsgi_an_async_model_that_takes_too_long_is_cancelled_and_awaited() -> None:
    model = Awaiting()
    server = serve(model, timeout=0.02)
    assert over_wsgi(OIPWSGIApp(server), "")(INFER).status == 504
    assert model.events == ["cleaned up"]
    assert is_empty(server)
    server.stop()


@pytest.mark.parametrize("way", ["ASGI", "trio", "WSGI"])
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
    assert is_empty(server)
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
    assert is_empty(server)


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
    assert is_empty(server)


@pytest.mark.parametrize("wsgi", [False, True])
def test_a_call_that_ended_in_time_is_answered_even_if_its_encoding_takes_longer(wsgi: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, leave = threading.Event(), threading.Event()
    encode = rest.encode_response

    def encode_late(response: Any, request: Any) -> Any:
        entered.set()
        assert leave.wait(20)
        return encode(response, request)

    monkeypatch.setattr(rest, "encode_response", encode_late)
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


# The client goes


def test_an_async_model_of_a_client_that_has_gone_is_cancelled_and_awaited() -> None:
    model = Awaiting()
    server = serve(model)

    async def main() -> None:
        talk = Talk(server)
        await until(lambda: model.started == 1)
        talk.go()
        assert await talk.answer() == (499, None)
        assert model.events == ["cleaned up"]

    asyncio.run(main())
    assert is_empty(server)


def test_a_queued_call_of_a_client_that_has_gone_never_starts(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=1)

    async def main() -> None:
        first = Talk(server)
        await until(lambda: blocking.started == 1)
        queued = Talk(server)
        queued.go()
        assert await queued.answer() == (499, None)
        next_one = Talk(server)  # its place in the queue is free
        blocking.leave.set()
        assert [(await talk.answer())[0] for talk in (first, next_one)] == [200, 200]

    asyncio.run(main())
    assert blocking.started == 2
    assert is_empty(server)


def test_the_answer_of_a_thread_whose_client_has_gone_is_dropped(blocking: Blocking) -> None:
    server = serve(blocking, max_concurrency=1, max_queue=0)

    async def main() -> None:
        talk = Talk(server)
        await until(lambda: blocking.started == 1)
        talk.go()
        assert await talk.answer() == (499, None)
        assert not is_empty(server)
        assert (await Talk(server).answer())[0] == 503
        blocking.leave.set()
        await until(lambda: is_empty(server))

    asyncio.run(main())
    assert blocking.ended == 1


def test_a_thread_that_raises_after_its_client_has_gone_is_not_logged() -> None:
    entered, leave = threading.Event(), threading.Event()

    def model() -> None:
        entered.set()
        assert leave.wait(20)
        raise ValueError("nobody hears it")

    server = serve(model)

    async def main() -> None:
        talk = Talk(server)
        await until(entered.is_set)
        talk.go()
        await talk.answer()
        leave.set()
        await until(lambda: is_empty(server))

    asyncio.run(main())


def test_what_waits_for_a_thread_and_is_given_up_never_starts(blocking: Blocking) -> None:
    server = InferenceServer(worker_threads=1)
    started: list[int] = []
    server.register("m", blocking)
    server.register("other", lambda: started.append(1))

    async def main() -> None:
        first = Talk(server)
        await until(lambda: blocking.started == 1)
        other = Talk(server, "other")
        other.go()
        assert await other.answer() == (499, None)
        blocking.leave.set()
        assert (await first.answer())[0] == 200

    asyncio.run(main())
    server.stop()
    assert started == []
    assert is_empty(server)


def test_a_short_call_is_not_watched() -> None:
    async def model() -> int:
        await asyncio.sleep(0)
        return 1

    server = serve(model)
    server.register("thread", lambda: 1)

    async def main() -> None:
        for name in ("m", "thread"):
            talk = Talk(server, name)
            talk.go()
            assert (await talk.answer())[0] == 200
            assert talk.asked == 1

    asyncio.run(main())


@pytest.mark.parametrize("what", ["raises", "says something else"])
def test_a_server_that_cannot_tell_when_clients_go(what: str) -> None:
    model = Awaiting()
    server = serve(model)

    async def main() -> None:
        talk = Talk(server)
        await until(lambda: model.started == 1)
        if what == "raises":
            talk._messages.put_nowait(None)  # no message at all
        else:
            talk.say(b"more")
        await until(lambda: talk.asked == 2)
        model.leave.set()
        assert (await talk.answer())[0] == 200

    asyncio.run(main())


def test_a_loading_model_does_not_end_with_the_client_who_came_first() -> None:
    entered, leave = threading.Event(), threading.Event()
    loaded: list[int] = []

    def load() -> None:
        entered.set()
        assert leave.wait(20)
        loaded.append(1)

    server = serve(lambda: 1, load=load)

    async def main() -> None:
        first = Talk(server)
        await until(entered.is_set)
        first.task.cancel()  # as hosts with a timeout of their own do
        with pytest.raises(asyncio.CancelledError):
            await first.task
        leave.set()
        await until(lambda: server.core.models.find("m", None).state == "ready")
        assert (await Talk(server).answer())[0] == 200

    asyncio.run(main())
    assert loaded == [1]


@pytest.mark.parametrize("where", ["async", "thread", "queue"])
def test_a_host_that_cancels_a_request(where: str, blocking: Blocking) -> None:
    awaiting = Awaiting()
    server = serve(awaiting if where == "async" else blocking, max_concurrency=1)

    async def main() -> None:
        if where == "queue":
            Talk(server)
        talk = Talk(server)
        await until(lambda: blocking.started + awaiting.started == 1)
        await asyncio.sleep(0)
        talk.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await talk.task
        assert talk.sent == []
        blocking.leave.set()
        await until(lambda: is_empty(server))

    asyncio.run(main())
    assert blocking.started + awaiting.started == 1
    assert awaiting.events == (["cleaned up"] if where == "async" else [])


def test_under_trio_a_client_that_goes() -> None:
    ended: list[str] = []

    async def model() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    server = serve(model)
    sent: list[Any] = []

    async def main() -> None:
        messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": EMPTY}]

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await OIPApp(server)({"type": "http", "method": "POST", "path": INFER.path, "headers": []}, receive, send)

    anyio.run(main, backend="trio")
    assert ended == ["cancelled"]
    assert sent[0]["status"] == 499
    assert is_empty(server)


# Registration


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


def test_the_defaults() -> None:
    async def model() -> int:
        return 1

    server = serve(model)
    server.register("thread", lambda: 1)
    gates = {each.name: (each.gate.max_concurrency, each.gate.max_queue) for each in server.core.models}
    assert gates["m"] == (256, 100)
    assert gates["thread"][0] >= 2
    assert gates["thread"][1] == 100
