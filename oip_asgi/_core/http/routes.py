"""The table of routes, and which of them a path names. Knows no headers, no bodies and no models but by name.

A pattern is a path behind the mount. `{model}` is a model's name, which may hold slashes, and `[/versions/{version}]` may be left out of a
path. All patterns with the same beginning have it, or none.

Specification: HTTP/REST API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec

from ..effects import Steps
from ..errors import MethodNotAllowed, NotFound, shown
from .response import Response

Handler: TypeAlias = Callable[..., "Response | Steps[Response]"]
"""Takes the exchange, and the model where the pattern names one."""

_MODEL: Final = "{model}"
_VERSION: Final = "[/versions/{version}]"


class Route(NamedTuple):
    """One line of the table.

    Args:
        method: The HTTP method. HEAD is answered where GET is.
        pattern: The path.
        handler: What answers it.
    """

    method: str
    pattern: str
    handler: Handler


class Match(msgspec.Struct, frozen=True):
    """What a path names.

    Args:
        handlers: What answers it, by method.
        name: The model's name; None where the pattern has none.
        version: Its version; None where the path has none.
        is_split: Whether the name is made of several segments, which only a registered name may be.
    """

    handlers: dict[str, Handler]
    name: str | None = None
    version: str | None = None
    is_split: bool = False


class _OfModels(NamedTuple):
    """The routes that have a model's name behind the same beginning.

    Args:
        has_versions: Whether a version may be behind the name.
        actions: The handlers by method, by what is behind that.
    """

    has_versions: bool
    actions: dict[str, dict[str, Handler]]


class Routes:
    """A table of routes, in the form in which paths are looked up.

    Args:
        table: The routes.
    """

    def __init__(self, table: Iterable[Route]) -> None:
        self._fixed: dict[str, dict[str, Handler]] = {}
        self._of_models: dict[str, _OfModels] = {}
        for route in table:
            before, model, behind = route.pattern.partition(_MODEL)
            if model:
                of = self._of_models.setdefault(before, _OfModels(behind.startswith(_VERSION), {})).actions
                handlers = of.setdefault(behind.removeprefix(_VERSION), {})
            else:
                handlers = self._fixed.setdefault(before, {})
            handlers[route.method] = route.handler
            if route.method == "GET":
                handlers["HEAD"] = route.handler

    def match(self, path: str) -> Match:
        """What a path names.

        Args:
            path: Behind the mount, percent-encoded. One slash at its end does not count.

        Raises:
            NotFound: Nothing that is in the table.
        """
        path = path.removesuffix("/")
        fixed = self._fixed.get(path if "%" not in path else unquote(path))
        if fixed is not None:
            return Match(fixed)
        for before, of_models in self._of_models.items():
            if path.startswith(before) and len(path) > len(before):
                segments = path[len(before) :].split("/")
                match = _of_model(segments if "%" not in path else list(map(unquote, segments)), of_models)
                if match is not None:
                    return match
        raise unknown_path(path)


def _of_model(segments: list[str], of_models: _OfModels) -> Match | None:
    """Which action of which model is named by what is behind `/models/`; None for none."""
    actions = of_models.actions
    handlers = actions.get("/" + segments[-1]) if len(segments) > 1 else None
    if handlers is not None:
        segments = segments[:-1]
    elif len(segments) > 2 and (handlers := actions.get("/" + "/".join(segments[-2:]))) is not None:
        segments = segments[:-2]
    elif "" in actions:
        handlers = actions[""]
    else:
        return None
    version = None
    if of_models.has_versions and len(segments) > 2 and segments[-2] == "versions":
        version = segments[-1]
        segments = segments[:-2]
    if len(segments) == 1:
        return Match(handlers, segments[0], version)
    # some hosts decode the encoded slash of a name before the path comes here, so a name may come in several segments
    return Match(handlers, "/".join(segments), version, is_split=True)


def not_allowed(method: str, handlers: Iterable[str]) -> MethodNotAllowed:
    """The error for a method that a path does not have, with `Allow`."""
    allowed = ", ".join(handlers)
    return MethodNotAllowed(f"method {shown(method)} is not allowed here: expected {allowed}", headers={"Allow": allowed})


def unknown_path(path: str) -> NotFound:
    """The error for a path that nothing answers."""
    return NotFound(
        f"unknown path {shown(unquote(path.removesuffix('/')))}: expected /health/live, /health/ready, /models, or /models/{{name}}, "
        "with /versions/{version} and /ready, /stats, /config, /infer, /infer_stream, /generate or /generate_stream behind it, "
        "or /repository/index"
    )
