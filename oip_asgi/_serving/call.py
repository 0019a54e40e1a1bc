"""One call of a model, and what each of its stages makes: `Decoded` of the body, a `Slot`, the `Timings`, and
the response as it leaves.

`pipeline` decides which of these runs in which thread, and when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, TypeAlias, TypeVar, final

import msgspec
import numpy as np

from .._codecs.dataframes import count_cells
from .._codecs.rows_as_json import OBJECTS
from .._extensions.cache import Flight
from .._io import DeadlinePassed
from .._models.handler import Handler
from .._models.limiter import Slot
from .._models.model import Model
from .._models.results import select_outputs, to_response
from .._models.statistics import Numbers, Timings
from .._protocol.array_requests import ArrayRequest
from .._protocol.context import InferenceContext, ResponseHeaders
from .._protocol.datatypes import Array, Buffer
from .._protocol.errors import InferenceError, log_fields, log_raised, name_request
from .._protocol.limits import LOOP_BINARY, LOOP_TEXT
from .._protocol.tensor_bytes import own_arrays
from .._protocol.tensors import InferenceResponse, are_short, make_read_only, refuse_region
from .decoding import Decoded, Head, WireFormat, accept
from .engine import Engine
from .observing import Heard, Span, begin_to_hear, copy_response, within
from .user_code import current_calls, leave_call, reset_calls, set_calls, watch_steps

T = TypeVar("T")
R = TypeVar("R")

_Arguments: TypeAlias = tuple[list[Any], dict[str, Any]]

Made: TypeAlias = InferenceResponse | list[Array]
"""What a call makes of a result: a response; or its arrays alone, of an `ArrayRequest` whose result says no
more."""

_IN_THREADS: Final = ("thread", "stream")
"""Kinds of functions that run in worker threads."""

_MANY: Final = 1000
"""If a request has more inputs, they are freed before the response is encoded. Each takes 250 bytes in
addition to its elements."""

_FEW: Final = 64
"""Outputs of a long response that the event loop encodes: each takes 20 microseconds, however small it is."""

_CLASSIFIED: Final = 2**12
"""Bytes of outputs with output options that it encodes: as texts, the largest numbers of FP64 take 20
microseconds each."""


@final
class Unmade(msgspec.Struct, eq=False):
    """A result of which a worker thread is to make the response: a long frame, or text at a client's wish."""

    result: Any


class ModelRaised(Exception):
    """User code raised its `__cause__`, or returned something that cannot be a response."""

    is_logged = False
    """True if the log has it already: the failure of a batch is logged once."""


class Call(msgspec.Struct, Generic[T], eq=False):
    """A request that was let in, after its body was read. Most call the model; some share a call, or have
    their response from the cache."""

    engine: Engine
    model: Model
    wire: WireFormat[T]  # the wire format of the request and the response
    span: Span | None  # its span, if there is a tracer
    seconds: float  # how long it may take
    deadline: float  # when it is given up
    timings: Timings  # when it reached each stage
    body: Buffer | None  # the request's body, until it is decoded; then None, and `request` has it
    handler: Handler  # what calls the function, acquired from the model
    # its slot, acquired with the handler; with a cache, it enters only if the response is not there
    slot: Slot
    # wakes equal requests that wait for its response, if it is the first of them
    flight: Flight | None = None
    cached: InferenceResponse | None = None  # its response, if the cache had it
    heard: Heard | None = None  # what its observers will be told, if the model has some
    # those of the function, if a worker thread made them, until it is called
    arguments: _Arguments | None = None
    # the request, once it is decoded: its arrays, as long as nobody reads more of it
    request: ArrayRequest | Decoded | None = None

    # In any thread

    def decode(self) -> None:
        """Decode the request."""
        assert self.body is not None  # each body is decoded once
        regions = self.engine.regions
        request = self.wire.decode(
            self.body,
            self.handler,
            regions.make_region_reader() if regions.is_on else refuse_region,
            None if self.model.observers else self.handler.array_model,  # they are told all of a request
        )
        self.timings.id = request.id  # the log and observers have it also if the request is refused now
        if type(request) is ArrayRequest:
            for array in request.arrays.values():
                if array.flags.writeable:
                    make_read_only(array)
            self.request, self.body = request, None
            return
        decoded = accept(request, self.model, self.handler, regions)
        self.request, self.body = decoded, None
        if decoded.outside:
            self.model.statistics.add(Numbers.add_outside, decoded.outside)
        if self.model.observers:
            self.heard = begin_to_hear(self.model, decoded, is_written=self.wire.shares_arrays)
        if decoded.timeout < self.seconds:
            self.seconds = decoded.timeout
            self.deadline = min(self.deadline, self.timings.since + decoded.timeout)

    def expand(self) -> Decoded:
        """The request, after it was decoded, with all of its objects: of a request that came as arrays, who
        reads this first makes them. They are not checked again: the function may have reshaped its arrays."""
        if type(self.request) is Decoded:
            return self.request
        assert self.request is not None  # it was decoded
        request = self.request.make_request()
        self.request = Decoded(
            request=request,
            binding=self.handler.binding,
            tensors={each.name: each for each in request.inputs},
            outputs=request.outputs,
        )
        return self.request

    def make_arguments(self, decoded: Decoded) -> _Arguments:
        """Make the arguments of the function of a request, which may have the rows of others too."""
        return decoded.binding.arguments.make(decoded, self._make_context)

    def _make_context(self) -> InferenceContext:
        head, request, model = self.wire.head, self.expand().request, self.model
        head.response_headers = out = ResponseHeaders()
        return InferenceContext(
            request.id,
            head.named_headers(),
            request.parameters,
            model.name,
            model.version,
            head.transport,
            self.timings.since + self.seconds,
            self.engine.options.max_body_bytes,
            out,
        )

    def call_function(self) -> Any:
        """Call the function, and note when. Only within `call_model`."""
        request, function = self.request, self.handler.function
        if type(request) is ArrayRequest:
            self.timings.called = self.engine.clock()
            arrays = request.arrays
            return function(**arrays) if request.model.is_by_keyword else function(*arrays.values())
        args, kwargs = self.arguments or self.make_arguments(self.expand())
        self.arguments = None
        self.timings.called = self.engine.clock()
        return function(*args, **kwargs)

    def run(self) -> Made | Unmade:
        """Call a plain function, within the request's span."""
        if self.span is None:
            return call_model(self, Call.call_function, Call._respond_to)
        with self.span.active():
            return call_model(self, Call.call_function, Call._respond_to)

    def run_async(self) -> Coroutine[Any, Any, Made | Unmade]:
        """`run` for a coroutine function."""
        work = call_model_async(self, Call.call_function, Call._respond_to)
        return work if self.span is None else _await_within(self.span, work)

    def _respond_to(self, result: Any) -> Made | Unmade:
        self.timings.returned = self.engine.clock()
        if type(self.request) is ArrayRequest:
            arrays = self.request.take_arrays(result)
            if arrays is not None:
                return arrays
        return respond(self, result)

    def encode_here(self, response: Made | Unmade) -> T | None:
        """Encode a response if the event loop may do that. None if a worker thread is to: other calls run
        until then, so nobody may change the response any more."""
        if type(response) is Unmade:
            return None
        if isinstance(response, list) or may_encode_here(self, response):
            return self.encode(response)
        own_arrays(response.outputs, self.expand().request)
        return None

    def encode(self, response: Made | Unmade) -> T:
        """The response as it leaves, which a worker thread makes first if it is `Unmade`."""
        if type(response) is Unmade:
            response = _make_late(self, response)
        # a stream has one head for all of its responses
        encoding = (
            self.engine.clock() if self.engine.options.server_timing and not self.timings.answered else 0.0
        )
        if isinstance(response, list):
            encode, request = self.wire.encode_arrays, self.request
            assert encode is not None and type(request) is ArrayRequest  # noqa: PT018  (which it has made)
            encoded = encode(request, response)
        else:
            encoded = self._encode(response)
        self.timings.answered = self.engine.clock()
        if encoding:
            add_server_timing(self.wire.head, self.timings, encoding)
        return encoded

    def _encode(self, response: InferenceResponse) -> T:
        if self.flight is not None:
            self.flight.keep(response, self.engine.clock())
        decoded, heard, first = self.expand(), self.heard, None
        if heard is not None:
            first = heard.response or copy_response(response)
        if decoded.apply_options is not None:
            response = decoded.apply_options(response)
        encoded = self.wire.encode(decoded.request, response)
        if heard is not None:
            heard.response = first
            heard.responses += 1
        return encoded

    # In a worker thread, and in its slot

    def answer_in_thread(self) -> T | None:
        """Make the whole call. None if the request, which is decoded here, asks for a shorter timeout than
        this trip has."""
        self.slot.begin()
        is_last, deadline = True, self.deadline
        try:
            self.timings.started = self.engine.clock()
            if self.body is not None:
                self.decode()
                if self.deadline < deadline:
                    is_last = False
                    return None
            answer = self.encode(self.run())
            if self.timings.answered >= self.deadline:
                raise DeadlinePassed
            return answer
        except ModelRaised as error:
            if self.engine.clock() >= self.deadline:
                raise DeadlinePassed from error
            raise
        finally:
            self.slot.end_part(is_last=is_last)

    def decode_in_thread(self) -> None:
        """Decode the request, and make the arguments."""
        self.slot.begin()
        try:
            self.timings.started = self.engine.clock()
            self.decode()
            if type(self.request) is Decoded:
                self.arguments = call_model(self, Call.expand, Call.make_arguments)
        finally:
            self.slot.end_part(is_last=False)

    def encode_in_thread(self, response: Made | Unmade, *, is_last: bool = True) -> T:
        """`encode` a response, and give the slot back after the last one."""
        self.slot.begin()
        try:
            return self.encode(response)
        finally:
            self.slot.end_part(is_last=is_last)

    # Its log

    def log_fields(self) -> dict[str, object]:
        """The fields of a record of the log about this request."""
        return log_fields(
            self.model.name, self.model.version, self.timings.id, self.engine.clock() - self.timings.since
        )

    def log_late(self, error: BaseException) -> None:
        """Log what user code raised when its request had been answered 504, or its client had gone."""
        if isinstance(error, DeadlinePassed) and error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, ModelRaised) and not error.is_logged:
            text, request = "%s failed on %s, %s", name_request(self.timings.id)
            why = (
                "after its timeout"
                if self.engine.clock() >= self.deadline
                else "when nobody waited for its answer any more"
            )
            with within(self.span):
                log_raised(error.__cause__ or error, text, self.model, request, why, extra=self.log_fields())


def call_model(call: Call[Any], begin: Callable[[Call[Any]], Any], take: Callable[[Call[Any], Any], R]) -> R:
    """Call code of a model, and take its result, within the stack of calls. What it raises is `ModelRaised`,
    or for the client already."""
    token = set_calls((*current_calls(), (call.model, call.slot, call.deadline)))
    try:
        return take(call, begin(call))
    except InferenceError:
        raise
    except Exception as error:
        raise ModelRaised from error
    finally:
        reset_calls(token)


async def call_model_async(
    call: Call[Any],
    begin: Callable[[Call[Any]], Awaitable[Any]],
    take: Callable[[Call[Any], Any], R],
    end: type[Exception] = InferenceError,
    *,
    goes_on: bool = False,
) -> R:
    """`call_model` for what is begun and then awaited. An error that is its `end` stays as it is.

    How long each step holds the event loop is measured if a call of the model took long before; that
    `goes_on` with its next call.
    """
    token = set_calls((*current_calls(), (call.model, call.slot, call.deadline)))
    try:
        awaitable = watch_steps(begin(call), call.model, call.handler, call.engine.clock, goes_on=goes_on)
        return take(call, await awaitable)
    except (InferenceError, end):
        raise
    except Exception as error:
        raise ModelRaised from error
    finally:
        leave_call(token)


async def _await_within(span: Span, work: Coroutine[Any, Any, R]) -> R:
    with span.active():
        return await work


def may_decode_long(call: Call[Any], body: Buffer) -> bool:
    """Whether the event loop decodes a body of more than `LOOP_BYTES`: plain numbers, which take 15
    milliseconds at most.

    A function that runs in a worker thread takes its long request there, so that it is one trip.
    """
    return (
        call.handler.kind != "thread"
        and call.handler.binding.is_plain
        and not call.model.has_batches
        and not call.engine.regions.is_on
        and call.wire.is_quick(body)
    )


def respond(call: Call[Any], result: Any) -> InferenceResponse | Unmade:
    """Make the response of a result, unless this is an event loop and the result is not for one."""
    if call.handler.kind in _IN_THREADS or (
        not call.expand().content_types and (type(result) is np.ndarray or count_cells(result) <= _FEW)
    ):
        return _make_response(call, result)
    return Unmade(result)


def _make_late(call: Call[Any], unmade: Unmade) -> InferenceResponse:
    """Make a response in a worker thread, which lets go of the result."""
    result, unmade.result = unmade.result, None
    return call_model(call, lambda _: result, _make_response)


def _make_response(call: Call[Any], result: Any) -> InferenceResponse:
    """Make the response of a result. Its arrays may be the model's own: what is not encoded at once, or
    leaves as a view of them, is copied."""
    decoded, model = call.expand(), call.model
    objects = decoded.tensors.get(OBJECTS)
    needs_columns = call.heard is not None or model.cache is not None
    rows = 0 if objects is None or needs_columns else objects.array.size
    response = to_response(result, call.handler.answers, decoded.content_types, decoded.outputs, rows)
    if decoded.outputs:
        response.outputs = select_outputs(response.outputs, decoded.outputs)
    version = model.version
    if response.model_version is not None and version is None and response.model_name in ("", model.name):
        version = str(response.model_version)  # it says which of several answered
    if decoded.outside:
        response.parameters = {**response.parameters, "oip_out_of_range": ", ".join(decoded.outside)}
    response.id, response.model_name, response.model_version = decoded.request.id, model.name, version
    if len(decoded.tensors) > _MANY and not call.handler.streams:
        call.request = decoded.without_inputs()
    return response


def may_encode_here(call: Call[Any], response: InferenceResponse) -> bool:
    """Whether the event loop encodes a response, which takes 15 milliseconds at most."""
    outputs, decoded = response.outputs, call.expand()
    is_short = are_short(outputs)
    if is_short and decoded.apply_options is None:
        return True
    size = sum(each.array.nbytes for each in outputs)
    if decoded.apply_options is not None:
        return is_short and size <= _CLASSIFIED
    if len(outputs) > _FEW or any(each.array.dtype.hasobject for each in outputs):
        return False
    return size <= (LOOP_BINARY if call.wire.sends_bytes(decoded.request) else LOOP_TEXT)


_NAME: Final = "server-timing"


def add_server_timing(head: Head, timings: Timings, encoding: float) -> None:
    """Give an answer its header, after what the model has in it already. `encoding` is when the encoding of
    the response began."""
    headers = head.response_headers
    if headers is None or headers.is_sent:  # with a sign of life, before the first item: these are dropped
        headers = head.response_headers = ResponseHeaders()
    returned = timings.returned or encoding
    queue = run = 0.0
    decode = returned - timings.since - max(timings.lookup, 0.0)  # if the cache had the response
    if timings.called:
        queue, run = timings.started - timings.entered, returned - timings.called
        decode -= queue + run
    stages = {"queue": queue, "decode": decode, "run": run, "encode": timings.answered - returned}
    written = [f"{stage};dur={max(seconds, 0.0) * 1000:.3f}" for stage, seconds in stages.items()]
    headers[_NAME] = ", ".join([headers[_NAME], *written] if _NAME in headers else written)
