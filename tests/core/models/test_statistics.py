"""The counters of one model: what each event adds to which number."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.inside import count_execution, count_response
from tests.support.inside.models import BUCKETS, MOST_ENTRIES, OUTCOMES, Duration, Numbers, Outcome, Statistics, Timings


def batch(*durations: Duration) -> dict[str, Duration]:
    """The executions of one size."""
    return dict(zip(("compute_input", "compute_infer", "compute_output"), durations, strict=True))


ALL = Timings(1.0, 1.25, 2.25, 2.5, 4.5)  # quarters of a second, which floats hold exactly
IN_QUEUE = replace(ALL, started=0.0, called=0.0, returned=0.0)
RAISED = replace(ALL, returned=0.0)


def answer(statistics: Statistics, request: Timings = ALL, ended: float = 4.75) -> None:
    statistics.record("ok", request, ended)


def fail(statistics: Statistics, outcome: Outcome, request: Timings | None, ended: float = 0.0) -> None:
    statistics.record(outcome, request, ended)


def durations_of(numbers: Numbers) -> tuple[int, float]:
    """How many durations were counted, however their requests ended, and their sum."""
    histograms = numbers.durations.values()
    return sum(sum(histogram.counts) for histogram in histograms), sum(histogram.sum for histogram in histograms)


def test_an_answer_counts_in_every_stage() -> None:
    statistics = Statistics()
    answer(statistics, ALL)
    answer(statistics, ALL)
    taken = statistics.snapshot()
    assert taken.outcomes == {"ok": 2, "invalid": 0, "busy": 0, "timeout": 0, "cancelled": 0, "failed": 0}
    assert (taken.inference_count, taken.execution_count, taken.last_answered) == (2, 2, 4.75)
    assert (taken.success, taken.fail) == (Duration(2, 7.5), Duration(0, 0.0))
    assert taken.queue == Duration(2, 2.0)
    assert taken.compute_input == Duration(2, 1.0)  # decoding and arguments
    assert taken.compute_infer == Duration(2, 4.0)
    assert taken.compute_output == Duration(2, 0.5)
    assert taken.batches == {1: batch(Duration(2, 1.0), Duration(2, 4.0), Duration(2, 0.5))}
    stages = (taken.queue, taken.compute_input, taken.compute_infer, taken.compute_output)
    assert sum(stage.seconds for stage in stages) == taken.success.seconds


def test_a_value_on_a_bound_is_in_its_bucket_and_a_longer_one_in_the_last() -> None:
    statistics = Statistics()
    answer(statistics, replace(ALL, since=0.25, entered=0.25, started=0.75, called=0.75, returned=4000.75), 4000.75)
    taken = statistics.snapshot()
    assert taken.queues.counts[taken.queues.bounds.index(0.5)] == 1
    durations = taken.durations["ok"]
    assert taken.executions.counts[-1] == durations.counts[-1] == 1
    assert (taken.queues.sum, taken.executions.sum, durations.sum) == (0.5, 4000.0, 4000.5)


def test_the_bounds_of_durations_have_those_that_others_see_and_are_close() -> None:
    bounds = Numbers().queues.bounds
    assert set(BUCKETS) < set(bounds)
    assert all(1 < above / below <= 1.1 for below, above in pairwise(bounds))
    assert (bounds[0], bounds[-1]) == (1e-6, 3600.0)


def test_durations_are_counted_by_how_requests_ended() -> None:
    statistics = Statistics()
    answer(statistics)
    fail(statistics, "failed", RAISED, 5.0)
    fail(statistics, "timeout", IN_QUEUE, 3.0)
    fail(statistics, "invalid", None)
    durations = statistics.snapshot().durations
    assert {outcome: (sum(one.counts), one.sum) for outcome, one in durations.items()} == {
        "ok": (1, 3.75),
        "failed": (1, 4.0),
        "timeout": (1, 2.0),
    }


@pytest.mark.parametrize("outcome", ["timeout", "cancelled", "failed"])
def test_a_request_that_ends_in_the_queue_fails_without_an_execution(outcome: Outcome) -> None:
    statistics = Statistics()
    fail(statistics, outcome, IN_QUEUE, 3.0)
    taken = statistics.snapshot()
    assert taken.outcomes[outcome] == 1
    assert (taken.fail, taken.success) == (Duration(1, 2.0), Duration(0, 0.0))
    assert (taken.queue.count, taken.compute_input.count, taken.execution_count, taken.inference_count) == (0, 0, 0, 0)
    assert durations_of(taken) == (1, 2.0)
    assert taken.last_answered is None


def test_a_call_that_raises_is_an_execution_without_a_duration() -> None:
    statistics = Statistics()
    fail(statistics, "failed", RAISED, 5.0)
    taken = statistics.snapshot()
    assert (taken.fail, taken.queue, taken.compute_input) == (Duration(1, 4.0), Duration(1, 1.0), Duration(1, 0.5))
    assert (taken.execution_count, taken.compute_infer.count, taken.compute_output.count) == (1, 0, 0)
    assert taken.batches == {1: batch(Duration(1, 0.5), Duration(0, 0.0), Duration(0, 0.0))}


def test_a_response_that_cannot_be_encoded_has_taken_the_function_its_time() -> None:
    statistics = Statistics()
    fail(statistics, "invalid", replace(ALL), 5.0)
    taken = statistics.snapshot()
    assert (taken.outcomes["invalid"], taken.fail, taken.compute_infer) == (1, Duration(1, 4.0), Duration(1, 2.0))


def test_what_is_refused_for_what_it_says_is_no_failure() -> None:
    statistics = Statistics()
    fail(statistics, "busy", None)
    fail(statistics, "invalid", None)
    fail(statistics, "invalid", IN_QUEUE, 3.0)  # a large body is decoded in its slot
    taken = statistics.snapshot()
    assert taken.outcomes == {"ok": 0, "invalid": 2, "busy": 1, "timeout": 0, "cancelled": 0, "failed": 0}
    assert (taken.fail.count, durations_of(taken)) == (0, (0, 0))


def test_requests_of_a_batch_are_charged_its_time_and_it_is_one_execution() -> None:
    statistics = Statistics()
    count_execution(statistics, 5, 0.25, 2.0, 0.5)
    answer(statistics, replace(ALL, rows=2))
    answer(statistics, replace(ALL, rows=3))
    taken = statistics.snapshot()
    assert (taken.outcomes["ok"], taken.inference_count, taken.execution_count) == (2, 5, 1)
    assert taken.compute_infer == Duration(2, 4.0)
    assert taken.batches == {5: batch(Duration(1, 0.25), Duration(1, 2.0), Duration(1, 0.5))}
    assert (sum(taken.executions.counts), taken.executions.sum) == (1, 2.0)
    assert (taken.rows.counts[3], taken.rows.sum) == (1, 5)  # more than 4, at most 8


def test_responses_of_a_stream_are_counted_by_their_index() -> None:
    statistics = Statistics()
    count_response(statistics, 0, "success", 1.0, 0.5, since=2.0)
    count_response(statistics, 1, "success", 0.5, 0.25, since=3.0)
    count_response(statistics, 1, "fail", 0.25, 0.0, since=3.5)
    count_response(statistics, 2, "empty_response", 0.25, 0.0, since=4.0)
    for index in (MOST_ENTRIES - 1, MOST_ENTRIES, MOST_ENTRIES + 5):
        count_response(statistics, index, "cancel", 1.0, 0.0, since=9.0)
    taken = statistics.snapshot()
    assert taken.list_responses() == {
        0: {"compute_infer": Duration(1, 1.0), "compute_output": Duration(1, 0.5), "success": Duration(1, 1.5)},
        1: {
            "compute_infer": Duration(2, 0.75),
            "compute_output": Duration(2, 0.25),
            "success": Duration(1, 0.75),
            "fail": Duration(1, 0.25),
        },
        2: {"compute_infer": Duration(1, 0.25), "empty_response": Duration(1, 0.25)},
        MOST_ENTRIES - 1: {"cancel": Duration(3, 3.0)},
    }
    assert (sum(taken.first_responses.counts), taken.first_responses.sum) == (1, 2.0)


def test_clear_begins_again_at_zero_and_a_snapshot_stays_as_it_was() -> None:
    statistics = Statistics()
    empty = statistics.snapshot()
    answer(statistics, ALL)
    count_execution(statistics, 4, 1.0, 1.0, 1.0)
    count_response(statistics, 0, "success", 1.0, 1.0, since=1.0)
    before = statistics.snapshot()
    statistics.clear()
    assert statistics.snapshot() == empty
    assert (before.outcomes["ok"], before.execution_count) == (1, 2)


def test_requests_that_the_cache_answers_or_does_not_are_told_apart() -> None:
    statistics = Statistics()
    answer(statistics, ALL)
    fail(statistics, "busy", replace(IN_QUEUE, entered=0.0, lookup=0.5), 2.0)
    answer(statistics, replace(IN_QUEUE, entered=0.0, lookup=0.25, is_hit=True))
    taken = statistics.snapshot()
    assert (taken.cache_hit, taken.cache_miss, taken.queue.count) == (Duration(1, 0.25), Duration(1, 0.5), 2)


def test_requests_are_summed_in_parts_and_none_is_lost() -> None:
    statistics = Statistics()
    for number in range(1, 1001):
        answer(statistics, ALL)
        if number % 77 == 0:
            assert statistics.snapshot().outcomes["ok"] == number
    taken = statistics.snapshot()
    assert (taken.success, taken.compute_infer) == (Duration(1000, 3750.0), Duration(1000, 2000.0))
    assert durations_of(taken)[0] == sum(taken.queues.counts) == sum(taken.executions.counts) == taken.rows.sum == 1000


@pytest.mark.slow
def test_threads_that_count_and_read_at_once_lose_nothing() -> None:
    statistics = Statistics()
    read: list[Numbers] = []

    def count(_: int) -> None:
        for _ in range(500):
            answer(statistics, ALL)
            read.append(statistics.snapshot())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(count, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert statistics.snapshot().outcomes["ok"] == 4000
    for taken in read:
        assert taken.outcomes["ok"] == taken.success.count == taken.execution_count == sum(taken.executions.counts)


def test_any_numbers_of_rows_take_bounded_room() -> None:
    statistics = Statistics()
    for rows in range(1, 5000):
        count_execution(statistics, rows, 0.5, 1.0, 0.25)
    taken = statistics.snapshot()
    assert list(taken.batches) == [*range(1, MOST_ENTRIES + 1), 1024, 2048, 4096, 8192]
    assert taken.batches[4096] == batch(Duration(2048, 1024.0), Duration(2048, 2048.0), Duration(2048, 512.0))
    assert (taken.execution_count, taken.rows.sum) == (4999, sum(range(1, 5000)))


_MOMENTS = st.sampled_from([0.0, 1.0, 2.5])
_REQUESTS = st.builds(
    Timings,
    since=st.just(1.0),
    entered=_MOMENTS,
    started=_MOMENTS,
    called=_MOMENTS,
    returned=_MOMENTS,
    lookup=st.just(-1.0) | st.just(0.25),
    is_hit=st.booleans(),
    rows=st.integers(-1, 9),
)


@given(st.lists(st.tuples(st.sampled_from(OUTCOMES), st.none() | _REQUESTS), min_size=1, max_size=20))
def test_many_requests_count_as_each_by_itself_does(ended: list[tuple[Outcome, Timings | None]]) -> None:
    statistics, heard = Statistics(), list[Numbers]()
    for outcome, request in ended:
        statistics.record(outcome, request, 4.0)
        alone = Statistics()
        alone.record(outcome, request, 4.0)
        heard.append(alone.snapshot())
    taken = statistics.snapshot()
    for name in ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"):
        each = [getattr(numbers, name) for numbers in heard]
        assert getattr(taken, name) == Duration(sum(one.count for one in each), sum(one.seconds for one in each)), name
    assert durations_of(taken) == tuple(map(sum, zip(*map(durations_of, heard), strict=True)))
    for outcome, histogram in taken.durations.items():
        each = [numbers.durations[outcome].counts for numbers in heard if outcome in numbers.durations]
        assert histogram.counts == [sum(one) for one in zip(*each, strict=True)]
    for name in ("queues", "executions", "rows"):
        histograms = [getattr(numbers, name) for numbers in heard]
        counts = [sum(one) for one in zip(*(histogram.counts for histogram in histograms), strict=True)]
        assert (getattr(taken, name).counts, getattr(taken, name).sum) == (counts, sum(histogram.sum for histogram in histograms)), name
    for outcome in OUTCOMES:
        assert taken.outcomes[outcome] == sum(numbers.outcomes[outcome] for numbers in heard)
    for name in ("inference_count", "execution_count"):
        assert getattr(taken, name) == sum(getattr(numbers, name) for numbers in heard)
    assert taken.last_answered == (4.0 if taken.outcomes["ok"] else None)
    assert taken.batches.get(1, batch(Duration(), Duration(), Duration())) == {
        stage: Duration(sum(one.count for one in each), sum(one.seconds for one in each))
        for stage, each in {
            stage: [numbers.batches[1][stage] for numbers in heard if numbers.batches]
            for stage in ("compute_input", "compute_infer", "compute_output")
        }.items()
    }
