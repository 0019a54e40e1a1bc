"""What one model has done, in numbers: requests by how they ended, and how long each stage took. Knows no requests and no documents.

Each request leaves one row at its end, which says what it counts for, and many rows are summed at once. Executions, which may answer
several requests, and the single responses of streams are counted apart. The numbers take bounded memory. Times are in seconds.
"""

from __future__ import annotations

import operator
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isnan, nan
from typing import Final, Literal, Protocol, TypeAlias, final, get_args

import msgspec
import numpy as np

from .._protocol.datatypes import Array

Outcome: TypeAlias = Literal["ok", "invalid", "busy", "timeout", "cancelled", "failed"]
"""How a request ended: answered; refused for what it says (4xx); refused before it had a slot (503); after its timeout; its client gone;
by an error of the model or the server."""

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
_PLACES: Final[dict[Outcome, int]] = {outcome: place for place, outcome in enumerate(OUTCOMES)}

ResponseOutcome: TypeAlias = Literal["success", "fail", "empty_response", "cancel"]

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of every duration, in seconds; one more bucket takes what is longer."""

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Upper bounds of the buckets of rows in one execution; one more takes larger ones."""

MOST_ENTRIES: Final = 1000
"""Responses of a stream after so many are counted under the last index. Executions of more rows count by the next power of two."""

_MOST_ROWS: Final = 500
"""So many requests wait to be summed, in 150 KB. To sum them takes half a millisecond."""

_COMPUTE: Final = ("compute_input", "compute_infer", "compute_output")
_DURATIONS: Final = ("success", "fail", "queue", *_COMPUTE, "cache_hit", "cache_miss")


class Timings(msgspec.Struct, eq=False):
    """When a request reached each stage, in seconds of one clock, or 0.0 if it did not; and what else its record says."""

    since: float  # its body was there
    entered: float = 0.0  # it was decoded, if that is done at once, and began to wait for a slot
    started: float = 0.0  # it had its slot, and its arguments were begun
    called: float = 0.0  # the function was called
    returned: float = 0.0  # the function had returned
    answered: float = 0.0  # the response was encoded
    lookup: float | None = None  # how many seconds it was looked up in the cache, or waited there for an equal request; None if it was not
    is_hit: bool = False  # its response was found there
    rows: int | None = None  # how many rows it has of a batch; None for a call of its own
    id: str | None = None  # None if it has none, or is not decoded


Row: TypeAlias = tuple[float, ...]
"""What one request counts for: the place of its outcome, when it ended, its rows of a batch, and its seconds for each of `_DURATIONS`. A
time is NaN if the request does not count for it; the rows are NaN if it had a call of its own."""


def make_row(outcome: Outcome, request: Timings | None, ended: float) -> Row:
    """Decide what a request counts for at its end. It has no timings if it was refused before its body was there."""
    place = _PLACES[outcome]
    if request is None:
        return place, ended, nan, nan, nan, nan, nan, nan, nan, nan, nan
    # the last moment first: a thread that still runs may reach another stage meanwhile
    returned, called, started, entered, since = request.returned, request.called, request.started, request.entered, request.since
    is_ok, lookup, rows = outcome == "ok", request.lookup, request.rows
    success = ended - since if is_ok else nan
    fail = ended - since if not is_ok and entered and (called or outcome != "invalid") else nan
    hit, miss = (nan, nan) if lookup is None else (lookup, nan) if is_ok and request.is_hit else (nan, lookup)
    size = nan if rows is None else rows
    if not called:
        return place, ended, size, success, fail, nan, nan, nan, nan, hit, miss
    infer, output = returned - called if returned else nan, ended - returned if is_ok else nan
    return place, ended, size, success, fail, started - entered, entered - since + called - started, infer, output, hit, miss


class Duration(msgspec.Struct):
    """How many there were, and how long they took together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        self.count += count
        self.seconds += seconds


class Histogram(msgspec.Struct):
    """How many values are in each bucket, and their sum."""

    bounds: tuple[float, ...] = BUCKETS
    counts: list[int] = []
    sum: float = 0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add_all(self, values: Array) -> None:
        counts = np.bincount(np.searchsorted(self.bounds, values), minlength=len(self.counts))
        self.counts = list(map(operator.add, self.counts, counts.tolist()))
        self.sum += float(values.sum())


class Numbers(msgspec.Struct):
    """All numbers of one model, or of one event. The first eight are those of Triton's statistics."""

    # requests that were answered: the time from when the body was there until the response was made
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

    durations: Histogram = msgspec.field(default_factory=Histogram)  # `success` and `fail`
    queues: Histogram = msgspec.field(default_factory=Histogram)  # `queue` of requests whose function was called
    executions: Histogram = msgspec.field(default_factory=Histogram)  # calls that returned: a batch counts once
    first_responses: Histogram = msgspec.field(default_factory=Histogram)  # how long streams took until the first
    rows: Histogram = msgspec.field(default_factory=lambda: Histogram(ROWS))  # of each call

    def add_requests(self, rows: Sequence[Row]) -> None:
        """Add requests that have ended, many at once."""
        table = np.fromiter(chain.from_iterable(rows), np.float64).reshape(len(rows), -1)
        places, ended, sizes, times = table[:, 0], table[:, 1], table[:, 2], table[:, 3:]
        has_time, is_alone = ~np.isnan(times), np.isnan(sizes)
        for outcome, count in zip(OUTCOMES, np.bincount(places.astype(np.int64), minlength=len(OUTCOMES)).tolist(), strict=True):
            self.outcomes[outcome] += count
        for name, count, seconds in _sum_columns(times, has_time, _DURATIONS):
            getattr(self, name).add(count, seconds)
        is_ok, is_called, is_returned, is_found = (has_time[:, _DURATIONS.index(name)] for name in ("success", *_COMPUTE[:2], "cache_hit"))
        self.queue.count += int(is_found.sum())  # they did not wait
        if is_ok.any():
            self.last_answered = float(ended[is_ok][-1])
            self.inference_count += int(np.where(is_alone, 1, sizes)[is_ok & is_called].sum())
        self.durations.add_all(times[:, :2][has_time[:, :2]])
        self.queues.add_all(times[is_called, 2])
        is_alone &= is_called
        if is_alone.any():
            self.executions.add_all(times[is_alone & is_returned, 4])
            self._add_executions(1, _sum_columns(times[is_alone, 3:6], has_time[is_alone, 3:6], _COMPUTE))

    def add_request(self, row: Row) -> None:
        """`add_requests`, for one by itself: numpy would take ten times as long."""
        place, ended, size, *times = row
        self.outcomes[OUTCOMES[int(place)]] += 1
        found = {name: seconds for name, seconds in zip(_DURATIONS, times, strict=True) if not isnan(seconds)}
        for name, seconds in found.items():
            getattr(self, name).add(1, seconds)
        self.queue.count += "cache_hit" in found
        if "success" in found:
            self.last_answered = ended
            self.inference_count += 0 if "compute_input" not in found else 1 if isnan(size) else int(size)
        for histogram, names in ((self.durations, ("success", "fail")), (self.queues, ("queue",))):
            for name in found.keys() & names:
                histogram.add(found[name])
        if isnan(size) and "compute_input" in found:
            self.add_execution(1, {name: found[name] for name in _COMPUTE if name in found})

    def add_execution(self, rows: int, stages: Mapping[str, float]) -> None:
        """Add a call of the function for `rows` rows: its seconds in each stage that it reached."""
        if "compute_infer" in stages:
            self.executions.add(stages["compute_infer"])
        self._add_executions(rows, [(stage, 1, seconds) for stage, seconds in stages.items()])

    def _add_executions(self, rows: int, stages: Iterable[tuple[str, int, float]]) -> None:
        size = rows if rows <= MOST_ENTRIES else 1 << (rows - 1).bit_length()
        durations = self.batches.get(size)
        if durations is None:
            durations = self.batches[size] = {stage: Duration() for stage in _COMPUTE}
        for stage, count, seconds in stages:
            durations[stage].add(count, seconds)
            if stage == "compute_input":  # which each has
                self.execution_count += count
                self.rows.counts[bisect_left(ROWS, rows)] += count
                self.rows.sum += rows * count

    def add_response(self, index: int, outcome: ResponseOutcome, compute_infer: float, compute_output: float, since: float) -> None:
        """Add one response of a stream."""
        stages: dict[str, float] = {outcome: compute_infer + compute_output}
        if outcome != "cancel":
            stages["compute_infer"] = compute_infer
        if outcome in ("success", "fail"):
            stages["compute_output"] = compute_output
        durations = self.responses.setdefault(min(index, MOST_ENTRIES - 1), {})
        for stage, seconds in stages.items():
            duration = durations.setdefault(stage, Duration())
            duration.count += 1
            duration.seconds += seconds
        if index == 0 and outcome == "success":
            self.first_responses.add(since)


class Observer(Protocol):
    """Hears of each event, outside the locks of what it may read."""

    def count(self, numbers: Numbers) -> None:
        """Add the numbers of one event. Each histogram has one value at most."""

    def note_change(self) -> None:
        """Called when the lifecycle has another state, or when a request begins to wait for a slot, gets one, or gives it back."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Numbers).decode


@final
class Statistics:
    """The counters of one model. Everything is counted under one lock, so a snapshot never shows half of a request."""

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        self._lock = threading.Lock()
        self._numbers = Numbers()
        self._rows: list[Row] = []
        """Requests that have ended, and are not in the numbers yet."""

    def clear(self) -> None:
        """Begin again at zero, as when a model is unloaded."""
        with self._lock:
            self._numbers = Numbers()
            self._rows = []

    def snapshot(self) -> Numbers:
        """A copy of all numbers at this moment."""
        with self._lock:
            self._sum()
            return _decode(_encode(self._numbers))

    def _sum(self) -> None:
        if self._rows:
            self._numbers.add_requests(self._rows)
            self._rows = []

    def record(self, outcome: Outcome, request: Timings | None, ended: float) -> None:
        """Count a request that has ended. `make_row` says what of it."""
        row = make_row(outcome, request, ended)
        with self._lock:
            self._rows.append(row)
            if len(self._rows) == _MOST_ROWS:
                self._sum()
        if self.observers:
            self._tell(lambda numbers: numbers.add_request(row))

    def record_execution(self, rows: int, compute_input: float, compute_infer: float | None, compute_output: float) -> None:
        """Count one call of the function for a batch, however many requests it answers. It did not return if `compute_infer` is None."""
        stages = {"compute_input": compute_input}
        if compute_infer is not None:
            stages.update(compute_infer=compute_infer, compute_output=compute_output)
        with self._lock:
            self._numbers.add_execution(rows, stages)
        if self.observers:
            self._tell(lambda numbers: numbers.add_execution(rows, stages))

    def record_response(self, index: int, outcome: ResponseOutcome, compute_infer: float, compute_output: float, since: float) -> None:
        """Count one response of a stream, `since` seconds after the request."""
        with self._lock:
            self._numbers.add_response(index, outcome, compute_infer, compute_output, since)
        if self.observers:
            self._tell(lambda numbers: numbers.add_response(index, outcome, compute_infer, compute_output, since))

    def _tell(self, add: Callable[[Numbers], None]) -> None:
        numbers = Numbers()
        add(numbers)
        for observer in self.observers:
            observer.count(numbers)


def _sum_columns(times: Array, has_time: Array, names: Sequence[str]) -> Iterator[tuple[str, int, float]]:
    """Sum each column. Yields its name, how many times are in it, and their sum."""
    return zip(names, has_time.sum(0).tolist(), np.where(has_time, times, 0.0).sum(0).tolist(), strict=True)
