"""The end of each inference request, told to all that hear of it: the numbers of its model, the log, its span
and the observers. Knows no queue and no thread.

`Heard` keeps what an observation needs while the call goes on. Neither the model nor its caller may change
that afterwards.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection
from typing import Annotated, Any, Final

import msgspec

from .._models.callables import STREAMS, kind_of
from .._models.model import Model, Observer
from .._models.statistics import Outcome, Timings
from .._protocol.context import Observation
from .._protocol.errors import InferenceError, copy_error, show
from .._protocol.options import BOOLEAN, CALLABLE, Check, check_options, integer, is_text, number
from .._protocol.tensors import InferenceRequest, InferenceResponse, Tensor, make_read_only, make_tensor
from .decoding import Decoded, WireFormat, write_columns
from .record import Span, log_failure, outcome_of

_GIVEN_UP: Final = "the request was given up: its client went, or its host ended it"
_GIVEN_UP_STATUS: Final = 499

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
    """What a call's observation will have, as far as it is known."""

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
        log_failure(model, timings, span, ended, error, outcome)
    if span is not None:
        queued = timings.started - timings.entered if timings.called else None
        span.end(outcome, timings.id, queued, error)
    if heard is not None:
        _tell_observers(model, wire, timings, heard, ended, error)


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
