"""What one model has done, in numbers: requests by how they ended, and how long each stage took. Knows no
requests and no documents.

Each request leaves one record at its end: `_serving.observing` says what a failed one counts for. Many
records are summed at once. Executions, which may answer several requests, and the single responses of streams
are counted apart. The numbers take bounded memory. Times are in seconds.
"""

from __future__ import annotations

import math
import operator
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from struct import pack
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec
import numpy as np

from .._protocol.datatypes import Array

T = TypeVar("T")

Outcome: TypeAlias = Literal["ok", "invalid", "busy", "timeout", "cancelled", "failed"]
"""How a request ended: answered; refused for what it says (4xx); refused before it had a slot (503); after
its timeout; its client gone; by an error of the model or the server."""

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
_CODES: Final[dict[Outcome, int]] = {outcome: code for code, outcome in enumerate(OUTCOMES)}

ResponseOutcome: TypeAlias = Literal["success", "fail", "empty_response", "cancel"]

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of every duration that others see, in seconds. Each is a bound of the finer
ones too."""


def _divide_range(low: float, high: float) -> list[float]:
    """Bounds from `low` up to below `high`, each at most 1.1 times the one before: the middle of two is
    within 5 % of what is between."""
    steps = math.ceil(math.log(high / low, 1.1))
    return [float(f"{low * (high / low) ** (step / steps):.4g}") for step in range(steps)]


Unit: TypeAlias = Literal["seconds", "rows"]

_BORDERS: Final = (1e-6, *BUCKETS, 3600.0)  # from no time at all to what nobody waits for

_BOUNDS: Final[Mapping[Unit, tuple[float, ...]]] = {
    "seconds": (*chain.from_iterable(map(_divide_range, _BORDERS, _BORDERS[1:])), _BORDERS[-1]),
    "rows": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
}
"""Upper bounds of the buckets of a histogram; one more takes what is larger."""

_EDGES: Final[Mapping[Unit, Array]] = {unit: np.array(bounds) for unit, bounds in _BOUNDS.items()}

MOST_ENTRIES: Final = 1000
"""Responses of a stream after so many are counted under the last index. Executions of more rows count by the
next power of two."""

_MOST_ENDED: Final = 500
"""So many requests wait to be summed, in 150 KB, and so many executions and responses. To sum them takes a
millisecond."""

_STAGES: Final[Mapping[ResponseOutcome, int]] = {"success": 3, "fail": 3, "empty_response": 2, "cancel": 1}
"""How many of its durations a response has, by how it ended. In their order: all of it, the call, the
encoding."""

_RESPONSE_OUTCOMES: Final = tuple(_STAGES)
_RESPONSE_CODES: Final[Mapping[ResponseOutcome, int]] = {
    outcome: code for code, outcome in enumerate(_RESPONSE_OUTCOMES)
}

_COMPUTE: Final = ("compute_input", "compute_infer", "compute_output")


class Timings(msgspec.Struct, eq=False, gc=False):  # in no reference cycle
    """When a request reached each stage, in seconds of one clock, or 0.0 if it did not; and what else its
    record says."""

    since: float  # its body was there, or it was refused before that
    answered: float = 0.0  # the response was encoded
    returned: float = 0.0  # the function had returned
    called: float = 0.0  # the function was called
    started: float = 0.0  # it had its slot, and its arguments were begun
    entered: float = 0.0  # it had a slot or a place in the queue, and was decoded if that is done at once
    # how many seconds it was looked up in the cache, or waited there for an equal request; -1 if it was not
    lookup: float = -1.0
    is_hit: bool = False  # its response was found there
    rows: int = -1  # how many rows it has of a batch; -1 for a call of its own
    id: str | None = None  # None if it has none, or is not decoded


Record: TypeAlias = tuple[float, ...]
"""A request that has ended, as it is kept: the code of its outcome, when it ended, and the numbers of its
`Timings`. Or a response of a stream: the code of its outcome, its index, the seconds of its call and
of its encoding, and those since the request."""


class Duration(msgspec.Struct):
    """How many there were, and how long they took together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        self.count += count
        self.seconds += seconds

    def add_all(self, seconds: Array) -> None:
        self.add(len(seconds), float(seconds.sum()))


class Counts(msgspec.Struct):
    """How many values are in each bucket, and their sum."""

    unit: Unit = "seconds"
    filled: list[int] = []  # the counts; empty without a value, as for most of many models
    sum: float = 0

    @property
    def number(self) -> int:
        """How many values there were."""
        return sum(self.filled)

    @property
    def bounds(self) -> tuple[float, ...]:
        return _BOUNDS[self.unit]

    @property
    def counts(self) -> list[int]:
        return self.filled or [0] * (len(self.bounds) + 1)

    def add(self, value: float, count: int = 1) -> None:
        self.filled = self.counts
        self.filled[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def add_all(self, values: Array) -> None:
        if len(values):
            counts = np.bincount(np.searchsorted(_EDGES[self.unit], values), minlength=len(self.bounds) + 1)
            self.filled = list(map(operator.add, self.counts, counts.tolist()))
            self.sum += float(values.sum())


class Numbers(msgspec.Struct):
    """All numbers of one model, or of one event."""

    # requests whose function was called: how long their decoding and arguments took
    compute_input: Duration = msgspec.field(default_factory=Duration)
    # those whose function returned; each request of a batch counts the whole time of the batch
    compute_infer: Duration = msgspec.field(default_factory=Duration)
    # those that were answered: how long their response took to make
    compute_output: Duration = msgspec.field(default_factory=Duration)
    # those that were answered from the cache, and those that were not found there
    cache_hit: Duration = msgspec.field(default_factory=Duration)
    cache_miss: Duration = msgspec.field(default_factory=Duration)

    outcomes: dict[Outcome, int] = msgspec.field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    inference_count: int = 0  # rows inferred successfully
    execution_count: int = 0  # calls of the function
    last_answered: float | None = None  # by the clock of the moments
    # requests with values out of the range of an input, by its name, if they are not refused for that
    outside: dict[str, int] = {}
    batches: dict[int, dict[str, Duration]] = {}  # executions by their rows, and by stage
    # how many responses of streams there were and the seconds of their stages, each by outcome and index
    response_sums: bytes = b""

    # from the body to the end: of requests that were answered, or that failed after they had a slot or waited
    # for one, and not because they were invalid
    durations: dict[Outcome, Counts] = msgspec.field(default_factory=lambda: {"ok": Counts()})
    queues: Counts = msgspec.field(default_factory=Counts)  # how long those whose function was called waited
    executions: Counts = msgspec.field(default_factory=Counts)  # calls that returned: a batch counts once
    first_responses: Counts = msgspec.field(default_factory=Counts)  # how long streams took until the first
    rows: Counts = msgspec.field(default_factory=lambda: Counts("rows"))  # of each call

    def add_requests(self, records: Sequence[Record]) -> None:
        """Add requests that have ended, many at once."""
        codes, ended, since, _, returned, called, started, entered, lookup, is_hit, size = _to_columns(
            records
        )
        counts = np.bincount(codes.astype(np.int64), minlength=len(OUTCOMES)).tolist()
        self.outcomes = {
            outcome: self.outcomes[outcome] + count for outcome, count in zip(OUTCOMES, counts, strict=True)
        }
        is_ok = codes == _CODES["ok"]
        is_called = called > 0
        is_found = is_ok & (is_hit > 0)
        is_returned = is_called & (returned > 0)
        is_alone = is_called & (size < 0)
        is_timed = is_ok | ((entered > 0) & (is_called | (codes != _CODES["invalid"])))
        for code in set(codes[is_timed].tolist()):
            self.durations.setdefault(OUTCOMES[int(code)], Counts()).add_all(
                (ended - since)[is_timed & (codes == code)]
            )
        self.cache_hit.add_all(lookup[is_found])
        self.cache_miss.add_all(lookup[(lookup >= 0) & ~is_found])
        self.queues.add_all((started - entered)[is_called])
        stages = (
            ("compute_input", is_called, entered - since + called - started),
            ("compute_infer", is_returned, returned - called),
            ("compute_output", is_called & is_ok, ended - returned),
        )
        alone = self._find_batch(1) if is_alone.any() else {}
        for name, has_stage, seconds in stages:
            getattr(self, name).add_all(seconds[has_stage])
            if alone:
                alone[name].add_all(seconds[has_stage & is_alone])
        if alone:
            self.executions.add_all((returned - called)[is_returned & is_alone])
            self._count_executions(1, int(is_alone.sum()))
        if is_ok.any():
            self.last_answered = float(ended[is_ok][-1])
            self.inference_count += int(np.abs(size)[is_called & is_ok].sum())  # -1 counts as one row

    def add_execution(self, rows: int, stages: Mapping[str, float]) -> None:
        """Add a call of the function for `rows` rows, however many requests have them: its seconds in each
        stage that it reached."""
        batch = self._find_batch(rows)
        for stage, seconds in stages.items():
            batch[stage].add(1, seconds)
        if "compute_infer" in stages:
            self.executions.add(stages["compute_infer"])
        self._count_executions(rows, 1)

    def _find_batch(self, rows: int) -> dict[str, Duration]:
        size = rows if rows <= MOST_ENTRIES else 1 << (rows - 1).bit_length()
        if size not in self.batches:
            self.batches[size] = {stage: Duration() for stage in _COMPUTE}
        return self.batches[size]

    def _count_executions(self, rows: int, count: int) -> None:
        self.execution_count += count
        self.rows.add(rows, count)

    def add_outside(self, names: Sequence[str]) -> None:
        """Add a request with values out of the range of these inputs."""
        for name in names:
            self.outside[name] = self.outside.get(name, 0) + 1

    def add_responses(self, records: Sequence[Record]) -> None:
        """Add responses of streams, many at once. As arrays, they are summed in a tenth of the time that
        objects take."""
        codes, index, compute_infer, compute_output, since = _to_columns(records)
        places = (codes * MOST_ENTRIES + np.minimum(index, MOST_ENTRIES - 1)).astype(np.int64)
        columns = None, compute_infer + compute_output, compute_infer, compute_output
        sums = np.concatenate([np.bincount(places, each, len(_STAGES) * MOST_ENTRIES) for each in columns])
        self.response_sums = (
            sums + np.frombuffer(self.response_sums) if self.response_sums else sums
        ).tobytes()
        self.first_responses.add_all(since[(index == 0) & (codes == _RESPONSE_CODES["success"])])

    def list_responses(self) -> dict[int, dict[str, Duration]]:
        """The responses of streams by their index, the first before the others, and by outcome and stage."""
        responses: dict[int, dict[str, Duration]] = {}
        sums = np.frombuffer(self.response_sums or bytes(32 * len(_STAGES))).reshape(4, len(_STAGES), -1)
        for index, code in np.argwhere(sums[0].T).tolist():
            outcome, (number, *together) = _RESPONSE_OUTCOMES[code], sums[:, code, index].tolist()
            for stage, seconds in zip(
                (outcome, "compute_infer", "compute_output")[: _STAGES[outcome]], together, strict=False
            ):
                responses.setdefault(index, {}).setdefault(stage, Duration()).add(int(number), seconds)
        return responses


def _to_columns(records: Sequence[Record]) -> Array:
    columns = len(records[0])
    # a third of the time of numpy's own way to read floats of Python
    return (
        np.frombuffer(pack(f"{len(records) * columns}d", *chain.from_iterable(records)))
        .reshape(-1, columns)
        .T
    )


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Numbers).decode


class Statistics:
    """The counters of one model. A snapshot never shows half of a request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = Numbers()
        self._ended: deque[Record] = deque()
        """Requests that have ended, and are not in the numbers yet. Any thread may append one without the
        lock."""
        self._responses: deque[Record] = deque()  # the same for responses of streams
        # the same for executions, and for values out of range: what adds each
        self._events: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def clear(self) -> None:
        """Begin again at zero, as when a model is unloaded."""
        with self._lock:
            self._numbers = Numbers()
            self._ended.clear()
            self._responses.clear()
            self._events.clear()

    def snapshot(self) -> Numbers:
        """A copy of all numbers at this moment."""
        with self._lock:
            self._sum_records()
            return _decode(_encode(self._numbers))

    def _sum_records(self) -> None:
        for ended, add_all in (
            (self._ended, self._numbers.add_requests),
            (self._responses, self._numbers.add_responses),
        ):
            records = [ended.popleft() for _ in range(len(ended))]
            if records:
                add_all(records)
        for _ in range(len(self._events)):
            add, values = self._events.popleft()
            add(self._numbers, *values)

    def record(self, outcome: Outcome, request: Timings, ended: float) -> None:
        """Count a request that has ended."""
        record = (
            _CODES[outcome],
            ended,
            request.since,
            # the last moment first: a thread that still runs may reach another stage meanwhile
            request.answered,
            request.returned,
            request.called,
            request.started,
            request.entered,
            request.lookup,
            request.is_hit,
            request.rows,
        )
        self._keep(self._ended, record)

    def record_response(
        self, index: int, outcome: ResponseOutcome, compute_infer: float, compute_output: float, since: float
    ) -> None:
        """Count a response of a stream, which ended `since` seconds after the request."""
        record = (_RESPONSE_CODES[outcome], index, compute_infer, compute_output, since)
        self._keep(self._responses, record)

    def add(self, add: Callable[..., None], *values: Any) -> None:
        """Count something else: `add`, a method of Numbers, adds these values."""
        self._keep(self._events, (add, values))

    def _keep(self, ended: deque[T], record: T) -> None:
        ended.append(record)
        if len(ended) >= _MOST_ENDED:
            with self._lock:
                self._sum_records()
