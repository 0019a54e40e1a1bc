"""One remote call of a method that answers one message with one: request message -> response message. The table of methods is here.

Knows no gRPC library, no protobuf, and neither sync nor async. Extensions add their own rows. The code of each error's status is in
`_protocol.grpc_codes`.

Specification: gRPC, API Definitions, Error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from .._extensions import config, model_statistics, repository, shared_memory, unsupported
from .._extensions.rows import GrpcRow, GrpcRows
from .._protocol.access import Action
from .._protocol.datatypes import Buffer
from .._protocol.effects import Run, Steps, finish
from .._protocol.errors import InvalidRequest, NotFound, client_text, show
from .._protocol.loop_limits import MAX_QUESTION
from .._serving.engine import Engine
from .._serving.failures import as_client_error
from .._serving.pipeline import answer_once, infer
from .._serving.record import record_unknown
from .messages import GRPCFormat, Method, Reply
from .wire import has_more_fields

SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"

_MAX_DETAILS: Final = 2000
"""Bytes of an error's text. It is sent as a header, three times as long if percent-encoded, and peers accept 8 KiB of headers."""

_MAX_FIELDS: Final = 1000
"""The most fields of a long request to load a model, one for each file."""


def exchange(engine: Engine, method: Method, body: Buffer, transport: Any, timeout: float = math.inf) -> list[Buffer] | Steps[list[Buffer]]:
    """Answer one call: return its response message, in parts, or the steps that are left if something must be waited for."""
    row = _ANSWERS.get(method.name)
    if row is not None:
        return _answer(engine, row, method, body, transport)
    try:
        wire = GRPCFormat(method, body, transport, timeout)
    except InvalidRequest as error:
        record_unknown(engine.unknown, error)
        raise
    name, version = wire.model_name, wire.model_version or None
    asked = None if engine.guard is None else engine.guard.ask(wire.make_access("infer", name, version), wire.timeout)
    if asked is not None:
        return _infer_after(asked, engine, wire)
    return infer(engine, engine.find_for_inference(name, version), wire, answer_once)


def refuse(error: Exception) -> Reply:
    """Make the reply for an error."""
    refusal = as_client_error(error)
    return Reply([], refusal.grpc_code, client_text(refusal).encode()[:_MAX_DETAILS].decode(errors="ignore"))


def _infer_after(asked: Steps[None], engine: Engine, wire: GRPCFormat) -> Steps[list[Buffer]]:
    yield from asked
    model = engine.find_for_inference(wire.model_name, wire.model_version or None)
    parts: list[Buffer] = yield from finish(infer(engine, model, wire, answer_once))
    return parts


def _answer(engine: Engine, row: GrpcRow, method: Method, body: Buffer, transport: Any) -> Steps[list[Buffer]]:
    """Answer a call of any method but ModelInfer."""
    request = yield from _parse(engine, method, body)
    make_access = partial(method.make_access, transport)
    name = _find_name(row.action, request)
    if engine.guard is not None and row.action is not None and (name or not row.lists_models):
        yield from engine.guard.ask(make_access(row.action, name, getattr(request, "version", "") or None)) or ()
    if row.action == "load":
        yield from engine.find_new()
    elif method.name == "RepositoryIndex":
        yield from repository.find_to_list(engine, partial(engine.find_visible, make_access))
    visible = [[] if name else (yield from engine.find_visible(make_access, row.action))] if row.lists_models else ()
    document = yield from finish(row.answer(engine, request, *visible))
    return [method.write({} if document is None else msgspec.to_builtins(document))]


def _find_name(action: Action | None, request: Any) -> str | None:
    """Find the name of the model in a request message; None if it names none."""
    if action is None or action == "shared_memory":
        return None
    if action in ("load", "unload"):
        return repository.find_name(request)
    return str(request.name)


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
    document = msgspec.to_builtins(engine.describe_model(engine.models.find(request.name, request.version or None)))
    for each in (document, *document["inputs"], *document["outputs"]):
        if "parameters" in each:  # all of them are strings
            each["parameters"] = {name: {"string_param": value} for name, value in each["parameters"].items()}
    return document


def _check(engine: Engine, request: Any) -> Steps[Any]:
    if request.service not in ("", SERVICE):
        raise NotFound(f"unknown service {show(request.service)}: expected {SERVICE}, or nothing for the server")
    return {"status": "SERVING" if (yield from engine.is_ready()) else "NOT_SERVING"}


_OF_SERVICE: Final[GrpcRows] = {
    "ServerLive": GrpcRow(lambda *_: {"live": True}),
    "ServerReady": GrpcRow(_answer_ready),
    "ServerMetadata": GrpcRow(lambda engine, _: engine.describe()),
    "ModelReady": GrpcRow(_answer_model_ready, "ready"),
    "ModelMetadata": GrpcRow(_describe_model, "metadata"),
    **model_statistics.GRPC,
    **config.GRPC,
    **repository.GRPC,
    **shared_memory.GRPC,
    **unsupported.GRPC,
    **unsupported.WITHOUT_MESSAGES,
}

_ANSWERS: Final[GrpcRows] = {**_OF_SERVICE, "Check": GrpcRow(_check)}
"""What answers each method but ModelInfer."""

ACTIONS: Final[Mapping[str, Action | None]] = {
    "ModelInfer": "infer",
    "ModelStreamInfer": "infer",
    **{name: row.action for name, row in _ANSWERS.items()},
}
"""What each method does with the model that it names, or with shared memory."""

METHODS: Final[Mapping[str, tuple[str, ...]]] = {SERVICE: ("ModelInfer", *_OF_SERVICE), HEALTH: ("Check",)}
"""The answered methods of each service. Health's `Watch` is not answered, as nobody announces changes: clients ask for readiness."""
