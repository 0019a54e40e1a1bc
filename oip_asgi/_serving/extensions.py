"""What models tell tools of themselves: their statistics and configuration, as the documents that REST and gRPC both send.

Knows no transport.

Specification: Triton's Statistics Extension and Model Configuration Extension.
"""

from __future__ import annotations

import time
from typing import Final

from .._models.durations import Duration, Responses
from .._models.model import Model
from .._models.registry import UNVERSIONED
from .._models.specs import TensorSpec
from .._models.statistics import Batch
from .._rest import extension_schemas as schemas
from .engine import Engine

_NOTHING = Duration()

NO_TRACE_SETTINGS: Final = "trace settings are not supported: trace requests with OpenTelemetry in the application"
NO_LOG_SETTINGS: Final = "log settings are not supported: set up Python's logging in the application"
NO_CUDA: Final = "CUDA shared memory is not supported: send the tensors in the request, or use system shared memory"
"""Why some of Triton's extensions are refused. Its process is the application's here."""


def statistics_of(engine: Engine, name: str | None, version: str | None) -> schemas.Statistics:
    """The statistics of models, sorted by name."""
    models = list(engine.models) if name is None else engine.models.named(name, version)
    return schemas.Statistics([_statistics(model, engine.clock()) for model in sorted(models, key=lambda model: model.name)])


def _statistics(model: Model, now: float) -> schemas.ModelStatistics:
    taken = model.statistics.snapshot()
    answered = taken.last_answered
    return schemas.ModelStatistics(
        name=model.name,
        version=UNVERSIONED if model.version is None else model.version,
        last_inference=0 if answered is None else int((time.time() - (now - answered)) * 1000),
        inference_count=taken.inference_count,
        execution_count=taken.execution_count,
        inference_stats=schemas.InferStatistics(
            _duration(taken.success),
            _duration(taken.fail),
            _duration(taken.queue),
            _duration(taken.compute_input),
            _duration(taken.compute_infer),
            _duration(taken.compute_output),
            _duration(taken.cache_hit),
            _duration(taken.cache_miss),
        ),
        response_stats={str(index): _responses(responses) for index, responses in taken.responses.items()},
        batch_stats=[_batch(rows, batch) for rows, batch in taken.batches.items()],
        memory_usage=[],
    )


def _duration(duration: Duration) -> schemas.StatisticDuration:
    return schemas.StatisticDuration(duration.count, round(duration.seconds * 1e9))


def _batch(rows: int, batch: Batch) -> schemas.InferBatchStatistics:
    return schemas.InferBatchStatistics(
        rows, _duration(batch.compute_input), _duration(batch.compute_infer), _duration(batch.compute_output)
    )


def _responses(responses: Responses) -> schemas.InferResponseStatistics:
    names = schemas.InferResponseStatistics.__struct_fields__
    return schemas.InferResponseStatistics(*(_duration(responses.get(name, _NOTHING)) for name in names))


def model_config(model: Model) -> schemas.ModelConfig:
    """A model's configuration: what tools read before they send load. Where requests share calls, dimensions are those of one row."""
    options, batching = model.options, model.batching
    first = 0 if batching is None else 1
    config = schemas.ModelConfig(
        name=model.name,
        platform=options.platform,
        backend="python",
        version_policy=schemas.VersionPolicy({}),
        max_batch_size=0 if batching is None else batching.most,
        input=[
            schemas.ModelInput(
                spec.name, _data_type(spec), f"FORMAT_{spec.format or 'NONE'}", list(spec.shape[first:]), spec.name in model.optional
            )
            for spec in model.inputs
        ],
        output=[schemas.ModelOutput(spec.name, _data_type(spec), list(spec.shape[first:])) for spec in model.outputs],
        instance_group=[schemas.InstanceGroup(model.name, "KIND_CPU", model.limiter.max_concurrency)],
    )
    if batching is not None:
        config.dynamic_batching = schemas.DynamicBatching(list(batching.preferred), round(batching.delay * 1e6))
    if model.streams:
        config.model_transaction_policy = schemas.TransactionPolicy(decoupled=True)
    if options.cache is not None:
        config.response_cache = schemas.CacheSetting(enable=True)
    if options.content_type is not None:
        config.parameters = {"content_type": schemas.ModelParameter(options.content_type)}
    return config


def _data_type(spec: TensorSpec) -> str:
    return "TYPE_STRING" if spec.datatype == "BYTES" else f"TYPE_{spec.datatype}"
