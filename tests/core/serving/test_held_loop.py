"""A model that holds its event loop for more than 100 ms is warned of once, with what to write. The clock is the test's own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oip_asgi import InferenceServer, OIPApp, OIPWSGIApp
from tests.support.asking import ask
from tests.support.inside import set_clock
from tests.support.ways import Request, over_asgi, over_wsgi
from tests.table.row import GOOD, infer, inputs

MENDS = {
    "async": "write a def, which runs in a worker thread, or await asyncio.to_thread(...) for the part that blocks",
    "async stream": "write a def with yield, which runs in a worker thread, or await asyncio.to_thread(...) for the part that blocks",
    "inline": 'leave run="inline" out, so that it runs in a worker thread',
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def block(self, seconds: float) -> None:
        """What takes this long, and lets nothing else run."""
        self.now += seconds

    async def wait(self, seconds: float) -> None:
        """What takes this long, while other tasks run."""

        async def pass_by() -> None:
            self.now += seconds

        await asyncio.create_task(pass_by())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> InferenceServer:
    server = InferenceServer()
    set_clock(server, clock)
    return server


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "oip_asgi"]


def warning(function: Any, milliseconds: int, kind: str) -> str:
    place = f'File "{__file__}", line {function.__code__.co_firstlineno}, in {function.__name__}'
    held = f"model 'm' held the event loop for {milliseconds} ms, in which nothing else ran on it, health probes neither"
    return f"{held} ({place}): {MENDS[kind]}"


@pytest.mark.parametrize("options", [{}, {"max_batch_size": 4}], ids=["alone", "in a batch"])
@pytest.mark.parametrize("kind", ["async", "inline"])
def test_it_is_warned_of_once(
    kind: str, options: dict[str, Any], server: InferenceServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def holds(x: Any) -> Any:
        await clock.wait(5)
        clock.block(0.25)
        await clock.wait(5)
        return x

    def holds_inline(x: Any) -> Any:
        clock.block(0.25)
        return x

    function = holds if kind == "async" else holds_inline
    server.register("m", function, run="thread" if kind == "async" else "inline", **options)
    for _ in range(3):
        assert ask(server, "m", x=[[1.0]]).status == 200
    assert messages(caplog) == [warning(function, 250, kind)]


@pytest.mark.parametrize("held", [0, 1, 7, None])
def test_a_stream_is_warned_of_once(held: int | None, server: InferenceServer, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    @server.model("m")
    async def m(x: Any) -> Any:
        for place in range(9):
            await clock.wait(5)
            if held is not None and place >= held:
                clock.block(0.25)
            yield x

    for _ in range(2):
        answer = over_asgi(OIPApp(server), "")(Request("POST", "/models/m/infer_stream", (), inputs(GOOD)))
        assert (answer.status, answer.body.count(b"data: {")) == (200, 9)
    assert messages(caplog) == ([] if held is None else [warning(m, 250, "async stream")])


def test_one_that_begins_to_hold_it_is_found_at_its_next_long_call(
    server: InferenceServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    held = [0.0, 0.09, 0.3, 0.3]

    @server.model("m")
    async def holds(x: Any) -> Any:
        clock.block(held.pop(0))
        return x

    @server.model("waits")
    async def waits(x: Any) -> Any:
        await clock.wait(5)
        return x

    @server.model("def")
    def holds_no_loop(x: Any) -> Any:
        clock.block(5)
        return x

    for model, expected in (("m", 0), ("def", 0), ("waits", 0), ("waits", 0), ("m", 0), ("m", 0), ("m", 1)):
        assert ask(server, model, x=[1.0]).status == 200
        assert len(messages(caplog)) == expected


def test_inline_under_wsgi_holds_no_event_loop(server: InferenceServer, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    @server.model("m", run="inline")
    def m(x: Any) -> Any:
        clock.block(5)
        return x

    assert over_wsgi(OIPWSGIApp(server), "")(infer("m", inputs(GOOD))).status == 200
    assert messages(caplog) == []
    assert over_asgi(OIPApp(server), "")(infer("m", inputs(GOOD))).status == 200
    assert len(messages(caplog)) == 1
