"""Requests that share a call, one of which is bad, goes, or is late: what the others get."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

from oip_asgi import InferenceError, InferenceServer, TensorSpec
from tests.support.batching import Held, play, rows, told
from tests.support.metrics import is_idle, outcomes, waiting_calls
from tests.support.talk import block_until, until

FAILED = (500, "model 'm' failed: see the server's log")


def poisonous(x: Any) -> Any:
    if (x == 66).any():
        raise ValueError("poison")
    if (x == 67).any():
        raise InferenceError("not this one", status=422, headers={"X-Why": "it is 67"})
    return x * 2


async def poisonous_async(x: Any) -> Any:
    await asyncio.sleep(0)
    return poisonous(x)


kinds = pytest.mark.parametrize("is_async", [False, True], ids=["def", "async"])


def make(is_async: bool, **options: Any) -> Held:
    return Held(poisonous_async, is_async=True, **options) if is_async else Held(poisonous, **options)


@kinds
def test_a_bad_input_costs_only_itself(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    held = make(is_async)
    assert play(held, rows(1), rows(66), rows(2, 3), rows(67)) == [[2], FAILED, [4, 6], (422, "not this one")]
    assert held.sizes == [5, 1, 1, 2, 1]
    of_batch, of_one = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert of_batch.getMessage() == "model 'm' failed on a batch of 4 requests with 5 rows, so each of them is tried alone"
    assert "ValueError: poison" in (of_batch.exc_text or "")
    assert of_one.getMessage().startswith("model 'm' failed")
    assert outcomes(held.server) == {"ok": 3, "failed": 1, "invalid": 1}


def test_an_argument_that_cannot_be_made_costs_the_others_no_call_of_their_own() -> None:
    held = Held(lambda texts: list(map(len, texts)), inputs=[TensorSpec("x", "BYTES", [-1], content_type="str")])
    held.first = np.array([b"first"], object)
    texts = [np.array([text], object) for text in (b"a", b"bc", b"\xff", b"def")]
    one, two, (status, text), three = play(held, *texts)
    assert ([one, two, three], status) == ([[1], [2], [3]], 400)
    assert "element 0" in text
    assert held.sizes == [3]


@kinds
def test_what_is_for_clients_is_told_to_the_one_and_not_logged(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    held = make(is_async)
    assert play(held, rows(1), rows(67), rows(2)) == [[2], (422, "not this one"), [4]]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def per_target(x: Any) -> list[Any]:
    """One array for each of two targets, as `MultiOutputClassifier.predict_proba` has it."""
    return [np.hstack([x, -x]) * np.float64(target) for target in (1, 10)]


ROWS_OR_OUTPUTS = "output '{}' is a list of arrays, which may be rows or outputs"
DECLARE_EACH = (
    'if each is an output, declare each of them, as in outputs=[TensorSpec("output_0", "FP64", [-1, 2]), ...]; '
    "if each is a row, return numpy.stack(...) of them"
)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x[:1], "output 'output_0' has 1 rows, but the inputs have 3"),
        (lambda x: x.sum(), "output 'output_0' has 1 rows, but the inputs have 3"),
        (lambda x: {"a": x, "b": [1] * 5}, "output 'b' has 5 rows, but the inputs have 3"),
        (lambda x: (x, x.T), "output 'output_1' has 1 rows, but the inputs have 3"),
        (per_target, ROWS_OR_OUTPUTS.format("output_0")),
        (per_target, DECLARE_EACH),
        (lambda x: {"p": per_target(x)}, ROWS_OR_OUTPUTS.format("p")),
        (lambda x: (x, per_target(x)), ROWS_OR_OUTPUTS.format("output_1")),
        (lambda x: (per_target(x), 1), ROWS_OR_OUTPUTS.format("output_0")),
        (list, ROWS_OR_OUTPUTS.format("output_0")),
    ],
)
def test_wrong_rows_are_the_models_fault(function: Any, text: str, caplog: pytest.LogCaptureFixture) -> None:
    for asks in ((rows(1), rows(2, 3)), (rows(1, 2, 3),)):  # also where it runs alone, so that it shows at once
        caplog.clear()
        assert play(Held(function), *asks) == [FAILED] * len(asks)
        [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert text in record.getMessage() + (record.exc_text or "")


def test_a_classifier_of_several_targets_with_declared_outputs() -> None:
    x, y = np.array([[0.0], [1], [2], [3]]), np.array([[0, 1], [0, 0], [1, 1], [1, 0]])
    classifier = MultiOutputClassifier(LogisticRegression()).fit(x, y)
    server = InferenceServer()
    declared = [TensorSpec(name, "FP64", [-1, 2]) for name in ("first", "second")]
    server.register("m", classifier.predict_proba, outputs=declared, max_batch_size=2, max_batch_delay=0.2)

    async def main() -> list[Any]:
        return await asyncio.gather(*[server.infer("m", {"X": row.reshape(1, 1)}) for row in x])

    expected = classifier.predict_proba(x)
    for place, answer in enumerate(asyncio.run(main())):
        assert [answer["first"].tolist(), answer["second"].tolist()] == [each[place : place + 1].tolist() for each in expected]


class Midway:
    """A function that is held in the middle of the call of a batch."""

    def __init__(self) -> None:
        self.is_there = threading.Event()
        self.leave = threading.Event()
        self.ended: list[str] = []

    def __call__(self, x: Any) -> Any:
        self.is_there.set()
        assert self.leave.wait(20)
        return x * 2

    async def wait(self, x: Any) -> Any:
        self.is_there.set()
        try:
            while not self.leave.is_set():
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return x * 2


@kinds
@pytest.mark.parametrize("goes", [0, 1])
async def test_who_goes_after_the_start_costs_the_others_nothing(is_async: bool, goes: int) -> None:
    midway = Midway()
    held = Held(midway.wait, is_async=True) if is_async else Held(midway)
    tasks = await held.waiting(rows(1), rows(2), rows(3))
    held.leave.set()
    await until(midway.is_there.is_set)
    gone = tasks.pop(goes)
    gone.cancel()
    await asyncio.wait([gone])
    await asyncio.sleep(0.05)  # longer than a client goes unwatched
    midway.leave.set()
    await asyncio.wait(tasks)
    assert ([told(task) for task in tasks]) == [[value] for place, value in enumerate((2, 4, 6)) if place != goes]
    assert midway.ended == []
    await until(lambda: is_idle(held.server))


@kinds
async def test_the_deadline_of_one_is_not_that_of_the_others(is_async: bool) -> None:
    midway = Midway()
    held = Held(midway.wait, is_async=True, timeout=20) if is_async else Held(midway, timeout=20)
    short = {"inputs": {"x": rows(1)}, "parameters": {"timeout": 300_000}}
    tasks = await held.waiting(short, rows(2))
    held.leave.set()
    await asyncio.wait([tasks[0]])
    midway.leave.set()
    await asyncio.wait(tasks)
    late, good = [told(task) for task in tasks]
    assert late == (504, "model 'm' did not answer within 0.3 seconds, the shorter of its own timeout and the request's")
    assert good == [4]
    assert midway.ended == []


async def test_a_request_that_has_little_time_is_not_held_back_until_it_has_none() -> None:
    server = InferenceServer()
    server.register("m", poisonous, max_batch_size=8, max_batch_delay=30.0, allow_timeout_override=True)
    tasks = [asyncio.create_task(server.infer("m", {"x": rows(1)}))]
    await until(lambda: waiting_calls(server, "m") == 1)
    tasks.append(asyncio.create_task(server.infer("m", {"x": rows(2)}, parameters={"timeout": 2_000_000})))
    await asyncio.wait(tasks)
    assert ([told(task) for task in tasks]) == [[2], [4]]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("unload", (503, "model 'm' is not ready: it was unloaded")),
        ("unregister", (404, "model 'm' is not found: it was unregistered")),
    ],
)
async def test_an_unload_during_a_delay_refuses_those_that_wait(method: str, answer: tuple[int, str]) -> None:
    server = InferenceServer()
    server.register("m", poisonous, max_batch_size=8, max_batch_delay=60.0)
    tasks = [asyncio.create_task(server.infer("m", {"x": rows(place)})) for place in range(2)]
    await until(lambda: waiting_calls(server, "m") == 2)
    await getattr(server, method)("m")
    await asyncio.wait(tasks)
    assert ([told(task) for task in tasks]) == [answer] * 2
    assert is_idle(server)


async def test_the_queue_is_bounded() -> None:
    held = make(False, max_queue=2)
    tasks = await held.waiting(rows(1), rows(2))
    refused = asyncio.create_task(held.server.infer("m", {"x": rows(3)}))
    await asyncio.wait([refused])
    held.leave.set()
    await asyncio.wait(tasks)
    assert ([told(task) for task in [*tasks, refused]]) == [
        [2],
        [4],
        (503, "model 'm' is busy: 1 call runs and 2 wait, which is all it takes"),
    ]


def test_an_event_loop_that_ends_takes_only_its_own_requests_along() -> None:
    midway = Midway()
    server = InferenceServer()
    server.register("m", midway.wait, max_batch_size=2, max_batch_delay=20.0)
    found: list[Any] = []

    async def begins() -> None:
        await until(lambda: waiting_calls(server, "m") == 1)
        await asyncio.sleep(0.1)  # the next one comes last, and begins
        asyncio.get_running_loop().create_task(server.infer("m", {"x": rows(1)}))
        await until(midway.is_there.is_set)

    def shares() -> None:
        try:
            found.append(server.infer_sync("m", {"x": rows(2)})["output_0"].tolist())
        except InferenceError as error:
            found.append(error.status)

    thread = threading.Thread(target=shares)
    thread.start()
    asyncio.run(begins())
    thread.join(20)
    assert not thread.is_alive()
    assert found == [503]
    assert is_idle(server)


async def test_who_ends_before_the_start_is_left_out() -> None:
    """A client that goes, and would have led, and a deadline that passes in the queue."""
    held = make(False)
    late = {"inputs": {"x": rows(2)}, "parameters": {"timeout": 1_000_000}}
    tasks = await held.waiting(rows(1), late, rows(3))
    tasks[0].cancel()
    await asyncio.wait(tasks[:2])
    held.leave.set()
    await asyncio.wait([tasks[2], held.holder])
    late, good = [told(task) for task in tasks[1:]]
    assert (late[0], good) == (504, [6])
    assert held.sizes == [1]
    assert outcomes(held.server) == {"ok": 2, "cancelled": 1, "timeout": 1}


@pytest.mark.parametrize("is_blocking", [False, True])
def test_a_stop_during_a_delay_answers_those_that_wait(is_blocking: bool) -> None:
    server = InferenceServer()
    server.register("m", poisonous, max_batch_size=8, max_batch_delay=60.0)
    server.start()
    with ThreadPoolExecutor(2) as threads:
        asks = [
            threads.submit(server.infer_sync, "m", {"x": rows(place)})
            if is_blocking
            else threads.submit(asyncio.run, server.infer("m", {"x": rows(place)}))
            for place in range(2)
        ]
        block_until(lambda: waiting_calls(server, "m") == 2)
        server.stop()
        assert [ask.result(20)["output_0"].tolist() for ask in asks] == [[[0]], [[2]]]


@kinds
def test_what_ends_threads_does_not_end_those_that_wait(is_async: bool) -> None:
    def leave(x: Any) -> Any:
        raise SystemExit(3)

    async def leave_async(x: Any) -> Any:
        raise SystemExit(3)

    if not is_async:
        assert play(Held(leave), rows(1), rows(2)) == [FAILED] * 2
        return
    server = InferenceServer()
    server.register("m", leave_async, max_batch_size=2, max_batch_delay=20.0)
    with ThreadPoolExecutor(2) as threads:
        for asked in [threads.submit(server.infer_sync, "m", {"x": rows(1)}) for _ in range(2)]:
            with pytest.raises(InferenceError, match=FAILED[1]):
                asked.result(20)
    server.stop()
