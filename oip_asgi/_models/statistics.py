"""What one model has done, in numbers: requests by how they ended, and how long each stage took. Knows no requests and no wire forms.

Everything is counted under one lock, so a snapshot never shows half of a request. Times are in seconds. However many requests of whatever
rows come, the numbers take bounded room, and each fits into the 64 bits of the protocol.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final, Protocol, final

import msgspec

from .durations import RESPONSES, Duration, ResponseCounts, ResponseOutcome, Responses
from .record import OUTCOMES, Outcome, Record

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of every duration, in seconds; one more bucket takes what is longer."""

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Upper bounds of the buckets of rows in one execution; one more takes larger ones."""

EXACT_ROWS: Final = RESPONSES
"""Executions of up to so many rows have an entry for each number of rows, larger ones for each power of two."""

_UINT64: Final = 2**64 - 1


class Observer(Protocol):
    """What hears of each event beside the numbers."""

    def changed(self) -> None:
        """The model was loaded, or a request waits for a slot, or has it."""

    def request(self, record: Record) -> None:
        """A request has ended."""

    def execution(self, rows: int, seconds: float | None) -> None:
        """The function was called for this many rows; for how long, if it returned."""

    def first_response(self, seconds: float) -> None:
        """The first response of a stream was there after so long."""


class Batch(msgspec.Struct, frozen=True):
    """The executions of one number of rows."""

    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()


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


class _Times:
    """Durations as a sum and in buckets."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.counts = [0] * (len(BUCKETS) + 1)

    def histogram(self) -> Histogram:
        return Histogram(self.counts.copy(), self.seconds)


class _Executions:
    """The executions of one number of rows: how many were called, returned and answered, and how long that took."""

    __slots__ = ("answered", "called", "infer", "input", "output", "returned")

    def __init__(self) -> None:
        self.called = self.returned = self.answered = 0
        self.input = self.infer = self.output = 0.0

    def batch(self) -> Batch:
        return Batch(Duration(self.called, self.input), Duration(self.returned, self.infer), Duration(self.answered, self.output))


@final
class Statistics:
    """The counters of one model."""

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        """They hear of each event, outside the lock."""
        self._lock = threading.Lock()
        self._zero()

    def _zero(self) -> None:
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._last = 0.0
        self._inferred = 0
        self._success = self._input = self._infer = self._output = 0.0
        self._returned = self._answered = 0
        self._durations, self._queues, self._functions, self._firsts = _Times(), _Times(), _Times(), _Times()
        self._executions: dict[int, _Executions] = {}
        self._row_counts, self._rows = [0] * (len(ROWS) + 1), 0
        self._responses = ResponseCounts()
        self._hits = self._misses = Duration()

    def clear(self) -> None:
        """Begin again at zero, as when a model is unloaded."""
        with self._lock:
            self._zero()

    def record(self, record: Record) -> None:
        """Count a request at its end."""
        is_alone = record.queue is not None and record.rows is None
        with self._lock:
            self._outcomes[record.outcome] += 1
            if record.lookup is not None:
                if record.is_hit:
                    self._hits = self._hits.plus(record.lookup)
                else:
                    self._misses = self._misses.plus(record.lookup)
            if record.seconds is not None:
                self._durations.seconds += record.seconds
                self._durations.counts[bisect_left(BUCKETS, record.seconds)] += 1
            if record.outcome == "ok":
                self._last = record.ended
                self._success += record.seconds or 0.0
                self._inferred = min(self._inferred + record.inferred, _UINT64)
            if record.queue is not None:
                self._queues.seconds += record.queue
                self._queues.counts[bisect_left(BUCKETS, record.queue)] += 1
                self._input += record.compute_input
            if record.compute_infer is not None:
                self._infer += record.compute_infer
                self._returned += 1
            if record.compute_output is not None:
                self._output += record.compute_output
                self._answered += 1
            if is_alone:
                self._execute(1, record.compute_input, record.compute_infer, record.compute_output)
        for observer in self.observers:
            observer.request(record)
            if is_alone:
                observer.execution(1, record.compute_infer)

    def _execute(self, rows: int, compute_input: float, compute_infer: float | None, compute_output: float | None) -> None:
        size = rows if rows <= EXACT_ROWS else 1 << min((rows - 1).bit_length(), 63)
        executions = self._executions.get(size)
        if executions is None:
            executions = self._executions[size] = _Executions()
        executions.called += 1
        executions.input += compute_input
        self._row_counts[bisect_left(ROWS, rows)] += 1
        self._rows = min(self._rows + rows, _UINT64)
        if compute_infer is not None:
            executions.returned += 1
            executions.infer += compute_infer
            self._functions.seconds += compute_infer
            self._functions.counts[bisect_left(BUCKETS, compute_infer)] += 1
        if compute_output is not None:
            executions.answered += 1
            executions.output += compute_output

    def record_execution(self, rows: int, compute_input: float, compute_infer: float | None, compute_output: float) -> None:
        """Count one call of the function for a batch, however many requests it answers."""
        with self._lock:
            self._execute(rows, compute_input, compute_infer, None if compute_infer is None else compute_output)
        for observer in self.observers:
            observer.execution(rows, compute_infer)

    def record_response(self, index: int, outcome: ResponseOutcome, compute_infer: float, compute_output: float, since: float) -> None:
        """Count one response of a stream."""
        is_first = index == 0 and outcome == "success"
        with self._lock:
            self._responses.record(index, outcome, compute_infer, compute_output)
            if is_first:
                self._firsts.seconds += since
                self._firsts.counts[bisect_left(BUCKETS, since)] += 1
        if is_first:
            for observer in self.observers:
                observer.first_response(since)

    def snapshot(self) -> Snapshot:
        """All numbers at this moment, as copies."""
        with self._lock:
            answered, called, ended = self._outcomes["ok"], sum(self._queues.counts), sum(self._durations.counts)
            return Snapshot(
                outcomes=self._outcomes.copy(),
                inference_count=self._inferred,
                execution_count=sum(self._row_counts),
                last_answered=self._last or None,
                success=Duration(answered, self._success),
                fail=Duration(ended - answered, self._durations.seconds - self._success),
                queue=Duration(called + self._hits.count, self._queues.seconds),
                compute_input=Duration(called, self._input),
                compute_infer=Duration(self._returned, self._infer),
                compute_output=Duration(self._answered, self._output),
                batches={size: self._executions[size].batch() for size in sorted(self._executions)},
                responses=self._responses.by_index(),
                durations=self._durations.histogram(),
                queues=self._queues.histogram(),
                executions=self._functions.histogram(),
                rows=Histogram(self._row_counts.copy(), self._rows),
                first_responses=self._firsts.histogram(),
                cache_hit=self._hits,
                cache_miss=self._misses,
            )
