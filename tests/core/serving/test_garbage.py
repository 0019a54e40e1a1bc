"""What goes wrong leaves nothing behind that only the garbage collector finds: its pauses stop every request, and until then it holds
the bodies of those that failed."""

from __future__ import annotations

import asyncio
import gc
import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from oip_asgi import InferenceServer, OIPWSGIApp
from tests.support import ways
from tests.support.talk import Talk

BODY = b'{"inputs":[]}'
BOMB = gzip.compress(bytes(2**20), 9)


def make_server() -> InferenceServer:
    server = InferenceServer(max_body_bytes=2**19)

    def raises() -> Any:
        raise RuntimeError

    server.register("raises", raises)
    server.register("raises inline", raises, run="inline")

    @server.model("raises async")
    async def raises_async() -> Any:
        await asyncio.sleep(0)
        raise RuntimeError

    @server.model("raises in a thread of its own")
    async def raises_in_thread() -> Any:
        return await asyncio.to_thread(raises)

    @server.model("raises in time", timeout=30)
    async def raises_in_time() -> Any:
        await asyncio.sleep(0.001)
        raise RuntimeError

    @server.model("late in a thread", timeout=0.05)
    def late_in_a_thread() -> Any:
        time.sleep(0.1)
        raise RuntimeError

    @server.model("slow", timeout=30)
    @server.model("late", timeout=0.05)
    async def slow() -> Any:
        await asyncio.sleep(30)

    @server.model("slow in a thread", timeout=30)
    def slow_in_a_thread() -> Any:
        time.sleep(0.5)
        raise RuntimeError

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
        *((f"raises{how}", BODY, b"", 30.0, 500) for how in ("", " inline", " async", " in a thread of its own", " in time")),
        *((f"late{how}", BODY, b"", 30.0, 504) for how in ("", " in a thread")),
        ("slow in a thread", BODY, b"", 0.0, 499),
        ("slow", BODY, b"", 0.0, 499),
        ("raises", BOMB, b"gzip", 30.0, 413),
        ("raises", b"{", b"", 30.0, 400),
        ("nobody", BODY, b"", 30.0, 404),
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
        server.stop()  # what runs behind its deadline has ended
    assert ours(garbage) == []


def test_a_host_that_cancels_leaves_no_garbage(server: InferenceServer) -> None:
    async def main() -> None:
        task = asyncio.create_task(answer(server, "slow", BODY, b"", 30.0))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    with collecting() as garbage:
        asyncio.run(main())
    assert ours(garbage) == []
