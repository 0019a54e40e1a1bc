"""One remote call of a method that answers one message with one: request message -> response message. The table of methods is here.

Knows no gRPC library, no protobuf, and neither sync nor async. Extensions add their own rows. `errors` has the codes and texts of errors.

Specification: gRPC, API Definitions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from .._extensions import config, model_statistics, repository, shared_memory, unsupported
from .._extensions.rows import GrpcRows
from .._protocol.datatypes import Buffer
from .._protocol.effects import Run, Steps, finish
from .._protocol.errors import InferenceError, InvalidRequest, NotFound, show
from .._protocol.limits import MAX_QUESTION
from .._serving.engine import Engine
from .._serving.pipeline import answer_once, infer
from .._serving.record import record_unknown
from .messages import GRPCFormat, Method
from .wire import has_more_fields

SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"

_MAX_FIELDS: Final = 1000
"""The most fields of a long request to load a model, one for each file."""


def exchange(
    engine: Engine, method: Method, body: Buffer, transport: Any, timeout: float = math.inf, *, in_parts: bool = False
) -> list[Buffer] | Steps[list[Buffer]]:
    """Answer one call: return its response message, in parts, or the steps that are left if something must be waited for."""
    if method.name in _ANSWERS:
        return _answer(engine, method, body)
    try:
        wire = GRPCFormat(method, body, transport, timeout, in_parts=in_parts)
        model = engine.models.find(wire.model_name, wire.model_version or None)
    except InferenceError as error:
        record_unknown(engine.unknown, error)
        raise
    return infer(engine, model, wire, answer_once)


def _answer(engine: Engine, method: Method, body: Buffer) -> Steps[list[Buffer]]:
    """Answer a call of any method but ModelInfer."""
    document = yield from finish(_ANSWERS[method.name](engine, (yield from _parse(engine, method, body))))
    return [method.write({} if document is None else msgspec.to_builtins(document))]


def _parse(engine: Engine, method: Method, body: Buffer) -> Steps[Any]:
    """Parse the request message of any method but ModelInfer. Only a request to load a model may be long, as it may have files."""
    if len(body) <= MAX_QUESTION:
        return method.parse(body)
    if method.name != "RepositoryModelLoad" or not engine.options.model_control:
        raise InvalidRequest(f"the request has {len(body)} bytes: expected {MAX_QUESTION} at most")
    if has_more_fields(body, _MAX_FIELDS):
        raise InvalidRequest(f"the request has more than {_MAX_FIELDS} fields")
    return (yield Run(partial(method.parse, body), "conversion", for_client=True))


def _answer_ready(engine: Engine, _: Any) -> Steps[Any]:
    return {"ready": (yield from engine.is_ready())}


def _answer_model_ready(engine: Engine, request: Any) -> Steps[Any]:
    return {"ready": (yield from engine.is_model_ready(engine.models.find(request.name, request.version or None)))}


def _describe_model(engine: Engine, request: Any) -> Any:
    return engine.describe_model(engine.models.find(request.name, request.version or None))


def _check(engine: Engine, request: Any) -> Steps[Any]:
    if request.service not in ("", SERVICE):
        raise NotFound(f"unknown service {show(request.service)}: expected {SERVICE}, or nothing for the server")
    return {"status": "SERVING" if (yield from engine.is_ready()) else "NOT_SERVING"}


_OF_SERVICE: Final[GrpcRows] = {
    "ServerLive": lambda *_: {"live": True},
    "ServerReady": _answer_ready,
    "ServerMetadata": lambda engine, _: engine.describe(),
    "ModelReady": _answer_model_ready,
    "ModelMetadata": _describe_model,
    **model_statistics.GRPC,
    **config.GRPC,
    **repository.GRPC,
    **shared_memory.GRPC,
    **unsupported.GRPC,
    **unsupported.WITHOUT_MESSAGES,
}

_ANSWERS: Final[GrpcRows] = {**_OF_SERVICE, "Check": _check}
"""What answers each method but ModelInfer."""

METHODS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({SERVICE: ("ModelInfer", *_OF_SERVICE), HEALTH: ("Check",)})
"""The answered methods of each service. Health's `Watch` is not answered, as nobody announces changes: clients ask for readiness."""
