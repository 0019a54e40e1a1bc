"""Calls of several messages over ASGI, message by message: what each protocol carries, and how a call ends."""

from __future__ import annotations

import asyncio
import gzip
import math
import tracemalloc
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceServer
from oip_asgi.grpc import OIPGRPCApp
from tests.support.grpc_asgi import GRPC, REFLECTION, WEB, WEB_TEXT, Got, call, frame
from tests.support.grpc_ways import MESSAGES, SERVICE, wire_request
from tests.support.inside import is_idle
from tests.support.streaming import Noted
from tests.support.talk import Talk, until

PATH = f"/{SERVICE}/ModelStreamInfer"


WRONG = b"\x07\0\0\0\0"


def asked(model: str, n: int, request_id: str = "") -> bytes:
    numbers = {"name": "n", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [n]}}
    return frame(wire_request(model, [numbers], id=request_id).SerializeToString())


def served(noted: Noted) -> InferenceServer:
    server = InferenceServer()
    server.register("m", noted.awaiting)
    server.register("plain", lambda n: n)
    return server


def ask(body: bytes, content_type: str = GRPC, size: int = 10**6, headers: Any = ()) -> Got:
    """The answer to a body that comes in chunks of some size."""
    server = served(Noted())
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    got = asyncio.run(call(OIPGRPCApp(server), PATH, chunks, content_type, headers))
    assert is_idle(server)
    server.stop()
    return got


def ids(got: Got) -> list[str]:
    return [MESSAGES["ModelStreamInfer.response"].FromString(message).infer_response.id for message in got.messages]


@pytest.mark.parametrize("size", [10**6, 7, 1])
@pytest.mark.parametrize("content_type", [GRPC, WEB, WEB_TEXT])
def test_every_protocol_carries_many_messages_both_ways(content_type: str, size: int) -> None:
    body = asked("m", 2, "a") + asked("plain", 1, "b") + asked("plain", 1, "c")
    got = ask(b64encode(body) if content_type == WEB_TEXT else body, content_type, size)
    assert got.refusal == ("OK", "")
    assert sorted(ids(got)) == ["a", "a", "b", "c"]
    assert [each for each in ids(got) if each != "a"] == ["b", "c"]


def test_streams_that_wait_for_nothing_share_a_call() -> None:
    async def quick(n: Any) -> Any:
        for _ in range(int(n[0])):
            yield n

    server = InferenceServer()
    server.register("quick", quick)
    got = asyncio.run(call(OIPGRPCApp(server), PATH, [asked("quick", 600, "a") + asked("quick", 600, "b")], GRPC))
    server.stop()
    assert sorted(set(ids(got))) == ["a", "b"]
    assert 200 < ids(got)[:600].count("b") < 400


def test_a_call_without_requests_ends_at_once() -> None:
    assert (ask(b"").refusal, ask(b"").messages) == (("OK", ""), [])


def test_what_is_no_frame_ends_the_call() -> None:
    assert ask(WRONG).refusal == ("INVALID_ARGUMENT", "a frame begins with the byte 7: expected 0, or 1 for a compressed message")
    assert ask(asked("plain", 1)[:-1]).refusal[0] == "INVALID_ARGUMENT"


def test_headers_that_are_wrong_are_answered_before_any_message() -> None:
    got = ask(asked("plain", 1), headers=[("grpc-encoding", "br")])
    assert got.refusal == ("UNIMPLEMENTED", "grpc-encoding 'br' is not supported: expected identity, gzip or deflate")
    assert ask(asked("plain", 1), headers=[("grpc-timeout", "soon")]).refusal[0] == "INVALID_ARGUMENT"


class Line(Talk):
    """A call of gRPC whose client sends, goes, or takes nothing for a while, when a test says so."""

    def __init__(self, server: InferenceServer, *frames: bytes, headers: Any = (), path: str = PATH, most: float = math.inf) -> None:
        scope: dict[str, Any] = {"method": "POST", "headers": [(b"content-type", GRPC.encode()), *headers]}
        super().__init__(
            server, body=None, path=path, app=OIPGRPCApp(server), most=most, extensions={"http.response.trailers": {}}, **scope
        )
        for each in frames:
            self.say(each, ends=False)

    @property
    def bodies(self) -> int:
        return sum(message["type"] == "http.response.body" for message in self.sent)


@pytest.mark.parametrize("ends", [0, 1, 3], ids=["before it has sent all", "when it has sent all", "behind a server that does not wait"])
def test_a_client_that_goes_ends_its_generators(ends: int) -> None:
    noted = Noted(silent_after=0)
    server = served(noted)

    async def main() -> None:
        line = Line(server, asked("m", 2), asked("m", 2))
        for _ in range(ends):
            line.say(b"")
        await until(lambda: line.bodies == 2)
        line.go()
        await asyncio.wait_for(line.task, 20)
        assert noted.ended == ["cancelled", "finally"] * 2

    asyncio.run(main())
    assert is_idle(server)


def test_what_servers_raise_from_send_means_that_the_client_has_gone(caplog: pytest.LogCaptureFixture) -> None:
    server, ended = InferenceServer(), list[str]()

    @server.model("ticks")
    async def ticks(n: Any) -> AsyncIterator[int]:
        try:
            for number in range(int(n[0])):
                yield number
                await asyncio.sleep(0)
        finally:
            ended.append("ticks")

    async def main() -> None:
        line = Line(server, asked("ticks", 10**6), most=3)
        await asyncio.wait_for(line.task, 20)
        assert [message["type"] for message in line.sent] == ["http.response.start", "http.response.body", "http.response.body"]

    asyncio.run(main())
    assert (ended, caplog.text) == (["ticks"], "")
    server.stop()


def test_the_next_item_is_made_when_the_last_was_taken() -> None:
    noted = Noted()
    server = served(noted)

    async def main() -> None:
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
        assert line.sent[-1]["headers"] == [(b"grpc-status", b"0")]
        assert noted.made == 5

    asyncio.run(main())


def test_the_time_of_a_call_is_its_grpc_timeout() -> None:
    noted = Noted(silent_after=0)
    server = served(noted)

    async def main() -> None:
        line = Line(server, asked("m", 2), headers=[(b"grpc-timeout", b"200m")])
        await asyncio.wait_for(line.task, 20)
        assert line.sent[-1]["headers"][0] == (b"grpc-status", b"4")
        assert noted.ended == ["cancelled", "finally"]

    asyncio.run(main())
    assert is_idle(server)


@pytest.mark.parametrize("goes", [False, True], ids=["its time is over", "its client goes"])
def test_a_conversation_with_reflection_ends(goes: bool) -> None:
    async def main() -> None:
        line = Line(InferenceServer(), frame(b"\x3a\x00"), headers=[] if goes else [(b"grpc-timeout", b"1S")], path=REFLECTION)
        await until(lambda: line.bodies == 1)
        assert SERVICE.encode() in line.sent[1]["body"]
        if goes:
            line.go()
        await asyncio.wait_for(line.task, 20)
        if goes:
            assert line.bodies == 1
        else:
            assert line.sent[-1]["headers"][0] == (b"grpc-status", b"4")

    asyncio.run(main())


def test_the_time_that_a_body_takes_counts_too() -> None:
    calls, server = list[int](), InferenceServer()

    @server.model("m")
    async def m(n: Any) -> int:
        calls.append(1)
        return 1

    async def main() -> None:
        line = Line(server, headers=[(b"grpc-timeout", b"50m")], path=f"/{SERVICE}/ModelInfer")
        await asyncio.sleep(0.1)
        line.say(asked("m", 1))
        await asyncio.wait_for(line.task, 20)
        assert line.sent[-1]["headers"][0] == (b"grpc-status", b"4")

    asyncio.run(main())
    assert calls == []


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


def test_a_server_that_swallows_the_cancellation_ends_the_generator() -> None:
    """As gunicorn's `send` over HTTP/2 does at times: it waits for the window of flow control by `asyncio.wait_for`."""
    noted = Noted()

    async def main() -> None:
        blocked = asyncio.Event()
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

        scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "root_path": ""}
        headers = [(b"content-type", GRPC.encode()), (b"te", b"trailers")]
        app: Any = OIPGRPCApp(server)
        await asyncio.wait_for(app({**scope, "headers": headers, "extensions": {"http.response.trailers": {}}}, receive, send), 10)

    server = served(noted)
    asyncio.run(main())
    assert noted.ended[-1] == "finally"
    assert is_idle(server)
    server.stop()


def test_a_server_that_swallows_the_end_of_reading_is_read_no_further() -> None:
    server, left = served(Noted(silent_after=0)), [asked("m", 2), b""]
    sent: list[Any] = []

    async def receive() -> Any:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(20 if len(left) < 2 else 0)
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "root_path": ""}
    headers = [(b"content-type", GRPC.encode()), (b"te", b"trailers"), (b"grpc-timeout", b"200m")]
    app: Any = OIPGRPCApp(server)
    asyncio.run(asyncio.wait_for(app({**scope, "headers": headers, "extensions": {"http.response.trailers": {}}}, receive, send), 10))
    assert Got(sent).refusal[0] == "DEADLINE_EXCEEDED"
    server.stop()


class Timeout(BaseException):
    """As gevent's, which its host waits for."""

    __module__ = "gevent.timeout"


def test_an_inline_model_that_raises_what_is_for_the_host_has_failed() -> None:
    def raises(n: Any) -> int:
        raise Timeout

    server = InferenceServer()
    server.register("m", raises, run="inline")
    got = asyncio.run(call(OIPGRPCApp(server), PATH, asked("m", 1)))
    assert (got.refusal, got.messages) == (("INTERNAL", "model 'm' failed: it raised Timeout"), [])
    server.stop()


def test_an_inline_model_that_raises_the_cancellation_of_another_task_has_failed_once() -> None:
    def cancelled(n: Any) -> int:
        raise asyncio.CancelledError

    server = InferenceServer()
    server.register("m", cancelled, run="inline")
    got = asyncio.run(call(OIPGRPCApp(server), PATH, [asked("m", 1), asked("m", 2)]))
    texts = [MESSAGES["ModelStreamInfer.response"].FromString(message).error_message for message in got.messages]
    assert texts == ["model 'm' failed: see the server's log"] * 2
    server.stop()


@pytest.mark.parametrize("chunks", [[frame(b"\x3a\x00"), WRONG], [frame(b"\x3a\x00") + WRONG]])
def test_what_comes_before_a_wrong_frame_is_answered(chunks: list[bytes]) -> None:
    async def main() -> None:
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

    asyncio.run(main())
