"""The OpenAPI document of what is registered at one moment. Knows no requests and no HTTP.

Specification: OpenAPI 3.1.
"""

from __future__ import annotations

from typing import Any

from ..models.model import Model
from ..serving.engine import Engine
from .components import Shared
from .names import namespace, unique
from .operations import Shown, control_operations, model_operations, model_schemas, path_of, server_operations

MANY = 20
"""Above so many models a document takes more than some milliseconds, so it is not made on an event loop."""


def openapi(engine: Engine, prefix: str = "") -> dict[str, Any]:
    """The document of a server and all its models.

    Args:
        engine: The server.
        prefix: In front of all paths, such as "/v2". It is part of the names of operations and components, except "/v2".
    """
    shared = _shared(engine, prefix)
    all_shown = _all_shown(engine)
    paths = server_operations(shared)
    if engine.model_control:
        keys = {shown.model.name: shown.key for shown in reversed(all_shown)}
        for name, key in keys.items():
            paths.update(control_operations(shared, name, key))
    document = _document(engine, shared, all_shown, paths)
    document["paths"] = {prefix if prefix and path == "/" else prefix + path: methods for path, methods in document["paths"].items()}
    return document


def openapi_of(engine: Engine, model: Model, version: str | None) -> dict[str, Any]:
    """The document of one model.

    Args:
        engine: The server.
        model: The model.
        version: Only this version of it; None for the paths without a version, too.
    """
    shown = [
        shown
        for shown in _all_shown(engine)
        if shown.model.name == model.name and (version is None or (shown.model is model and shown.path == path_of(model.name, version)))
    ]
    return _document(engine, _shared(engine, ""), shown, {})


def _all_shown(engine: Engine) -> list[Shown]:
    """Each model at each of its paths: one with versions also is at the path without."""
    named: list[tuple[Model, str | None]] = []
    for default, versions in engine.models.all():
        named.append((default, None))
        named += [(model, model.version) for model in versions if model.version is not None]
    keys = unique(model.name if version is None else f"{model.name}_v{version}" for model, version in named)
    of_models = {id(model): key for (model, _), key in zip(named, keys, strict=True)}  # the last, which has the version
    return [Shown(model, path_of(model.name, version), key, of_models[id(model)]) for (model, version), key in zip(named, keys, strict=True)]


def _shared(engine: Engine, prefix: str) -> Shared:
    return Shared(namespace(prefix), {name: codec.datatype for name, codec in engine.codecs.inputs.items()})


def _document(engine: Engine, shared: Shared, all_shown: list[Shown], paths: dict[str, Any]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for shown in all_shown:
        paths.update(model_operations(shared, shown))
        schemas.update(model_schemas(shared, shown))
    components = shared.components()
    components["schemas"].update((shared.namespace + name, schema) for name, schema in schemas.items())
    tags = [{"name": "server"}] if "/health/live" in paths else []
    tags += [{"name": f"model {name}"} for name in dict.fromkeys(shown.model.name for shown in all_shown)]
    return {
        "openapi": "3.1.0",
        "info": {"title": engine.name, "version": engine.version, "description": "The Open Inference Protocol (KServe V2)."},
        "tags": tags,
        "paths": paths,
        "components": components,
    }
