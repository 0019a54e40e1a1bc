"""What users' functions are told of a request: a model by `InferenceContext`, `authorize=` by `Access`, an
observer by `Observation`; and the headers that come with a request or leave with its answer. Knows no
transport, no queue and no thread.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, AnyStr, Final, Literal, TypeAlias, final

import msgspec

from .errors import InferenceError, is_header_value, show
from .schemas import Parameters
from .tensor_bytes import view_bytes
from .tensors import InferenceRequest, InferenceResponse, Tensor

# Headers


class ReceivedHeaders(dict[str, str]):
    """Headers by name, in lower case. Any other spelling of a name finds it too."""

    def __missing__(self, name: str) -> str:
        if name == name.lower():
            raise KeyError(name)
        return self[name.lower()]

    get = Mapping.get  # type: ignore[assignment]
    __contains__ = Mapping.__contains__


def join_repeated(headers: Iterable[tuple[AnyStr, AnyStr]], comma: AnyStr) -> dict[AnyStr, AnyStr]:
    """Headers by name. The values of a repeated header are joined by a comma."""
    lines: dict[AnyStr, list[AnyStr]] = {}
    for name, value in headers:
        lines.setdefault(name, []).append(value)
    return {name: comma.join(values) for name, values in lines.items()}


_NAME: Final = re.compile("[0-9a-z_.-]+")
"""Names that gRPC takes too, in lower case."""

_OF_THE_BODY: Final = (
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "inference-header-content-length",
)
_OF_THE_CONNECTION: Final = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "trailers", "transfer-encoding", "upgrade"),
)
_REFUSED: Final = {
    **dict.fromkeys(_OF_THE_BODY, "it says how the body is written, which the server decides"),
    **dict.fromkeys(_OF_THE_CONNECTION, "it belongs to one connection, which proxies and the server manage"),
}
"""The headers that no model can give, and why."""


class ResponseHeaders(MutableMapping[str, str]):
    """Headers by name, whatever its case. Those that cannot be sent over each transport raise ValueError when
    they are written."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self.is_sent = False
        """Whether the head of the answer has left."""

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __setitem__(self, name: str, value: str) -> None:
        key = _check_name(name)
        if not is_header_value(value):
            raise ValueError(
                f"response header {name} is {show(value)}: expected a str of printable ASCII without spaces "
                "around it"
            )
        self._check_open(name)
        self._values[key] = str.__str__(value)

    def __delitem__(self, name: str) -> None:
        self._check_open(name)
        del self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def send(self) -> list[tuple[str, str]]:
        """Return the names and values for the head of the answer. From then on nothing can be written."""
        self.is_sent = True
        return list(self._values.items())

    def _check_open(self, name: str) -> None:
        if self.is_sent:
            raise RuntimeError(
                f"response header {name} is too late, as the head of the answer has left: write it before "
                "the first item"
            )


def _check_name(name: str) -> str:
    """The name in lower case, if a model may give this header."""
    key = name.lower() if isinstance(name, str) else ""
    why = _REFUSED.get(key)
    if why is None and key.startswith("grpc-"):
        why = "it belongs to gRPC itself"
    elif why is None and key.endswith("-bin"):
        why = "gRPC has bytes under such a name"
    elif why is None and not _NAME.fullmatch(key):
        why = 'expected a name of letters, digits, "-", "_" and "."'
    if why is not None:
        raise ValueError(f"response header {show(name)} cannot be written: {why}")
    return str.__str__(key)


# A model, `authorize=` and observers


class InferenceContext(msgspec.Struct, frozen=True, eq=False):
    """What a model may want to know beside its tensors: annotate a parameter with this class to receive it.

    Args:
        id: The request's identifier, None if it has none.
        headers: The request's headers, or its metadata over gRPC; names in lower case, and any spelling finds
            them.
        parameters: The request's parameters.
        model_name: The name the model was called by.
        model_version: The version that runs, None for a model without versions.
        transport: The adapter's own object: ASGI scope, WSGI environ, Django request, gRPC context. The
            host's user, session or pool is reached through it.
        deadline: When the request is given up, by the clock of `time.monotonic()`; infinity if it has no
            timeout.
        max_body_bytes: The server's option: the most bytes of a body, None for no limit.
        response_headers: Headers of the answer, which the model may write: headers over HTTP, initial
            metadata over gRPC, for a stream until its first item. A name in any case, and a str of printable
            ASCII; writing a header that belongs to the connection or to the body, such as `Content-Length`,
            raises ValueError. Not sent with an error, which has headers of its own, in ModelStreamInfer,
            where many requests have one head, and from Python.
    """

    id: str | None
    headers: Mapping[str, str]
    parameters: Parameters
    model_name: str
    model_version: str | None
    transport: Any
    deadline: float = math.inf
    max_body_bytes: int | None = None
    response_headers: MutableMapping[str, str] = msgspec.field(default_factory=ResponseHeaders)


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


class Observation(msgspec.Struct, frozen=True, eq=False):
    """One inference that has ended, as the function of `InferenceServer.observe` gets it.

    Its arrays are read-only: other observers have the same ones, and so may the cache. To change one, copy
    it.

    Args:
        model: The model's name.
        version: Its version, None for a model without versions.
        id: The request's identifier, None if it has none, or was refused before it was decoded.
        request: The request; None if it was refused before it was decoded. Rows of a class are columns here;
            it has no inputs if rows cannot become any, such as integers beyond 64 bits.
        response: The response as the model made it, before output options such as `classification`: the first
            one of a stream. None if there was none.
        error: What the client got instead, or at the end of its stream; None if all went well. Its
            `__cause__` is what the model raised, if it did. A request that was given up, as its client went
            or its host ended it, has the status 499.
        seconds: From when the request's body was there until its end; 0.0 if it was refused before that.
        at: When it ended, in seconds since 1970 in UTC, as `time.time()` has it.
        transport: The adapter's own object, as in `InferenceContext`: ASGI scope, WSGI environ, Django
            request, gRPC context; None for a call from Python.
        responses: How many responses were made: 1 for a request that was answered, any number for a stream.
        inputs_sha256: With `payload=False`, where `request` and `response` have no tensors: a digest of the
            request's inputs, in hexadecimal digits. It is the SHA-256 of these bytes for each input, in the
            order of their names: the JSON text `["name","datatype",[shape]]` without spaces, a line feed, and
            the elements as binary tensor data has them.
    """

    model: str
    version: str | None
    id: str | None
    request: InferenceRequest | None
    response: InferenceResponse | None
    error: InferenceError | None
    seconds: float
    at: float
    transport: Any
    responses: int = 0
    inputs_sha256: str | None = None


def without_payload(observation: Observation) -> Observation:
    """An observation with a digest of the inputs instead of all tensors."""
    request, response = observation.request, observation.response
    return msgspec.structs.replace(
        observation,
        request=None if request is None else msgspec.structs.replace(request, inputs=[]),
        response=None if response is None else msgspec.structs.replace(response, outputs=[]),
        inputs_sha256=None if request is None else _digest_inputs(request.inputs),
    )


def _digest_inputs(inputs: list[Tensor]) -> str:
    digest = sha256()
    for tensor in sorted(inputs, key=lambda tensor: tensor.name):
        digest.update(
            json.dumps([tensor.name, tensor.datatype, tensor.shape], separators=(",", ":")).encode() + b"\n"
        )
        digest.update(view_bytes(tensor.array))
    return digest.hexdigest()
