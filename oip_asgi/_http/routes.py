"""How a path is looked up in a table of routes, with a slash in a model's name too. Knows no headers or bodies.

The table is in `exchange`, and so is the check that only the name of a registered model has slashes.

A pattern is a path below the mount. `{model}` is a model's name and `{region}` that of a region of shared memory. Both may hold slashes.
`[/versions/{version}]` may be left out of a path. All patterns with the same beginning have it, or none.

Specification: HTTP/REST API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec

from .._extensions import unsupported
from .._extensions.rows import RestRow
from .._protocol.access import Action
from .._protocol.effects import Steps
from .._protocol.errors import InferenceError, NotFound, show
from .response import Response

Handler: TypeAlias = Callable[..., "Response | Steps[Response]"]
"""Takes the exchange, and the model where the pattern names one."""

_NAME: Final = re.compile(r"\{(model|region)\}")
_VERSION: Final = "[/versions/{version}]"


class Endpoint(msgspec.Struct):
    """What answers one path."""

    action: Action | None
    handlers: dict[str, Handler] = {}  # the handlers by method


class Match(msgspec.Struct, frozen=True):
    """What a path names."""

    endpoint: Endpoint  # what answers it
    name: str | None = None  # the model's name, or the region's; None where the pattern has none
    version: str | None = None  # its version; None where the path has none
    is_split: bool = False  # whether the name is made of several segments, which only a registered name may be
    is_region: bool = False  # whether the name is a region's


class _Named(NamedTuple):
    """The routes that begin alike and then have a name."""

    is_region: bool  # whether it is a region's, not a model's
    has_versions: bool  # whether a version may follow the name
    endpoints: dict[str, Endpoint]  # what answers it, by what follows that


class Routes:
    """A table of routes, sorted for looking paths up."""

    def __init__(self, table: Iterable[RestRow]) -> None:
        self._fixed: dict[str, Endpoint] = {}
        self._named: dict[str, _Named] = {}
        for route in table:
            name = _NAME.search(route.pattern)
            if name:
                before, behind = route.pattern[: name.start()], route.pattern[name.end() :]
                named = self._named.setdefault(before, _Named(name[1] == "region", behind.startswith(_VERSION), {}))
                endpoint = named.endpoints.setdefault(behind.removeprefix(_VERSION).removeprefix("/"), Endpoint(route.action))
            else:
                endpoint = self._fixed.setdefault(route.pattern, Endpoint(route.action))
            endpoint.handlers[route.method] = route.answer
            if route.method == "GET":
                endpoint.handlers["HEAD"] = route.answer

    def first_segments(self) -> list[str]:
        """The first segments of all paths, each once."""
        return list(dict.fromkeys(path.split("/")[1] for path in (*self._fixed, *self._named) if path))

    def match(self, path: str) -> Match | None:
        """What a path names; None for nothing that is in the table."""
        path = path.removesuffix("/")
        plain = unquote if "%" in path else str
        fixed = self._fixed.get(plain(path))
        if fixed is not None:
            return Match(fixed)
        for before, named in self._named.items():
            if not path.startswith(before) or len(path) == len(before):
                continue
            path, endpoints = path[len(before) :], named.endpoints
            name, slash, action = path.rpartition("/")
            endpoint = endpoints.get(plain(action)) if slash and action else None
            if endpoint is None:
                name, endpoint = _longer_action(path, endpoints, plain)
                if endpoint is None:
                    return None
            if "/" not in name:
                return Match(endpoint, plain(name), None, False, named.is_region)
            front, _, version = name.rpartition("/")
            front, slash, word = front.rpartition("/")
            if slash and named.has_versions and plain(word) == "versions":
                return Match(endpoint, plain(front), plain(version), "/" in front, named.is_region)
            # some hosts decode the encoded slash of a name before the path comes here, so a name may come in several segments
            return Match(endpoint, plain(name), None, True, named.is_region)
        return None


def _longer_action(path: str, endpoints: Mapping[str, Endpoint], plain: Callable[[str], str]) -> tuple[str, Endpoint | None]:
    """What is before an action of two segments, as "docs/dataplane.json" has, or of none, and what answers it."""
    segments = path.rsplit("/", 2)
    if len(segments) > 2:
        endpoint = endpoints.get(plain("/".join(segments[1:])))
        if endpoint is not None:
            return segments[0], endpoint
    return path, endpoints.get("")


def not_allowed(method: str, handlers: Iterable[str], instead: str = "") -> InferenceError:
    """The error for a method that a path does not have, with `Allow`."""
    allowed = ", ".join(handlers)
    meant = f"; for inference, {method} to {show(instead)}" if instead else ""
    return InferenceError(f"method {show(method)} is not allowed here: expected {allowed}{meant}", status=405, headers={"Allow": allowed})


def unknown_path(path: str, mount: str) -> NotFound:
    """The error for a path that nothing answers."""
    mount = mount.rstrip("/")
    quoted = show(unquote(path.removesuffix("/")))
    for pattern, why in unsupported.PATHS:
        if pattern.fullmatch(unquote(path.removesuffix("/"))):
            return NotFound(why)
    return NotFound(
        f"unknown path {quoted[0]}{mount}{quoted[1:]}: expected {mount}/health/live, {mount}/health/ready, {mount}/models, or "
        f"{mount}/models/{{name}}, with /versions/{{version}} and /ready, /stats, /config, /infer, /infer_stream, /generate or "
        f"/generate_stream behind it, or {mount}/repository/index"
    )
