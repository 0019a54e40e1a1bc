"""What becomes of a stream: when its items are made and how each leaves, who holds its slot, how it ends, and how far ahead a thread goes.
What ends it from outside is in tests/adapters/test_races.py."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, TensorSpec
from tests.support.asking import get
from tests.support.inside import before_each_break, limit_threads
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
    server = serve_stream(KINDS[kind](noted), stream_timeout=1)
    *found, last = await take(server, b'{"n": 1000000000}')
    assert found == list(range(len(found)))
    assert last == "model 'm' did not end its stream within 1 seconds, its stream_timeout"
    [record] = caplog.records
    assert (record.getMessage(), vars(record)["oip_model"]) == ("model 'm' streamed for more than 1 seconds for a request", "m")
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
def test_a_wrong_item_after_right_ones_ends_the_stream(
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


async def take_one(server: InferenceServer) -> Talk:
    """A client that takes the first item, and waits before it takes the next."""
    talk = listen(server, MANY)
    take, sent = talk.takes, talk.sent
    while len(sent) < 2:  # the head, and the item
        await asyncio.sleep(0)
    take.clear()
    return talk


async def settle(noted: Noted) -> int:
    made = -1
    while made != noted.made:
        made = noted.made
        await asyncio.sleep(0.1)
    return made


def counts(server: InferenceServer) -> dict[str, int]:
    [stats] = get(server, "/models/m/stats")[1]["model_stats"]
    found: Counter[str] = Counter()
    for responses in stats["response_stats"].values():
        found.update({end: responses[end]["count"] for end in ("success", "fail", "cancel", "empty_response") if responses[end]["count"]})
    return dict(found)


def test_a_generator_is_two_items_ahead_of_a_client_that_does_not_read() -> None:
    async def stop_after_one() -> int:
        """How many items there are after the one that is being sent."""
        noted = Noted()
        server = serve_stream(noted.blocking)
        talk = await take_one(server)
        ahead = await settle(noted) - len(numbers(talk)) - 1
        talk.takes.set()
        await until(lambda: len(talk.sent) > 20)
        assert numbers(talk)[:10] == list(range(10))
        talk.go()
        await asyncio.wait_for(talk.task, 20)
        assert noted.ended == ["closed", "finally"]
        server.stop()
        return ahead

    seen = set[int]()
    for _ in range(20):  # on a busy machine, a turn of the thread may be over before
        if 2 not in seen:
            seen.add(asyncio.run(stop_after_one()))
    assert max(seen) == 2


@pytest.mark.parametrize("reads", [True, False])
async def test_others_have_their_turn_of_the_only_thread(reads: bool) -> None:
    noted = Noted()
    server = InferenceServer()
    limit_threads(server, 1)
    server.register("m", noted.blocking)
    server.register("other", lambda n: n)
    talk = await take_one(server)
    if reads:
        talk.takes.set()
    for _ in range(5):
        assert (await Talk(server, "other", b'{"n": 1}', action="generate").answer())[0] == 200
    assert not talk.task.done()
    talk.go()
    talk.takes.set()
    await asyncio.wait_for(talk.task, 20)
    assert noted.made < 1_000_000
    await asyncio.to_thread(server.stop)


async def test_each_item_is_there_while_the_next_one_is_made() -> None:
    """Also in the middle of a trip, where one item came right after the other."""
    go_on = threading.Semaphore(0)

    def pairs(n: Any) -> Iterator[int]:
        for number in range(int(n[0])):
            if number % 2:
                assert go_on.acquire(timeout=20)
            yield number

    server = serve_stream(pairs)
    talk = listen(server, b'{"n": 8}')
    for number in (1, 3, 5, 7):
        await until(lambda number=number: len(talk.sent) > number)
        await asyncio.sleep(0.02)
        assert numbers(talk) == list(range(number))
        go_on.release()
    await asyncio.wait_for(talk.task, 20)
    assert numbers(talk) == list(range(8))
    await asyncio.to_thread(server.stop)


@pytest.mark.parametrize("end", ["gone", "cancel"])
def test_items_that_nobody_takes_are_not_counted_and_the_generator_is_closed_once(end: str) -> None:
    noted = Noted()
    server = serve_stream(noted.blocking)

    async def main() -> int:
        talk = await take_one(server)
        await settle(noted)
        if end == "gone":
            talk.go()
        else:
            talk.task.cancel()
        await asyncio.wait([talk.task], timeout=20)
        await until(lambda: is_idle(server))
        return len(numbers(talk))

    taken = asyncio.run(main())
    assert noted.ended == ["closed", "finally"]
    assert noted.threads == ["oip_asgi worker"]
    assert counts(server) == {"success": taken + 1, "cancel": 1}  # one was being sent
    server.stop()


def test_an_error_that_was_made_ahead_is_logged_though_nobody_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    raised: list[ValueError] = []

    def fails(n: Any) -> Iterator[int]:
        yield from range(3)
        raised.append(ValueError("secret"))
        raise raised[0]

    async def stop_after_one() -> None:
        server = serve_stream(fails, stream_timeout=0.3)
        talk = await take_one(server)
        await asyncio.wait_for(talk.task, 20)
        assert numbers(talk) == [0]
        assert is_idle(server)
        server.stop()

    for _ in range(20):  # on a busy machine, a turn of the thread may be over before
        if not raised:
            asyncio.run(stop_after_one())
    assert "model 'm' failed on a request, after its timeout" in caplog.text
    assert "secret" in caplog.text


TURN = 0.003


async def test_streams_that_wait_stop_their_loop_together_no_more_often_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 16 streams has an item in each turn: if each stopped the loop for itself, it would stand still for a fifth of the time."""
    stopped_at: list[float] = []
    before_each_break(monkeypatch, lambda: stopped_at.append(time.monotonic()))

    async def slow(n: Any) -> AsyncIterator[int]:
        for number in range(int(n[0])):
            await asyncio.sleep(1.2 * TURN)
            yield number

    server = serve_stream(slow, max_concurrency=16)
    talks = [listen(server, b'{"n": 20}') for _ in range(16)]
    await asyncio.wait_for(asyncio.wait([talk.task for talk in talks]), 20)
    assert [numbers(talk) for talk in talks] == [list(range(20))] * 16
    await asyncio.to_thread(server.stop)
    assert stopped_at
    assert all(later - earlier > TURN for earlier, later in pairwise(stopped_at))


async def test_a_stream_beside_one_that_holds_the_loop_has_a_whole_turn_each_time() -> None:
    """Its turn begins when it goes on: not before the other, which takes longer than a turn."""
    turns = 0

    async def quick(n: Any) -> AsyncIterator[int]:
        for number in range(int(n[0])):
            yield number

    async def hold() -> None:
        nonlocal turns
        while True:
            turns += 1
            time.sleep(1.5 * TURN)  # noqa: ASYNC251
            await asyncio.sleep(0)

    server = serve_stream(quick)
    holding = asyncio.create_task(hold())
    talk = listen(server, b'{"n": 800}')
    await asyncio.wait_for(talk.task, 60)
    holding.cancel()
    assert numbers(talk) == list(range(800))
    await asyncio.to_thread(server.stop)
    assert turns < 200
