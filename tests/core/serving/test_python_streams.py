"""Streams from Python, by `server.infer_stream` and its blocking twin; and comments, which keep the connection of a silent stream open."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceServer, OIPWSGIApp
from tests.support.metrics import is_idle
from tests.support.streaming import KINDS, Noted, of_kind, serve_stream
from tests.support.talk import Talk, until
from tests.support.ways import Request, over_wsgi

kinds = pytest.mark.parametrize("kind", KINDS)
N = {"n": np.array([3])}


@kinds
def test_each_response_is_made_when_it_is_asked_for_and_who_leaves_early_ends_the_generator(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted))

    async def main() -> None:
        responses = server.infer_stream("m", N, id="a")
        seen = [(response.id, response.model_name, response["output_0"].tolist(), noted.made) async for response in responses]
        assert seen == [("a", "m", [number], number + 1) for number in range(3)]
        async with aclosing(server.infer_stream("m", N)) as stream:
            async for _ in stream:
                break

    asyncio.run(main())
    assert noted.ended == ["finally", "closed", "finally"]
    assert [response["output_0"].tolist() for response in server.infer_stream_sync("m", N)] == [[0], [1], [2]]
    responses = server.infer_stream_sync("m", N)
    next(responses)
    responses.close()
    assert noted.ended == ["finally", "closed", "finally"] * 2
    assert is_idle(server)
    server.stop()


def test_errors_are_raised_where_they_happen(caplog: pytest.LogCaptureFixture) -> None:
    server = InferenceServer()

    def fails(x: Any) -> Any:
        yield x
        raise ValueError("secret")

    server.register("fails", fails)
    responses = server.infer_stream_sync("fails", {"x": np.array([2])})
    assert next(responses)["output_0"].tolist() == [2]
    with pytest.raises(InferenceError, match="model 'fails' failed: see the server's log"):
        next(responses)
    with pytest.raises(InferenceError, match="Request for unknown model: 'nowhere'"):
        next(server.infer_stream_sync("nowhere", {}))

    async def main() -> None:
        with pytest.raises(InferenceError, match="missing input 'x'"):
            await anext(server.infer_stream("fails", {}))
        with pytest.raises(RuntimeError, match="infer_stream"):
            server.infer_stream_sync("fails", {})
        with pytest.raises(InferenceError, match="answers with a stream"):
            await server.infer("fails", {"x": np.array([2])})

    asyncio.run(main())
    assert is_idle(server)
    server.stop()


@kinds
def test_a_model_may_read_another_ones_stream(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted))

    async def summed(n: Any) -> Any:
        return sum([response["output_0"][0] async for response in server.infer_stream("m", {"n": n})])

    def running(n: Any) -> Any:
        total = 0
        for response in server.infer_stream_sync("m", {"n": n}):
            total += int(response["output_0"][0])
            yield total

    server.register("summed", summed)
    server.register("running", running)

    async def main() -> None:
        assert (await server.infer("summed", N))["output_0"].tolist() == [3]
        assert [response["output_0"].tolist() async for response in server.infer_stream("running", N)] == [[0], [1], [3]]

    asyncio.run(main())
    assert is_idle(server)
    server.stop()


def test_an_async_generator_runs_in_one_task_of_the_background_loop() -> None:
    tasks: list[Any] = []
    variable: ContextVar[int] = ContextVar("variable", default=0)

    async def counts(n: Any) -> AsyncIterator[int]:
        tasks.append(asyncio.current_task())
        try:
            async with asyncio.timeout(60):  # which belongs to the task that opens it
                for _ in range(int(n[0])):
                    variable.set(variable.get() + 1)
                    await asyncio.sleep(0)
                    tasks.append(asyncio.current_task())
                    yield variable.get()
        finally:
            tasks.append(asyncio.current_task())

    server = serve_stream(counts)
    inputs = {"n": np.array([3])}
    assert [response["output_0"].tolist() for response in server.infer_stream_sync("m", inputs)] == [[1], [2], [3]]
    with closing(server.infer_stream_sync("m", inputs)) as stream:
        assert next(stream)["output_0"].tolist() == [1]
    server.stop()
    first, second = dict.fromkeys(tasks)
    assert first is not None
    assert [tasks.count(first), tasks.count(second)] == [5, 3]


def test_a_stream_of_a_server_that_stops_ends() -> None:
    async def silent(n: Any) -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(60)
        yield 2

    server = InferenceServer(shutdown_timeout=0.1)
    server.register("m", silent)
    stream = server.infer_stream_sync("m", {"n": np.array([3])})
    next(stream)
    stopping = threading.Timer(0.1, server.stop)
    stopping.start()
    with pytest.raises(InferenceError) as caught:
        next(stream)
    assert caught.value.status == 503
    stopping.join()


def test_a_call_of_a_server_that_stops_is_cancelled_and_cleans_up() -> None:
    begun, events, server = threading.Event(), list[str](), InferenceServer(shutdown_timeout=0.1)

    @server.model("m")
    async def waits() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            events.append("cleaned up")

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.infer_sync, "m", {})
        assert begun.wait(20)
        server.stop()
        with pytest.raises(InferenceError) as caught:
            asked.result(20)
    assert (caught.value.status, events) == (503, ["cleaned up"])


def test_a_timeout_that_passes_between_two_items_is_the_generators_own() -> None:
    seen: list[str] = []

    async def counts(n: Any) -> AsyncIterator[int]:
        try:
            async with asyncio.timeout(0.05):
                for number in range(int(n[0])):
                    yield number
                    await asyncio.sleep(0)
        except TimeoutError:
            seen.append("timeout")
        finally:
            seen.append("finally")
        yield 100

    server = serve_stream(counts)
    found = []
    for response in server.infer_stream_sync("m", N):
        found.append(response["output_0"].tolist())
        if found == [[0]]:
            time.sleep(0.2)
    server.stop()
    assert (found, seen) == ([[0], [100]], ["timeout", "finally"])


def test_who_is_interrupted_while_waiting_ends_the_generator() -> None:
    ended = threading.Event()

    async def silent(n: Any) -> AsyncIterator[int]:
        yield 1
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        yield 2

    class Interrupted(BaseException):
        pass

    def interrupt(*_: Any) -> None:
        raise Interrupted

    server = serve_stream(silent)
    stream = server.infer_stream_sync("m", N)
    next(stream)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            next(stream)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended.wait(20)
    server.stop()
    assert is_idle(server)


SECONDS = 0.05
COMMENT = b":\n\n"
ONE, TWO = b'data: {"model_name":"m","output_0":1}\n\n', b'data: {"model_name":"m","output_0":2}\n\n'
REFUSED = b'data: {"error":"no more"}\n\n'


class Held:
    """A generator of two items, each of which waits until it is let go. It fails instead of the item with the number `fails`."""

    def __init__(self, kind: str, fails: int = 0) -> None:
        self.gates = [threading.Event(), threading.Event()]
        self.ended = False
        self.model = self._blocking if kind == "def" else self._awaiting
        self._fails = fails

    def let_go(self) -> None:
        for gate in self.gates:
            gate.set()

    def _give(self, number: int) -> int:
        if number == self._fails:
            raise InferenceError("no more", status=418)
        return number

    def _blocking(self, n: Any) -> Iterator[int]:
        try:
            for number, gate in enumerate(self.gates, 1):
                assert gate.wait(20)
                yield self._give(number)
        finally:
            self.ended = True

    async def _awaiting(self, n: Any) -> AsyncIterator[int]:
        try:
            for number, gate in enumerate(self.gates, 1):
                await until(gate.is_set)
                yield self._give(number)
        finally:
            self.ended = True


def serve(function: Callable[..., Any], **options: Any) -> InferenceServer:
    server = InferenceServer(**{"stream_keep_alive": SECONDS, **options})
    server.register("m", function)
    return server


def listen(server: InferenceServer, action: str = "generate_stream") -> Talk:
    whole = b'{"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[1]}]}'
    return Talk(server, body=b'{"n": 1}' if action == "generate_stream" else whole, action=action)


def split(body: bytes) -> list[bytes]:
    """The events and comments, each run of comments as one."""
    found: list[bytes] = []
    for part in [part + b"\n\n" for part in body.split(b"\n\n")[:-1]]:
        if part != COMMENT or found[-1:] != [COMMENT]:
            found.append(part)
    return found


@kinds
async def test_the_head_and_a_comment_leave_before_an_item_that_is_late_and_again_each_time(kind: str) -> None:
    held = Held(kind)
    server = serve(held.model)
    began = time.monotonic()
    talk = listen(server)
    await until(lambda: talk.sent)
    assert time.monotonic() - began >= SECONDS
    headers = talk.header("content-type"), talk.header("x-accel-buffering")
    assert (talk.status, *headers) == (200, "text/event-stream; charset=utf-8", "no")
    await until(lambda: talk.body == COMMENT * 3)
    held.gates[0].set()
    await until(lambda: ONE in talk.body)
    since = time.monotonic()
    await until(lambda: talk.body.endswith(COMMENT))
    assert time.monotonic() - since >= SECONDS - 0.01
    held.gates[1].set()
    await asyncio.wait_for(talk.task, 20)
    assert split(talk.body) == [COMMENT, ONE, COMMENT, TWO]
    messages = len(talk.sent)
    await asyncio.sleep(3 * SECONDS)
    assert len(talk.sent) == messages
    assert [message.get("more_body") for message in talk.sent[-2:]] == [True, False]
    await asyncio.to_thread(server.stop)


@pytest.mark.parametrize(("kind", "action"), [("def", "generate_stream"), ("async def", "infer_stream")])
async def test_an_error_after_a_comment_is_an_event(kind: str, action: str) -> None:
    held = Held(kind, fails=1)
    server = serve(held.model)
    talk = listen(server, action)
    await until(lambda: talk.sent)
    held.gates[0].set()
    await asyncio.wait_for(talk.task, 20)
    assert (talk.status, split(talk.body)) == (200, [COMMENT, REFUSED])
    assert await listen(server, action).answer() == (418, {"error": "no more"})  # nothing has left before it
    await asyncio.to_thread(server.stop)


@kinds
async def test_items_that_come_in_time_have_no_comments_among_them(kind: str) -> None:
    def ticks(n: Any) -> Iterator[int]:
        for _ in range(12):
            time.sleep(SECONDS / 5)
            yield 1

    server = serve(of_kind(kind, ticks), stream_keep_alive=5 * SECONDS)
    talk = listen(server)
    await asyncio.wait_for(talk.task, 20)
    assert talk.body == ONE * 12
    await asyncio.to_thread(server.stop)


@kinds
@pytest.mark.parametrize("comments", [COMMENT, b""], ids=["does not read", "None is never"])
async def test_what_comes_after_a_silence(kind: str, comments: bytes) -> None:
    """A client that does not read gets one comment, and then all that has come."""
    held = Held(kind)
    server = serve(held.model, stream_keep_alive=SECONDS if comments else None)
    talk = listen(server)
    if comments:
        talk.takes.clear()
    await asyncio.sleep(3 * SECONDS)
    assert talk.sent == []
    held.let_go()
    if comments:
        await asyncio.sleep(3 * SECONDS)
        assert talk.sent == []
        talk.takes.set()
    await asyncio.wait_for(talk.task, 20)
    assert (talk.status, talk.body.replace(COMMENT, b"")) == (200, ONE + TWO)
    assert talk.body.startswith(comments)
    assert talk.body.count(COMMENT) <= (3 if comments else 0)  # one in the silence; a busy machine may be late with an item after it
    await asyncio.to_thread(server.stop)


@pytest.mark.parametrize(("kind", "reads"), [("def", True), ("async def", False)])
async def test_a_client_that_goes_while_there_are_comments_ends_the_generator(kind: str, reads: bool) -> None:
    held = Held(kind)
    server = serve(held.model)
    talk = listen(server)
    if not reads:
        talk.takes.clear()
    await asyncio.sleep(2 * SECONDS)
    talk.go()
    await asyncio.wait_for(talk.task, 20)
    number = len(talk.sent)
    await asyncio.sleep(2 * SECONDS)
    assert len(talk.sent) == number
    held.let_go()
    await until(lambda: held.ended and is_idle(server))
    await asyncio.to_thread(server.stop)


async def test_a_first_item_that_is_too_late_is_an_event_after_comments() -> None:
    server = InferenceServer(stream_keep_alive=SECONDS)
    server.register("m", Held("async def").model, timeout=4 * SECONDS)
    talk = listen(server)
    await asyncio.wait_for(talk.task, 20)
    late = "model 'm' did not answer within 0.2 seconds, the shorter of its own timeout and the request's"
    assert split(talk.body) == [COMMENT, b'data: {"error":"%b"}\n\n' % late.encode()]
    await asyncio.to_thread(server.stop)


async def test_headers_of_the_model_leave_with_the_first_comment() -> None:
    go_on = asyncio.Event()

    async def model(n: Any, context: InferenceContext) -> AsyncIterator[int]:
        context.response_headers["x-cost"] = "7"
        await go_on.wait()
        yield 1

    server = serve(model, server_timing=True)
    talk = listen(server)
    await until(lambda: talk.sent)
    assert talk.header("x-cost") == "7"
    go_on.set()
    await asyncio.wait_for(talk.task, 20)
    assert split(talk.body) == [COMMENT, ONE]
    await asyncio.to_thread(server.stop)


async def test_a_plain_model_keeps_its_status() -> None:
    def fails(n: Any) -> int:
        time.sleep(3 * SECONDS)
        raise InferenceError("no more", status=418)

    server = serve(fails)
    assert await listen(server).answer() == (418, {"error": "no more"})
    await asyncio.to_thread(server.stop)


@kinds
def test_where_the_server_asks_for_each_item_it_gets_items_only(kind: str) -> None:
    held = Held(kind)
    server = serve(held.model)
    for gate in held.gates:
        threading.Timer(2 * SECONDS, gate.set).start()
    answer = over_wsgi(OIPWSGIApp(server), "")(Request("POST", "/models/m/generate_stream", (), b'{"n": 1}'))
    assert (answer.status, answer.body) == (200, ONE + TWO)
    server.stop()


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), True, "15"])
def test_what_it_can_be(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"stream_keep_alive=.* must be a positive number of seconds, or None for never"):
        InferenceServer(stream_keep_alive=wrong)
