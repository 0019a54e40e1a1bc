"""The JSON documents of Triton's extensions as msgspec Structs. Declarations only. gRPC's messages have the same fields.

Specification: Triton's Statistics Extension, Model Configuration Extension and System Shared Memory Extension.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType


class StatisticDuration(msgspec.Struct):
    """`$duration_stat`.

    Args:
        count: How many there were.
        ns: How long they took together, in nanoseconds.
    """

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
    """`$response_stats`: those of one index in a stream."""

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


class MemoryUsage(msgspec.Struct):
    """`$memory_usage`."""

    type: str
    id: int
    byte_size: int


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
    memory_usage: list[MemoryUsage]


class Statistics(msgspec.Struct):
    """`$stats_model_response`."""

    model_stats: list[ModelStatistics]


class ModelInput(msgspec.Struct):
    """An input of a `ModelConfig`."""

    name: str
    data_type: str
    format: str
    dims: list[int]
    optional: bool


class ModelOutput(msgspec.Struct):
    """An output of a `ModelConfig`."""

    name: str
    data_type: str
    dims: list[int]


class InstanceGroup(msgspec.Struct):
    """How many calls of a model run at once."""

    name: str
    kind: str
    count: int


class ModelParameter(msgspec.Struct):
    """A parameter of a `ModelConfig`."""

    string_value: str


class VersionPolicy(msgspec.Struct):
    """Which versions are served: all of them."""

    all: dict[str, int]


class DynamicBatching(msgspec.Struct):
    """How requests share calls."""

    preferred_batch_size: list[int]
    max_queue_delay_microseconds: int


class TransactionPolicy(msgspec.Struct):
    """Whether a model may answer any number of times."""

    decoupled: bool


class CacheSetting(msgspec.Struct):
    """Whether a model has a response cache."""

    enable: bool


class ModelConfig(msgspec.Struct):
    """`ModelConfig`, the fields that clients read."""

    name: str
    platform: str
    backend: str
    version_policy: VersionPolicy
    max_batch_size: int
    input: list[ModelInput]
    output: list[ModelOutput]
    instance_group: list[InstanceGroup]
    dynamic_batching: DynamicBatching | UnsetType = UNSET
    parameters: dict[str, ModelParameter] | UnsetType = UNSET
    model_transaction_policy: TransactionPolicy | UnsetType = UNSET
    response_cache: CacheSetting | UnsetType = UNSET


class RegisterRegion(msgspec.Struct):
    """What `POST v2/systemsharedmemory/region/{region}/register` is sent."""

    key: str
    byte_size: Annotated[int, msgspec.Meta(ge=0)]
    offset: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Region(msgspec.Struct):
    """A registered region of system shared memory.

    Args:
        name: What clients call it.
        key: The segment, as it was registered.
        offset: Where it begins in the segment, in bytes.
        byte_size: How many bytes it has.
    """

    name: str
    key: str
    offset: int
    byte_size: int
