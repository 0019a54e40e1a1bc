"""A model's configuration, which load generators read first. Knows no transport.

Specification: Triton's Model Configuration Extension.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from .._models.model import Model
from .._protocol.specs import TensorSpec
from .common import GrpcMethod, GrpcMethods, RestRoute


class ModelOutput(msgspec.Struct):
    name: str
    data_type: str
    dims: list[int]


class ModelInput(ModelOutput):
    """An input is described as an output is, and by two more fields."""

    format: str
    optional: bool


class InstanceGroup(msgspec.Struct):
    """How many calls of a model run at once."""

    name: str
    kind: str
    count: int


class DynamicBatching(msgspec.Struct):
    """How requests share calls."""

    preferred_batch_size: list[int]  # none: a call begins at once with `max_batch_size` rows
    max_queue_delay_microseconds: int


class ModelConfig(msgspec.Struct):
    """`ModelConfig`, the fields that clients read. gRPC's message has the same."""

    name: str
    platform: str
    backend: str
    version_policy: dict[str, dict[str, int]]
    max_batch_size: int
    input: list[ModelInput]
    output: list[ModelOutput]
    instance_group: list[InstanceGroup]
    dynamic_batching: DynamicBatching | UnsetType = UNSET
    parameters: dict[str, dict[str, str]] | UnsetType = UNSET
    model_transaction_policy: dict[str, bool] | UnsetType = UNSET
    response_cache: dict[str, bool] | UnsetType = UNSET


def describe_config(model: Model) -> ModelConfig:
    """Make a model's configuration. If requests share calls, it has the dimensions of one row."""
    options, required = model.options, model.binding.inputs.required
    first = int(model.has_batches)
    return ModelConfig(
        name=model.name,
        platform=model.platform,
        backend="python",
        version_policy={"all": {}},
        max_batch_size=options.max_batch_size or 0,
        input=[
            ModelInput(
                spec.name,
                _name_datatype(spec),
                list(spec.shape[first:]),
                f"FORMAT_{spec.format or 'NONE'}",
                spec.name not in required,
            )
            for spec in model.inputs
        ],
        output=[
            ModelOutput(spec.name, _name_datatype(spec), list(spec.shape[first:])) for spec in model.outputs
        ],
        instance_group=[InstanceGroup(model.name, "KIND_CPU", model.limiter.max_concurrency)],
        dynamic_batching=DynamicBatching([], round(options.max_batch_delay * 1e6))
        if model.has_batches
        else UNSET,
        parameters=UNSET
        if options.content_type is None
        else {"content_type": {"string_value": options.content_type}},
        model_transaction_policy={"decoupled": True} if model.streams else UNSET,
        response_cache=UNSET if options.cache is None else {"enable": True},
    )


def _name_datatype(spec: TensorSpec) -> str:
    return "TYPE_STRING" if spec.datatype == "BYTES" else f"TYPE_{spec.datatype}"


REST: Final = (
    RestRoute(
        "GET",
        "/models/{model}[/versions/{version}]/config",
        lambda _, __, model: describe_config(model),
        "config",
    ),
)
GRPC: Final[GrpcMethods] = {
    "ModelConfig": GrpcMethod(
        lambda engine, request: {
            "config": describe_config(engine.models.find(request.name, request.version or None))
        },
        "config",
    )
}
