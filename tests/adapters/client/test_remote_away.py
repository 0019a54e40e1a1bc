"""`remote` while its server is away, and its connections: what clients get, what the log has, when it is asked whether it is ready."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceResponse, InferenceServer, OIPApp
from oip_asgi.client import remote
from tests.support.asking import logged
from tests.support.inside.models import lifecycle
from tests.support.peer import CHUNKED, CLOSE, GOOD, make_canned, with_length
from tests.support.threads import serving
from tests.support.ways import Answer, Request, send_asgi

SPEC = {"name": "x", "datatype": "FP32", "shape": [-1]}
ANSWER: dict[str, Any] = {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2]}]}
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()


class Far:
    """A server with the model `m`, on a port that it keeps while it is away."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.asked: list[str] = []
        """What was asked: methods, and the ends of paths."""
        self.heads: list[str] = []
        """The heads of inference requests."""
        self.answer: Any = ANSWER
        self.is_ready = True
        self.hangs = asyncio.Event()
        self.hangs.set()
        self.open = self.most_open = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v2"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        connections: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(writer)
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            try:
                while True:
                    await self._answer(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                self.open -= 1
                writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", self.port):
            yield
            for connection in connections:
                connection.close()
            await asyncio.sleep(0.05)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lengths = [line.partition(":")[2] for line in head.split("\r\n") if line.lower().startswith("content-length")]
        await reader.readexactly(int((lengths or ["0"])[0]))
        method, path, _ = head.split(" ", 2)
        self.asked.append(f"{method} {path.rpartition('/')[2]}")
        document: Any = {"name": "m", "extensions": [], "inputs": [SPEC], "outputs": [{**SPEC, "name": "y"}]}
        if method == "POST":
            self.heads.append(head)
            document = self.answer
        elif path.endswith("/ready"):
            await self.hangs.wait()
            document = {"ready": self.is_ready}
        body = json.dumps(document).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()


class Near:
    def __init__(self, url: str | Sequence[str], **options: Any) -> None:
        of_remote = {name: options.pop(name) for name in ("forward", "retry") if name in options}
        self.server = InferenceServer()
        self.server.register("m", load=remote(url, "m", wait=0, **of_remote), **options)
        self._app = OIPApp(self.server)

    async def infer(self, headers: Sequence[tuple[str, str]] = ()) -> Answer:
        return await send_asgi(self._app, Request("POST", "/models/m/infer", headers, BODY))

    async def get(self, path: str) -> Answer:
        return await send_asgi(self._app, Request("GET", path))


def run(use: Callable[[Far, Near], Awaitable[None]], **options: Any) -> None:
    """Run a function with a server, which serves only until the model is loaded, and one in front of it."""

    async def main() -> None:
        far = Far()
        near = Near(far.url, **options)
        async with AsyncExitStack() as stack:
            async with far.serving():
                await stack.enter_async_context(near.server.lifespan())
            await use(far, near)

    asyncio.run(main())


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.message) for record in logged(caplog)]


# Away


def test_a_server_that_is_away_is_503_and_two_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def use(far: Far, near: Near) -> None:
        for _ in range(20):
            answer = await near.infer()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert json.loads(answer.body) == {"error": "model 'm' failed: its server cannot be reached"}
        async with far.serving():
            for _ in range(3):
                assert (await near.infer()).status == 200
        for _ in range(3):  # it comes and goes, which is no line for each time
            assert (await near.infer()).status == 503
            async with far.serving():
                assert (await near.infer()).status == 200
        there = f"{far.url}, which has the model 'm',"
        [away, back] = lines(caplog)
        assert (away[0], away[1].startswith(f"{there} cannot be reached: ")) == ("WARNING", True)
        assert back == ("WARNING", f"{there} can be reached again: 20 calls could not be sent to it")

    run(use)


# Trying again


def test_with_retry_a_call_waits_for_a_server_that_restarts_as_long_as_both_have_time() -> None:
    async def restart(far: Far, near: Near) -> None:
        call = asyncio.ensure_future(near.infer())
        await asyncio.sleep(0.3)
        assert not call.done()
        async with far.serving():
            assert (await call).status == 200
        assert far.asked.count("POST infer") == 1

    async def stay_away(far: Far, near: Near) -> None:
        assert (await near.infer()).status == 503

    async def be_late(far: Far, near: Near) -> None:
        assert (await near.infer()).status == 504

    run(restart, retry=30)
    run(stay_away, retry=0.3)
    run(be_late, retry=60, timeout=0.3)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="expected seconds, from 0 on"):
            remote("http://far/v2", "m", retry=wrong)


# Readiness


def test_readiness_is_one_question_at_a_time_whose_answer_is_good_for_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def use(far: Far, near: Near) -> None:
        async with far.serving():
            far.hangs.clear()
            probes = [asyncio.ensure_future(near.get(path)) for path in ("/health/ready", "/models/m/ready") * 50]
            while "GET ready" not in far.asked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            far.hangs.set()
            assert {(await probe).status for probe in probes} == {200}
            assert far.asked.count("GET ready") == 1
            assert far.most_open <= 2
            far.is_ready = False
            assert (await near.get("/health/ready")).status == 200
            await asyncio.sleep(1.05)
            assert (await near.get("/health/ready")).status == 503
            assert far.asked.count("GET ready") == 2
        assert lines(caplog) == [("WARNING", f"the server is not ready, because of model 'm': its server {far.url} says so")]

    run(use)


def test_a_probe_that_goes_lets_the_next_one_ask() -> None:
    async def use(far: Far, near: Near) -> None:
        async with far.serving():
            far.hangs.clear()
            first, second = (asyncio.ensure_future(near.get("/health/ready")) for _ in range(2))
            while "GET ready" not in far.asked:
                await asyncio.sleep(0.01)
            first.cancel()
            far.hangs.set()
            assert (await second).status == 200

    run(use)


def test_the_log_says_why_the_server_is_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    async def use(far: Far, near: Near) -> None:
        answer = await near.get("/models/m/ready")
        assert (answer.status, json.loads(answer.body)) == (503, {"name": "m", "ready": False})
        listed = [{"name": "m", "state": "UNAVAILABLE", "reason": "it is not ready, as the log says"}]
        for _ in range(3):
            answer = await near.get("/health/ready")
            assert (answer.status, json.loads(answer.body)) == (503, {"ready": False, "live": True, "models": listed})
        assert lines(caplog)[1:] == [
            ("WARNING", f"the server is not ready, because of model 'm': its server {far.url} cannot be reached"),
        ]
        async with far.serving():
            assert (await near.infer()).status == 200
            await asyncio.sleep(1.05)  # as long as what was told of it is good, also where a call has seen that it is back
            assert (await near.get("/health/ready")).status == 200
        assert [message for _, message in lines(caplog)[2:]] == [
            f"{far.url}, which has the model 'm', can be reached again: 0 calls could not be sent to it",
            "the server is ready again",
        ]

    run(use)


# What is sent, and what comes


def test_spaces_around_a_forwarded_header_are_no_part_of_it(caplog: pytest.LogCaptureFixture) -> None:
    async def use(far: Far, near: Near) -> None:
        async with far.serving():
            for value in ("00-1 ", " 00-1", "00-1\t", "\t 00-1 \t"):
                assert (await near.infer([("traceparent", value)])).status == 200
                assert "\r\ntraceparent: 00-1\r\n" in far.heads.pop()

    run(use)
    assert not logged(caplog)


async def test_a_header_that_cannot_be_sent_is_400_and_sets_no_address_aside(caplog: pytest.LogCaptureFixture) -> None:
    fars = [Far(), Far()]
    near = Near([far.url for far in fars])
    async with fars[0].serving(), fars[1].serving(), near.server.lifespan():
        for value in ("a\rb", "a\nb: c", "a\0b", "a\x7fb", "a\x1bb", "Ren\xe9", "a\xa0"):
            answer = await near.infer([("authorization", value)])
            assert answer.status == 400
            assert json.loads(answer.body) == {"error": "the header authorization cannot be passed on: expected printable ASCII"}
        calls = await asyncio.gather(*(near.infer() for _ in range(10)))
        assert {call.status for call in calls} == {200}
        assert [far.asked.count("POST infer") for far in fars] == [5, 5]
    assert not logged(caplog)


def test_a_parameter_of_more_than_64_bits_in_the_answer_is_502(caplog: pytest.LogCaptureFixture) -> None:
    [output] = ANSWER["outputs"]

    async def use(far: Far, near: Near) -> None:
        async with far.serving():
            for number in (2**64, 10**30, -(2**63) - 1):
                parameters = {"parameters": {"a": number}}
                for far.answer in ({**ANSWER, **parameters}, {**ANSWER, "outputs": [{**output, **parameters}]}):
                    caplog.clear()
                    answer = await near.infer()
                    assert (answer.status, answer.body) == (502, b'{"error":"model \'m\' failed: its server gave a broken answer"}')
                    [record] = logged(caplog)
                    assert (record.levelno, "'a'" in record.message) == (logging.ERROR, True)
            far.answer = {**ANSWER, "parameters": {"a": 2**64 - 1, "b": -(2**63)}}
            assert json.loads((await near.infer()).body)["parameters"] == {"a": 2**64 - 1, "b": -(2**63)}

    run(use)


# Not there when the model is loaded


@pytest.mark.parametrize("comes_by", ["probe", "model's probe", "request"])
async def test_a_server_that_comes_after_the_wait_is_found_by_a_probe_or_a_request(
    comes_by: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lifecycle, "_AGAIN_SECONDS", 0.2)
    far = Far()
    near = Near(far.url)
    path = {"probe": "/health/ready", "model's probe": "/models/m/ready", "request": ""}[comes_by]

    async def ask() -> Answer:
        return await (near.get(path) if path else near.infer())

    async with near.server.lifespan():
        for _ in range(20):
            assert (await ask()).status == 503
            await asyncio.sleep(0.02)
        refused = await near.infer()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert json.loads(refused.body) == {"error": "model 'm' is not ready: its server cannot be reached"}
        [listed] = json.loads((await near.get("/health/ready")).body)["models"]
        assert listed["reason"] == "its server cannot be reached"
        assert listed["state"] in ("UNAVAILABLE", "LOADING")
        async with far.serving(), asyncio.timeout(10):
            while (await ask()).status != 200:
                await asyncio.sleep(0.02)
            assert (await near.infer()).status == 200
            assert (await near.get("/health/ready")).body == b'{"ready":true,"live":true}'
    again = "it is not ready until a request or a probe loads it again, at most every five seconds"
    there = f"model 'm': load= raised, so {again}: cannot ask http://127.0.0.1:"
    assert [text.startswith(there) for _, text in lines(caplog) if "load= raised" in text] == [True]


async def test_a_server_that_is_not_there_is_asked_at_most_every_five_seconds() -> None:
    near = Near((far := Far()).url)
    async with near.server.lifespan(), far.serving():
        for _ in range(10):
            assert (await near.get("/health/ready")).status == 503
            assert (await near.infer()).status == 503
            await asyncio.sleep(0.02)
        assert far.asked == []


def asked(url: str, *, times: int = 1) -> list[InferenceResponse | InferenceError]:
    async def ask_all() -> list[InferenceResponse | InferenceError]:
        answers: list[InferenceResponse | InferenceError] = []
        async with near(url) as server:
            for _ in range(times):
                try:
                    answers.append(await server.infer("m", {"x": np.array([1.5, 2.5], np.float32)}))
                except InferenceError as error:
                    answers.append(error)
        return answers

    return asyncio.run(ask_all())


def values(answers: Sequence[InferenceResponse | InferenceError]) -> list[Any]:
    return [answer["y"].tolist() if isinstance(answer, InferenceResponse) else (answer.status, str(answer)) for answer in answers]


@asynccontextmanager
async def near(url: str, model: str = "m", **options: Any) -> AsyncIterator[InferenceServer]:
    server = InferenceServer(max_body_bytes=None)
    server.register(model, load=remote(url, model, wait=0), **options)
    async with server.lifespan():
        yield server


def test_a_broken_answer_is_502_and_the_next_call_has_another_connection() -> None:
    whole, coding = "gave no whole answer", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"
    for answer, text in (([CHUNKED[:-2]], whole), ([with_length(GOOD)[:-1]], whole), ([], whole), ([coding], "gave a broken answer")):
        canned = make_canned([*answer, CLOSE], [with_length(GOOD)])
        with canned.listening() as url:
            assert values(asked(url, times=2)) == [(502, f"model 'm' failed: its server {text}"), [1.0, 2.0]]
        assert len(canned.connections) == 2


def test_bodies_of_any_length_go_and_come() -> None:
    far = InferenceServer(max_body_bytes=None)
    far.register("m", lambda x: x)

    async def ask(url: str) -> None:
        async with near(url) as server:
            for size in (0, 3, 15_000, 40_000, 300_000) * 2:
                sent = np.arange(size, dtype=np.float64)
                assert np.array_equal((await server.infer("m", {"x": sent}))["output_0"], sent)
            await asyncio.gather(*(server.infer("m", {"x": np.zeros(1)}) for _ in range(5)))
            await server.load("m")  # which closes the connections
            await server.infer("m", {"x": np.zeros(1)})

    with serving(OIPApp(far, path="/v2")) as port:
        for _ in range(2):
            asyncio.run(ask(f"http://127.0.0.1:{port}/v2"))


def test_a_server_may_answer_before_it_has_read_all() -> None:
    async def ask(url: str) -> None:
        async with near(url) as server:
            with pytest.raises(InferenceError) as raised:
                await server.infer("m", {"x": np.zeros(10_000_000)})
            assert raised.value.status in (413, 502)  # the kernel may drop what a closed connection has sent

    refused = b"HTTP/1.1 413 Too Large\r\nContent-Length: 20\r\n\r\n" + b'{"error":"too much"}'
    with make_canned([refused, CLOSE], is_early=True).listening() as url:
        asyncio.run(ask(url))


@contextmanager
def waiting_there() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """A server whose models wait; gives its URL, what is set when a call began, and when one was cancelled or closed."""
    began, ended = threading.Event(), threading.Event()
    far = InferenceServer()

    @far.model("m")
    async def wait(x: Any) -> Any:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    @far.model("s")
    async def stream(x: Any) -> AsyncIterator[Any]:
        began.set()
        try:
            while True:
                yield x
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    with serving(OIPApp(far, path="/v2")) as port:
        yield f"http://127.0.0.1:{port}/v2", began, ended


def test_what_ends_here_ends_there(caplog: pytest.LogCaptureFixture) -> None:
    async def cancel(url: str, began: threading.Event) -> None:
        async with near(url) as server:
            call = asyncio.ensure_future(server.infer("m", {"x": np.zeros(1)}))
            while not began.is_set():
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    async def be_late(url: str, began: threading.Event) -> None:
        async with near(url, timeout=0.2) as server:
            with pytest.raises(InferenceError) as raised:
                await server.infer("m", {"x": np.zeros(1)})
            assert raised.value.status == 504
        assert any("'m' took more than 0.2 seconds" in record.message for record in caplog.records)

    async def leave_a_stream(url: str, began: threading.Event) -> None:
        async with near(url, "s") as server:
            stream = server.infer_stream("s", {"x": np.array([7])})
            for _ in range(2):
                assert (await anext(stream))["output_0"].tolist() == [7]
            await stream.aclose()

    with waiting_there() as (url, began, ended):
        for end in (cancel, be_late, leave_a_stream):
            began.clear()
            ended.clear()
            asyncio.run(end(url, began))
            assert ended.wait(10)
