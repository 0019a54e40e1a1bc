"""One request among those that share a call, and its call where it shares it with none."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any, Generic, Protocol, TypeVar, final

from ..errors import ModelFault
from ..limits import ON_LOOP
from ..models.batches import Waiting
from ..tensors import InferenceResponse
from .batch_rows import check_rows
from .call import Call, ModelRaised
from .nesting import Held, enter_within, held

T = TypeVar("T")


class Shared(Protocol):
    """The call that requests share."""

    def left(self) -> None:
        """One of the requests was answered, or given up."""


@final
class Member(Generic[T]):
    """One request among those that share a call.

    Args:
        call: The request.
    """

    __slots__ = ("_error", "answer", "call", "execution", "has_left", "held", "is_done", "response", "rows", "waiting", "wake")

    def __init__(self, call: Call[T]) -> None:
        self.call = call
        self.rows: int | None = None
        self.held: Held = held()
        self.waiting: Waiting | None = None
        self.execution: Shared | None = None
        self.wake: Callable[[], object] = _nothing
        """Called when it is done."""
        self.is_done = False
        self.has_left = False
        self.response: InferenceResponse | None = None
        self.answer: T | None = None
        self._error: Exception | None = None

    @property
    def has_outcome(self) -> bool:
        """Whether it has a response, or an error."""
        return self.response is not None or self._error is not None

    def fail(self, error: Exception) -> None:
        """Note why it is not answered."""
        self._error = error

    def taken(self) -> InferenceResponse:
        """Its response; or raises why there is none."""
        error, self._error = self._error, None  # its traceback knows this: together they would live until the next garbage collection
        if error is None:
            assert self.response is not None  # it is done
            return self.response
        try:
            raise error
        finally:
            del error

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self.has_left = True
        self._error = self.waiting = None  # these know it, as its execution does: cycles else
        execution, self.execution = self.execution, None
        if execution is not None:
            execution.left()


def is_long(call: Call[Any], response: InferenceResponse) -> bool:
    """Whether a response takes long to encode, or is delivered otherwise than in the answer: that is for a worker thread."""
    return call.delivery is not None or call.form.encoding_cost(call.request, response) > ON_LOOP


def run_alone(member: Member[Any]) -> InferenceResponse:
    """The call of a function for one request, in the thread that encodes its response within the slot. It costs little more than one of a
    model without batches: 4 instead of 17 microseconds.

    Raises:
        InferenceError: As `Call.run`.
        ModelRaised: As `Call.run`.
    """
    call, rows = member.call, member.rows
    call.started = call.engine.clock()
    call.called = call.returned = 0.0
    try:
        response: InferenceResponse = Context().run(_run_within, call, member.held)
        if rows is not None:
            for tensor in response.outputs:
                check_rows(tensor.name, tensor.array.shape, rows)
    except ModelFault as fault:
        raise ModelRaised from fault
    finally:
        if rows == 1:
            call.rows = None  # it is counted as one of a model without batches
        elif call.called:
            infer, made = None, 0.0
            if call.returned:
                infer, made = call.returned - call.called, call.engine.clock() - call.returned
            call.model.statistics.record_execution(call.rows or 0, call.called - call.started, infer, made)
    return response


def _run_within(call: Call[Any], within: Held) -> InferenceResponse:
    enter_within(within)
    return call.run() if call.span is None else call.run_in_span()


def _nothing() -> None:
    pass
