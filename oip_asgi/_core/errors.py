"""What can go wrong, and the HTTP status each error carries. Knows no transport: who renders an error decides its bytes."""

from __future__ import annotations

from collections.abc import Mapping

_SHOWN = 100


def shown(value: object) -> str:
    """`repr` of something a client sent, cut so that a megabyte of name stays a line in an answer."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


class InferenceError(Exception):
    """An error whose text the client may read: every transport answers it with its status and `{"error": message}`.

    Raise it from a model to speak to the client; any other exception of a model is logged and answered 500
    without its text.

    Args:
        message: What was wrong, where, and what was expected.
        status: The HTTP status, 400 to 599.
        headers: HTTP headers that belong to the status, such as `Allow`.

    Raises:
        ValueError: `status` is not an error's status.

    Specification: Inference Response JSON Error Object.
    """

    status: int = 400

    def __init__(self, message: str, *, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers or {}
        if status is not None:
            if not 400 <= status <= 599:
                raise ValueError(f"InferenceError(status={status}): an error's HTTP status is 400 to 599")
            self.status = status


class InvalidRequest(InferenceError):
    """The request itself is wrong; sending it again will not help."""


class NotFound(InferenceError):
    status = 404


class MethodNotAllowed(InferenceError):
    status = 405


class LengthRequired(InferenceError):
    status = 411


class TooLarge(InferenceError):
    status = 413


class UnsupportedEncoding(InferenceError):
    status = 415


class ModelFailed(InferenceError):
    """The model's code raised, or returned what cannot be an answer. Says no more than which model."""

    status = 500


class NotReady(InferenceError):
    status = 503


class Busy(InferenceError):
    """As many calls run and wait as may; sending it again later will help."""

    status = 503


class TimedOut(InferenceError):
    status = 504


class ModelFault(Exception):
    """What a model returned cannot be answered. Its text is for the log: it becomes a `ModelFailed` for the client."""
