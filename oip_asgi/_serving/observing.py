"""What hears of each inference request: the numbers of its model, the log, the span that a tracer has begun,
and the observers. How a request ended is an `Outcome`.

An `InferenceError` is logged here; what a model raised is logged in `failures`. Knows no transport, no queue
and no thread.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Final, Protocol

import msgspec

from .._models.callables import STREAMS, kind_of
from .._models.model import Model, Observer
from .._models.statistics import Outcome, Statistics, Timings
from .._protocol.context import Observation
from .._protocol.errors import (
    BodyTaken,
    InferenceError,
    ModelFailed,
    NotReady,
    TimedOut,
    copy_error,
    error_text,
    escape,
    log,
    log_fields,
    logger,
    show,
)
from .._protocol.options import BOOLEAN, CALLABLE, Check, check_options, integer, is_text, number
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor, make_read_only, make_tensor
from .decoding import Decoded, WireFormat, write_columns

_UNAVAILABLE: Final = 503

_LOGGED: Final = (ModelFailed, TimedOut, BodyTaken)
"""Errors that are logged with their cause, where they are made."""

_GIVEN_UP: Final = "the request was given up: its client went, or its host ended it"
_GIVEN_UP_STATUS: Final = 499


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


# The end of a request


def end_request(
    model: Model,
    wire: WireFormat[Any],
    timings: Timings,
    span: Span | None,
    heard: Heard | None,
    ended: float,
    error: BaseException | None,
) -> None:
    """Record the end of a request: in its model's numbers, the log, its span, and for observers. A request
    without an `error` was answered."""
    outcome: Outcome = "ok" if error is None else outcome_of(error, has_entered=timings.entered > 0)
    model.statistics.record(outcome, timings, ended)
    if error is not None:
        _log_failure(model, timings, span, ended, error, outcome)
    if span is not None:
        queued = timings.started - timings.entered if timings.called else None
        span.end(outcome, timings.id, queued, error)
    if heard is not None:
        _tell_observers(model, wire, timings, heard, ended, error)


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


def _log_failure(
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


# Observers


_NAMES: Final = Check(
    'a list of names of models, such as ["churn"], or None for all',
    lambda value: isinstance(value, (list, tuple, set, frozenset)) and all(map(is_text, value)),
)


class ObserverOptions(msgspec.Struct, frozen=True, eq=False):
    """The arguments of `InferenceServer.observe`. Raises TypeError or ValueError, with what to write, if one
    cannot be."""

    function: Annotated[Callable[[Observation], Any], CALLABLE]
    models: Annotated[Collection[str] | None, _NAMES] = None
    sample: Annotated[float, number("a number above 0, and 1 at most", lambda value: 0 < value <= 1)] = 1.0
    max_queue: Annotated[int, integer(1)] = 1000
    payload: Annotated[bool, BOOLEAN] = True

    def __post_init__(self) -> None:
        if (
            not callable(self.function)
            or inspect.isclass(self.function)
            or kind_of(self.function, "thread") in STREAMS
        ):
            expected = f"{CALLABLE.expected}, which takes an Observation: no class, and nothing with yield"
            raise TypeError(f"observe: function={show(self.function)} must be {expected}")
        check_options(self, "observe: ")


class Heard(msgspec.Struct, eq=False, gc=False):  # in no reference cycle
    """What a call's observation will have, as far as it is known. Neither the model nor its caller may change
    that afterwards."""

    observers: list[Observer]  # those that want it
    request: InferenceRequest | None  # None if it was refused before it was decoded
    response: InferenceResponse | None = None  # the first, of a stream
    responses: int = 0


def begin_to_hear(model: Model, decoded: Decoded, *, is_written: bool) -> Heard | None:
    """Keep a request as it is: a model that gets all of it may change it, and if it `is_written`, somebody
    may write to its arrays.

    None if no observer wants its observation.
    """
    observers = _find_observers(model)
    if not observers:
        return None
    request, rows = write_columns(decoded.request, decoded.binding), decoded.binding.arguments.rows
    if request is None:
        request = InferenceRequest([]) if rows is None else rows.as_json.show_json(decoded.request)
    if is_written or decoded.binding.arguments.of_one_request is not None:
        inputs = _copy_tensors(request.inputs, copies_arrays=is_written)
        request = InferenceRequest(inputs, request.id, dict(request.parameters), request.outputs[:])
    return Heard(observers, request)


def hear_refusal(model: Model) -> Heard | None:
    """What observers will hear of a request that was refused before it was decoded."""
    observers = _find_observers(model)
    return Heard(observers, None) if observers else None


def _find_observers(model: Model) -> list[Observer]:
    return [observer for observer in model.observers if observer.wants_one()]


def copy_response(response: InferenceResponse) -> InferenceResponse:
    """A response that stays as it is, whatever the caller does with the other one."""
    return msgspec.structs.replace(response, outputs=_copy_tensors(response.outputs, copies_arrays=True))


def _copy_tensors(tensors: list[Tensor], *, copies_arrays: bool) -> list[Tensor]:
    return [
        make_tensor(each.name, each.array.copy() if copies_arrays else each.array, dict(each.parameters))
        for each in tensors
    ]


def _tell_observers(
    model: Model,
    wire: WireFormat[Any],
    timings: Timings,
    heard: Heard,
    ended: float,
    error: BaseException | None,
) -> None:
    request, response = heard.request, heard.response
    for tensor in [
        *(() if request is None else request.inputs),
        *(() if response is None else response.outputs),
    ]:
        # others have the same ones: the cache, other observers, and who sends the response
        make_read_only(tensor.array)
    observation = Observation(
        model.name,
        model.version,
        timings.id,
        request,
        response,
        None if error is None else _tell_error(error),
        ended - timings.since,
        time.time(),
        wire.head.transport,
        heard.responses,
    )
    for observer in heard.observers:
        observer.put(observation)


def _tell_error(error: BaseException) -> InferenceError:
    """The error of an observation. It has no traceback of ours, which would refer to all that the request
    had."""
    if isinstance(error, InferenceError):
        return copy_error(error)
    if not isinstance(error, Exception):  # a cancellation, or the like: the model has not raised it
        return InferenceError(_GIVEN_UP, status=_GIVEN_UP_STATUS)
    told = InferenceError("internal error: see the server's log", status=500)
    told.__cause__ = error
    return told
