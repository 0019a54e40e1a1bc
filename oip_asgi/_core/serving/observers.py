"""What is noted at the end of each inference request: its model's numbers, its span, one line in the log. Knows no transport.

A request that was not answered is counted by `ended`, once, however it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from ..errors import InferenceError, ModelFailed, NotReady, TimedOut
from ..log import escaped, log_fields
from ..models.model import Model
from ..models.statistics import Moments, Outcome, Statistics

_logger: Final = logging.getLogger("oip_asgi")

_UNAVAILABLE: Final = 503


class Noted(Moments, Protocol):
    """What is known of a request whose body was there."""

    @property
    def id(self) -> str | None:
        """Its identifier, None where it has none or is not decoded."""

    @property
    def rows(self) -> int | None:
        """How many rows it has of a batch; None for a call of its own."""


class Span(Protocol):
    """One request in a trace."""

    def active(self) -> AbstractContextManager[object]:
        """Make it the current span of this thread or task, while the function runs."""

    def end(self, outcome: Outcome, call: Noted | None, error: BaseException | None) -> None:
        """End it.

        Args:
            outcome: How the request ended.
            call: Its call; None where it was refused before its body was there.
            error: What was raised; no `Exception` where its client went, or its host ends it; None where it was answered.
        """


class Tracer(Protocol):
    """Begins spans."""

    def begin(self, model: Model) -> Span | None:
        """The span of a request that has come; None where nobody records it."""

    def together(self, model: Model, rows: int, spans: Sequence[Span]) -> AbstractContextManager[object]:
        """The span of one call for several requests, which is current while the function runs.

        Args:
            model: The model.
            rows: The rows of all of them.
            spans: The spans of those that have one, one at least.
        """


def outcome_of(error: BaseException, *, has_entered: bool) -> Outcome:
    """How a request ended that was not answered.

    Args:
        error: What was raised; no `Exception` where its client went, or its host ends it, as by a signal.
        has_entered: Whether it had a slot or waited for one.
    """
    if not isinstance(error, Exception):
        return "cancelled"
    if not isinstance(error, InferenceError):
        return "failed"
    if error.status < 500:
        return "invalid"
    if isinstance(error, TimedOut):
        return "timeout"
    return "busy" if error.status == _UNAVAILABLE and not has_entered else "failed"


def ended(model: Model, call: Noted | None, error: BaseException, span: Span | None, clock: Callable[[], float]) -> None:
    """Note the end of a request that was not answered.

    Args:
        model: The model that was asked for.
        call: Its call; None where it ended before its body was there.
        error: Why it ended, as in `outcome_of`.
        span: Its span, if it has one.
        clock: That of its moments.
    """
    has_entered = call is not None and bool(call.entered)
    outcome = outcome_of(error, has_entered=has_entered)
    seconds = 0.0
    if call is not None:
        now = clock()
        seconds = now - call.since
        if has_entered:
            model.statistics.record_failure(outcome, call, now, call.rows)
    if not has_entered:
        model.statistics.record_refusal(outcome)
    if span is not None:
        span.end(outcome, call, error)
    if isinstance(error, InferenceError) and not isinstance(error, (ModelFailed, TimedOut)):  # those are logged with their cause
        is_refused = outcome in ("invalid", "busy") or isinstance(error, NotReady)
        level, what = (logging.DEBUG, "was refused") if is_refused else (logging.ERROR, "failed")
        if _logger.isEnabledFor(level):
            fields = log_fields(model.name, model.version, None if call is None else call.id, seconds)
            _logger.log(level, "%s: a request %s with %d: %s", model, what, error.status, escaped(str(error)), extra=fields)


def refused_unknown(statistics: Statistics, error: InferenceError) -> None:
    """Note a request whose model nobody knows: it has no numbers of its own, as its name is the client's.

    Args:
        statistics: Those of all such requests.
        error: Its answer.
    """
    statistics.record_refusal("invalid")
    if _logger.isEnabledFor(logging.DEBUG):
        _logger.debug("a request was refused with %d: %s", error.status, escaped(str(error)), extra=log_fields("", None, None, 0.0))
