"""One remote call of a method that answers one message with one: request message -> response message. The
table of methods is here.

Knows no gRPC library and no protobuf. Extensions add their own methods. The code of each error's status is in
`_protocol.errors`.

Specification: gRPC, API Definitions, Error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

import msgspec

from .._extensions import config, model_statistics, repository, shared_memory
from .._extensions.common import REFUSED_METHODS, GrpcMethod, GrpcMethods
from .._io import IO
from .._protocol.context import Action
from .._protocol.datatypes import Buffer
from .._protocol.errors import InvalidRequest, NotFound, client_text, show
from .._protocol.limits import MAX_QUESTION
from .._serving.engine import Engine, is_model_ready, is_ready
from .._serving.failures import as_client_error
from .._serving.observing import record_unknown
from .._serving.pipeline import infer
from .messages import GRPCFormat, Method, Reply, find_field
from .wire import has_more_fields

SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"

_MAX_DETAILS: Final = 2000
"""Bytes of an error's text. It is sent as a header, three times as long if percent-encoded, and peers accept
8 KiB of headers."""

_MAX_FIELDS: Final = 1000
"""The most fields of a long request to load a model, one for each file."""


async def exchange(
    engine: Engine, method: Method, body: Buffer, transport: Any, io: IO, seconds: float = math.inf
) -> Reply:
    """Answer one call, which may take so long."""
    entry = _ANSWERS.get(method.name)
    if entry is not None:
        return Reply([await _answer(engine, entry, method, body, transport, io)])
    try:
        wire = GRPCFormat(method, body, transport, seconds)
    except InvalidRequest as error:
        record_unknown(engine.unknown, error)
        raise
    name, version = wire.model_name, wire.model_version or None
    if engine.guard is not None:
        await engine.guard.ask(io, method.make_access(transport, "infer", name, version), wire.timeout)
    parts = await infer(engine, engine.find_for_inference(name, version), wire, io)
    headers = wire.head.response_headers
    return Reply(parts) if headers is None else Reply(parts, metadata=headers.send())


def reply_error(error: Exception) -> Reply:
    """Make the reply for an error."""
    refusal = as_client_error(error)
    return Reply([], refusal.grpc_code, client_text(refusal).encode()[:_MAX_DETAILS].decode(errors="ignore"))


async def _answer(
    engine: Engine, entry: GrpcMethod, method: Method, body: Buffer, transport: Any, io: IO
) -> Buffer:
    """Answer a call of any method but ModelInfer."""
    request = await _parse_question(engine, method, body, io)
    make_access = partial(method.make_access, transport)
    name = _find_name(entry.action, request)
    if engine.guard is not None and entry.action is not None and (name or not entry.lists_models):
        await engine.guard.ask(io, make_access(entry.action, name, getattr(request, "version", "") or None))
    if entry.action == "load":
        await engine.find_new(io)
    elif method.name == "RepositoryIndex":
        await repository.find_to_list(engine, io, partial(engine.find_visible, io, make_access))
    visible = (
        [[] if name else await engine.find_visible(io, make_access, entry.action)]
        if entry.lists_models
        else ()
    )
    if iscoroutinefunction(entry.answer):
        document = await entry.answer(engine, request, io)
    else:
        document = entry.answer(engine, request, *visible)
    return method.write({} if document is None else msgspec.to_builtins(document))


def _find_name(action: Action | None, request: Any) -> str | None:
    """Find the name of the model in a request message; None if it names none."""
    if action is None or action == "shared_memory":
        return None
    if action in ("load", "unload"):
        return repository.find_name(request)
    return str(request.name)


async def _parse_question(engine: Engine, method: Method, body: Buffer, io: IO) -> Any:
    """Parse the request message of any method but ModelInfer. Only a request to load a model may be long, as
    it may have files."""
    if len(body) <= MAX_QUESTION:
        return method.parse(body)
    if method.name != "RepositoryModelLoad" or not engine.options.model_control:
        raise InvalidRequest(f"the request has {len(body)} bytes: expected {MAX_QUESTION} at most")
    if has_more_fields(body, _MAX_FIELDS):
        raise InvalidRequest(f"the request has more than {_MAX_FIELDS} fields")
    return await io.run(partial(method.parse, body), "conversion")


async def _answer_ready(engine: Engine, _: Any, io: IO) -> Any:
    return {"ready": await is_ready(engine, io)}


async def _answer_model_ready(engine: Engine, request: Any, io: IO) -> Any:
    return {
        "ready": await is_model_ready(engine, io, engine.models.find(request.name, request.version or None))
    }


def _describe_model(engine: Engine, request: Any) -> Any:
    document = msgspec.to_builtins(
        engine.describe_model(engine.models.find(request.name, request.version or None))
    )
    for each in (document, *document["inputs"], *document["outputs"]):
        if "parameters" in each:
            each["parameters"] = {
                name: {find_field(value): value} for name, value in each["parameters"].items()
            }
    return document


async def _answer_health(engine: Engine, request: Any, io: IO) -> Any:
    if request.service not in ("", SERVICE):
        raise NotFound(
            f"unknown service {show(request.service)}: expected {SERVICE}, or nothing for the server"
        )
    return {"status": "SERVING" if await is_ready(engine, io) else "NOT_SERVING"}


_OF_SERVICE: Final[GrpcMethods] = {
    "ServerLive": GrpcMethod(lambda *_: {"live": True}),
    "ServerReady": GrpcMethod(_answer_ready),
    "ServerMetadata": GrpcMethod(lambda engine, _: engine.describe()),
    "ModelReady": GrpcMethod(_answer_model_ready, "ready"),
    "ModelMetadata": GrpcMethod(_describe_model, "metadata"),
    **model_statistics.GRPC,
    **config.GRPC,
    **repository.GRPC,
    **shared_memory.GRPC,
    **REFUSED_METHODS,
}

_ANSWERS: Final[GrpcMethods] = {**_OF_SERVICE, "Check": GrpcMethod(_answer_health)}
"""What answers each method but ModelInfer."""

ACTIONS: Final[Mapping[str, Action | None]] = {
    "ModelInfer": "infer",
    "ModelStreamInfer": "infer",
    **{name: entry.action for name, entry in _ANSWERS.items()},
}
"""What each method does with the model that it names, or with shared memory."""

METHODS: Final[Mapping[str, tuple[str, ...]]] = {SERVICE: ("ModelInfer", *_OF_SERVICE), HEALTH: ("Check",)}
"""The answered methods of each service. Health's `Watch` is not answered, as nobody announces changes:
clients ask for readiness."""
