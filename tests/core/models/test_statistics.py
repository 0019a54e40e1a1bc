"""The counters of one model: what each event adds to which number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from oip_asgi._core.models.durations import RESPONSES, Duration
from oip_asgi._core.models.statistics import BUCKETS, Batch, Outcome, Statistics


@dataclass
class Noted:
    """The moments of a request, all at a quarter of a second, which floats hold exactly."""

    since: float = 1.0
    entered: float = 1.25
    started: float = 2.25
    called: float = 2.5
    returned: float = 4.5
    answered: float = 4.75


ALL = Noted()
IN_QUEUE = replace(ALL, started=0.0, called=0.0, returned=0.0, answered=0.0)
RAISED = replace(ALL, returned=0.0, answered=0.0)


def test_an_answer_counts_in_every_stage() -> None:
    statistics = Statistics()
    statistics.record_answer(ALL)
    statistics.record_answer(ALL)
    taken = statistics.snapshot()
    assert taken.outcomes == {"ok": 2, "invalid": 0, "busy": 0, "timeout": 0, "cancelled": 0, "failed": 0}
    assert (taken.inference_count, taken.execution_count, taken.last_answered) == (2, 2, 4.75)
    assert (taken.success, taken.fail) == (Duration(2, 7.5), Duration(0, 0.0))
    assert taken.queue == Duration(2, 2.0)
    assert taken.compute_input == Duration(2, 1.0)  # decoding and arguments
    assert taken.compute_infer == Duration(2, 4.0)
    assert taken.compute_output == Duration(2, 0.5)
    assert taken.batches == {1: Batch(Duration(2, 1.0), Duration(2, 4.0), Duration(2, 0.5))}
    stages = (taken.queue, taken.compute_input, taken.compute_infer, taken.compute_output)
    assert sum(stage.seconds for stage in stages) == taken.success.seconds


def test_a_value_on_a_bound_is_in_its_bucket_and_a_longer_one_in_the_last() -> None:
    statistics = Statistics()
    statistics.record_answer(replace(ALL, since=0.0, entered=0.0, started=0.5, called=0.5, returned=31.0, answered=31.0))
    taken = statistics.snapshot()
    assert taken.queues.counts[BUCKETS.index(0.5)] == 1
    assert taken.executions.counts[-1] == taken.durations.counts[-1] == 1
    assert (taken.queues.sum, taken.executions.sum, taken.durations.sum) == (0.5, 30.5, 31.0)


@pytest.mark.parametrize("outcome", ["timeout", "cancelled", "failed"])
def test_a_request_that_ends_in_the_queue_fails_without_an_execution(outcome: Outcome) -> None:
    statistics = Statistics()
    statistics.record_failure(outcome, IN_QUEUE, 3.0)
    taken = statistics.snapshot()
    assert taken.outcomes[outcome] == 1
    assert (taken.fail, taken.success) == (Duration(1, 2.0), Duration(0, 0.0))
    assert (taken.queue.count, taken.compute_input.count, taken.execution_count, taken.inference_count) == (0, 0, 0, 0)
    assert sum(taken.durations.counts) == 1
    assert taken.last_answered is None


def test_a_call_that_raises_is_an_execution_without_a_duration() -> None:
    statistics = Statistics()
    statistics.record_failure("failed", RAISED, 5.0)
    taken = statistics.snapshot()
    assert (taken.fail, taken.queue, taken.compute_input) == (Duration(1, 4.0), Duration(1, 1.0), Duration(1, 0.5))
    assert (taken.execution_count, taken.compute_infer.count, taken.compute_output.count) == (1, 0, 0)
    assert taken.batches == {1: Batch(Duration(1, 0.5), Duration(0, 0.0), Duration(0, 0.0))}


def test_a_response_that_cannot_be_encoded_has_taken_the_function_its_time() -> None:
    statistics = Statistics()
    statistics.record_failure("invalid", replace(ALL, answered=0.0), 5.0)
    taken = statistics.snapshot()
    assert (taken.outcomes["invalid"], taken.fail, taken.compute_infer) == (1, Duration(1, 4.0), Duration(1, 2.0))


def test_what_is_refused_for_what_it_says_is_no_failure() -> None:
    statistics = Statistics()
    statistics.record_refusal("busy")
    statistics.record_refusal("invalid")
    statistics.record_failure("invalid", IN_QUEUE, 3.0)  # a large body is decoded in its slot
    taken = statistics.snapshot()
    assert taken.outcomes == {"ok": 0, "invalid": 2, "busy": 1, "timeout": 0, "cancelled": 0, "failed": 0}
    assert (taken.fail.count, sum(taken.durations.counts)) == (0, 0)


def test_requests_of_a_batch_are_charged_its_time_and_it_is_one_execution() -> None:
    statistics = Statistics()
    statistics.record_execution(5, 0.25, 2.0, 0.5)
    statistics.record_answer(ALL, rows=2)
    statistics.record_answer(ALL, rows=3)
    taken = statistics.snapshot()
    assert (taken.outcomes["ok"], taken.inference_count, taken.execution_count) == (2, 5, 1)
    assert taken.compute_infer == Duration(2, 4.0)
    assert taken.batches == {5: Batch(Duration(1, 0.25), Duration(1, 2.0), Duration(1, 0.5))}
    assert (sum(taken.executions.counts), taken.executions.sum) == (1, 2.0)
    assert (taken.rows.counts[3], taken.rows.sum) == (1, 5)  # more than 4, at most 8


def test_batches_of_one_row_and_requests_alone_are_the_same_size() -> None:
    statistics = Statistics()
    statistics.record_execution(1, 0.5, 1.0, 0.5)
    statistics.record_answer(ALL, rows=1)
    statistics.record_answer(ALL)
    taken = statistics.snapshot()
    assert (taken.inference_count, taken.execution_count) == (2, 2)
    assert taken.batches == {1: Batch(Duration(2, 1.0), Duration(2, 3.0), Duration(2, 0.75))}
    assert (taken.rows.counts[0], sum(taken.rows.counts), taken.rows.sum) == (2, 2, 2)


def test_responses_of_a_stream_are_counted_by_their_index() -> None:
    statistics = Statistics()
    statistics.record_response(0, "success", 1.0, 0.5, since=2.0)
    statistics.record_response(1, "success", 0.5, 0.25, since=3.0)
    statistics.record_response(1, "fail", 0.25, 0.0, since=3.5)
    statistics.record_response(2, "empty_response", 0.25, 0.0, since=4.0)
    for index in (RESPONSES - 1, RESPONSES, RESPONSES + 5):
        statistics.record_response(index, "cancel", 1.0, 0.0, since=9.0)
    taken = statistics.snapshot()
    assert taken.responses == {
        0: {"compute_infer": Duration(1, 1.0), "compute_output": Duration(1, 0.5), "success": Duration(1, 1.5)},
        1: {
            "compute_infer": Duration(2, 0.75),
            "compute_output": Duration(2, 0.25),
            "success": Duration(1, 0.75),
            "fail": Duration(1, 0.25),
        },
        2: {"empty_response": Duration(1, 0.25)},
        RESPONSES - 1: {"cancel": Duration(3, 3.0)},
    }
    assert (sum(taken.first_responses.counts), taken.first_responses.sum) == (1, 2.0)


def test_clear_begins_again_at_zero_and_a_snapshot_stays_as_it_was() -> None:
    statistics = Statistics()
    empty = statistics.snapshot()
    statistics.record_answer(ALL)
    statistics.record_execution(4, 1.0, 1.0, 1.0)
    statistics.record_response(0, "success", 1.0, 1.0, since=1.0)
    before = statistics.snapshot()
    statistics.clear()
    assert statistics.snapshot() == empty
    assert (before.outcomes["ok"], before.execution_count) == (1, 2)


def test_an_observer_is_told_of_every_event() -> None:
    told: list[Any] = []

    class Observer:
        def loaded(self) -> None:
            told.append("loaded")

        def entered(self) -> None:
            told.append("entered")

        def request(self, *values: Any) -> None:
            told.append(("request", *values))

        def execution(self, *values: Any) -> None:
            told.append(("execution", *values))

        def first_response(self, *values: Any) -> None:
            told.append(("first response", *values))

        def looked_up(self, *, was_there: bool) -> None:
            told.append(("looked up", was_there))

    statistics = Statistics()
    statistics.observers.append(Observer())
    statistics.record_answer(ALL)
    statistics.record_answer(ALL, rows=7)
    statistics.record_execution(7, 0.0, 2.0, 0.0)
    statistics.record_refusal("busy")
    statistics.record_failure("failed", RAISED, 5.0)
    statistics.record_response(0, "success", 1.0, 0.0, since=1.5)
    statistics.record_miss(0.5)
    statistics.record_hit(ALL)
    assert told == [
        ("request", "ok", 3.75, 1.0, 1),
        ("execution", 1, 2.0),
        ("request", "ok", 3.75, 1.0, 7),
        ("execution", 7, 2.0),
        ("request", "busy", None, None, 0),
        ("request", "failed", 4.0, 1.0, 0),
        ("execution", 1, None),
        ("first response", 1.5),
        ("looked up", False),
        ("looked up", True),
        ("request", "ok", 3.75, None, 0),
    ]
