"""What one model has done, in numbers: requests by how they ended, and how long each stage took. Knows no requests and no documents.

Each request makes one `Record` at its end, which feeds statistics, Prometheus, spans and the log. Executions, which may answer several
requests, and the single responses of streams are counted apart. The numbers take bounded memory, whatever comes, and each fits into the
64 bits of the protocol. Times are in seconds.
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


class Record(msgspec.Struct, frozen=True):
    """One request at its end."""

    outcome: Outcome
    seconds: float | None = None  # how long it took; None if it was refused
    queue: float | None = None  # how long it waited for a slot; None if the function was not called
    stages: Mapping[str, float] = {}  # how long it took in each stage that it reached, by the names of the durations in `Numbers`
    inferred: int = 0  # how many rows were inferred for its answer


@final
class _Ended:
    """Sums over the requests that ended in the same way after the same stages."""

    __slots__ = ("count", "infer", "input", "is_alone", "lookup", "outcome", "output", "queue", "rows", "seconds", "stages")

    def __init__(self, outcome: Outcome, request: Timings | None) -> None:
        self.outcome = outcome
        self.count = self.rows = 0
        self.seconds = self.queue = self.input = self.infer = self.output = self.lookup = 0.0
        self.stages = {} if request is None else _stages_of(outcome, request)
        """The stages that they reached, by the names of the durations in `Numbers`, and the sum of each."""
        self.is_alone = "compute_input" in self.stages and request is not None and request.rows is None

    def add(self, request: Timings, ended: float) -> None:
        """Add one. What it did not reach is added to sums that nobody reads."""
        since, entered, started, called, returned = request.since, request.entered, request.started, request.called, request.returned
        self.count += 1
        self.rows += request.rows or 1
        self.seconds += ended - since
        self.queue += started - entered
        self.input += entered - since + called - started
        self.infer += returned - called
        self.output += ended - returned
        self.lookup += request.lookup or 0.0

    def sums(self) -> dict[str, float]:
        """How long they took in each stage."""
        return {stage: getattr(self, name) for stage, name in self.stages.items()}

    @property
    def inferred(self) -> int:
        """The rows that were inferred for their answers."""
        return self.rows if "compute_output" in self.stages else 0

    def record(self) -> Record:
        """The record of the only one."""
        sums = self.sums()
        queue = sums["queue"] if "compute_input" in sums else None
        return Record(self.outcome, sums.get("success", sums.get("fail")), queue, sums, self.inferred)


def _stages_of(outcome: Outcome, request: Timings) -> dict[str, str]:
    is_ok = outcome == "ok"
    is_hit = request.is_hit and is_ok
    stages = {} if request.lookup is None else {"cache_hit" if is_hit else "cache_miss": "lookup"}
    if is_hit:
        return {**stages, "success": "seconds", "queue": "queue"}
    if not request.entered or (outcome == "invalid" and not request.called):
        return stages
    stages["success" if is_ok else "fail"] = "seconds"
    if request.called:
        stages.update(queue="queue", compute_input="input")
        if request.returned:
            stages["compute_infer"] = "infer"
        if is_ok:
            stages["compute_output"] = "output"
    return stages


def record_of(outcome: Outcome, request: Timings | None, ended: float) -> Record:
    """The record of a request. There is no request if it was refused before its body was there."""
    one = _Ended(outcome, request)
    if request is not None:
        one.add(request, ended)
    return one.record()


class Observer(Protocol):
    """Gets each event that is counted."""

    def changed(self) -> None:
        """The model was loaded, or a request waits for a slot, or has it."""

    def request(self, record: Record) -> None:
        """A request has ended."""

    def execution(self, rows: int, seconds: float | None) -> None:
        """The function was called for this many rows; for how long, if it returned."""

    def first_response(self, seconds: float) -> None:
        """The first response of a stream came after so many seconds."""


class Duration(msgspec.Struct):
    """How many there were, and how long they took together."""

    count: int = 0
    seconds: float = 0.0


class Histogram(msgspec.Struct):
    """How many values are in each bucket, and their sum."""

    counts: list[int]
    sum: int | float = 0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


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


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Numbers).decode


@final
class Statistics:
    """The counters of one model. Everything is counted under one lock, so a snapshot never shows half of a request."""

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        """They get each event, outside the lock."""
        self._lock = threading.Lock()
        self._numbers = Numbers()
        self._ended: dict[tuple[object, ...], _Ended] = {}

    def clear(self) -> None:
        """Begin again at zero, as when a model is unloaded."""
        with self._lock:
            self._numbers = Numbers()
            self._ended = {}

    def snapshot(self) -> Numbers:
        """A copy of all numbers at this moment."""
        with self._lock:
            taken = _decode(_encode(self._numbers))
            for ended in self._ended.values():
                _add(taken, ended)
        return taken

    def record(self, outcome: Outcome, request: Timings | None, ended: float) -> None:
        """Count a request at its end. There is none if it was refused before its body was there."""
        kind: tuple[object, ...] = (outcome,)
        if request is not None:
            reached = request.entered > 0.0, request.called > 0.0, request.returned > 0.0
            kind = (outcome, *reached, request.lookup is None, request.is_hit, request.rows is None)
        with self._lock:
            alike = self._ended.get(kind)
            if alike is None:
                alike = self._ended[kind] = _Ended(outcome, request)
            if request is None:
                alike.count += 1
            else:
                alike.add(request, ended)
                self._observe(alike, request, ended)
        if self.observers:
            record = record_of(outcome, request, ended)
            for observer in self.observers:
                observer.request(record)
                if alike.is_alone:
                    observer.execution(1, record.stages.get("compute_infer"))

    def _observe(self, alike: _Ended, request: Timings, ended: float) -> None:
        """Count a request in buckets."""
        numbers, stages = self._numbers, alike.stages
        if alike.outcome == "ok":
            numbers.last_answered = ended
        if "success" in stages or "fail" in stages:
            numbers.durations.add(ended - request.since)
        if "compute_input" in stages:
            numbers.queues.add(request.started - request.entered)
            if alike.is_alone and "compute_infer" in stages:
                numbers.executions.add(request.returned - request.called)

    def record_execution(self, rows: int, compute_input: float, compute_infer: float | None, compute_output: float) -> None:
        """Count one call of the function for a batch, however many requests it answers. It did not return if `compute_infer` is None."""
        stages = {"compute_input": compute_input}
        if compute_infer is not None:
            stages.update(compute_infer=compute_infer, compute_output=compute_output)
        with self._lock:
            self._execute(rows, stages)
        for observer in self.observers:
            observer.execution(rows, compute_infer)

    def _execute(self, rows: int, stages: Mapping[str, float]) -> None:
        numbers = self._numbers
        _execute(numbers, rows, 1, stages)
        infer = stages.get("compute_infer")
        if infer is not None:
            numbers.executions.add(infer)

    def record_response(self, index: int, outcome: ResponseOutcome, compute_infer: float, compute_output: float, since: float) -> None:
        """Count one response of a stream."""
        stages: dict[str, float] = {outcome: compute_infer + compute_output}
        if outcome != "cancel":
            stages["compute_infer"] = compute_infer
        if outcome in ("success", "fail"):
            stages["compute_output"] = compute_output
        is_first = index == 0 and outcome == "success"
        with self._lock:
            durations = self._numbers.responses.setdefault(min(index, MOST_ENTRIES - 1), {})
            for stage, seconds in stages.items():
                duration = durations.setdefault(stage, Duration())
                duration.count += 1
                duration.seconds += seconds
            if is_first:
                self._numbers.first_responses.add(since)
        if is_first:
            for observer in self.observers:
                observer.first_response(since)


def _add(numbers: Numbers, ended: _Ended) -> None:
    """Add requests that ended alike."""
    numbers.outcomes[ended.outcome] += ended.count
    numbers.inference_count = min(numbers.inference_count + ended.inferred, _UINT64)
    sums = ended.sums()
    for stage, seconds in sums.items():
        duration: Duration = getattr(numbers, stage)
        duration.count += ended.count
        duration.seconds += seconds
    if ended.is_alone:
        _execute(numbers, 1, ended.count, sums)


def _execute(numbers: Numbers, rows: int, count: int, stages: Mapping[str, float]) -> None:
    """Add `count` calls of the function, each for `rows` rows."""
    numbers.execution_count += count
    numbers.rows.counts[bisect_left(ROWS, rows)] += count
    numbers.rows.sum = min(numbers.rows.sum + rows * count, _UINT64)
    size = rows if rows <= MOST_ENTRIES else 1 << min((rows - 1).bit_length(), 63)
    durations = numbers.batches.setdefault(size, {stage: Duration() for stage in _COMPUTE})
    for stage, duration in durations.items():
        if stage in stages:
            duration.count += count
            duration.seconds += stages[stage]
