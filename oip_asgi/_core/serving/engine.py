"""What a server can be asked, in values that belong to no transport: REST and gRPC share it. Knows no HTTP and no JSON.

Questions that reach user code are generators of steps; see `steps`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from ..codecs.registry import Codecs
from ..effects import Call, DeadlinePassed, Steps, Stopped, Wait, no_coroutine
from ..errors import Busy, InferenceError, InvalidRequest, ModelFailed, ModelFault, NotReady, TimedOut, shown
from ..log import log_raised
from ..models.binding import Binding
from ..models.loading import Loading
from ..models.model import ENDLESS, Accepted, Model, Models
from ..models.results import check_asked, select, to_response
from ..outlines import Received
from ..rest import schemas
from ..rest.schemas import Parameters, RequestOutput
from ..tensors import UNSUPPORTED, InferenceContext, InferenceRequest, InferenceResponse, Tensor, check_supported, lasting, read_only
from .limiter import Place

EXTENSIONS: Final = ("binary_tensor_data",)

_CHECKED: Final = frozenset({*UNSUPPORTED, "content_type"})

_OF_ANOTHER_TYPE: Final = (AttributeError, LookupError, ModelFault, TypeError, ValueError)
"""What a model raises, or its result is, where its argument is of a type that it was not written for."""

_RETRY: Final = {"Retry-After": "1"}
"""In seconds. How long a model takes is its own affair, so this only keeps clients from asking again at once."""

_logger: Final = logging.getLogger("oip_asgi")


class Caller(Protocol):
    """Who asks, in whatever way."""

    @property
    def transport(self) -> Any:
        """The way in's own object."""

    def named_headers(self) -> Mapping[str, str]:
        """The request's headers by name, in lower case."""


class Server:
    """The protocol without any transport. Its arguments are those of `InferenceServer`."""

    def __init__(self, name: str, version: str, *, max_body_bytes: int | None, ready_when_empty: bool, debug: bool, codecs: Codecs) -> None:
        self.name = name
        self.version = version
        self.max_body_bytes = max_body_bytes
        self.ready_when_empty = ready_when_empty
        self.debug = debug
        self.codecs = codecs
        self.models = Models()
        self.loading = Loading(self.models)
        self.stopping = False

    def metadata(self) -> schemas.ServerMetadata:
        """The server's metadata."""
        return schemas.ServerMetadata(self.name, self.version, list(EXTENSIONS))

    def is_ready(self) -> Steps[bool]:
        """Whether every model is ready, and there is one."""
        if self.stopping:
            return False
        models = list(self.models)
        if not models:
            return self.ready_when_empty
        for model in models:
            if not (yield from self.is_model_ready(model)):
                return False
        return True

    def is_model_ready(self, model: Model) -> Steps[bool]:
        """Whether a model is loaded, and says that it is ready where it was given a `ready=`."""
        if self.stopping:
            return False
        yield from self._settle(model)
        if model.state != "ready":
            return False
        if model.ready is None:
            return True
        try:
            return bool(no_coroutine((yield Call.aside(model.ready))))
        except Exception as error:
            log_raised(logging.ERROR, error, "%s: ready= raised, so it counts as not ready", model)
            return False

    def is_open(self, model: Model) -> bool:
        """Whether `admit` would let a request in at once, as nearly always. What is asked here is asked there too."""
        return model.state == "ready" and not self.stopping and not model.gate.is_full()

    def admit(self, model: Model) -> Steps[None]:
        """Let a request in before its body is read, as soon as the model is loaded.

        Raises:
            NotReady: The model is loading, or its load failed, or the server stops.
            Busy: As many of its calls run and wait as may.
        """
        if self.stopping:
            raise _stopping(model)
        if model.state != "ready":
            yield from self._settle(model)
        if model.state != "ready":
            reason = "its load failed, see the server's log" if model.state == "failed" else "it is still loading"
            raise NotReady(f"{model} is not ready: {reason}")
        if model.gate.is_full():
            raise _busy(model)

    def enter(self, model: Model) -> Place:
        """Take a place for a request whose body is complete, so that slow ones hold nothing. To be given up in the end.

        Raises:
            NotReady: The server stops.
            Busy: As many calls of the model run and wait as may.
        """
        if self.stopping:
            raise _stopping(model)
        place = model.gate.enter()
        if place is None:
            raise _busy(model)
        return place

    def infer(self, model: Model, place: Place, received: Received, caller: Caller) -> Steps[InferenceResponse]:
        """Run a model, with one call of user code at most.

        Args:
            model: A model that has admitted the request.
            place: What it gave the request.
            received: The decoded request. Arrays that can be written to become read-only here, unless the model asked for writable ones.
            caller: Who asks, for models that want their context.

        Raises:
            InferenceError: The request does not fit the model, the model raised one, failed, or took too long.
        """
        request, outline = received.request, received.outline
        accepted = None if outline is None else model.accepted.get(outline)
        if accepted is None:
            accepted, tensors = self._accept(model, received)
        else:
            tensors = {tensor.name: tensor for tensor in request.inputs}
        for tensor in tensors.values():
            if model.writable:
                tensor.array = tensor.array.copy()
            elif tensor.array.flags.writeable:
                read_only(tensor.array)
        call = _ModelCall(place, model, accepted.binding, tensors, accepted.content_type, request, request.outputs, accepted.asked, caller)
        seconds = accepted.seconds
        deadline = place.since + seconds
        try:
            if place.turn is not None:
                yield Wait(place.turn, deadline, for_client=True)
            make = call.make_async if model.run == "async" else call.make
            late = None if seconds == math.inf else partial(_failed_late, model, request)
            response: InferenceResponse = yield Call(make, model.run, deadline=deadline, for_client=True, late=late)
        except InferenceError:
            raise
        except DeadlinePassed as passed:
            raise self._too_late(model, request, seconds, passed.__cause__) from None
        except Stopped:
            raise _stopping(model) from None
        except Exception as error:
            raise self._failure(model, call, error) from error
        response.id, response.model_name, response.model_version = request.id, model.name, model.version
        return response

    def _accept(self, model: Model, received: Received) -> tuple[Accepted, dict[str, Tensor]]:
        """Hold a request against its model, and find the tensors that it is called with."""
        request = received.request
        _check_parameters(request, self.codecs)
        said = request.parameters.get("content_type")
        content_type = None if said is None else str(said)
        binding = model.binding_for(content_type)
        seconds = _seconds(model, request)
        tensors = binding.accept(request, content_type)
        outputs = request.outputs
        if outputs and model.outputs:
            check_asked(outputs, [spec.name for spec in model.outputs])
        accepted = Accepted(binding, binding.content_type_of_tensors(content_type), seconds, _asked_types(outputs) if outputs else {})
        if received.outline is not None:
            # content types rename and reshape inputs, of each request anew
            is_renamed = content_type is not None or any("content_type" in tensor.parameters for tensor in request.inputs)
            if not is_renamed:
                model.remember(received.outline, accepted)
        return accepted, tensors

    def stop(self, seconds: float) -> Steps[None]:
        """Let no new request in, and give those that are in so many seconds to finish. Those that wait for their turn then never have it.

        `stopped` ends that state.
        """
        self.stopping = True
        deadline = time.monotonic() + seconds
        for model in self.models:
            try:
                yield Wait(model.gate.empty(), deadline)
            except DeadlinePassed:
                model.gate.turn_away(Stopped)
                _logger.warning("%s still runs %g seconds after the server was told to stop, so it is left behind", model, seconds)

    def stopped(self) -> None:
        """Nothing runs any more; models are loaded again at the next start, or by the next request."""
        self.loading.forget()
        self.stopping = False

    def _settle(self, model: Model) -> Steps[None]:
        if model.state in ("waiting", "loading"):
            yield from self.loading.lazily()

    def _too_late(self, model: Model, request: InferenceRequest, seconds: float, raised: BaseException | None) -> TimedOut:
        _logger.warning("%s took more than %g seconds for the request with id %s", model, seconds, shown(request.id))
        if isinstance(raised, Exception):
            _failed_late(model, request, raised)
        return TimedOut(f"{model} did not answer within {seconds:g} seconds, the shorter of its own timeout and the request's")

    def _failure(self, model: Model, call: _ModelCall, error: Exception) -> InferenceError:
        log_raised(logging.ERROR, error, "%s failed on the request with id %s", model, shown(call.request.id))
        if (overriding := call.overriding()) is not None and isinstance(error, _OF_ANOTHER_TYPE):
            return InvalidRequest(f"{model} failed with the content_type {shown(overriding)}, which is not what it declares: leave it out")
        return ModelFailed(f"{model} failed: {error!r}" if self.debug else f"{model} failed: see the server's log")


class _ModelCall(msgspec.Struct, frozen=True, eq=False):
    """One call of a model in its place, which is taken until the call has ended, even if nobody waits for that any more.

    Its arguments are made here too, in the thread of the model, and so is what lasts of its result: the next call may use its memory.
    """

    place: Place
    model: Model
    binding: Binding
    tensors: dict[str, Tensor]
    content_type: str | None
    request: InferenceRequest
    outputs: list[RequestOutput]
    asked: dict[str, str]
    caller: Caller

    def make(self) -> InferenceResponse:
        place = self.place
        if not place.start():
            raise Stopped
        try:
            args, kwargs = self.binding.arguments(self)
            return self._answer(self.model.function(*args, **kwargs))
        finally:
            place.gate.leave(place)

    async def make_async(self) -> InferenceResponse:
        """The same for a coroutine function."""
        place = self.place
        if not place.start():
            raise Stopped
        try:
            args, kwargs = self.binding.arguments(self)
            return self._answer(await self.model.function(*args, **kwargs))
        finally:
            place.gate.leave(place)

    def overriding(self) -> str | None:
        """The request's content type that made of the inputs of a declared model what is not declared, or None."""
        declared = self.model.binding
        if self.binding is declared:
            return declared.overridden_by(self.tensors, self.content_type)
        return str(self.request.parameters["content_type"]) if declared.inputs or self.model.outputs else None

    def context(self) -> InferenceContext:
        request, model = self.request, self.model
        return InferenceContext(
            request.id, self.caller.named_headers(), request.parameters, model.name, model.version, self.caller.transport
        )

    def _answer(self, result: Any) -> InferenceResponse:
        response = to_response(result, self.model.answers, self.asked)
        if self.outputs:
            response.outputs = select(response.outputs, self.outputs)
        for tensor in response.outputs:
            tensor.array = lasting(tensor.array)
        return response


def _failed_late(model: Model, request: InferenceRequest, error: Exception) -> None:
    """Log what a model raised when its request had been answered 504."""
    if not isinstance(error, (InferenceError, Stopped)):  # what it would say to the client, and what never began
        log_raised(logging.ERROR, error, "%s failed on the request with id %s, after its timeout", model, shown(request.id))


def _busy(model: Model) -> Busy:
    gate = model.gate
    return Busy(f"{model} is busy: {gate.max_concurrency} calls run and {gate.max_queue} wait, which is all it takes", headers=_RETRY)


def _stopping(model: Model) -> NotReady:
    return NotReady(f"{model} is not ready: the server is stopping", headers=_RETRY)


def _seconds(model: Model, request: InferenceRequest) -> float:
    """How long a request may take: the model's timeout, which the request's own, in microseconds, can only shorten."""
    asked = request.parameters.get("timeout")
    if asked is None:
        return model.timeout
    if type(asked) is not int or asked <= 0:
        raise InvalidRequest(f"parameters.timeout is {shown(asked)}: expected a positive integer, in microseconds")
    return min(model.timeout, asked / 1e6) if asked < ENDLESS * 10**6 else model.timeout


def own_fault(error: Exception) -> InferenceError:
    """What the client is told where this package itself failed, after the log was told more."""
    log_raised(logging.ERROR, error, "an error of oip_asgi itself, please report it")
    return InferenceError("internal error: see the server's log", status=500)


def _asked_types(outputs: Sequence[RequestOutput]) -> dict[str, str]:
    """The content types that a request asks outputs to have."""
    return {
        output.name: str(output.parameters["content_type"])
        for output in outputs
        if output.parameters and "content_type" in output.parameters
    }


def _check_parameters(request: InferenceRequest, codecs: Codecs) -> None:
    if request.parameters and not _CHECKED.isdisjoint(request.parameters):
        _check(request.parameters, "the request", codecs, whole=True)
    for tensor in request.inputs:
        if tensor.parameters and not _CHECKED.isdisjoint(tensor.parameters):
            _check(tensor.parameters, f"input {shown(tensor.name)}", codecs)
    for output in request.outputs:
        if output.parameters and not _CHECKED.isdisjoint(output.parameters):
            _check(output.parameters, f"requested output {shown(output.name)}", codecs)


def _check(parameters: Parameters, where: str, codecs: Codecs, *, whole: bool = False) -> None:
    check_supported(parameters, where)
    if "content_type" in parameters:
        codecs.check(parameters["content_type"], where, whole=whole)
