"""What is said of what goes wrong. To the client: the errors, the HTTP status of each, unless another one is
given where it is raised, and the gRPC code of each status. To the log: what users' code raised or returned,
so that no text in it can forge a record.

Knows no requests, no transport and no gRPC library: who renders an error decides its bytes.

Specification: gRPC, Error.
"""

from __future__ import annotations

import copy
import difflib
import logging
import re
import traceback
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

_CODES: Final[Mapping[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""Any other status is INVALID_ARGUMENT below 500, where the request is at fault, and INTERNAL above."""


def find_code(status: int) -> str:
    return _CODES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")


def find_status(code: str) -> int:
    """The inverse of `find_code`, for a code of any server."""
    status = next((status for status, name in _CODES.items() if name == code), None)
    return status or (400 if code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE") else 500)


E = TypeVar("E", bound=Exception)

_SHOWN: Final = 100
"""Characters of what a client sent that an answer or the log shows."""

_LISTED = 10
_COMPARED = 100
"""How many names an unknown one is compared with, and how many characters it may have for that."""

HEADER_NAME: Final = re.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What HTTP takes for the name of a header."""

IS_A_STREAM: Final = "answers with a stream: use"
"""In the text that refuses a request for one response of a model that streams. A client finds it there."""

_OURS: Final = frozenset({"content-length", "content-type", "transfer-encoding"})
"""Headers that each answer has already."""


def show(value: object) -> str:
    """`repr` of something that a client sent, cut to one line of an answer."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def list_names(names: Collection[str]) -> str:
    """Names for an answer: the first of them if there are many."""
    first = ", ".join(show(name) for name in list(names)[:_LISTED])
    return first if len(names) <= _LISTED else f"{first} and {len(names) - _LISTED} more"


def find_near(name: str, names: Collection[str], likeness: float = 0.7) -> str | None:
    """Find the name that was probably meant, in upper or lower case. None if no name is similar enough."""
    folded = {each.casefold(): each for each in list(names)[:_COMPARED]}
    near = difflib.get_close_matches(name.casefold(), folded, 1, likeness) if len(name) <= _COMPARED else []
    return folded[near[0]] if near else None


def describe_expected(names: Collection[str], near: str | None) -> str:
    """Say which names are expected instead of an unknown one, and which of them was probably meant."""
    return (
        "expected "
        f"{list_names(names)}{f'; did you mean {show(near)}?' if near is not None and len(names) > 1 else ''}"
    )


def is_header_value(value: object) -> bool:
    """Whether every transport can send a value of a header."""
    return isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip()


def error_text(error: BaseException, write: Callable[[BaseException], str] = str) -> str:
    """The text of an exception. A user's class may fail to make it."""
    try:
        return write(error)
    except Exception:
        return f"{type(error).__name__}, whose text cannot be made"


def client_text(error: InferenceError) -> str:
    """The text of an error as it is sent."""
    # a lone surrogate, which only a model's own message can hold, is no UTF-8
    text = error_text(
        error, lambda error: error.describe() if isinstance(error, ErrorResponse) else str(error)
    )
    return text.encode(errors="replace").decode()


class InferenceError(Exception):
    """An error whose text the client may read: over HTTP its status and `{"error": message}`, over gRPC its
    code and the message.

    Raise it from a model to speak to the client; any other exception of a model is logged and answered 500
    without its text.

    Args:
        message: What was wrong, where, and what was expected.
        status: The HTTP status, 400 to 599. The gRPC code follows from it.
        headers: HTTP headers that belong to the status, such as `Allow`.

    Raises:
        ValueError: `status` is not an error's status, or a header cannot be sent.

    Example:
        >>> raise InferenceError("the image has no face", status=422)
        Traceback (most recent call last):
        oip_asgi._protocol.errors.InferenceError: the image has no face

    Specification: Inference Response JSON Error Object.
    """

    status: int = 400
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, message: str, *, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status
        if headers is not None:
            self.headers = headers
        if not isinstance(self.status, int) or not 400 <= self.status <= 599:
            raise ValueError(
                f"{type(self).__name__}: status {self.status!r} is not the status of an error: expected 400 "
                "to 599"
            )
        for name, value in self.headers.items():
            if not isinstance(name, str) or not HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
                raise ValueError(f"{type(self).__name__}: {name!r} is no name of a header that can be added")
            if not is_header_value(value):
                raise ValueError(
                    f"{type(self).__name__}: header {name} is {value!r}: expected printable ASCII without "
                    "spaces around it"
                )

    @property
    def grpc_code(self) -> str:
        """The name of the gRPC status code."""
        return find_code(self.status)


def copy_error(error: E) -> E | InferenceError:
    """The same error without a traceback, for one more caller."""
    copied: E | InferenceError
    try:
        copied = copy.copy(error)
    except Exception:  # its class cannot be copied
        assert isinstance(error, InferenceError)  # others can
        copied = InferenceError(error_text(error), status=error.status, headers=error.headers)
    copied.__cause__ = error.__cause__
    return copied


SOON: Final[Mapping[str, str]] = {"Retry-After": "1"}
"""The header of a 503 that will pass. How long a model takes is not known here, so this only keeps clients
from asking again at once."""


class InvalidRequest(InferenceError):
    """The request itself is wrong, such as a wrong datatype: 400. Sending it again will not help."""


class Forbidden(InferenceError):
    """The client may not do that: the server is not set up for it, or `authorize=` has refused it."""

    status = 403


class NotFound(InferenceError):
    """There is no such path, model or version."""

    status = 404


class TooLarge(InferenceError):
    """The body is above the server's limit."""

    status = 413


class ModelFailed(InferenceError):
    """The model's code raised, or returned what cannot be an answer. Says no more than which model."""

    status = 500


class Reader(NamedTuple):
    """What of the application may have read a request's body, for the log."""

    name: str
    instead: str  # the expression that reads the body and keeps it for others


TakenBy: TypeAlias = Callable[[], Reader]
"""Finds what has read a body. It is called only if that is to be logged."""


class BodyTaken(InferenceError):
    """Something of the application has read the body before the protocol could: 500. The log says what it
    was, and what to write."""

    status = 500


class NotReady(InferenceError):
    """The model does not serve: it is loading, failed to load, was unloaded, or the server stops."""

    status = 503


class NotYet(NotReady):
    """What a `load=` raises if another server is not there yet: the load is tried again. Its cause is for the
    log."""


class Busy(InferenceError):
    """All slots are taken, and the queue is full: sending it again later will help."""

    status = 503


class TimedOut(InferenceError):
    """The model did not answer within its timeout, or the request's."""

    status = 504


class InvalidResponse(InferenceError):
    """What a server answered to a client of this package is an error, or no inference response.

    Its status, 502, is for models that call other servers: their own clients are answered "bad gateway".
    """

    status = 502


class ErrorResponse(InvalidResponse):
    """What a server answered to a client of this package is an error.

    Args:
        text: The error's text, of a server of any kind: of `{"error": ...}`, `{"detail": ...}`, or the body
            itself, cut if it is long.
        response_status: The HTTP status of the response; None if it is not known.

    `response_headers` are the headers of the response by their names in lower case, such as "retry-after".

    `status` is 502, "bad gateway": if a model calls another server and does not catch this error, its own
    clients are answered so.
    """

    def __init__(self, text: str, response_status: int | None = None) -> None:
        super().__init__(text)
        self.args = (text, response_status)  # it is made of these again if a process sends it to another
        self.text = text
        self.response_status = response_status
        self.response_headers: Mapping[str, str] = {}
        self.hint = ""
        """What was sent, and what may be wrong with it. Clients of a model that calls another server do not
        get it."""

    def __str__(self) -> str:
        return f"{self.describe()} ({self.hint})" if self.hint else self.describe()

    def describe(self) -> str:
        outcome = (
            "with an error" if self.response_status is None else f"with the status {self.response_status}"
        )
        return (
            f"the server answered {outcome}: {self.text}" if self.text else f"the server answered {outcome}"
        )


class ModelFault(Exception):
    """What a model returned cannot be answered. Its text is for the log: it becomes a `ModelFailed` for the
    client."""


# The log

logger: Final = logging.getLogger("oip_asgi")

_NO_ASCII_TEXT: Final = re.compile("[^ -~]")
_INDENT: Final = "    "
_PACKAGE: Final = __file__.rpartition("_protocol")[0]
"""What the names of this package's files begin with."""


def log(
    message: str, *values: object, level: int = logging.ERROR, extra: Mapping[str, object] | None = None
) -> None:
    """Log one line."""
    path, line, function, _ = logger.findCaller(stacklevel=2)
    _write(logger.makeRecord(logger.name, level, path, line, message, values, None, function, extra))


def _write(record: logging.LogRecord) -> None:
    level, last = record.levelno, logging.lastResort  # the handler of last resort writes to stderr
    if logger.disabled and last is not None and level >= logging.ERROR and level > logger.manager.disable:
        last.handle(record)
    elif logger.isEnabledFor(level):
        logger.handle(record)


def log_raised(
    error: BaseException, message: str, *values: object, extra: Mapping[str, object] | None = None
) -> None:
    """Log what users' code raised, without the frames of this package around it. If only its result was
    wrong, that is one line.

    Texts of exceptions hold what clients sent, so a traceback may hold any character. Each of its lines is
    indented, so that none looks like a record of its own, and characters that cannot be printed are escaped.
    Handlers that read `exc_info` get it unchanged.
    """
    path, line, function, _ = logger.findCaller(stacklevel=2)
    text, is_foreign = format_traceback(error)
    is_one_line = isinstance(error, ModelFault) and not is_foreign
    if is_one_line:
        message, values = f"{message}: %s", (*values, escape(str(error)))
    raised = None if is_one_line else (type(error), error, error.__traceback__)
    record = logger.makeRecord(
        logger.name, logging.ERROR, path, line, message, values, raised, function, extra
    )
    # logging's own formatter prints this, if it is there, instead of a text made of exc_info
    record.exc_text = None if is_one_line else text
    _write(record)


def log_fields(model: str, version: str | None, request_id: str | None, seconds: float) -> dict[str, object]:
    """The fields of a record about one request, for `extra=`: `oip_model`, `oip_version`, `oip_request_id`
    and `oip_seconds`."""
    known_id = None if request_id is None else escape(request_id[:_SHOWN])
    return {"oip_model": model, "oip_version": version, "oip_request_id": known_id, "oip_seconds": seconds}


def name_request(request_id: str | None) -> str:
    """What the log calls a request."""
    return "a request" if request_id is None else f"the request with id {show(request_id)}"


def escape(text: str) -> str:
    """Escape the characters of a text that cannot be printed, also line breaks."""
    return _NO_ASCII_TEXT.sub(
        lambda at: at[0] if at[0].isprintable() else at[0].encode("unicode_escape").decode(), text
    )


def format_traceback(error: BaseException) -> tuple[str, bool]:
    """The traceback of an exception, of its causes and of its groups, as lines that are indented and
    printable. It begins with the first frame that is not of this package. Returns it, and True if there is
    such a frame."""
    shown = traceback.TracebackException.from_exception(error)
    is_foreign = _leave_out_own(shown)
    text = "".join(shown.format())
    return "\n".join(_INDENT + escape(line) for line in text.rstrip("\n").split("\n")), is_foreign


def _leave_out_own(shown: traceback.TracebackException) -> bool:
    own = [frame.filename.startswith(_PACKAGE) for frame in shown.stack]
    is_foreign = not all(own)
    if is_foreign:
        del shown.stack[: own.index(False)]
    context = None if shown.__suppress_context__ else shown.__context__
    for other in (shown.__cause__, context, *(shown.exceptions or ())):
        is_foreign |= other is not None and _leave_out_own(other)
    return is_foreign
