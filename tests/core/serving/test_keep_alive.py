"""Streams that are silent for long: a comment keeps the connection open, and what comes after it is what would have come anyway."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceServer, OIPWSGIApp
from tests.support.metrics import is_idle
from tests.support.streaming import of_kind
from tests.support.talk import Talk, until
from tests.support.ways import Request, over_wsgi

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


kinds = pytest.mark.parametrize("kind", ["def", "async def"])


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
