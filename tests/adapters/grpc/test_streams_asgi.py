"""Calls of several messages over ASGI, message by message: what each protocol carries, and how a call ends."""

from __future__ import annotations

import asyncio
import gzip
import math
import tracemalloc
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import GRPC, INFER, REFLECTION, WEB, WEB_TEXT, Got, call, frame
from tests.support.grpc_asgi import STREAM as PATH
from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request
from tests.support.metrics import is_idle
from tests.support.streaming import Noted
from tests.support.talk import Talk, until

WRONG = b"\x07\0\0\0\0"


def asked(model: str, n: int, request_id: str = "", *, is_compressed: bool = False, **fields: Any) -> bytes:
    numbers = {"name": "n", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [n]}}
    message = wire_request(model, [numbers], id=request_id, **fields).SerializeToString()
    return frame(gzip.compress(message), 1) if is_compressed else frame(message)


def served(noted: Noted) -> InferenceServer:
    server = InferenceServer()
    server.register("m", noted.awaiting)
    server.register("plain", lambda n: n)
    return server


def ask(body: bytes, content_type: str = GRPC, size: int = 10**6, headers: Any = ()) -> Got:
    server = served(Noted())
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    got = asyncio.run(call(OIPGRPCApp(server), PATH, chunks, content_type, headers))
    assert is_idle(server)
    server.stop()
    return got


def responses(got: Got) -> list[Any]:
    return [MESSAGES["ModelStreamInfer.response"].FromString(message) for message in got.messages]


def ids(got: Got) -> list[str]:
    return [message.infer_response.id for message in responses(got)]


@pytest.mark.parametrize("content_type", [GRPC, WEB, WEB_TEXT])
def test_every_protocol_carries_many_messages_both_ways(content_type: str) -> None:
    body = asked("m", 2, "a") + frame(b"") + asked("plain", 1, "b", is_compressed=True) + asked("plain", 1, "c")
    for size in (10**6, 11, 7, 5, 4, 1):
        encoded = b64encode(body) if content_type == WEB_TEXT else body
        got = ask(encoded, content_type, size, [("grpc-encoding", "gzip")])
        assert got.refusal == ("OK", "")
        assert sorted(ids(got)) == ["", "a", "a", "b", "c"]
        assert [each for each in ids(got) if each != "a"] == ["", "b", "c"]


def test_what_is_no_call_of_messages() -> None:
    assert (ask(b"").refusal, ask(b"").messages) == (("OK", ""), [])
    assert ask(WRONG).refusal == ("INVALID_ARGUMENT", "a frame begins with the byte 7: expected 0, or 1 for a compressed message")
    assert ask(asked("plain", 1)[:-1]).refusal[0] == "INVALID_ARGUMENT"
    # headers that are wrong are answered before any message
    unknown = ask(asked("plain", 1), headers=[("grpc-encoding", "br")])
    assert unknown.refusal == ("UNIMPLEMENTED", "grpc-encoding 'br' is not supported: expected identity, gzip or deflate")
    assert ask(asked("plain", 1), headers=[("grpc-timeout", "soon")]).refusal[0] == "INVALID_ARGUMENT"


Write: TypeAlias = Callable[[bytes], Awaitable[object]]


class Line(Talk):
    """A call of gRPC whose client sends, goes, or takes nothing for a while, when a test says so.

    Args:
        write: What is done with each message before it is taken.
    """

    def __init__(
        self,
        server: InferenceServer,
        *frames: bytes,
        headers: Any = (),
        path: str = PATH,
        most: float = math.inf,
        content_type: str = GRPC,
        write: Write | None = None,
    ) -> None:
        self._write = write
        scope: dict[str, Any] = {"method": "POST", "headers": [(b"content-type", content_type.encode()), *headers]}
        super().__init__(
            server, body=None, path=path, app=OIPGRPCApp(server), most=most, extensions={"http.response.trailers": {}}, **scope
        )
        for each in frames:
            self.say(each, ends=False)

    async def _send(self, message: Any) -> None:
        if self._write is not None and message.get("body"):
            await self._write(message["body"][5:])
        await super()._send(message)

    @property
    def got(self) -> Got:
        return Got(self.sent)

    @property
    def bodies(self) -> int:
        return sum(message["type"] == "http.response.body" for message in self.sent)


async def test_the_next_item_is_made_when_the_last_was_taken() -> None:
    noted = Noted()
    server = served(noted)
    line = Line(server, asked("m", 5))
    await until(lambda: line.sent)
    line.takes.clear()
    await until(lambda: noted.made >= 1)
    made = noted.made
    await asyncio.sleep(0.05)
    assert noted.made <= made + 1
    line.takes.set()
    line.say(b"")
    await asyncio.wait_for(line.task, 20)
    assert (line.got.refusal, noted.made) == (("OK", ""), 5)
    assert is_idle(server)


def test_what_servers_raise_from_send_means_that_the_client_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    server, silent, ended = served(Noted(silent_after=0)), Noted(silent_after=0), list[str]()
    server.register("silent", silent.awaiting)

    @server.model("ticks")
    async def ticks(n: Any) -> AsyncIterator[int]:
        try:
            for number in range(int(n[0])):
                yield number
                await asyncio.sleep(0)
        finally:
            ended.append("ticks")

    async def main() -> None:
        line = Line(server, asked("silent", 2), asked("ticks", 10**6), most=4)
        await asyncio.wait_for(line.task, 20)
        assert [message["type"] for message in line.sent] == ["http.response.start", *["http.response.body"] * 3]
        await until(lambda: is_idle(server))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert (ended, silent.ended[-1], caplog.text) == (["ticks"], "finally", "")
    server.stop()


async def test_one_message_is_written_at_a_time_and_everybody_has_a_turn() -> None:
    noted, writing = Noted(), [0, 0]
    server = InferenceServer()
    server.register("m", noted.awaiting, max_concurrency=100)

    async def write(message: bytes) -> None:
        writing[0] += 1
        writing[1] = max(writing)
        await asyncio.sleep(0)
        writing[0] -= 1

    line = Line(server, *[asked("m", 20, str(number)) for number in range(10)], write=write)
    line.say(b"")
    await asyncio.wait_for(line.task, 20)
    assert line.got.refusal == ("OK", "")
    assert sorted(ids(line.got)) == sorted(str(number) for number in range(10) for _ in range(20))
    assert len(set(ids(line.got)[-20:])) > 5  # no stream waits until another one has ended
    assert writing == [0, 1]
    assert is_idle(server)


async def test_nothing_is_written_after_the_error_that_ends_a_call_nor_cut_off_by_it() -> None:
    noted, cut = Noted(), list[bool]()
    server = served(noted)

    @server.model("fails")
    def fails(n: Any) -> Any:
        raise InferenceError("no", status=422)

    async def write(message: bytes) -> None:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            cut.append(True)
            raise

    line = Line(server, asked("m", 1000), asked("fails", 1), headers=[(b"triton_grpc_error", b"true")], write=write)
    await asyncio.wait_for(line.task, 20)
    assert line.got.refusal == ("INVALID_ARGUMENT", "no")
    number = len(line.sent)
    await asyncio.sleep(0.05)
    assert len(line.sent) == number < 1000
    assert (cut, noted.ended[-1]) == ([], "finally")
    assert is_idle(server)


def test_a_reload_from_a_generator_to_a_function_leaves_the_flags_of_the_stream_that_runs() -> None:
    functions, server = [lambda n: n, Noted().blocking], InferenceServer()
    server.register("m", load=lambda: functions.pop())
    body = asked("m", 3, parameters={"triton_enable_empty_final_response": {"bool_param": True}})

    async def write(message: bytes) -> None:
        if functions:
            await server.load("m")

    async def flags(**options: Any) -> list[bool]:
        line = Line(server, body, **options)
        line.say(b"")
        await asyncio.wait_for(line.task, 20)
        return [each.infer_response.parameters["triton_final_response"].bool_param for each in responses(line.got)]

    async def main() -> None:
        assert await flags(write=write) == [False, False, False, True]
        assert await flags() == [True]

    asyncio.run(main())
    server.stop()


async def test_the_time_that_a_body_takes_counts_too() -> None:
    calls, server = list[int](), InferenceServer()

    @server.model("late")
    async def late(n: Any) -> None:
        calls.append(1)

    line = Line(server, headers=[(b"grpc-timeout", b"50m")], path=INFER)
    await asyncio.sleep(0.1)
    line.say(asked("late", 1))
    await asyncio.wait_for(line.task, 20)
    assert (line.got.refusal[0], calls) == ("DEADLINE_EXCEEDED", [])


@pytest.mark.parametrize("content_type", [GRPC, WEB])
async def test_a_server_that_does_not_take_a_message_until_the_deadline_is_sent_no_more(content_type: str) -> None:
    server = InferenceServer()
    server.register("unread", Noted().awaiting, stream_timeout=0.3)

    async def write(message: bytes) -> None:
        written.append(message)
        if len(written) == 2:
            await asyncio.sleep(60)

    written: list[bytes] = []
    line = Line(server, asked("unread", 9), content_type=content_type, write=write)
    await asyncio.wait([line.task], timeout=20)
    assert line.task.done()
    assert is_idle(server)
    assert len(written) == 2 + (content_type == WEB)  # whose trailers are a message


@pytest.mark.parametrize("goes", [False, True], ids=["its time is over", "its client goes"])
async def test_a_conversation_with_reflection_ends(goes: bool) -> None:
    line = Line(InferenceServer(), frame(b"\x3a\x00"), headers=[] if goes else [(b"grpc-timeout", b"200m")], path=REFLECTION)
    await until(lambda: line.bodies == 1)
    assert SERVICE.encode() in line.sent[1]["body"]
    if goes:
        line.go()
    await asyncio.wait_for(line.task, 20)
    if goes:
        assert line.bodies == 1
    else:
        assert line.sent[-1]["headers"][0] == (b"grpc-status", b"4")


def test_messages_that_become_large_are_decompressed_when_it_is_their_turn() -> None:
    """100 messages of 1 MiB each, in one chunk of 110 KB."""
    server, sizes = InferenceServer(max_body_bytes=2**21), list[int]()

    @server.model("m")
    async def m(x: np.ndarray) -> int:
        sizes.append(x.nbytes)
        return 1

    message = wire_request("m", [{"name": "x", "datatype": "UINT8", "shape": [2**20]}], [bytes(2**20)]).SerializeToString()
    body = frame(gzip.compress(message), 1) * 100
    tracemalloc.start()
    try:
        got = asyncio.run(call(OIPGRPCApp(server), PATH, body, GRPC, [("grpc-encoding", "gzip")]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    server.stop()
    assert got.refusal == ("OK", "")
    assert sizes == [2**20] * 100
    assert peak < 64 * 2**20


async def run_with(server: InferenceServer, receive: Any, send: Any, *headers: tuple[bytes, bytes]) -> None:
    scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "root_path": ""}
    sent = [(b"content-type", GRPC.encode()), (b"te", b"trailers"), *headers]
    app: Any = OIPGRPCApp(server)
    await asyncio.wait_for(app({**scope, "headers": sent, "extensions": {"http.response.trailers": {}}}, receive, send), 10)
    assert is_idle(server)
    server.stop()


def test_a_server_that_swallows_the_cancellation_ends_the_generator() -> None:
    """As gunicorn's `send` over HTTP/2 does at times: it waits for the window of flow control by `asyncio.wait_for`."""
    noted, blocked = Noted(), asyncio.Event()
    left = [{"type": "http.request", "body": asked("m", 10**6), "more_body": True}]

    async def receive() -> Any:
        if left:
            return left.pop()
        await blocked.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message.get("body"):
            blocked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(20)

    asyncio.run(run_with(served(noted), receive, send))
    assert noted.ended[-1] == "finally"


def test_a_server_that_swallows_the_end_of_reading_is_read_no_further() -> None:
    left, sent = [asked("m", 2), b""], list[Any]()

    async def receive() -> Any:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(20 if len(left) < 2 else 0)
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(run_with(served(Noted(silent_after=0)), receive, send, (b"grpc-timeout", b"200m")))
    assert Got(sent).refusal[0] == "DEADLINE_EXCEEDED"


class Timeout(BaseException):
    """As gevent's, which its host waits for."""

    __module__ = "gevent.timeout"


def test_an_inline_model_that_raises_what_is_no_failure_of_its_own_has_failed() -> None:
    server = InferenceServer()

    @server.model("for the host", run="inline")
    def raise_timeout(n: Any) -> int:
        raise Timeout

    @server.model("cancelled", run="inline")
    def cancel(n: Any) -> int:
        raise asyncio.CancelledError  # of another task

    got = asyncio.run(call(OIPGRPCApp(server), PATH, asked("for the host", 1)))
    assert (got.refusal, got.messages) == (("INTERNAL", "model 'for the host' failed: it raised Timeout"), [])
    got = asyncio.run(call(OIPGRPCApp(server), PATH, [asked("cancelled", 1), asked("cancelled", 2)]))
    assert [each.error_message for each in responses(got)] == ["model 'cancelled' failed: see the server's log"] * 2
    server.stop()


@pytest.mark.parametrize("chunks", [[frame(b"\x3a\x00"), WRONG], [frame(b"\x3a\x00") + WRONG]])
async def test_what_comes_before_a_wrong_frame_is_answered(chunks: list[bytes]) -> None:
    line = Line(InferenceServer(), path=REFLECTION)
    await until(lambda: line.sent)
    line.takes.clear()
    for body in chunks:
        line.say(body, ends=False)
    await asyncio.sleep(0.1)  # longer than a call goes unwatched
    line.takes.set()
    await asyncio.wait_for(line.task, 20)
    assert SERVICE.encode() in line.sent[1]["body"]
    assert line.sent[-1]["headers"][0] == (b"grpc-status", b"3")
