"""What one model has done, in numbers: requests by how they ended, and how long each stage took. Knows no requests and no wire forms.

Everything is counted under one lock, so a snapshot never shows half of a request. Times are in seconds.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias, final

import msgspec

from .durations import Duration, ResponseCounts, ResponseOutcome, Responses

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of every duration, in seconds; one more bucket takes what is longer."""

_FIRST: Final = BUCKETS[0]

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Upper bounds of the buckets of rows in one execution; one more takes larger ones."""

Outcome: TypeAlias = Literal["ok", "invalid", "busy", "timeout", "cancelled", "failed"]
"""How a request ended: answered; refused for what it says (4xx); refused before it had a slot (503); after its timeout; its client gone;
by an error of the model or the server."""

OUTCOMES: Final[tuple[Outcome, ...]] = ("ok", "invalid", "busy", "timeout", "cancelled", "failed")


class Moments(Protocol):
    """When a request reached each stage, in seconds of one clock; 0.0 for a stage that it did not reach."""

    since: float
    """Its body was there."""
    entered: float
    """It was decoded, where that is done at once, and began to wait for a slot."""
    started: float
    """It had its slot, and its arguments were begun."""
    called: float
    """The function was called."""
    returned: float
    """The function had returned."""
    answered: float
    """The response was encoded."""


class Observer(Protocol):
    """What is told of each event beside the numbers."""

    def loaded(self) -> None:
        """The model was loaded, or failed to."""

    def entered(self) -> None:
        """A request waits for a slot, or has it."""

    def request(self, outcome: Outcome, seconds: float | None, queue: float | None, rows: int) -> None:
        """A request has ended: how, after how long, how long it waited, and how many rows were inferred. None: not to be counted."""

    def execution(self, rows: int, seconds: float | None) -> None:
        """The function was called for this many rows; for how long, where it returned."""

    def first_response(self, seconds: float) -> None:
        """The first response of a stream was there after so long."""

    def looked_up(self, *, was_there: bool) -> None:
        """A request was looked up in the model's cache."""


class Batch(msgspec.Struct, frozen=True):
    """The executions of one number of rows."""

    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()

    def plus(self, compute_input: float, compute_infer: float, compute_output: float) -> Batch:
        """One more."""
        return Batch(
            self.compute_input.plus(compute_input), self.compute_infer.plus(compute_infer), self.compute_output.plus(compute_output)
        )


class Histogram(msgspec.Struct, frozen=True):
    """How many values are in each bucket, and their sum."""

    counts: list[int]
    sum: float


class Snapshot(msgspec.Struct, frozen=True):
    """All numbers of one model at one moment.

    Args:
        outcomes: Requests by how they ended.
        inference_count: Rows inferred successfully.
        execution_count: Calls of the function.
        last_answered: When the last request was answered, by the clock of the moments; None for never.
        success: Requests that were answered, from their body to the response.
        fail: Requests that ended otherwise, after they had a slot or waited for one, and were not refused for what they say alone.
        queue: Requests whose function was called: how long they waited for it.
        compute_input: The same: how long their decoding and arguments took.
        compute_infer: Requests whose function returned. Each request of a batch counts the whole time of the batch.
        compute_output: Requests that were answered: how long their response took to make.
        batches: Executions by their rows.
        responses: Responses of streams by their index.
        durations: `success` and `fail` in buckets.
        queues: `queue` in buckets.
        executions: Calls that returned, in buckets: a batch counts once.
        rows: Rows of each call, in buckets of `ROWS`.
        first_responses: How long streams took until their first response, in buckets.
        cache_hit: Requests that were answered from the cache, and how long they were looked up, or waited for an equal one. They count in
            `success` and `queue`, and in no other stage.
        cache_miss: Requests that were looked up and not found.
    """

    outcomes: dict[Outcome, int]
    inference_count: int
    execution_count: int
    last_answered: float | None
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    batches: dict[int, Batch]
    responses: dict[int, Responses]
    durations: Histogram
    queues: Histogram
    executions: Histogram
    rows: Histogram
    first_responses: Histogram
    cache_hit: Duration
    cache_miss: Duration


class _Stages:
    """How long the stages of requests took, in seconds, and the same of two of them in buckets."""

    __slots__ = ("answered", "infer", "infers", "input", "output", "queue", "queues")

    def __init__(self) -> None:
        self.input = self.queue = self.infer = self.output = 0.0
        self.queues = _buckets()
        self.infers = _buckets()
        self.answered = 0


@final
class Statistics:
    """The counters of one model.

    Most requests are an execution of their own, of one row. Those of a batch say how many rows they have, and the batch itself is counted
    by `record_execution`.
    """

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        """Told of each event, outside the lock."""
        self._lock = threading.Lock()
        self._zero()

    def _zero(self) -> None:
        self._outcomes = dict.fromkeys(OUTCOMES, 0)  # but "ok", which the stages count
        self._last = 0.0
        self._seconds = self._fail = 0.0
        self._durations = _buckets()
        self._alone, self._members = _Stages(), _Stages()
        self._member_rows = 0
        self._batches: dict[int, Batch] = {}
        self._failed: dict[int, int] = {}
        self._batch_infers = _buckets()
        self._responses = ResponseCounts()
        self._first_seconds, self._firsts = 0.0, _buckets()
        self._hits = self._misses = Duration()

    def clear(self) -> None:
        """Begin again at zero, as when a model is unloaded."""
        with self._lock:
            self._zero()

    def record_refusal(self, outcome: Outcome) -> None:
        """Count a request that ended before it began to wait for a slot."""
        with self._lock:
            self._outcomes[outcome] += 1
        for observer in self.observers:
            observer.request(outcome, None, None, 0)

    def record_answer(self, moments: Moments, rows: int | None = None) -> None:
        """Count a request that was answered.

        Args:
            moments: When it reached each stage: all of them.
            rows: How many rows it had in a batch that `record_execution` counts; None for an execution of its own.
        """
        since, entered, started, called = moments.since, moments.entered, moments.started, moments.called
        returned, answered = moments.returned, moments.answered
        queue, infer, seconds = started - entered, returned - called, answered - since
        with self._lock:
            stages = self._alone if rows is None else self._members
            stages.answered += 1
            stages.input += entered - since + called - started
            stages.queue += queue
            stages.infer += infer
            stages.output += answered - returned
            # a quick model has all in the first bucket, and a search takes longer than this look
            stages.queues[bisect_left(BUCKETS, queue) if queue > _FIRST else 0] += 1
            stages.infers[bisect_left(BUCKETS, infer) if infer > _FIRST else 0] += 1
            self._seconds += seconds
            self._durations[bisect_left(BUCKETS, seconds) if seconds > _FIRST else 0] += 1
            self._last = answered
            if rows is not None:
                self._member_rows += rows
        if self.observers:
            self._tell("ok", seconds, queue, rows, infer)

    def record_hit(self, moments: Moments) -> None:
        """Count a request that was answered from the cache.

        Args:
            moments: When it came, was looked up (`started`) and found (`returned`), and was answered.
        """
        seconds = moments.answered - moments.since
        with self._lock:
            self._hits = self._hits.plus(moments.returned - moments.started)
            self._seconds += seconds
            self._durations[bisect_left(BUCKETS, seconds)] += 1
            self._last = moments.answered
        for observer in self.observers:
            observer.looked_up(was_there=True)
            observer.request("ok", seconds, None, 0)

    def record_miss(self, seconds: float) -> None:
        """Count a request that was looked up for so long and not found."""
        with self._lock:
            self._misses = self._misses.plus(seconds)
        for observer in self.observers:
            observer.looked_up(was_there=False)

    def record_failure(self, outcome: Outcome, moments: Moments, ended: float, rows: int | None = None) -> None:
        """Count a request that began to wait for a slot, and was not answered.

        Args:
            outcome: How it ended.
            moments: When it reached each stage.
            ended: When it ended.
            rows: As in `record_answer`.
        """
        called, returned = moments.called, moments.returned
        seconds = ended - moments.since if called or outcome != "invalid" else None
        queue = moments.started - moments.entered if called else None
        infer = returned - called if returned else None
        with self._lock:
            self._outcomes[outcome] += 1
            stages = self._alone if rows is None else self._members
            if seconds is not None:
                self._seconds += seconds
                self._fail += seconds
                self._durations[bisect_left(BUCKETS, seconds)] += 1
            if queue is not None:
                stages.input += moments.entered - moments.since + called - moments.started
                stages.queue += queue
                stages.queues[bisect_left(BUCKETS, queue)] += 1
            if infer is not None:
                stages.infer += infer
                stages.infers[bisect_left(BUCKETS, infer)] += 1
        if self.observers:
            self._tell(outcome, seconds, queue, rows, infer)

    def _tell(self, outcome: Outcome, seconds: float | None, queue: float | None, rows: int | None, infer: float | None) -> None:
        inferred = (1 if rows is None else rows) if outcome == "ok" else 0
        for observer in self.observers:
            observer.request(outcome, seconds, queue, inferred)
            if rows is None and queue is not None:
                observer.execution(1, infer)

    def record_execution(self, rows: int, compute_input: float, compute_infer: float | None, compute_output: float) -> None:
        """Count one call of the function for a batch, whatever its number of requests.

        Args:
            rows: The rows of all its requests together.
            compute_input: How long its arguments took to make, in seconds.
            compute_infer: How long the function took; None where it did not return.
            compute_output: How long its result took to split.
        """
        with self._lock:
            if compute_infer is None:
                self._failed[rows] = self._failed.get(rows, 0) + 1
            else:
                self._batches[rows] = self._batches.get(rows, Batch()).plus(compute_input, compute_infer, compute_output)
                self._batch_infers[bisect_left(BUCKETS, compute_infer)] += 1
        for observer in self.observers:
            observer.execution(rows, compute_infer)

    def record_response(self, index: int, outcome: ResponseOutcome, compute_infer: float, compute_output: float, since: float) -> None:
        """Count one response of a stream.

        Args:
            index: Its place in the stream, 0 for the first.
            outcome: How it ended.
            compute_infer: How long the function took for it, in seconds.
            compute_output: How long it took to encode.
            since: How long after the request's body it was there.
        """
        is_first = index == 0 and outcome == "success"
        with self._lock:
            self._responses.record(index, outcome, compute_infer, compute_output)
            if is_first:
                self._firsts[bisect_left(BUCKETS, since)] += 1
                self._first_seconds += since
        if is_first:
            for observer in self.observers:
                observer.first_response(since)

    def snapshot(self) -> Snapshot:
        """All numbers at this moment, as copies."""
        with self._lock:
            alone, members = self._alone, self._members
            executed = alone.answered + members.answered
            answered = executed + self._hits.count
            queues, infers = _sum(alone.queues, members.queues), _sum(alone.infers, members.infers)
            queue = Duration(sum(queues), alone.queue + members.queue)
            batches, executions = self._executed()
            function = sum(batch.compute_infer.seconds for batch in batches.values())
            return Snapshot(
                outcomes={**self._outcomes, "ok": answered},
                inference_count=alone.answered + self._member_rows,
                execution_count=sum(executions.values()),
                last_answered=self._last or None,
                success=Duration(answered, self._seconds - self._fail),
                fail=Duration(sum(self._durations) - answered, self._fail),
                queue=Duration(queue.count + self._hits.count, queue.seconds),
                compute_input=Duration(queue.count, alone.input + members.input),
                compute_infer=Duration(sum(infers), alone.infer + members.infer),
                compute_output=Duration(executed, alone.output + members.output),
                batches=batches,
                responses=self._responses.by_index(),
                durations=Histogram(self._durations.copy(), self._seconds),
                queues=Histogram(queues, queue.seconds),
                executions=Histogram(_sum(alone.infers, self._batch_infers), function),
                rows=_rows(executions),
                first_responses=Histogram(self._firsts.copy(), self._first_seconds),
                cache_hit=self._hits,
                cache_miss=self._misses,
            )

    def _executed(self) -> tuple[dict[int, Batch], dict[int, int]]:
        """The executions by their rows, and how many there were of each, also of those that failed."""
        alone, called = self._alone, sum(self._alone.queues)
        batches = self._batches.copy()
        executions = self._failed.copy()
        for rows, batch in batches.items():
            executions[rows] = executions.get(rows, 0) + batch.compute_infer.count
        if called:
            single = batches.get(1, Batch())
            batches[1] = Batch(
                Duration(single.compute_input.count + called, single.compute_input.seconds + alone.input),
                Duration(single.compute_infer.count + sum(alone.infers), single.compute_infer.seconds + alone.infer),
                Duration(single.compute_output.count + alone.answered, single.compute_output.seconds + alone.output),
            )
            executions[1] = executions.get(1, 0) + called
        return {rows: batches[rows] for rows in sorted(batches)}, executions


def _buckets() -> list[int]:
    return [0] * (len(BUCKETS) + 1)


def _sum(first: list[int], second: list[int]) -> list[int]:
    return [one + other for one, other in zip(first, second, strict=True)]


def _rows(executions: Mapping[int, int]) -> Histogram:
    counts = [0] * (len(ROWS) + 1)
    for rows, count in executions.items():
        counts[bisect_left(ROWS, rows)] += count
    return Histogram(counts, sum(rows * count for rows, count in executions.items()))
