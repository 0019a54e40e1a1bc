"""One call of a model: decode and check its request, make its arguments, call the function, take its result, encode the response.

Plain functions: which of them runs in which thread, and when, is decided in `pipeline`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from .._codecs.registry import Codecs
from .._extensions.cache import Flight
from .._extensions.reserved import check_reserved
from .._extensions.rows import Deliver
from .._extensions.shared_memory import check_data_is_sent
from .._models.binding import Binding
from .._models.handler import Handler
from .._models.limiter import Slot
from .._models.model import Model
from .._models.options import NO_TIMEOUT
from .._models.results import check_asked, select, to_response
from .._protocol.datatypes import Buffer
from .._protocol.effects import DeadlinePassed, Stopped
from .._protocol.errors import InferenceError, InvalidRequest, shown
from .._protocol.log import log_fields, log_raised
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.tensors import (
    CLASSIFICATION,
    ELSEWHERE,
    InferenceContext,
    InferenceRequest,
    InferenceResponse,
    Lend,
    Tensor,
    check_supported,
    lend_nothing,
    read_only,
)
from .copy_rule import own
from .delivery import delivery_of
from .engine import Engine
from .form import Form
from .nesting import enter, held, hold, leave, release
from .record import Span, record_end

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


_LATER: Final[Any] = None
"""What a member holds before the stage that sets it."""

_MANY: Final = 1000
"""Inputs above which they are let go before the response is encoded. Each takes 250 bytes beside its elements."""


class _NotAtOnce(Exception):
    """Inputs are in shared memory, and their size is not that of the body: a worker thread reads them."""


class ModelRaised(Exception):
    """User code raised what is its cause, or returned what cannot be a response."""

    is_logged = False
    """Whether the log has it already, as that of a batch."""


class Call(msgspec.Struct, Generic[T], eq=False):
    """One call of a model, from when its body is there.

    Args:
        engine: The server.
        model: The model.
        handler: What answers, lent by the model.
        form: How the request arrived and the response leaves.
        body: The request's body, until it is decoded.
        since: When it was there, by the engine's clock.
        seconds: How long it may take.
        deadline: When it is given up.
        span: Its span, if there is a tracer.
    """

    engine: Engine
    model: Model
    handler: Handler
    form: Form[T]
    body: Buffer | None
    since: float
    seconds: float
    deadline: float
    span: Span | None = None

    # known once it is decoded
    is_decoded: bool = False
    request: InferenceRequest = _LATER
    binding: Binding = _LATER
    tensors: dict[str, Tensor] = _LATER
    content_type: str | None = None
    delivery: Deliver | None = None
    _outputs: Sequence[RequestOutput] = ()
    _asked: dict[str, str] = {}
    _arguments: tuple[list[Any], dict[str, Any]] | None = None

    # known once it has entered
    slot: Slot = _LATER
    flight: Flight | None = None
    found: InferenceResponse | None = None
    rows: int | None = None
    """How many rows it has of a batch; None for a call of its own."""
    entered: float = 0.0
    started: float = 0.0
    called: float = 0.0
    returned: float = 0.0
    answered: float = 0.0
    lookup: float | None = None

    @property
    def is_hit(self) -> bool:
        """Whether its response was found in the cache."""
        return self.found is not None

    @property
    def id(self) -> str | None:
        """The request's identifier, None where it has none or is not decoded yet."""
        return self.request.id if self.is_decoded else None

    def decode(self, *, at_once: bool = False) -> None:
        """Decode the request, and check it against the model."""
        model = self.model
        assert self.body is not None  # each body is decoded once
        lend: Lend = lend_nothing
        if self.engine.regions.parameters:
            lend = _lend_later if at_once else self.engine.regions.lender()
        try:
            request = self.form.decode(self.body, model, lend)
        except _NotAtOnce:
            return
        self.body = None
        if request.parameters:
            self._take_parameters(request.parameters)
        is_writable = model.options.writable
        for tensor in request.inputs:
            array = tensor.array
            if tensor.parameters:
                self._check_input(tensor)
            if is_writable:
                tensor.array = array.copy()
            elif array.flags.writeable:
                read_only(array)
        if request.outputs:
            self._outputs = request.outputs.copy()  # the model may change its request
            self._check_outputs()
        if self.content_type is None:
            self.binding = self.handler.binding
            self.tensors = self.binding.names.take(request.inputs, has_content_type=False)
        else:
            self.binding = self.handler.binding_for(self.content_type)
            self.tensors = self.binding.accept(request, self.content_type)
            self.content_type = self.binding.content_type_of_tensors(self.content_type)
        self.request, self.is_decoded = request, True

    def _take_parameters(self, parameters: Parameters) -> None:
        """Check the parameters of the request, and note those that the server obeys."""
        _check_parameters(parameters, "the request", self.engine.codecs, of_request=True)
        if len(parameters) > 1 or "binary_data_output" not in parameters:  # as nearly always
            check_reserved(parameters)
        if "timeout" in parameters:
            self._shorten(parameters["timeout"])
        if "content_type" in parameters:
            self.content_type = str(parameters["content_type"])

    def _check_input(self, tensor: Tensor) -> None:
        where = f"input {shown(tensor.name)}"
        if self.engine.regions.parameters:
            check_data_is_sent(tensor.parameters, where)
        _check_parameters(tensor.parameters, where, self.engine.codecs)

    def _check_outputs(self) -> None:
        """Check the outputs that the request asks for, and note the content types that it asks for."""
        regions, is_plain = self.engine.regions, True
        for output in self._outputs:
            if output.parameters:
                supported = (CLASSIFICATION, *regions.parameters)
                _check_parameters(output.parameters, f"requested output {shown(output.name)}", self.engine.codecs, supported)
                if "content_type" in output.parameters:
                    self._asked[output.name] = str(output.parameters["content_type"])
                is_plain = is_plain and output.parameters.keys().isdisjoint(ELSEWHERE)
        if self.handler.outputs:
            check_asked(self._outputs, [spec.name for spec in self.handler.outputs])
        if not is_plain:
            self.delivery = delivery_of(self._outputs, self.handler, regions)

    def _shorten(self, asked: object) -> None:
        """Take the request's own timeout, in microseconds, where it is shorter than the model's. 0 means none."""
        if type(asked) is not int or asked < 0:
            raise InvalidRequest(f"parameters.timeout is {shown(asked)}: expected an integer, 0 or more, in microseconds")
        if 0 < asked < NO_TIMEOUT * 10**6:
            self.seconds = min(self.seconds, asked / 1e6)
            self.deadline = self.since + self.seconds

    def in_thread(self) -> T | None:
        """All of the call, in a worker thread and in its slot."""
        if not self.slot.begin():
            raise Stopped
        is_last = True
        try:
            self.started = self.engine.clock()
            is_last = self.decode_in_time()
            return self.answer_in_time(self.run if self.span is None else self.run_in_span) if is_last else None
        finally:
            self.slot.end(is_last=is_last)

    def decode_in_time(self) -> bool:
        """`decode`, where that is still to be done. False where the request asks for a shorter timeout than the trip has."""
        if self.is_decoded:
            return True
        deadline = self.deadline
        self.decode()
        return self.deadline >= deadline

    def answer_in_time(self, respond: Callable[[], InferenceResponse]) -> T:
        """The response as it leaves."""
        try:
            answer = self.encode(respond())
        except ModelRaised as error:
            if self.engine.clock() >= self.deadline:
                raise DeadlinePassed from error
            raise
        if self.answered >= self.deadline:
            raise DeadlinePassed
        return answer

    def decode_in_thread(self) -> None:
        """`decode`, and what content types make of the tensors, in a worker thread and in its slot."""
        if not self.slot.begin():
            raise Stopped
        try:
            self.started = self.engine.clock()
            self.decode()
            self._make_arguments()
        finally:
            self.slot.end(is_last=False)

    def _make_arguments(self) -> None:
        try:
            self._arguments = self.binding.arguments(self)
        except InferenceError:
            raise
        except Exception as error:
            raise ModelRaised from error

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of the function, which may have been made beside the decoding. They are taken once."""
        made, self._arguments = self._arguments, None
        return self.binding.arguments(self) if made is None else made

    def encode_in_thread(self, response: InferenceResponse, *, is_last: bool = True) -> T:
        """`encode`, in a worker thread and in its slot, which goes back behind the last response."""
        if not self.slot.begin():
            raise Stopped
        try:
            return self.encode(response)
        finally:
            self.slot.end(is_last=is_last)

    def run(self) -> InferenceResponse:
        """Call the function."""
        token = hold((*held(), (self.model, self.slot)))
        try:
            args, kwargs = self.binding.arguments(self) if self._arguments is None else self.arguments()
            self.called = self.engine.clock()
            result = self.handler.function(*args, **kwargs)
            self.returned = self.engine.clock()
            del args, kwargs
            response = self.respond(result)
            if len(self.tensors) > _MANY:
                self._forget_inputs()
            return response
        except InferenceError:
            raise
        except Exception as error:
            raise ModelRaised from error
        finally:
            release(token)

    async def run_async(self) -> InferenceResponse:
        """`run` for a coroutine function."""
        token = enter(self.model, self.slot)
        try:
            args, kwargs = self.arguments()
            self.called = self.engine.clock()
            result = await self.handler.function(*args, **kwargs)
            self.returned = self.engine.clock()
            del args, kwargs
            response = self.respond(result)
            if len(self.tensors) > _MANY:
                self._forget_inputs()
            return response
        except InferenceError:
            raise
        except Exception as error:
            raise ModelRaised from error
        finally:
            leave(token)

    def run_in_span(self) -> InferenceResponse:
        """`run`, with its span as the current one."""
        assert self.span is not None
        with self.span.active():
            return self.run()

    async def run_async_in_span(self) -> InferenceResponse:
        """`run_async`, with its span as the current one."""
        assert self.span is not None
        with self.span.active():
            return await self.run_async()

    def _forget_inputs(self) -> None:
        """Let go of the inputs, before memory is needed to encode as many outputs."""
        request = self.request
        self.request = InferenceRequest([], request.id, request.parameters, request.outputs)
        self.tensors = {}

    def respond(self, result: Any) -> InferenceResponse:
        """The response that a result is. What the model does with its memory afterwards does not change it."""
        request, model = self.request, self.model
        response = to_response(result, self.handler.answers, self._asked)
        if self._outputs:
            response.outputs = select(response.outputs, self._outputs)
        response.id, response.model_name, response.model_version = request.id, model.name, model.version
        own(response.outputs, request)
        return response

    def encode(self, response: InferenceResponse) -> T:
        """The response as it leaves."""
        if self.flight is not None:
            self.flight.keep(response, self.engine.clock())
        if self.delivery is not None:
            response = self.delivery(response)
        encoded = self.form.encode(self.request, response)
        self.answered = self.engine.clock()
        return encoded

    def columns(self) -> list[str] | None:
        """The inputs that became columns of one data frame; None where none did, or which they are is declared."""
        binding = self.binding
        if binding.request_reader is None or any(spec.name not in binding.named for spec in binding.inputs):
            return None
        return [name for name in self.tensors if name not in binding.named]

    def overriding(self) -> str | None:
        """The request's content type that made of the inputs of a declared model what is not declared, or None."""
        declared = self.handler.binding
        if self.binding is declared:
            return declared.overridden_by(self.tensors, self.content_type)
        return str(self.request.parameters["content_type"]) if declared.inputs or self.handler.outputs else None

    def noted(self, error: E, cause: BaseException | None = None) -> E:
        """Note that the call was not answered, or its stream broke off, and return why."""
        if cause is not None:
            error.__cause__ = cause
        if self.flight is not None:
            self.flight.end(error)
        record_end(self.model, self, self.span, self.engine.clock(), error)
        return error

    def context(self) -> InferenceContext:
        """What surrounds the request, for models that take it."""
        request, model = self.request, self.model
        return InferenceContext(request.id, self.form.named_headers(), request.parameters, model.name, model.version, self.form.transport)

    def log_fields(self) -> dict[str, object]:
        """The fields of a record of the log about this request."""
        return log_fields(self.model.name, self.model.version, self.id, self.engine.clock() - self.since)

    def failed_late(self, error: BaseException) -> None:
        """Log what user code raised when its request had been answered 504."""
        if isinstance(error, DeadlinePassed) and error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, ModelRaised) and not error.is_logged:
            cause = error.__cause__ or error
            log_raised(
                logging.ERROR,
                cause,
                "%s failed on the request with id %s, after its timeout",
                self.model,
                shown(self.id),
                extra=self.log_fields(),
            )


def _lend_later(_: Parameters) -> Buffer:
    raise _NotAtOnce


def _check_parameters(
    parameters: Parameters, where: str, codecs: Codecs, supported: Collection[str] = (), *, of_request: bool = False
) -> None:
    check_supported(parameters, where, supported)
    if "content_type" in parameters:
        codecs.check(parameters["content_type"], where, of_request=of_request)
