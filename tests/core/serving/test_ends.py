"""Ends of requests that no table of races has: late writes, cancellations that become other errors, loops that are closed, and loads and
batches that nobody waits for. Nothing is left behind, for the garbage collector neither."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPWSGIApp, TensorSpec
from tests.support import ways
from tests.support.metrics import is_idle, outcomes
from tests.support.talk import Talk, until

SPECS: dict[str, Any] = {"inputs": [TensorSpec("x", "FP64", [-1, 1])], "outputs": [TensorSpec("y", "FP64", [-1, 1])]}
X = {"x": np.array([[1.0]])}
BODY = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,1],"data":[1.0]}]}'


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "oip_asgi")


def serve(model: Callable[..., Any], **options: Any) -> InferenceServer:
    server = InferenceServer()
    server.register("m", model, **SPECS, **options)
    return server


class Slow(Talk):
    """A client that takes each message after some turns of the event loop, or fails to take it when it is cancelled."""

    turns: int | None

    def __init__(self, server: InferenceServer, turns: int | None) -> None:
        self.turns = turns
        super().__init__(server, body=BODY, action="infer_stream")

    async def _send(self, message: Any) -> None:
        if self.turns is None and message["type"] == "http.response.body":
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                raise OSError from None
        for _ in range(self.turns or 0):
            await asyncio.sleep(0)
        await super()._send(message)

    async def end(self) -> None:
        await self.task
        assert self.task.cancelling() == 0


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
async def test_a_client_that_takes_pieces_slowly_gets_the_error_after_the_deadline(turns: int) -> None:
    async def stream_then_wait(x: Any) -> AsyncIterator[Any]:
        yield x
        await asyncio.sleep(20)

    talk = Slow(serve(stream_then_wait, stream_timeout=0.1), turns)
    await talk.end()
    *_, error, last = talk.sent
    assert error["body"] == b'data: {"error":"model \'m\' did not end its stream within 0.1 seconds, its stream_timeout"}\n\n'
    assert last == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_write_that_fails_at_the_deadline_leaves_no_cancellation() -> None:
    async def many(x: Any) -> AsyncIterator[Any]:
        while True:
            yield x

    server = serve(many, stream_timeout=0.1)
    await Slow(server, None).end()
    assert is_idle(server)
    assert outcomes(server) == {"timeout": 1}


def yield_twice(x: Any) -> Iterator[Any]:
    yield x
    yield x


async def yield_twice_async(x: Any) -> AsyncIterator[Any]:
    yield x
    yield x


kinds = pytest.mark.parametrize("model", [yield_twice, yield_twice_async], ids=["def", "async def"])


@kinds
@pytest.mark.parametrize("is_closed", [False, True], ids=["the loop ends", "the loop is closed"])
def test_a_stream_that_is_held_when_its_loop_ends_gives_its_slot_back(
    model: Any, is_closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server, held = serve(model), list[Any]()

    async def hold() -> None:
        held.append(server.infer_stream("m", X))
        await anext(held[0])

    if is_closed:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(hold())
        loop.close()
    else:
        asyncio.run(hold())
    held.clear()
    gc.collect()
    assert is_idle(server)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    server.stop()


async def test_a_failed_stream_is_counted_whose_host_cancels_while_it_is_closed() -> None:
    closing, leave = threading.Event(), threading.Event()

    def fail(x: Any) -> Iterator[Any]:
        try:
            yield x
            yield {"y": "no number"}
        finally:
            closing.set()
            assert leave.wait(20)

    server = serve(fail)

    async def take() -> None:
        async for _ in server.infer_stream("m", X):
            pass

    task = asyncio.create_task(take())
    await until(closing.is_set)
    task.cancel()
    await asyncio.wait([task])
    leave.set()
    await until(lambda: is_idle(server))
    server.stop()
    assert (outcomes(server)) == {"failed": 1}


async def load_for_long() -> None:
    await asyncio.sleep(20)


def test_a_load_that_is_cancelled_by_others_is_no_success() -> None:
    async def main() -> str:
        loading = asyncio.create_task(serve(lambda x: x, load=load_for_long).load("m"))
        await asyncio.sleep(0.05)
        for task in asyncio.all_tasks() - {loading, asyncio.current_task()}:
            task.cancel()
        with pytest.raises(InferenceError) as error:
            await loading
        return f"{error.value.status} {error.value}"

    assert asyncio.run(main()) == "503 model 'm' is not loaded: its load was cancelled"


async def cancel_a_load() -> None:
    asking = asyncio.create_task(serve(lambda x: x, load=load_for_long).infer("m", X))
    await asyncio.sleep(0.02)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait([asking])


async def leave_a_batch() -> None:
    async def late(x: Any) -> None:
        await asyncio.sleep(20)

    server = serve(late, timeout=0.05, max_batch_size=4)
    asking = asyncio.create_task(server.infer("m", X))
    await asyncio.sleep(0.02)
    asking.cancel()
    await asyncio.wait([asking])
    await until(lambda: is_idle(server))


async def take_late(model: Any) -> None:
    responses = serve(model, stream_timeout=0.05).infer_stream("m", X)
    await anext(responses)
    await asyncio.sleep(0.1)
    with pytest.raises(InferenceError):
        await anext(responses)


ENDS: list[Callable[[], Coroutine[Any, Any, None]]] = [
    cancel_a_load, leave_a_batch, lambda: take_late(yield_twice), lambda: take_late(yield_twice_async),
]  # fmt: skip


EMPTY = b'{"inputs":[]}'
BOMB = gzip.compress(bytes(2**20), 9)


def make_server() -> InferenceServer:
    server = InferenceServer(max_body_bytes=2**19)

    def raises() -> Any:
        raise RuntimeError

    server.register("raises", raises)
    server.register("raises inline", raises, run="inline")

    @server.model("raises async", timeout=30)
    async def raises_async() -> Any:
        await asyncio.sleep(0)
        raise RuntimeError

    @server.model("slow in a thread", timeout=30)
    @server.model("late in a thread", timeout=0.05)
    def slow_in_a_thread() -> Any:
        time.sleep(0.5)
        raise RuntimeError

    @server.model("slow", timeout=30)
    @server.model("late", timeout=0.05)
    async def slow() -> Any:
        await asyncio.sleep(30)

    return server


async def answer(server: InferenceServer, model: str, body: bytes, coding: bytes, stays: float) -> int:
    """The status over ASGI, for a client that stays so many seconds."""
    talk = Talk(server, model, body, headers=[(b"content-length", b"%d" % len(body)), (b"content-encoding", coding)])
    asyncio.get_running_loop().call_later(stays, talk.go)
    await talk.task
    return talk.status


def over_asgi(*asked: Any) -> int:
    return asyncio.run(answer(*asked))


def over_wsgi(server: InferenceServer, model: str, body: bytes, coding: bytes, stays: float) -> int:
    request = ways.Request("POST", f"/models/{model}/infer", [("content-encoding", coding.decode())], body)
    return ways.over_wsgi(OIPWSGIApp(server), "")(request).status


@pytest.fixture
def server() -> Iterator[InferenceServer]:
    made = make_server()
    yield made
    made.stop()


@contextmanager
def collecting() -> Iterator[list[Any]]:
    """What only the garbage collector finds of what is left behind here."""
    garbage: list[Any] = []
    gc.collect()
    gc.freeze()  # what is here already is not looked through again: frames that are left behind are new
    was_enabled = gc.isenabled()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield garbage
        gc.collect()
        garbage.extend(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def ours(garbage: list[Any]) -> list[str]:
    return [
        f"{each.f_code.co_filename}:{each.f_lineno}"
        for each in garbage
        if isinstance(each, FrameType) and "oip_asgi" in each.f_code.co_filename
    ]


@pytest.mark.slow
@pytest.mark.parametrize("way", [over_asgi, over_wsgi])
@pytest.mark.parametrize(
    ("model", "body", "coding", "stays", "expected"),
    [
        *((f"raises{how}", EMPTY, b"", 30.0, 500) for how in ("", " inline", " async")),
        *((f"late{how}", EMPTY, b"", 30.0, 504) for how in ("", " in a thread")),
        ("slow in a thread", EMPTY, b"", 0.0, 499),
        ("slow", EMPTY, b"", 0.0, 499),
        ("raises", BOMB, b"gzip", 30.0, 413),
        ("raises", b"{", b"", 30.0, 400),
        ("nobody", EMPTY, b"", 30.0, 404),
    ],
)
def test_what_goes_wrong_leaves_no_garbage(
    way: Callable[..., int], model: str, body: bytes, coding: bytes, stays: float, expected: int, server: InferenceServer
) -> None:
    if expected == 499 and way is over_wsgi:
        pytest.skip("nobody tells a WSGI application that its client has gone")
    way(server, model, body, coding, stays)
    with collecting() as garbage:
        assert way(server, model, body, coding, stays) == expected
        server.stop()  # what runs after its deadline has ended
    assert ours(garbage) == []


def test_a_host_that_cancels_leaves_no_garbage(server: InferenceServer) -> None:
    async def main() -> None:
        task = asyncio.create_task(answer(server, "slow", EMPTY, b"", 30.0))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    with collecting() as garbage:
        asyncio.run(main())
    assert ours(garbage) == []


OF_REQUESTS = (
    "AsyncIO", "Call", "CancelledError", "Execution", "Member", "Part", "Task", "Trips", "_Generator", "_Item", "_StreamedRequest"
)  # fmt: skip
"""Classes of which requests have some. Servers, which end here too, have cycles of their own."""


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS, ids=["load", "batch", "late def", "late async def"])
async def test_an_end_leaves_nothing_of_ours_to_the_garbage_collector(end: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await end()
    with collecting() as garbage:
        await end()
        await asyncio.sleep(0.01)
    assert [repr(each) for each in garbage if type(each).__name__ in OF_REQUESTS] == []
