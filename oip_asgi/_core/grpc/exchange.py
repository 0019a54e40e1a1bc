"""One remote call: method and request message -> `Reply`. Knows no gRPC library, no protobuf, and neither sync nor async.

Which method is answered by what is the table's to say, in this file; the codes and texts of errors are in `errors`.

Specification: gRPC, API Definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ..effects import Steps
from ..errors import InferenceError, NotFound, shown
from ..models.model import Model
from ..serving.engine import Engine
from ..serving.faults import own_fault
from ..serving.pipeline import infer
from . import repository
from .infer import GRPCForm
from .messages import encode_metadata
from .method import Method, Reply, refusal

SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"

_SERVING, _NOT_SERVING = 1, 2

_Fill: TypeAlias = Callable[[Engine, Any, Any], Steps[None]]
"""Fills a response message, the last argument, for a request message."""


def exchange(engine: Engine, method: Method, body: bytes, transport: Any) -> Steps[Reply]:
    """Answer one call. Raises nothing but what is not an `Exception`.

    Args:
        engine: The server.
        method: Which method.
        body: The serialized request message.
        transport: The adapter's own object, for `InferenceContext.transport`.
    """
    try:
        fill = _FILL.get(method.name)
        if fill is None:
            form = GRPCForm(method, body, transport)
            return Reply((yield from infer(engine, _find(engine, form.model_name, form.model_version), form)))
        response = method.response()
        yield from fill(engine, method.parse(body), response)
        return Reply(response.SerializeToString())
    except InferenceError as error:
        return refusal(error)
    except Exception as error:
        return refusal(own_fault(error))


def _server_live(_: Engine, __: Any, response: Any) -> Steps[None]:
    response.live = True
    yield from ()


def _server_ready(engine: Engine, _: Any, response: Any) -> Steps[None]:
    response.ready = yield from engine.is_ready()


def _server_metadata(engine: Engine, _: Any, response: Any) -> Steps[None]:
    document = engine.metadata()
    response.name, response.version = document.name, document.version
    response.extensions.extend(document.extensions)
    yield from ()


def _model_ready(engine: Engine, request: Any, response: Any) -> Steps[None]:
    response.ready = yield from engine.is_model_ready(_find(engine, request.name, request.version))


def _model_metadata(engine: Engine, request: Any, response: Any) -> Steps[None]:
    encode_metadata(engine.model_metadata(_find(engine, request.name, request.version)), response)
    yield from ()


def _check(engine: Engine, request: Any, response: Any) -> Steps[None]:
    if request.service not in ("", SERVICE):
        raise NotFound(f"unknown service {shown(request.service)}: expected {SERVICE}, or nothing for the server")
    response.status = _SERVING if (yield from engine.is_ready()) else _NOT_SERVING


def _find(engine: Engine, name: str, version: str) -> Model:
    return engine.models.find(name, version or None)


_FILL: Final[Mapping[str, _Fill]] = MappingProxyType(
    {
        "ServerLive": _server_live,
        "ServerReady": _server_ready,
        "ServerMetadata": _server_metadata,
        "ModelReady": _model_ready,
        "ModelMetadata": _model_metadata,
        "RepositoryIndex": repository.index,
        "RepositoryModelLoad": repository.load,
        "RepositoryModelUnload": repository.unload,
        "Check": _check,
    }
)
"""What fills the response of each method but ModelInfer."""

METHODS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        SERVICE: (
            *("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"),
            *("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"),
        ),
        HEALTH: ("Check",),
    }
)
"""What is answered of each service. Health has streams too, of changes that nobody announces: readiness is asked."""
