"""The statistics of models as the documents that tools read. `_models.statistics` counts. Knows no transport.

Specification: Triton's Statistics Extension.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from .._models.model import Model
from .._models.registry import UNVERSIONED, find_default
from .._models.statistics import Duration
from .._protocol.schemas import ModelMetadata
from .._serving.engine import Engine
from .table import GrpcMethod, GrpcMethods, Question, RestRoute

S = TypeVar("S", bound=msgspec.Struct)


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
    return Statistics([_read_model(model, engine.clock()) for model in sorted(models, key=lambda model: model.name)])


def _read_model(model: Model, now: float) -> ModelStatistics:
    taken = model.statistics.snapshot()
    answered = taken.last_answered
    return ModelStatistics(
        name=model.name,
        version=UNVERSIONED if model.version is None else model.version,
        last_inference=0 if answered is None else int((time.time() - (now - answered)) * 1000),
        inference_count=taken.inference_count,
        execution_count=taken.execution_count,
        inference_stats=_make_document(InferStatistics, msgspec.structs.asdict(taken)),
        response_stats={str(index): _make_document(InferResponseStatistics, each) for index, each in taken.list_responses().items()},
        batch_stats=[_make_document(InferBatchStatistics, taken.batches[rows], batch_size=rows) for rows in sorted(taken.batches)],
        memory_usage=[],
    )


def _make_document(kind: type[S], durations: Mapping[str, Duration], **fields: Any) -> S:
    """Make a document whose fields are durations, and the given `fields`."""
    for name in kind.__struct_fields__:
        if name not in fields:
            duration = durations.get(name, Duration())
            fields[name] = StatisticDuration(duration.count, round(duration.seconds * 1e9))
    return kind(**fields)


async def _rest_all(engine: Engine, question: Question) -> Statistics | ModelMetadata:
    if "stats" in engine.models:  # a registered model with this name wins
        named = [model for model in await question.find_visible() if model.name == "stats"]
        if named:
            return engine.describe_model(find_default(named))
    return read_statistics(engine, await question.find_visible("statistics"))


REST: Final = (
    RestRoute("GET", "/models/stats", _rest_all),
    RestRoute(
        "GET",
        "/models/{model}[/versions/{version}]/stats",
        lambda engine, question, model: read_statistics(engine, engine.models.find_versions(model.name, question.version)),
        "statistics",
    ),
)
GRPC: Final[GrpcMethods] = {
    "ModelStatistics": GrpcMethod(
        lambda engine, request, visible: read_statistics(
            engine, engine.models.find_versions(request.name, request.version or None) if request.name else visible
        ),
        "statistics",
        lists_models=True,
    )
}
