"""What becomes of a stream: when its items are made and how each leaves, who holds its slot, and how it ends. What ends it from outside is
in tests/adapters/test_races.py."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, TensorSpec
from tests.support.metrics import is_idle
from tests.support.streaming import ITEMS, KINDS, Noted, alone, both_kinds, listen, numbers, of_kind, serve_stream, take
from tests.support.talk import Talk, block_until, until
from tests.support.ways import Request, over_asgi

kinds = pytest.mark.parametrize("kind", KINDS)

MANY = b'{"n": 1000000}'
FAILED = "model 'm' failed: see the server's log"
LATE = "model {!r} did not answer within {} seconds, the shorter of its own timeout and the request's"


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@kinds
async def test_the_next_item_is_made_when_the_last_was_taken(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted), stream_timeout=60)
    talk = listen(server)
    talk.takes.clear()
    await until(lambda: noted.made == 1)
    await asyncio.sleep(0.05)
    assert (noted.made, talk.sent) == (1, [])
    talk.takes.set()
    await asyncio.wait_for(talk.task, 20)
    assert numbers(talk) == [0, 1, 2]
    assert [message.get("more_body") for message in talk.sent[1:]] == [True, True, True, False]
    headers = [talk.header(name) for name in ("x-accel-buffering", "cache-control", "content-encoding")]
    assert headers == ["no", "no-cache", "identity"]
    assert noted.ended == ["finally"]
    assert is_idle(server)


@kinds
async def test_a_client_that_goes_before_the_first_item_ends_the_generator(kind: str) -> None:
    entered, leave, ended = threading.Event(), threading.Event(), threading.Event()

    def blocking(n: Any) -> Iterator[int]:
        try:
            entered.set()
            assert leave.wait(20)
            yield 1
        finally:
            ended.set()

    async def awaiting(n: Any) -> AsyncIterator[int]:
        try:
            entered.set()
            await asyncio.sleep(20)
            yield 1
        finally:
            ended.set()

    server = serve_stream(awaiting if kind == "async def" else blocking)
    talk = listen(server)
    await until(entered.is_set)
    talk.go()
    assert await talk.answer() == (499, None)
    leave.set()
    await until(lambda: is_idle(server))
    assert ended.is_set()
    await asyncio.to_thread(server.stop)


@kinds
@pytest.mark.parametrize("most", [1, None], ids=["sending fails", "it says so"])
async def test_a_client_that_goes_between_items_that_never_wait_ends_the_generator(kind: str, most: int | None) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted))
    talk = listen(server, MANY) if most is None else listen(server, MANY, most=most)
    if most is None:
        await until(lambda: noted.made >= 2)
        talk.go()
    await asyncio.wait_for(talk.task, 20)
    assert noted.made < 1_000_000
    assert noted.ended[-1] == "finally"
    assert is_idle(server)
    await asyncio.to_thread(server.stop)


@kinds
@pytest.mark.parametrize("place", ["at once", "later", "in finally"])
async def test_what_a_generator_raises(kind: str, place: str, caplog: pytest.LogCaptureFixture) -> None:
    def fails(n: Any) -> Iterator[int]:
        try:
            fail_if(place == "at once")
            yield 0
            fail_if(place == "later")
            yield 1
        finally:
            fail_if(place == "in finally")

    server = serve_stream(of_kind(kind, fails))
    talk = listen(server)
    await asyncio.wait_for(talk.task, 20)
    talk = talk
    if place == "at once":
        assert (talk.status, talk.header("content-type")) == (500, "application/json")
        assert talk.body == b'{"error":"%b"}' % FAILED.encode()
    else:
        assert talk.status == 200
        assert numbers(talk) == {"later": [0, FAILED], "in finally": [0, 1, FAILED]}[place]
    hint = (
        "if the request was wrong, declare what the model takes, and it is answered 400. This request had "
        'inputs=[TensorSpec("n", "INT64", [-1])]: write what it should have had'
    )
    assert errors(caplog) == [f"model 'm' failed on a request: {hint}"]
    assert "secret" in caplog.text
    assert is_idle(server)
    await asyncio.to_thread(server.stop)


def fail_if(condition: bool) -> None:
    if condition:
        raise ValueError("secret")


@kinds
async def test_a_generator_that_fails_when_it_is_closed_is_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def fails(n: Any) -> Iterator[int]:
        try:
            yield 0
        finally:
            fail_if(True)

    server = serve_stream(of_kind(kind, fails))
    talk = listen(server)
    talk.takes.clear()
    await until(lambda: not is_idle(server))
    await asyncio.sleep(0.05)
    talk.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talk.task
    assert errors(caplog) == ["model 'm' failed when the stream for a request was closed"]
    assert is_idle(server)
    await asyncio.to_thread(server.stop)


@kinds
async def test_timeout_is_for_the_first_response_only(kind: str) -> None:
    noted = Noted(silent_after=0)
    server = serve_stream(KINDS[kind](noted), timeout=0.2)

    def late(n: Any) -> Iterator[int]:
        assert noted.go_on.wait(20)
        yield 1

    async def late_async(n: Any) -> AsyncIterator[int]:
        await asyncio.sleep(20)
        yield 1

    server.register("late", late if kind == "def" else late_async, timeout=60, allow_timeout_override=True)
    status, body = await Talk(server, "late", b'{"n": 1, "timeout": 100000}', action="generate_stream").answer()
    assert (status, body["error"]) == (504, LATE.format("late", 0.1))
    assert await take(server, b'{"n": 1}') == [0]
    if kind == "def":
        threading.Timer(0.4, noted.go_on.set).start()
        assert await take(server, b'{"n": 2}') == [0, 1]
    await until(lambda: is_idle(server))
    await asyncio.to_thread(server.stop)


@kinds
async def test_stream_timeout_ends_a_generator_that_never_waits(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted), stream_timeout=0.2)
    *found, last = await take(server, b'{"n": 1000000000}')
    assert found == list(range(len(found)))
    assert last == "model 'm' did not end its stream within 0.2 seconds, its stream_timeout"
    [record] = caplog.records
    assert (record.getMessage(), vars(record)["oip_model"]) == ("model 'm' streamed for more than 0.2 seconds for a request", "m")
    await until(lambda: is_idle(server))
    assert noted.ended == ["closed", "finally"]
    await asyncio.to_thread(server.stop)


@kinds
async def test_a_long_request_that_gets_no_slot_is_late_at_its_own_timeout(kind: str) -> None:
    """A long request is decoded in its slot, which a stream holds until it ends."""
    noted = Noted()
    server = serve_stream(KINDS[kind](noted), max_concurrency=1, timeout=0.2)
    first = listen(server)
    first.takes.clear()
    await until(lambda: noted.made == 1)
    status, body = await listen(server, b'{"n": %b}' % str(list(range(30_000))).encode()).answer()
    waited = ": the request still waited for its turn, and had not begun to run"
    assert (status, body["error"]) == (504, LATE.format("m", 0.2) + waited)
    assert noted.made == 1
    first.takes.set()
    await asyncio.wait_for(first.task, 20)
    assert await take(server) == [0, 1, 2]
    await asyncio.to_thread(server.stop)


@kinds
def test_a_generator_keeps_its_context_variables_from_item_to_item(kind: str) -> None:
    variable: ContextVar[int] = ContextVar("variable")

    def sets(n: Any) -> Iterator[int]:
        token = variable.set(5)
        yield 0
        yield variable.get()
        variable.reset(token)

    server = serve_stream(of_kind(kind, sets))
    assert asyncio.run(take(server)) == [0, 5]
    server.stop()


async def test_a_stream_that_runs_while_its_model_is_unloaded_comes_to_its_end() -> None:
    noted = Noted()
    server = InferenceServer()
    server.register("m", load=lambda: noted.awaiting)
    talk = listen(server)
    talk.takes.clear()
    await until(lambda: noted.made == 1)
    unloading = asyncio.ensure_future(server.unload("m"))
    await asyncio.sleep(0.02)
    assert not unloading.done()
    talk.takes.set()
    await asyncio.wait_for(asyncio.gather(talk.task, unloading), 20)
    assert numbers(talk) == [0, 1, 2]


UNREAD = "model 'm' did not end its stream within 0.3 seconds, its stream_timeout"
ENDED = ["closed", "finally"]


def test_a_generator_that_is_cancelled_by_its_own_cleanup_ends_with_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    async def ticks(n: Any) -> AsyncIterator[int]:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        try:
            while True:
                yield 0
        finally:
            task.cancel()
            await task

    server = serve_stream(ticks, stream_timeout=0.3)

    assert asyncio.run(take(server))[-1] == UNREAD
    assert is_idle(server)
    assert "model 'm' failed when the stream for a request was closed" in caplog.text
    assert "an error of oip_asgi itself" not in caplog.text
    server.stop()


@kinds
def test_from_python_the_slot_is_free_while_nobody_asks(kind: str) -> None:
    noted = Noted()
    server = serve_stream(KINDS[kind](noted), max_concurrency=1, stream_timeout=0.3)
    inputs = {"n": np.array([9])}

    async def main() -> None:
        responses = server.infer_stream("m", inputs)
        assert (await anext(responses))["output_0"].tolist() == [0]
        await until(lambda: is_idle(server))
        with pytest.raises(InferenceError, match=UNREAD):
            await anext(responses)
        with pytest.raises(StopAsyncIteration):
            await anext(responses)

    asyncio.run(main())
    responses = server.infer_stream_sync("m", inputs)
    assert next(responses)["output_0"].tolist() == [0]
    block_until(lambda: is_idle(server))
    with pytest.raises(InferenceError, match=UNREAD):
        next(responses)
    assert noted.ended == ENDED * 2
    server.stop()


REQUESTS = {
    "generate_stream": ("generate", {"n": 1, "id": "é"}),
    "infer_stream": ("infer", {"inputs": [{"name": "n", "shape": [1], "datatype": "INT64", "data": [1]}], "id": "é"}),
}


def asked(model: Callable[[Any], Any], action: str, body: Any, **options: Any) -> tuple[int, bytes]:
    server = InferenceServer()
    server.register("m", model, version="2", **options)
    answer = over_asgi(OIPApp(server), "")(Request("POST", f"/models/m/{action}", (), json.dumps(body).encode()))
    return answer.status, answer.body


def events(body: bytes) -> list[bytes]:
    return [event.removeprefix(b"data: ") for event in body.split(b"\n\n")[:-1]]


@pytest.mark.parametrize(("action", "kind"), [("generate_stream", "def"), ("infer_stream", "async def")])
@pytest.mark.parametrize("name", ITEMS)
def test_each_item_leaves_as_if_it_were_the_only_one(name: str, action: str, kind: str) -> None:
    once, body = REQUESTS[action]
    status, stream = asked(both_kinds(ITEMS[name])[kind], action, body)
    expected = [asked(alone(ITEMS[name], place), once, body) for place in range(len(list(ITEMS[name]())))]
    # some clients end a line there
    expected = [(code, text.replace("\u2028".encode(), b"\\u2028")) for code, text in expected]
    assert (status, [(200, event) for event in events(stream)]) == (200, expected)


@kinds
@pytest.mark.parametrize(
    ("item", "wrong", "spec"),
    [
        (np.array([1]), np.array([1.5]), TensorSpec("y", "INT64", [1])),
        (np.array([1]), np.array([1, 2]), TensorSpec("y", "INT64", [1])),
        (np.array([1]), {"x": np.array([1])}, TensorSpec("y", "INT64", [1])),
        ({"y": np.array([1])}, {"x": np.array([1])}, TensorSpec("y", "INT64", [1])),
        (np.array([1]), None, None),
        (np.array([1]), "1", TensorSpec("y", "INT64", [1])),
        ("one", "\ud800", None),
        ("one", np.array([1]), TensorSpec("y", "BYTES", [1])),
    ],
)
def test_a_wrong_item_behind_right_ones_ends_the_stream(
    item: Any, wrong: Any, spec: TensorSpec | None, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    items: Callable[[], Iterable[Any]] = lambda: [item, item, item, item, wrong, item]  # noqa: E731
    _, stream = asked(both_kinds(items)[kind], "generate_stream", {"n": 1}, outputs=[spec] if spec else [])
    found = [json.loads(event) for event in events(stream)]
    assert ["error" in event for event in found] == [False, False, False, False, True]
    assert found[-1] == {"error": "model 'm' version '2' failed: see the server's log"}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@kinds
def test_what_the_request_asks_of_outputs_holds_for_each_item(kind: str) -> None:
    items = both_kinds(lambda: [np.array([0.25, 0.5, 0.125])] * 5)[kind]
    body: Any = {"inputs": REQUESTS["infer_stream"][1]["inputs"], "outputs": [{"name": "output_0", "parameters": {"classification": 1}}]}  # type: ignore[index]
    _, stream = asked(items, "infer_stream", body)
    assert [json.loads(event)["outputs"][0]["data"] for event in events(stream)] == [["0.500000:1"]] * 5
