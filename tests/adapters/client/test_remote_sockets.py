"""The connections of `remote`: what it makes of answers over a socket, whole, in pieces and broken, and when it uses one again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceResponse, InferenceServer, OIPApp
from oip_asgi.client import remote
from tests.support.peer import CHUNKED, CLOSE, GOOD, make_canned, with_length
from tests.support.threads import serving


def asked(url: str, *, times: int = 1) -> list[InferenceResponse | InferenceError]:
    """What a model of the server answers, on one event loop."""

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
    """A server with the model of another one."""
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
