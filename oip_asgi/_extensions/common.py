"""What the rest of the package knows of Triton's extensions without any of them: the parameters of requests
that they reserve; the forms in which they give routes, methods, and functions that change responses; and
which of them are refused, and why.

Knows no extension, no models, no transport and no library of protobuf. `timeout` is checked in
`_serving.decoding`. Parameters of sequences reach the model, and change nothing here.

Specification: Triton's Sequence, Schedule Policy and Generate Extensions; `triton_` begins the names that it
reserves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from .._io import IO
from .._protocol.context import Action
from .._protocol.datatypes import Buffer
from .._protocol.errors import InferenceError, InvalidRequest, find_near, list_names, show
from .._protocol.limits import MAX_QUESTION
from .._protocol.tensors import ELSEWHERE, InferenceResponse

T = TypeVar("T")

WANTS_FINAL: Final = "triton_enable_empty_final_response"
"""Whether a stream ends with a response without outputs, which says that it is the last one."""

FINAL: Final = "triton_final_response"
"""The parameter of a response that says so."""

_FLAG: Final = ((bool,), "true or false")
_EXPECTED: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "sequence_id": ((int, str), "an integer, 0 or more, or a string"),
    "sequence_start": _FLAG,
    "sequence_end": _FLAG,
    "priority": ((int,), "an integer, 0 or more"),
    WANTS_FINAL: _FLAG,
}
"""The types of each parameter. Integers have 64 bits, and no sign."""

OF_TREATMENT: Final = frozenset({*_EXPECTED, "timeout", "binary_data_output"})
"""Parameters that say how a request is treated, not what is computed."""

OF_PROTOCOL: Final = OF_TREATMENT | {"content_type", "headers", *ELSEWHERE}
"""Parameters that mean something else than an argument of the model."""

_RESERVED: Final = "triton_"


def check_parameters(
    parameters: Mapping[str, object], scalars: Collection[str], refused: Collection[str]
) -> None:
    """Check a request's parameters. The model reads its `scalars` there; other parameters of its callable are
    `refused`.

    If it has scalars, and reads no others, an unknown name may be a misspelled one, which would keep its
    default.
    """
    for name, value in parameters.items():
        if name in _EXPECTED:
            kinds, expected = _EXPECTED[name]
            if type(value) not in kinds or (type(value) is int and not 0 <= value < 2**64):
                raise InvalidRequest(f"parameters.{name} is {show(value)}: expected {expected}")
        elif name.startswith(_RESERVED):
            raise InvalidRequest(
                f"parameters[{show(name)}] is unknown, and names that begin with {_RESERVED} are reserved: "
                "leave it out"
            )
        elif name in scalars or name in OF_PROTOCOL:
            continue
        elif name in refused:
            raise InvalidRequest(
                f"parameters[{show(name)}]: the model reads only what it annotates float, int, bool or str "
                "from there: send an input, or "
                "leave it out"
            )
        elif scalars:
            near = find_near(name, scalars)
            hint = "" if near is None else f"; did you mean {show(near)}?"
            raise InvalidRequest(
                f"unknown parameter {show(name)}: expected {list_names(sorted(scalars))}{hint}"
            )


class Question(Protocol):
    """A request over HTTP, as the function of a route gets it."""

    version: str | None  # the model's version in its path; None if the path has none
    region: str | None  # the region of shared memory in its path; None if the path has none
    io: IO  # what it waits with

    def find_visible(self, action: Action | None = None) -> Coroutine[Any, Any, list[Any]]:
        """Find the models that the client may see in lists, and with which it may do `action`."""

    def read(self, decode: Callable[[Buffer], T]) -> Coroutine[Any, Any, T]:
        """Read its body and `decode` it, in a worker thread if it is long."""


class RestRoute(NamedTuple):
    """One method of HTTP at one path, and what answers it: a row of the table of routes."""

    method: str  # the HTTP method. HEAD is answered where GET is.
    pattern: str  # the path, as `routes` has it
    answer: Callable[..., Any]
    """Takes the server and the `Question`, and the model if the pattern names one. Returns the document to
    send, or None. In the table itself, it takes the exchange, and the model, and returns the response."""
    action: Action | None = None
    """What it does with the model that it names, or with shared memory; None if nobody is asked whether that
    is allowed."""


ApplyOptions: TypeAlias = Callable[[InferenceResponse], InferenceResponse]
"""Applies a request's output options to its response, before it is encoded."""


class GrpcMethod(NamedTuple):
    """One method of gRPC, and what answers it."""

    answer: Callable[..., Any]
    """Takes the server and the request message, and returns the response as a document, or None. If it lists
    models, it takes those that the client may see, and with which it may do the action. A coroutine function
    takes the `IO` in the end."""
    action: Action | None = None  # as in `RestRoute`
    lists_models: bool = False


GrpcMethods: TypeAlias = Mapping[str, GrpcMethod]
"""The methods by name."""


def decode_question(
    body: Buffer | str, kind: type[T], most: int | None = MAX_QUESTION, wrong: str = "the body cannot be read"
) -> T:
    """Decode JSON of at most `most` bytes; None means no limit. The text of an error begins with `wrong`."""
    if most is not None and len(body) > most:
        raise InvalidRequest(f"the body has {len(body)} bytes: expected {most} at most")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidRequest(f"{wrong}: {error}") from None


def read_parameters(parameters: Any, where: str, others: str) -> dict[str, Any]:
    """The parameters in a message of gRPC. `others` ends the list of the fields that a value may be in."""
    read: dict[str, Any] = {}
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is None:
            raise InvalidRequest(
                f"{where}[{show(name)}] has no value: expected bool_param, int64_param, string_param{others}"
            )
        read[name] = getattr(parameter, choice)
    return read


_NO_TRACE_SETTINGS: Final = (
    "trace settings are not supported: trace requests with OpenTelemetry in the application"
)
_NO_LOG_SETTINGS: Final = "log settings are not supported: set up Python's logging in the application"
_NO_CUDA: Final = (
    "CUDA shared memory is not supported: send the tensors in the request, or use system shared memory"
)


def _refuse(why: str, *_: Any) -> None:
    raise InferenceError(why, status=501)


REFUSED_PATHS: Final = (
    (re.compile("(/models/.+)?/trace/setting"), _NO_TRACE_SETTINGS),
    (re.compile("/logging"), _NO_LOG_SETTINGS),
    (re.compile("/cudasharedmemory/.+"), _NO_CUDA),
)
"""Paths that are not found, and why. `shared_memory` answers requests to unregister CUDA's shared memory."""

REFUSED_METHODS: Final[GrpcMethods] = {
    "TraceSetting": GrpcMethod(partial(_refuse, _NO_TRACE_SETTINGS)),
    "LogSettings": GrpcMethod(partial(_refuse, _NO_LOG_SETTINGS)),
    "CudaSharedMemoryStatus": GrpcMethod(partial(_refuse, _NO_CUDA), "shared_memory"),
    "CudaSharedMemoryRegister": GrpcMethod(partial(_refuse, _NO_CUDA), "shared_memory"),
}
