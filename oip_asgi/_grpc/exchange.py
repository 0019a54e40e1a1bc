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

from .._extensions import config, repository, shared_memory, statistics, unsupported
from .._extensions.rows import GrpcRows
from .._models.model import Model
from .._protocol.datatypes import Buffer
from .._protocol.effects import Run, Steps, finish
from .._protocol.errors import InferenceError, InvalidRequest, NotFound, show
from .._protocol.limits import MAX_QUESTION
from .._serving.engine import Engine
from .._serving.pipeline import answer_once, infer
from .._serving.record import record_unknown
from .messages import GRPCFormat, Method, encode_metadata
from .wire import has_more_fields

SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"

_SERVING, _NOT_SERVING = 1, 2

_MAX_FIELDS: Final = 1000
"""The most fields of a long request to load a model, one for each file."""


def exchange(
    engine: Engine, method: Method, body: Buffer, transport: Any, timeout: float = math.inf, *, in_parts: bool = False
) -> list[Buffer] | Steps[list[Buffer]]:
    """Answer one call: return its response message, in parts, or the steps that are left if something must be waited for."""
    if method.name in _FILL:
        return _fill(engine, method, body)
    try:
        wire = GRPCFormat(method, body, transport, timeout, in_parts=in_parts)
        model = engine.models.find(wire.model_name, wire.model_version or None)
    except InferenceError as error:
        record_unknown(engine.unknown, error)
        raise
    return infer(engine, model, wire, answer_once)


def _fill(engine: Engine, method: Method, body: Buffer) -> Steps[list[Buffer]]:
    """Answer a call of any method but ModelInfer."""
    response = method.response()
    yield from finish(_FILL[method.name](engine, (yield from _parse(engine, method, body)), response))
    return [response.SerializeToString()]


def _parse(engine: Engine, method: Method, body: Buffer) -> Steps[Any]:
    """Parse the request message of any method but ModelInfer. Only a request to load a model may be long, as it may have files."""
    if len(body) <= MAX_QUESTION:
        return method.parse(body)
    if method.name != "RepositoryModelLoad" or not engine.options.model_control:
        raise InvalidRequest(f"the request has {len(body)} bytes: expected {MAX_QUESTION} at most")
    if has_more_fields(body, _MAX_FIELDS):
        raise InvalidRequest(f"the request has more than {_MAX_FIELDS} fields")
    return (yield Run(partial(method.parse, body), "conversion", for_client=True))


def _answer_live(_: Engine, __: Any, response: Any) -> None:
    response.live = True


def _answer_ready(engine: Engine, _: Any, response: Any) -> Steps[None]:
    response.ready = yield from engine.is_ready()


def _describe_server(engine: Engine, _: Any, response: Any) -> None:
    document = engine.describe()
    response.name, response.version = document.name, document.version
    response.extensions.extend(document.extensions)


def _answer_model_ready(engine: Engine, request: Any, response: Any) -> Steps[None]:
    response.ready = yield from engine.is_model_ready(_find(engine, request.name, request.version))


def _describe_model(engine: Engine, request: Any, response: Any) -> None:
    encode_metadata(engine.describe_model(_find(engine, request.name, request.version)), response)


def _check(engine: Engine, request: Any, response: Any) -> Steps[None]:
    if request.service not in ("", SERVICE):
        raise NotFound(f"unknown service {show(request.service)}: expected {SERVICE}, or nothing for the server")
    response.status = _SERVING if (yield from engine.is_ready()) else _NOT_SERVING


def _find(engine: Engine, name: str, version: str) -> Model:
    return engine.models.find(name, version or None)


_OF_SERVICE: Final[GrpcRows] = {
    "ServerLive": _answer_live,
    "ServerReady": _answer_ready,
    "ServerMetadata": _describe_server,
    "ModelReady": _answer_model_ready,
    "ModelMetadata": _describe_model,
    **statistics.GRPC,
    **config.GRPC,
    **repository.GRPC,
    **shared_memory.GRPC,
    **unsupported.GRPC,
    **unsupported.WITHOUT_MESSAGES,
}

_FILL: Final[GrpcRows] = {**_OF_SERVICE, "Check": _check}
"""The function that fills the response of each method but ModelInfer."""

METHODS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({SERVICE: ("ModelInfer", *_OF_SERVICE), HEALTH: ("Check",)})
"""The answered methods of each service. Health's `Watch` is not answered, as nobody announces changes: clients ask for readiness."""
