"""How a path is looked up in a table of routes, and `Exchange`, which the handler of the route gets. And the
paths that a host may leave open to everyone, while its own checks cover the others.

Looking up knows no headers and no bodies. The table is in `exchange`, which also raises the 404 and 405 that
are made here.

A pattern is a path below the mount. `{model}` is a model's name and `{region}` that of a region of shared
memory. Both may hold slashes. `[/versions/{version}]` may be left out of a path. All patterns with the same
beginning have it, or none.

Specification: HTTP/REST API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, unquote

import msgspec

from .._docs.documents import FILES
from .._extensions.common import REFUSED_PATHS, RestRoute
from .._io import IO
from .._models.model import Model
from .._protocol.context import Action
from .._protocol.datatypes import Buffer
from .._protocol.errors import InferenceError, NotFound, list_names, show
from .._protocol.limits import LOOP_BYTES
from .._serving.engine import Engine
from .messages import RestFormat

T = TypeVar("T")

Handler: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
"""Takes the exchange, and the model where the pattern names one."""

_NAMED: Final = re.compile(r"(.*)\{(model|region)\}(\[/versions/\{version\}\])?(.*)")
_VERSION: Final = "(?:/versions/(?P<version>[^/]*))?"

_ANY_VERSION: Final = "[/versions/{version}]"
_VARIABLE: Final = re.compile(r"\[.*\]|\{.*?\}")
_NO_WORD: Final = re.compile(r"\W+")

MOST_CHARACTERS: Final = 2**13
"""A longer path is unknown. Servers and proxies take about as much."""


class Endpoint(msgspec.Struct):
    """What answers one path."""

    action: Action | None
    handlers: dict[str, Handler] = {}  # the handlers by method


class Template(NamedTuple):
    """A path as routes of hosts have it, and a name for the route."""

    path: str  # below the mount, such as "/models/{name}/versions/{version}/infer"
    name: str  # such as "model_infer"


class Match(msgspec.Struct, frozen=True):
    """What a path names."""

    endpoint: Endpoint  # what answers it
    name: str | None = None  # the model's name, or the region's; None where the pattern has none
    version: str | None = None  # its version; None where the path has none
    is_region: bool = False  # whether the name is a region's
    is_split: bool = False  # whether the name is made of several segments


class Routes:
    """A table of routes, sorted for looking paths up."""

    def __init__(self, table: Iterable[RestRoute]) -> None:
        endpoints: dict[str, Endpoint] = {}
        for route in table:
            endpoint = endpoints.setdefault(route.pattern, Endpoint(route.action))
            endpoint.handlers[route.method] = route.answer
            if route.method == "GET":
                endpoint.handlers["HEAD"] = route.answer
        self._fixed = {pattern: endpoint for pattern, endpoint in endpoints.items() if "{" not in pattern}
        # the longest first, as a model's own path would take all others
        named = sorted(
            (pattern for pattern in endpoints if pattern not in self._fixed), key=len, reverse=True
        )
        self._named = [(_compile_pattern(pattern), endpoints[pattern]) for pattern in named]
        self.first_segments = list(dict.fromkeys(pattern.split("/")[1] for pattern in endpoints if pattern))
        """The first segments of all paths, each once."""
        # hosts ask their routes one after the other: inference first, and a fixed path before a name that
        # could be the same
        ordered = sorted(
            endpoints,
            key=lambda pattern: (endpoints[pattern].action != "infer", "{" in pattern, len(pattern)),
        )
        self.templates = [
            template
            for pattern in ordered
            if "/docs/" not in pattern
            for template in _list_templates(pattern)
        ]
        """The paths as hosts name them, but for the files of the page. A name in them is one segment."""

    def match(self, path: str) -> Match | None:
        """What a path names; None for nothing that is in the table."""
        path = path.removesuffix("/")
        if len(path) > MOST_CHARACTERS:
            return None
        fixed = self._fixed.get(unquote(path))
        if fixed is not None:
            return Match(fixed)
        if "%" in path:  # each segment in one spelling
            path = "/".join(
                [quote(unquote(segment), safe="", errors="replace") for segment in path.split("/")]
            )
        for pattern, endpoint in self._named:
            matched = pattern.fullmatch(path)
            if matched is not None:
                named = matched.groupdict()
                name, version = named.get("model") or named.get("region") or "", named.get("version")
                # some hosts decode the encoded slash of a name before the path comes here, so a name may come
                # in several segments
                return Match(
                    endpoint, unquote(name), version and unquote(version), "region" in named, "/" in name
                )
        return None


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    before, name, has_versions, after = _NAMED.fullmatch(pattern).groups()  # type: ignore[union-attr]
    return re.compile(
        f"{re.escape(before)}(?P<{name}>.+?){_VERSION if has_versions else ''}{re.escape(after)}", re.DOTALL
    )


def _list_templates(pattern: str) -> Iterator[Template]:
    name = (
        _NO_WORD.sub("_", _VARIABLE.sub("", pattern.replace("/models/{model}", "/model"))).strip("_")
        or "server"
    )
    for version in ("", "/versions/{version}") if _ANY_VERSION in pattern else ("",):
        path = pattern.replace(_ANY_VERSION, version)
        yield Template(path.replace("{model}", "{name}").replace("{region}", "{name}"), name)


def make_method_error(method: str, handlers: Iterable[str], meant: str) -> InferenceError:
    """The error for a method that a path does not have, with `Allow`. Its text ends with what is `meant`."""
    allowed = ", ".join(handlers)
    return InferenceError(
        f"method {show(method)} is not allowed here: expected {allowed}{meant}",
        status=405,
        headers={"Allow": allowed},
    )


def make_path_error(path: str, mount: str) -> NotFound:
    """The error for a path that nothing answers."""
    mount = mount.rstrip("/")
    asked = unquote(path.removesuffix("/"))
    for pattern, why in REFUSED_PATHS:
        if pattern.fullmatch(asked):
            return NotFound(why)
    quoted = show(asked)
    return NotFound(
        f"unknown path {quoted[0]}{mount}{quoted[1:]}: expected {mount}/health/live, {mount}/health/ready, "
        f"{mount}/models, or "
        f"{mount}/models/{{name}}, with /versions/{{version}} and /ready, /stats, /config, /infer, "
        "/infer_stream, /generate or "
        f"/generate_stream behind it, or {mount}/repository/index"
        + (
            "; the application is not at /v2 here: mount it there, or leave /v2 out"
            if not mount and path.startswith("/v2/")
            else ""
        )
    )


class Exchange(msgspec.Struct, eq=False):
    """One request, as handlers get it: a `Question` that the routes of extensions may ask too, and the server
    and the request itself."""

    engine: Engine
    wire: RestFormat
    io: IO
    version: str | None = None
    region: str | None = None

    async def find_visible(self, action: Action | None = None) -> list[Model]:
        return await self.engine.find_visible(self.io, self.wire.make_access, action)

    async def read(self, decode: Callable[[Buffer], T]) -> T:
        self.wire.json_limit = None  # the files of a load are base64 in its JSON
        body = await self.wire.read(self.io)
        return (
            decode(body)
            if len(body) <= LOOP_BYTES
            else await self.io.run(partial(decode, body), "conversion")
        )


# The paths that a host may leave open

_PATHS: Final = {
    "health": r"health/(?:live|ready)|models/[\s\S]+/ready",
    "docs": rf"docs(?:/(?:{'|'.join(map(re.escape, FILES))}))?|openapi\.json",
}

HEALTH_METHODS: Final = (
    *(f"/inference.GRPCInferenceService/{method}" for method in ("ServerLive", "ServerReady", "ModelReady")),
    *(f"/grpc.health.v1.Health/{method}" for method in ("Check", "Watch")),
)
"""What "health" is over gRPC."""


def match_public(public: Sequence[str]) -> str:
    """Make the regular expression, without groups, for the paths that these words name, below the mount and
    its slash.

    Raises:
        ValueError: There is no such word.
    """
    words = list(public)
    unknown = [public] if isinstance(public, str) else [word for word in words if word not in _PATHS]
    if unknown:
        raise ValueError(f"public= takes a list of the words {list_names(_PATHS)}, but this is {public!r}")
    return rf"(?:{'|'.join(_PATHS[word] for word in words)})/?" if words else "(?!)"
