"""What describes the models of a server at one moment: the OpenAPI document; the page, and what it shows
beside that document. Knows no requests.

The page's HTML is `static/page.html`, with the scripts and the style beside it; its paths are in
`_http/exchange.py`. Its own script asks the same paths as any client, relative to its own address, so it
works with each prefix and proxy.

Specification: OpenAPI 3.1; a component's name has letters, digits, dots, hyphens and underscores only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import chain, count
from typing import Any, Final

from .._extensions.repository import list_models
from .._models.model import Model, path_of
from .._models.statistics import Counts
from .._serving.engine import Engine
from .json_schemas import STRING
from .operations import CONTROLS, Control, ModelPath, Operations, pack

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
"""A parameter in the path of a mount, as Starlette writes it."""

_NO_WORD: Final = re.compile("[^A-Za-z0-9]+")


def openapi(engine: Engine, prefix: str = "", *, visible: Collection[Model] | None = None) -> dict[str, Any]:
    """The document of a server and its models: of all of them, or of those that a client may see. What it has
    for each path is JSON."""
    return _make_document(
        engine,
        prefix,
        _list_model_paths(engine.models.all(), visible),
        has_server=True,
        controls=CONTROLS if engine.options.model_control else (),
    )


def openapi_of(
    engine: Engine,
    model: Model,
    version: str | None,
    *,
    visible: Collection[Model],
    controls: Collection[Control],
) -> dict[str, Any]:
    """The document of one model, with what a client may do to it."""
    versions = engine.models.find_versions(model.name, None)
    model_paths = [
        at
        for at in _list_model_paths([(model, versions)], {model, *visible})
        if version is None or at.path == path_of(model.name, model.version)
    ]
    return _make_document(engine, "", model_paths, has_server=False, controls=controls)


def merge_documents(host: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Add a server's document to a host's. If both have a path, the host's stays. A host's document of
    OpenAPI 3.0 does not change."""
    if not str(host.get("openapi")).startswith("3.1"):
        return host  # schemas of 3.1 are no schemas of 3.0
    components, known_paths = host.get("components", {}), host.get("paths", {})
    sections = {
        section: {**components.get(section, {}), **own} for section, own in ours["components"].items()
    }
    names = {tag["name"] for tag in host.get("tags", ())}
    return {
        **host,
        "tags": [*host.get("tags", ()), *(tag for tag in ours["tags"] if tag["name"] not in names)],
        "paths": {**known_paths, **ours["paths"], **known_paths},  # the host's come first, and count
        "components": {**components, **sections},
    }


def list_basis(engine: Engine) -> list[object]:
    """All on which the document of a server depends, but for its own name and options: equal bases make equal
    documents."""
    # each load of a model makes another binding, and a model is described anew by a load only
    return [
        engine.security,
        *(
            (model.binding, model is default)
            for default, versions in engine.models.all()
            for model in versions
        ),
    ]


def _make_document(
    engine: Engine,
    prefix: str,
    model_paths: list[ModelPath],
    *,
    has_server: bool,
    controls: Collection[Control],
) -> dict[str, Any]:
    # the names begin with the prefix, as a document may hold several servers at different paths
    words = "" if prefix in ("", "/v2") else _to_identifier(prefix)
    namespace = "Oip" + "".join(part[:1].upper() + part[1:] for part in words.split("_"))
    operations = Operations(namespace, {name: codec.datatype for name, codec in engine.codecs.inputs.items()})
    # a host without schemes asks for nothing
    security = engine.security if engine.security is not None and engine.security.schemes else None
    mount = _PARAMETER.sub(r"{\1}", prefix)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": STRING}
        for name in _PARAMETER.findall(prefix)
    ]
    shared = {"parameters": parameters} if parameters else {}
    paths = {}
    for path, methods in _list_operations(operations, model_paths, has_server=has_server, controls=controls):
        if security is not None and not re.fullmatch(f"/{security.open_paths}", path):
            methods = {
                method: {**operation, "security": security.needed} for method, operation in methods.items()
            }
        paths[mount if mount and path == "/" else mount + path] = pack({**shared, **methods})
    components = operations.describe_components()
    if security is not None:
        components["securitySchemes"] = security.schemes
    described = {at.model.name: at.model.binding.description for at in reversed(model_paths)}
    tags = [
        {"name": f"model {name}", **({"description": described[name]} if described[name] else {})}
        for name in dict.fromkeys(at.model.name for at in model_paths)
    ]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": engine.options.name,
            "version": engine.version,
            "description": "The Open Inference Protocol (KServe V2).",
        },
        "tags": [{"name": "server"}, *tags] if has_server else tags,
        "paths": paths,
        "components": components,
    }


def _list_operations(
    operations: Operations, model_paths: list[ModelPath], *, has_server: bool, controls: Collection[Control]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each path below the mount, and its operations by method."""
    keys = {at.model.name: at.key for at in reversed(model_paths)}
    parts = chain(
        [operations.describe_server()] if has_server else [],
        (operations.describe_control(name, key, controls) for name, key in keys.items()),
        (operations.describe_model(at) for at in model_paths),
    )
    return chain.from_iterable(paths.items() for paths in parts)


def _list_model_paths(
    models: list[tuple[Model, list[Model]]], visible: Collection[Model] | None
) -> list[ModelPath]:
    """Each model at each of its paths: one with versions also is at the path without. All models, or those
    that are visible."""
    named: list[tuple[Model, str | None]] = []
    for default, versions in models:
        with_version = [(model, model.version) for model in versions if model.version is not None]
        named += [each for each in [(default, None), *with_version] if visible is None or each[0] in visible]
    keys = _make_unique(
        model.name if version is None else f"{model.name}_v{version}" for model, version in named
    )
    # the last, which has the version
    of_models = {id(model): key for (model, _), key in zip(named, keys, strict=True)}
    return [
        ModelPath(model, path_of(model.name, version), key, of_models[id(model)])
        for (model, version), key in zip(named, keys, strict=True)
    ]


def _make_unique(texts: Iterable[str]) -> list[str]:
    """Each text as an identifier, followed by a number if another one has it already, but for case and
    underscores: generated clients have files and classes of these names."""
    names: dict[str, str] = {}
    for text in texts:
        word = _to_identifier(text)
        keys = chain([word], (f"{word}_{number}" for number in count(2)))
        key = next(key for key in keys if key.replace("_", "").lower() not in names)
        names[key.replace("_", "").lower()] = key
    return list(names.values())


def _to_identifier(text: str) -> str:
    return _NO_WORD.sub("_", text).strip("_") or "_"


# The page

PAGE: Final = "_docs/static/page.html"

FILES: Final[Mapping[str, str]] = {
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    **dict.fromkeys(
        (
            "page.js",
            "answer.js",
            "cells.js",
            "described.js",
            "elements.js",
            "fields.js",
            "figures.js",
            "form.js",
            "frame.js",
            "json.js",
            "looks.js",
            "numbers.js",
            "prose.js",
            "request.js",
            "server.js",
            "snippets.js",
            "tensors.js",
            "words.js",
        ),
        "text/javascript; charset=utf-8",
    ),
}
"""What the page loads, and the media type of each."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri "
    "'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The page's Content-Security-Policy: nothing inline, nothing from elsewhere."""

SHOWN: Final = (
    "run",
    "content_type",
    "allow_timeout_override",
    "stream_timeout",
    "max_batch_size",
    "max_batch_delay",
    "cache",
    "out_of_range",
    "idle_unload",
)
"""The options of a model that the page shows if they have an effect. `static/described.js` has the words for
each."""

_USUAL: Final = (("run", "thread"), ("out_of_range", "refuse"))
"""Options of nearly all models."""


def read(path: str) -> bytes:
    """A file of the package, also if that is in an archive."""
    return files("oip_asgi").joinpath(path).read_bytes()


def render_page(template: bytes, base: str, first: bytes) -> bytes:
    """The page, and in it the JSON of what it shows first, in which nothing can end its element."""
    return template.replace(b"{base}", base.encode()).replace(b"{first}", first.replace(b"<", rb"\u003c"))


_FOR_BROWSERS: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name}</title>
<link rel="icon" href="{page}/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{page}/page.css">
<main class="plain">
<h1>{name} <span class="faint">{version}</span></h1>
<p>This server answers requests to models by the Open Inference Protocol.
<p><a href="{page}">Look at its models and try them</a>
<p class="faint">Programs get this from the same address:
<pre>{metadata}</pre>
</main>
</html>
"""


def _version_of(engine: Engine) -> str:
    """The server's version for people. That of this package, where none was given, is not the server's, so it
    is named."""
    return engine.options.version or f"oip_asgi {engine.version}"


def render_server(engine: Engine, metadata: bytes, page: str) -> bytes:
    """What a browser gets in place of the server's metadata, with the address of the page."""
    texts = {
        "name": engine.options.name,
        "version": _version_of(engine),
        "page": page,
        "metadata": metadata.decode(),
    }
    return _FOR_BROWSERS.format_map({name: escape(text) for name, text in texts.items()}).encode()


def describe_first(engine: Engine, visible: Sequence[Model], controls: Collection[Control]) -> dict[str, Any]:
    """What the page shows before it has asked anything: the server, the models that the client may see, and
    more of the first of them, also what the client may do to that one."""
    document: dict[str, Any] = {
        "name": engine.options.name,
        "version": _version_of(engine),
        "models": list_models(visible, ready=False),
    }
    if visible:
        default = engine.models.find(visible[0].name, None)
        model, version = (default, None) if default in visible else (visible[0], visible[0].version)
        document["first"] = {
            "metadata": engine.describe_model(model),
            "document": openapi_of(engine, model, version, visible=visible, controls=controls),
        }
    return document


def describe_state(engine: Engine, model: Model) -> dict[str, Any]:
    """How a model was registered, and its numbers at this moment. An option that was left out is there if its
    default has an effect."""
    numbers, options = model.statistics.snapshot(), model.options
    default, given = engine.models.find(model.name, None), {name: getattr(options, name) for name in SHOWN}
    return {
        # a client may not see each version
        "default_version": default.version if default is model or engine.guard is None else None,
        "labels": {spec.name: list(spec.labels) for spec in model.outputs if spec.labels},
        "options": {
            "max_concurrency": model.limiter.max_concurrency,
            "max_queue": options.max_queue,
            "timeout": options.timeout,
            **{name: value for name, value in given.items() if value and (name, value) not in _USUAL},
        },
        "outcomes": numbers.outcomes,
        "outside": numbers.outside,
        "durations": _describe_histogram(*numbers.durations.values()),
        "queues": _describe_histogram(numbers.queues),
        "rows": _describe_histogram(numbers.rows),
        "leaving": "stopping" if engine.stopping else "draining" if engine.draining else "",
        "refuses": engine.stopping or not model.lifecycle.will_serve,
        "waiting": model.limiter.waiting,
        "running": model.limiter.running,
    }


def _describe_histogram(*together: Counts) -> dict[str, Any]:
    counts = [sum(same) for same in zip(*(histogram.counts for histogram in together), strict=True)]
    return {
        "bounds": together[0].bounds,
        "counts": counts,
        "sum": sum(histogram.sum for histogram in together),
    }
