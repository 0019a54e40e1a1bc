"""The OpenAPI document of what is registered at one moment. Knows no requests and no HTTP.

Specification: OpenAPI 3.1.
"""

from __future__ import annotations

import re
from typing import Any, Final

from .._models.model import Model
from .._serving.engine import Engine
from .components import Shared
from .names import namespace, unique
from .operations import Shown, control_operations, model_operations, model_schemas, path_of, server_operations
from .schemas import STRING

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
"""A parameter in the path of a mount, as Starlette writes it."""


def openapi(engine: Engine, prefix: str = "") -> dict[str, Any]:
    """The document of a server and all its models."""
    shared = _shared(engine, prefix)
    all_shown = _all_shown(engine.models.all())
    paths = server_operations(shared)
    if engine.model_control:
        keys = {shown.model.name: shown.key for shown in reversed(all_shown)}
        for name, key in keys.items():
            paths.update(control_operations(shared, name, key))
    document = _document(engine, shared, all_shown, paths)
    document["paths"] = _under(prefix, document["paths"])
    return document


def _under(prefix: str, paths: dict[str, Any]) -> dict[str, Any]:
    """Paths with a prefix, whose parameters, such as `{tenant}`, each of them has."""
    names = _PARAMETER.findall(prefix)
    prefix = _PARAMETER.sub(r"{\1}", prefix)
    shared = {"parameters": [{"name": name, "in": "path", "required": True, "schema": STRING} for name in names]} if names else {}
    return {prefix if prefix and path == "/" else prefix + path: {**shared, **methods} for path, methods in paths.items()}


def merged(host: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """A host's document with a server's in it. Where both have a path, it is the host's; a host's of OpenAPI 3.0 stays as it is."""
    if not str(host.get("openapi")).startswith("3.1"):
        return host  # schemas of 3.1 are no schemas of 3.0
    components, own = dict(host.get("components", {})), ours["components"]
    for section in own:
        components[section] = {**components.get(section, {}), **own[section]}
    known = {tag["name"] for tag in host.get("tags", ())}
    tags = [*host.get("tags", ()), *(tag for tag in ours["tags"] if tag["name"] not in known)]
    paths = {**host.get("paths", {})}
    for path, operations in ours["paths"].items():
        paths.setdefault(path, operations)
    return {**host, "tags": tags, "paths": paths, "components": components}


def basis(engine: Engine) -> list[object]:
    """All that the document of a server is made of, beside the server's own name and options: equal bases make equal documents."""
    return [
        (model.name, model.version, model.shown, model.inputs, model.outputs, model.streams, model is default)
        for default, versions in engine.models.all()
        for model in versions
    ]


def openapi_of(engine: Engine, model: Model, version: str | None) -> dict[str, Any]:
    """The document of one model."""
    shown = _all_shown([(model, engine.models.named(model.name, None))])
    if version is not None:
        shown = [each for each in shown if each.path == path_of(model.name, model.version)]
    return _document(engine, _shared(engine, ""), shown, {})


def _all_shown(models: list[tuple[Model, list[Model]]]) -> list[Shown]:
    """Each model at each of its paths: one with versions also is at the path without."""
    named: list[tuple[Model, str | None]] = []
    for default, versions in models:
        named.append((default, None))
        named += [(model, model.version) for model in versions if model.version is not None]
    keys = unique(model.name if version is None else f"{model.name}_v{version}" for model, version in named)
    of_models = {id(model): key for (model, _), key in zip(named, keys, strict=True)}  # the last, which has the version
    return [
        Shown(model, path_of(model.name, version), key, of_models[id(model)]) for (model, version), key in zip(named, keys, strict=True)
    ]


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
