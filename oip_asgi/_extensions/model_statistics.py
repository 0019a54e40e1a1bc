"""The statistics of models as users have them from Python, and as the documents that tools read.
`_models.statistics` counts.

Knows no transport.

Specification: Triton's Statistics Extension.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from .._models.model import UNVERSIONED, Model
from .._models.statistics import BUCKETS, Counts, Duration, Outcome
from .._serving.engine import Engine
from .common import GrpcMethod, GrpcMethods, Question, RestRoute

S = TypeVar("S", bound=msgspec.Struct)


class Histogram(msgspec.Struct, frozen=True):
    """How many values are in each bucket, and their sum.

    Args:
        bounds: The largest value of each bucket.
        counts: How many values are in each bucket, and, as the last, how many are larger than all bounds.
        sum: All values together.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    SECONDS: ClassVar = BUCKETS
    """Bounds that are enough for a page that shows seconds. Each of them is one of `bounds`, if that has
    seconds."""


class ModelNumbers(msgspec.Struct, frozen=True):
    """What one version of a model has done, in numbers, as `InferenceServer.statistics` has them. They begin
    again at zero after an unload.

    Args:
        name: The model's name; "" for the requests for models that nobody knows, or that `authorize=`
            refuses, of which only the outcomes are counted.
        version: Its version, None for a model without versions.
        outcomes: How many requests ended in each way: "ok", "invalid" (4xx), "busy" (503 without a slot),
            "timeout", "cancelled" (the client went), "failed".
        is_ready: Whether it serves, and the server does not stop; None before its first load. `ready=` is not
            called.
        load_seconds: How long its last `load=` took; None if it had none.
        waiting: How many requests wait for a slot now.
        running: How many calls run now.
        inference_count: How many rows were inferred; 1 for each request of a model that does not batch.
        execution_count: How many calls of its function there were.
        cache_hits: How many requests were answered from its cache; None without one.
        cache_misses: How many were looked up there in vain; None without one.
        out_of_range: With `out_of_range="flag"`, how many requests had values out of the range of each input
            that has one.
        observations_dropped: How many observations found no room in the queue of their observer; None if
            there was room for all.
        durations: Seconds from a request's body to its end, by how it ended, of those that had a slot or
            waited for one.
        queues: Seconds for which requests that were executed had waited for a slot.
        executions: Seconds of each call of the function that did not raise, once for a batch.
        first_responses: Seconds from a request's body to the first response of its stream; None without a
            stream.
        rows: How many rows each call had; None for the requests of unknown models, as all histograms are.

    Example:
        >>> server = InferenceServer()
        >>> server.register("double", lambda x: x * 2)
        >>> server.infer_sync("double", {"x": [1.0]})["output_0"].tolist()
        [2.0]
        >>> [unknown, double] = server.statistics()
        >>> double.name, double.outcomes["ok"], sum(double.queues.counts)
        ('double', 1, 1)
    """

    name: str
    version: str | None
    outcomes: Mapping[Outcome, int]
    is_ready: bool | None = None
    load_seconds: float | None = None
    waiting: int = 0
    running: int = 0
    inference_count: int = 0
    execution_count: int = 0
    cache_hits: int | None = None
    cache_misses: int | None = None
    out_of_range: Mapping[str, int] = {}
    observations_dropped: int | None = None
    durations: Mapping[Outcome, Histogram] = {}
    queues: Histogram | None = None
    executions: Histogram | None = None
    first_responses: Histogram | None = None
    rows: Histogram | None = None


def list_numbers(engine: Engine) -> list[ModelNumbers]:
    """The numbers of each version of each model, after those of the models that nobody knows."""
    dropped = engine.count_drops()
    return [
        ModelNumbers("", None, engine.unknown.snapshot().outcomes),
        *(_read_numbers(engine, model, dropped.get((model.name, model.version))) for model in engine.models),
    ]


def _read_numbers(engine: Engine, model: Model, dropped: int | None) -> ModelNumbers:
    numbers, lifecycle, has_cache = model.statistics.snapshot(), model.lifecycle, model.cache is not None
    flagged = [spec.name for spec in model.inputs if spec.bounds and model.options.out_of_range == "flag"]
    return ModelNumbers(
        model.name,
        model.version,
        numbers.outcomes,
        is_ready=None if lifecycle.state == "registered" else lifecycle.is_ready and not engine.stopping,
        load_seconds=lifecycle.load_seconds,
        waiting=model.limiter.waiting,
        running=model.limiter.running,
        inference_count=numbers.inference_count,
        execution_count=numbers.execution_count,
        cache_hits=numbers.cache_hit.count if has_cache else None,
        cache_misses=numbers.cache_miss.count if has_cache else None,
        out_of_range={name: numbers.outside.get(name, 0) for name in flagged},
        observations_dropped=dropped,
        durations={outcome: _freeze(durations) for outcome, durations in numbers.durations.items()},
        queues=_freeze(numbers.queues),
        executions=_freeze(numbers.executions),
        # only streams have these
        first_responses=_freeze(numbers.first_responses) if numbers.first_responses.filled else None,
        rows=_freeze(numbers.rows),
    )


def _freeze(counts: Counts) -> Histogram:
    return Histogram(counts.bounds, tuple(counts.counts), counts.sum)


class StatisticDuration(msgspec.Struct):
    """`$duration_stat`: how many there were, and how long they took together, in nanoseconds."""

    count: int = 0
    ns: int = 0


class InferStatistics(msgspec.Struct):
    """`$inference_stats`."""

    success: StatisticDuration
    fail: StatisticDuration
    queue: StatisticDuration
    compute_input: StatisticDuration
    compute_infer: StatisticDuration
    compute_output: StatisticDuration
    cache_hit: StatisticDuration
    cache_miss: StatisticDuration


class InferResponseStatistics(msgspec.Struct):
    """`$response_stats`: the responses of streams at one index."""

    compute_infer: StatisticDuration
    compute_output: StatisticDuration
    success: StatisticDuration
    fail: StatisticDuration
    empty_response: StatisticDuration
    cancel: StatisticDuration


class InferBatchStatistics(msgspec.Struct):
    """`$batch_stats`: the executions of one size."""

    batch_size: int
    compute_input: StatisticDuration
    compute_infer: StatisticDuration
    compute_output: StatisticDuration


class ModelStatistics(msgspec.Struct):
    """`$model_stat`: the statistics of one version of a model."""

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferStatistics
    response_stats: dict[str, InferResponseStatistics]
    batch_stats: list[InferBatchStatistics]
    memory_usage: list[dict[str, int]]


class Statistics(msgspec.Struct):
    """`$stats_model_response`."""

    model_stats: list[ModelStatistics]


def read_statistics(engine: Engine, models: Iterable[Model]) -> Statistics:
    """Read the statistics of models, sorted by name."""
    return Statistics(
        [_read_model(model, engine.clock()) for model in sorted(models, key=lambda model: model.name)]
    )


def _read_model(model: Model, now: float) -> ModelStatistics:
    taken = model.statistics.snapshot()
    answered = taken.last_answered
    failed = [counts for outcome, counts in taken.durations.items() if outcome != "ok"]
    stages = {
        **msgspec.structs.asdict(taken),
        "success": Duration(taken.durations["ok"].number, taken.durations["ok"].sum),
        "fail": Duration(sum(each.number for each in failed), sum(each.sum for each in failed)),
        # a response of the cache was not waited for
        "queue": Duration(taken.queues.number + taken.cache_hit.count, taken.queues.sum),
    }
    return ModelStatistics(
        name=model.name,
        version=UNVERSIONED if model.version is None else model.version,
        last_inference=0 if answered is None else int((time.time() - (now - answered)) * 1000),
        inference_count=taken.inference_count,
        execution_count=taken.execution_count,
        inference_stats=_make_document(InferStatistics, stages),
        response_stats={
            str(index): _make_document(InferResponseStatistics, each)
            for index, each in taken.list_responses().items()
        },
        batch_stats=[
            _make_document(InferBatchStatistics, taken.batches[rows], batch_size=rows)
            for rows in sorted(taken.batches)
        ],
        memory_usage=[],
    )


def _make_document(kind: type[S], durations: Mapping[str, Duration], **fields: Any) -> S:
    """Make a document whose fields are durations, and the given `fields`."""
    for name in kind.__struct_fields__:
        if name not in fields:
            duration = durations.get(name, Duration())
            fields[name] = StatisticDuration(duration.count, round(duration.seconds * 1e9))
    return kind(**fields)


async def _rest_all(engine: Engine, question: Question) -> Statistics:
    return read_statistics(engine, await question.find_visible("statistics"))


REST: Final = (
    RestRoute("GET", "/models/stats", _rest_all),
    RestRoute(
        "GET",
        "/models/{model}[/versions/{version}]/stats",
        lambda engine, question, model: read_statistics(
            engine, engine.models.find_versions(model.name, question.version)
        ),
        "statistics",
    ),
)
GRPC: Final[GrpcMethods] = {
    "ModelStatistics": GrpcMethod(
        lambda engine, request, visible: read_statistics(
            engine,
            engine.models.find_versions(request.name, request.version or None) if request.name else visible,
        ),
        "statistics",
        lists_models=True,
    )
}
