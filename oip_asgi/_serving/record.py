"""What hears of an inference request beside its model's numbers: the log, and the span that a tracer has
begun. How a request ended is an `Outcome`.

An `InferenceError` is logged here; what a model raised is logged in `failures`. `end_request` of `observing`
calls what is here. Knows no transport.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from .._models.model import Model
from .._models.statistics import Outcome, Statistics, Timings
from .._protocol.errors import (
    BodyTaken,
    InferenceError,
    ModelFailed,
    NotReady,
    TimedOut,
    error_text,
    escape,
    log,
    log_fields,
    logger,
)

_UNAVAILABLE: Final = 503

_LOGGED: Final = (ModelFailed, TimedOut, BodyTaken)
"""Errors that are logged with their cause, where they are made."""


class Span(Protocol):
    """One request in a trace, which a `Tracer` has begun."""

    def active(self) -> AbstractContextManager[object]:
        """Make it the current span of this thread or task, while the model runs, and while a line about it is
        logged."""

    def end(
        self, outcome: Outcome, request_id: str | None, queued: float | None, error: BaseException | None
    ) -> None:
        """End it.

        Args:
            outcome: How the request ended: "ok", "invalid", "failed", "busy", "timeout" or "cancelled".
            request_id: Its identifier; None if it has none, or was refused before it was decoded.
            queued: How many seconds it waited for its slot; None if the model was not called.
            error: What was raised, whose `__cause__` is what the model raised, if it did. No `Exception` if
                its client went, or its host ended it; None if it was answered.
        """


class Tracer(Protocol):
    """Begins the spans of requests, for `InferenceServer.instrument`. Its methods are called where requests
    run, so they must be quick."""

    def begin(self, model: str, version: str | None) -> Span | None:
        """Begin the span of a request that has come.

        Args:
            model: The model's name.
            version: Its version, None for a model without versions.

        Returns:
            The span; None if nobody records it.
        """

    def together(
        self, model: str, version: str | None, rows: int, spans: Sequence[Span]
    ) -> AbstractContextManager[object]:
        """Begin the span of one call for several requests, which is current while the model runs.

        Args:
            model: The model's name.
            version: Its version, None for a model without versions.
            rows: How many rows the call has.
            spans: Those of the requests that have one.

        Returns:
            What is entered before the call, and left after it.
        """


def within(span: Span | None) -> AbstractContextManager[object]:
    """Make a request's span the current one, if it has one: what is logged meanwhile belongs to it."""
    return nullcontext() if span is None else span.active()


def outcome_of(error: BaseException, *, has_entered: bool) -> Outcome:
    """How a request ended that was not answered, by what was raised and whether it had a slot or waited for
    one."""
    if not isinstance(error, Exception):
        return "cancelled"
    if not isinstance(error, InferenceError):
        return "failed"
    if error.status < 500:
        return "invalid"
    if isinstance(error, TimedOut):
        return "timeout"
    return "busy" if error.status == _UNAVAILABLE and not has_entered else "failed"


def log_failure(
    model: Model,
    request: Timings,
    span: Span | None,
    ended: float,
    error: BaseException,
    outcome: Outcome,
) -> None:
    """Log that a request failed or was refused."""
    is_refused = outcome in ("invalid", "busy") or isinstance(error, NotReady)
    level, what = (logging.DEBUG, "was refused") if is_refused else (logging.ERROR, "failed")
    if (
        not isinstance(error, InferenceError)
        or isinstance(error, _LOGGED)
        or (is_refused and not logger.isEnabledFor(level))
    ):
        return
    fields = log_fields(model.name, model.version, request.id, ended - request.since)
    text = error_text(error) + ("" if error.__cause__ is None else f" ({error_text(error.__cause__)})")
    with within(span):
        log(
            "%s: a request %s with %d: %s",
            model,
            what,
            error.status,
            escape(text),
            level=level,
            extra=fields,
        )


def record_unknown(statistics: Statistics, error: InferenceError) -> None:
    """Count a request for an unknown model, or one that may not ask. All are counted as one model, because
    clients choose the names."""
    statistics.record(outcome_of(error, has_entered=False), Timings(0.0), 0.0)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            "a request was refused with %d: %s",
            error.status,
            escape(error_text(error)),
            extra=log_fields("", None, None, 0.0),
        )
