"""The page that shows the models: the headers that a browser needs, and what it shows beside the OpenAPI
document. Its HTML is `static/page.html`, with the scripts and the style beside it; its paths are in
`_http/exchange.py`. Knows no requests.

The page's own script asks the same paths as any client, relative to its own address, so it works with each
prefix and proxy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

from .._extensions.repository import list_models
from .._models.model import Model
from .._models.statistics import Counts
from .._serving.engine import Engine
from .openapi import openapi_of
from .operations import Control

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
