"""Streams that are silent for long: a comment keeps the connection open, and what comes after it is what would have come anyway."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from oip_asgi import InferenceContext, InferenceError, InferenceServer, OIPWSGIApp
from tests.support.inside import is_idle
from tests.support.talk import Talk, block_until, until
from tests.support.ways import Request, over_wsgi

SECONDS = 0.05
COMMENT = b":\n\n"
ONE, TWO = b'data: {"model_name":"m","output_0":1}\n\n', b'data: {"model_name":"m","output_0":2}\n\n'
REFUSED = b'data: {"error":"no more"}\n\n'


class Held:
    """A generator of two items, each of which waits until it is let go. It fails instead of the item with the number `fails`."""

    def __init__(self, fails: int = 0) -> None:
        self.gates = [threading.Event(), threading.Event()]
        self.ended = False
        self._fails = fails

    def _give(self, number: int) -> int:
        if number == self._fails:
            raise InferenceError("no more", status=418)
        return number

    def blocking(self, n: Any) -> Iterator[int]:
        try:
            for number, gate in enumerate(self.gates, 1):
                assert gate.wait(20)
                yield self._give(number)
        finally:
            self.ended = True

    async def awaiting(self, n: Any) -> AsyncIterator[int]:
        try:
            for number, gate in enumerate(self.gates, 1):
                await until(gate.is_set)
                yield self._give(number)
        finally:
            self.ended = True


kinds = pytest.mark.parametrize("kind", ["blocking", "awaiting"])


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
def test_the_head_and_a_comment_leave_before_an_item_that_is_late_and_again_each_time(kind: str) -> None:
    held = Held()
    server = serve(getattr(held, kind))

    async def main() -> None:
        began = time.monotonic()
        talk = listen(server)
        await until(lambda: talk.sent)
        assert time.monotonic() - began >= SECONDS
        assert (talk.status, talk.header("content-type"), talk.header("x-accel-buffering")) == (
            200,
            "text/event-stream; charset=utf-8",
            "no",
        )
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

    asyncio.run(main())
    assert is_idle(server)
    server.stop()


@kinds
@pytest.mark.parametrize("action", ["generate_stream", "infer_stream"])
def test_an_error_after_a_comment_is_an_event(kind: str, action: str) -> None:
    held = Held(fails=1)
    server = serve(getattr(held, kind))

    async def main() -> None:
        talk = listen(server, action)
        await until(lambda: talk.sent)
        held.gates[0].set()
        await asyncio.wait_for(talk.task, 20)
        assert (talk.status, split(talk.body)) == (200, [COMMENT, REFUSED])
        assert await listen(server, action).answer() == (418, {"error": "no more"})  # nothing has left before it

    asyncio.run(main())
    assert is_idle(server)
    server.stop()


@kinds
def test_items_that_come_in_time_have_no_comments_among_them(kind: str) -> None:
    def blocking(n: Any) -> Iterator[int]:
        for _ in range(12):
            time.sleep(SECONDS / 5)
            yield 1

    async def awaiting(n: Any) -> AsyncIterator[int]:
        for _ in range(12):
            await asyncio.sleep(SECONDS / 5)
            yield 1

    server = serve(blocking if kind == "blocking" else awaiting, stream_keep_alive=5 * SECONDS)

    async def main() -> None:
        talk = listen(server)
        await asyncio.wait_for(talk.task, 20)
        assert talk.body == ONE * 12

    asyncio.run(main())
    server.stop()


@kinds
def test_a_client_that_does_not_read_gets_one_comment_and_then_all_that_comes(kind: str) -> None:
    held = Held()
    server = serve(getattr(held, kind))

    async def main() -> None:
        talk = listen(server)
        talk.takes.clear()
        await asyncio.sleep(4 * SECONDS)
        for gate in held.gates:
            gate.set()
        await asyncio.sleep(4 * SECONDS)
        assert talk.sent == []
        talk.takes.set()
        await asyncio.wait_for(talk.task, 20)
        assert (talk.status, talk.body) == (200, COMMENT + ONE + TWO)

    asyncio.run(main())
    assert is_idle(server)
    server.stop()


@kinds
@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_goes_while_there_are_comments_ends_the_generator(kind: str, reads: bool) -> None:
    held = Held()
    server = serve(getattr(held, kind))

    async def main() -> None:
        talk = listen(server)
        if not reads:
            talk.takes.clear()
        await asyncio.sleep(3 * SECONDS)
        talk.go()
        await asyncio.wait_for(talk.task, 20)
        number = len(talk.sent)
        await asyncio.sleep(3 * SECONDS)
        assert len(talk.sent) == number

    asyncio.run(main())
    for gate in held.gates:
        gate.set()
    block_until(lambda: held.ended and is_idle(server))
    server.stop()


def test_a_first_item_that_is_too_late_is_an_event_after_comments() -> None:
    held = Held()
    server = InferenceServer(stream_keep_alive=SECONDS)
    server.register("m", held.awaiting, timeout=4 * SECONDS)

    async def main() -> None:
        talk = listen(server)
        await asyncio.wait_for(talk.task, 20)
        late = "model 'm' did not answer within 0.2 seconds, the shorter of its own timeout and the request's"
        assert split(talk.body) == [COMMENT, b'data: {"error":"%b"}\n\n' % late.encode()]

    asyncio.run(main())
    assert is_idle(server)
    server.stop()


def test_headers_of_the_model_leave_with_the_first_comment() -> None:
    go_on = asyncio.Event()

    async def model(n: Any, context: InferenceContext) -> AsyncIterator[int]:
        context.response_headers["x-cost"] = "7"
        await go_on.wait()
        yield 1

    server = serve(model, server_timing=True)

    async def main() -> None:
        talk = listen(server)
        await until(lambda: talk.sent)
        assert talk.header("x-cost") == "7"
        go_on.set()
        await asyncio.wait_for(talk.task, 20)
        assert split(talk.body) == [COMMENT, ONE]

    asyncio.run(main())
    server.stop()


@kinds
def test_none_is_never(kind: str) -> None:
    held = Held()
    server = serve(getattr(held, kind), stream_keep_alive=None)

    async def main() -> None:
        talk = listen(server)
        await asyncio.sleep(3 * SECONDS)
        assert talk.sent == []
        for gate in held.gates:
            gate.set()
        await asyncio.wait_for(talk.task, 20)
        assert talk.body == ONE + TWO

    asyncio.run(main())
    server.stop()


def test_a_plain_model_keeps_its_status() -> None:
    def fails(n: Any) -> int:
        time.sleep(3 * SECONDS)
        raise InferenceError("no more", status=418)

    server = serve(fails)

    async def main() -> None:
        assert await listen(server).answer() == (418, {"error": "no more"})

    asyncio.run(main())
    server.stop()


@kinds
def test_where_the_server_asks_for_each_item_it_gets_items_only(kind: str) -> None:
    held = Held()
    server = serve(getattr(held, kind))
    for gate in held.gates:
        threading.Timer(3 * SECONDS, gate.set).start()
    answer = over_wsgi(OIPWSGIApp(server), "")(Request("POST", "/models/m/generate_stream", (), b'{"n": 1}'))
    assert (answer.status, answer.body) == (200, ONE + TWO)
    server.stop()


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), True, "15"])
def test_what_it_can_be(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"stream_keep_alive=.* must be a positive number of seconds, or None for never"):
        InferenceServer(stream_keep_alive=wrong)
