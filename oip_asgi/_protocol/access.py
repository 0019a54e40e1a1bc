"""What a client wants to do with a model, as `authorize=` is asked about it. Knows no transport and no
model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, final

Action: TypeAlias = Literal[
    "infer", "metadata", "ready", "config", "statistics", "load", "unload", "shared_memory"
]
Protocol: TypeAlias = Literal["rest", "grpc"]

CHANGES: Final[frozenset[Action]] = frozenset({"load", "unload", "shared_memory"})
"""The actions that change something on the server, if they are asked for by POST."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@final
class Access:
    """One action of a client on a model, for which `InferenceServer(authorize=...)` is called.

    In tests of your own function, make one by hand: `Access("infer", "iris", headers={"x-api-key":
    "s3cret"})`.

    Args:
        action: What the client wants to do: "infer", also for `generate`, streams, and each message of
            ModelStreamInfer; "metadata", "ready", "config" or "statistics"; "load" or "unload"; or
            "shared_memory", for all that concerns it.
        model: The model's name, decoded, as the request names it: there may be no such model. None if the
            request names none.
        version: Its version, as the request names it. None if the request names none.
        headers: The request's headers, or its metadata over gRPC; names in lower case, and any spelling finds
            them. A function that makes them is called only if somebody reads them.
        transport: The adapter's own object, as in `InferenceContext`: ASGI scope, WSGI environ, Django
            request, gRPC context.
        protocol: "rest", or "grpc" for gRPC and gRPC-Web.
    """

    __slots__ = ("_headers", "action", "model", "protocol", "transport", "version")

    def __init__(
        self,
        action: Action,
        model: str | None = None,
        version: str | None = None,
        *,
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]] = NO_HEADERS,
        transport: Any = None,
        protocol: Protocol = "rest",
    ) -> None:
        self.action = action
        self.model = model
        self.version = version
        self.transport = transport
        self.protocol = protocol
        self._headers = headers

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers by name, in lower case."""
        if not isinstance(self._headers, Mapping):
            self._headers = self._headers()
        return self._headers

    def __repr__(self) -> str:
        return f"<Access: {self.action} {self.model!r}, version {self.version!r}, over {self.protocol}>"


MakeAccess: TypeAlias = Callable[[Action, str | None, str | None], Access]
"""Makes the `Access` of one request for an action, a model and a version."""
