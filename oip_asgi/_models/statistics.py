"""What one model has done, in numbers: requests by how they ended, and how long each stage took. Knows no requests and no documents.

One `Record` of each request at its end feeds statistics, Prometheus, spans and the log; beside it count executions, which may answer
several requests, and the single responses of streams. However many requests of whatever rows come, the numbers take bounded room, and each
fits into the 64 bits of the protocol. Times are in seconds.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias, final, get_args

import msgspec

Outcome: TypeAlias = Literal["ok", "invalid", "busy", "timeout", "cancelled", "failed"]
"""How a request ended: answered; refused for what it says (4xx); refused before it had a slot (503); after its timeout; its client gone;
by an error of the model or the server."""

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

ResponseOutcome: TypeAlias = Literal["success", "fail", "empty_response", "cancel"]

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of every duration, in seconds; one more bucket takes what is longer."""

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Upper bounds of the buckets of rows in one execution; one more takes larger ones."""

MOST_ENTRIES: Final = 1000
"""Responses of a stream after so many are counted under the last index. Executions of more rows count by the next power of two."""

_UINT64: Final = 2**64 - 1
_COMPUTE: Final = ("compute_input", "compute_infer", "compute_output")
_STAGES: Final = ("success", "fail", "queue", *_COMPUTE, "cache_hit", "cache_miss")


class Moments(Protocol):
    """When a request reached each stage, in seconds of one clock; 0.0 for a stage that it did not reach."""

    since: float  # its body was there
    entered: float  # it was decoded, if that is done at once, and began to wait for a slot
    started: float  # it had its slot, and its arguments were begun
    called: float  # the function was called
    returned: float  # the function had returned
    lookup: float | None  # how many seconds it was looked up in the cache, or waited there for an equal request; None if it was not

    @property
    def is_hit(self) -> bool:
        """Whether its response was found there."""

    @property
    def id(self) -> str | None:
        """Its identifier, None if it has none or is not decoded."""

    @property
    def rows(self) -> int | None:
        """How many rows it has of a batch; None for a call of its own."""


class Record(msgspec.Struct, frozen=True):
    """One request at its end."""

    outcome: Outcome
    ended: float  # by the clock of its moments
    seconds: float | None = None  # how long it took; None if it was refused
    queue: float | None = None  # how long it waited for a slot; None if the function was not called
    stages: Mapping[str, float] = {}  # how long it took in each stage that it reached, by the names of the durations in `Numbers`
    rows: int | None = None  # of a batch; None for a call of its own
    inferred: int = 0  # how many rows were inferred for its answer


def record_of(outcome: Outcome, request: Moments | None, ended: float) -> Record:
    """The record of a request; of one that was refused before its body was there if there is no request."""
    if request is None:
        return Record(outcome, ended)
    called, returned, lookup, is_ok = request.called, request.returned, request.lookup, outcome == "ok"
    stages: dict[str, float] = {}
    is_hit = lookup is not None and request.is_hit and is_ok
    if lookup is not None:
        stages["cache_hit" if is_hit else "cache_miss"] = lookup
    if is_hit:
        stages["queue"] = 0.0
    elif not request.entered or (outcome == "invalid" and not called):
        return Record(outcome, ended, stages=stages)
    seconds, queue = ended - request.since, None
    stages["success" if is_ok else "fail"] = seconds
    inferred = 0
    if called:
        queue = stages["queue"] = request.started - request.entered
        stages["compute_input"] = request.entered - request.since + called - request.started
        if returned:
            stages["compute_infer"] = returned - called
        if is_ok:
            stages["compute_output"], inferred = ended - returned, 1 if request.rows is None else request.rows
    return Record(outcome, ended, seconds, queue, stages, request.rows, inferred)


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


class Duration(msgspec.Struct):
    """How many there were, and how long they took together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, other: Duration) -> None:
        """Count those of another one too."""
        self.count += other.count
        self.seconds += other.seconds


class Histogram(msgspec.Struct):
    """How many values are in each bucket, and their sum."""

    counts: list[int]
    sum: int | float = 0


def _make_histogram() -> Histogram:
    return Histogram([0] * (len(BUCKETS) + 1))


class Numbers(msgspec.Struct):
    """All numbers of one model. The first eight are those of Triton's statistics."""

    # requests that were answered, from their body to the response
    success: Duration = msgspec.field(default_factory=Duration)
    # those that ended otherwise, after they had a slot or waited for one, and were not refused for what they say alone
    fail: Duration = msgspec.field(default_factory=Duration)
    # those whose function was called: how long they waited for it, and how long their decoding and arguments took
    queue: Duration = msgspec.field(default_factory=Duration)
    compute_input: Duration = msgspec.field(default_factory=Duration)
    # those whose function returned; each request of a batch counts the whole time of the batch
    compute_infer: Duration = msgspec.field(default_factory=Duration)
    # those that were answered: how long their response took to make
    compute_output: Duration = msgspec.field(default_factory=Duration)
    # those that were answered from the cache, which count in `success` and `queue` too, and those that were not found there
    cache_hit: Duration = msgspec.field(default_factory=Duration)
    cache_miss: Duration = msgspec.field(default_factory=Duration)

    outcomes: dict[Outcome, int] = msgspec.field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    inference_count: int = 0  # rows inferred successfully
    execution_count: int = 0  # calls of the function
    last_answered: float | None = None  # by the clock of the moments
    batches: dict[int, dict[str, Duration]] = {}  # executions by their rows, and by stage
    responses: dict[int, dict[str, Duration]] = {}  # those of streams by their index, and by outcome and stage

    durations: Histogram = msgspec.field(default_factory=_make_histogram)  # `success` and `fail`
    queues: Histogram = msgspec.field(default_factory=_make_histogram)  # `queue` of requests whose function was called
    executions: Histogram = msgspec.field(default_factory=_make_histogram)  # calls that returned: a batch counts once
    first_responses: Histogram = msgspec.field(default_factory=_make_histogram)  # how long streams took until the first
    rows: Histogram = msgspec.field(default_factory=lambda: Histogram([0] * (len(ROWS) + 1)))  # of each call

    # by stage, what `snapshot` adds to the numbers above: requests with a call of their own, and all others
    alone: dict[str, Duration] = msgspec.field(default_factory=lambda: {stage: Duration() for stage in _STAGES})
    others: dict[str, Duration] = msgspec.field(default_factory=lambda: {stage: Duration() for stage in _STAGES})


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Numbers).decode


@final
class Statistics:
    """The counters of one model. Everything is counted under one lock, so a snapshot never shows half of a request."""

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        """They hear of each event, outside the lock."""
        self._lock = threading.Lock()
        self._numbers = Numbers()

    def clear(self) -> None:
        """Begin again at zero, as when a model is unloaded."""
        with self._lock:
            self._numbers = Numbers()

    def snapshot(self) -> Numbers:
        """A copy of all numbers at this moment."""
        with self._lock:
            taken = _encode(self._numbers)
        numbers = _decode(taken)
        executed = numbers.alone["compute_input"].count
        if executed:
            numbers.execution_count += executed
            numbers.rows.counts[0] += executed
            numbers.rows.sum = min(numbers.rows.sum + executed, _UINT64)
            batch = numbers.batches.setdefault(1, {stage: Duration() for stage in _COMPUTE})
            for stage in _COMPUTE:
                batch[stage].add(numbers.alone[stage])
        for counted in (numbers.alone, numbers.others):
            for stage, duration in counted.items():
                getattr(numbers, stage).add(duration)
            counted.clear()
        return numbers

    def record(self, record: Record) -> None:
        """Count a request at its end."""
        is_alone = record.queue is not None and record.rows is None
        with self._lock:
            numbers = self._numbers
            numbers.outcomes[record.outcome] += 1
            if record.outcome == "ok":
                numbers.last_answered = record.ended
                numbers.inference_count = min(numbers.inference_count + record.inferred, _UINT64)
            counted = numbers.alone if is_alone else numbers.others
            for stage, seconds in record.stages.items():
                duration = counted[stage]
                duration.count += 1
                duration.seconds += seconds
            infer = record.stages.get("compute_infer") if is_alone else None
            observed = ((numbers.durations, record.seconds), (numbers.queues, record.queue), (numbers.executions, infer))
            for histogram, value in observed:
                if value is not None:
                    histogram.counts[bisect_left(BUCKETS, value)] += 1
                    histogram.sum += value
        for observer in self.observers:
            observer.request(record)
            if is_alone:
                observer.execution(1, infer)

    def record_execution(self, rows: int, compute_input: float, compute_infer: float | None, compute_output: float) -> None:
        """Count one call of the function for a batch, however many requests it answers. It did not return if `compute_infer` is None."""
        stages = {"compute_input": compute_input}
        if compute_infer is not None:
            stages.update(compute_infer=compute_infer, compute_output=compute_output)
        size = rows if rows <= MOST_ENTRIES else 1 << min((rows - 1).bit_length(), 63)
        with self._lock:
            numbers = self._numbers
            numbers.execution_count += 1
            numbers.rows.counts[bisect_left(ROWS, rows)] += 1
            numbers.rows.sum = min(numbers.rows.sum + rows, _UINT64)
            batch = numbers.batches.setdefault(size, {stage: Duration() for stage in _COMPUTE})
            for stage, seconds in stages.items():
                batch[stage].count += 1
                batch[stage].seconds += seconds
            if compute_infer is not None:
                numbers.executions.counts[bisect_left(BUCKETS, compute_infer)] += 1
                numbers.executions.sum += compute_infer
        for observer in self.observers:
            observer.execution(rows, compute_infer)

    def record_response(self, index: int, outcome: ResponseOutcome, compute_infer: float, compute_output: float, since: float) -> None:
        """Count one response of a stream."""
        stages: dict[str, float] = {outcome: compute_infer + compute_output}
        if outcome != "cancel":
            stages["compute_infer"] = compute_infer
        if outcome in ("success", "fail"):
            stages["compute_output"] = compute_output
        is_first = index == 0 and outcome == "success"
        with self._lock:
            counted = self._numbers.responses.setdefault(min(index, MOST_ENTRIES - 1), {})
            for stage, seconds in stages.items():
                duration = counted.setdefault(stage, Duration())
                duration.count += 1
                duration.seconds += seconds
            if is_first:
                firsts = self._numbers.first_responses
                firsts.counts[bisect_left(BUCKETS, since)] += 1
                firsts.sum += since
        if is_first:
            for observer in self.observers:
                observer.first_response(since)
