"""The life of one inference request, whatever its transport: admit, read, decode, check, wait for a slot, run, encode.

Knows no HTTP, no gRPC and no JSON: a `WireFormat` decodes the request and encodes the response.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from .._extensions.cache import Cache
from .._extensions.rows import finish
from .._models.limiter import Slot
from .._models.model import Model
from .._models.statistics import Timings
from .._protocol.datatypes import Buffer
from .._protocol.effects import Await, CancelledWithin, DeadlinePassed, QuitWithin, Read, Run, Steps, Stopped, Wait
from .._protocol.errors import Busy, InferenceError, InvalidRequest, ModelFailed, ModelFault, NotReady, TimedOut, error_text, show
from .._protocol.limits import LOOP_BYTES
from .._protocol.log import log_raised
from .._protocol.tensors import InferenceResponse
from .batch import answer_in_batch
from .call import Call, ModelRaised, is_short
from .call_stack import current_calls, find_callers, would_deadlock
from .copy_rule import copy_small
from .decoding import Decoded
from .engine import Engine
from .error_hints import convert_host_error, find_hint, find_missing_column
from .record import Span, record_end
from .wire_format import WireFormat

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=BaseException)

_RETRY: Final = {"Retry-After": "1"}
"""In seconds. How long a model takes is not known here, so this only keeps clients from asking again at once."""

_OF_ANOTHER_TYPE: Final = (AttributeError, LookupError, ModelFault, TypeError, ValueError)
"""What a model raises, or its result is, where its argument is of a type that it was not written for."""

_logger: Final = logging.getLogger("oip_asgi")


def infer(engine: Engine, model: Model, wire: WireFormat[T], answer: Callable[[Call[T]], R]) -> R | Steps[Any]:
    """Answer a request: return its answer, or the steps that are left if something must be waited for.

    Args:
        engine: The server.
        model: The model that it names.
        wire: How it arrived and its response leaves.
        answer: What answers once the request is in. `answer_once` refuses models that stream.
    """
    span = None if engine.tracer is None else engine.tracer.begin(model)
    try:
        limiter = model.limiter
        if model.lifecycle.state == "ready" and not engine.stopping and limiter.running < limiter.max_concurrency:
            read = wire.read()
        else:
            read = None
    except BaseException as error:
        record_end(model, None, span, engine.clock(), error)
        raise
    if read is None or type(read) is Read:
        return _infer_later(engine, model, wire, answer, span, read)
    return _take_in(engine, model, wire, answer, span, read)


def _infer_later(
    engine: Engine, model: Model, wire: WireFormat[T], answer: Callable[[Call[T]], R], span: Span | None, read: Read | None
) -> Steps[Any]:
    """`infer`, for a request that waits: for the model to be loaded, or for its body."""
    try:
        if read is None:
            yield from _admit(engine, model)
        wanted = read or wire.read()
        body: Buffer = (yield wanted) if type(wanted) is Read else wanted
    except BaseException as error:
        record_end(model, None, span, engine.clock(), error)
        raise
    return (yield from finish(_take_in(engine, model, wire, answer, span, body)))


def _take_in(
    engine: Engine, model: Model, wire: WireFormat[T], answer: Callable[[Call[T]], R], span: Span | None, body: Buffer
) -> R | Steps[Any]:
    """Decode a request whose body is there, take a slot for it, and answer it."""
    since, seconds = engine.clock(), model.timeout
    try:
        handler = model.lifecycle.acquire()
    except InferenceError as error:
        record_end(model, None, span, since, error)
        raise
    if wire.timeout < seconds:
        seconds = wire.timeout
    call = Call(engine, model, handler, wire, span, seconds, since + seconds, Timings(since), body)
    try:
        if handler.streams and answer is answer_once:
            raise InvalidRequest(
                f"{model} answers with a stream: use infer_stream, generate_stream or generate over HTTP, ModelStreamInfer over gRPC"
            )
        if (len(body) if wire.size is None else wire.size) <= LOOP_BYTES:
            call.decode(at_once=True)
        if model.cache is None:
            _enter(call)
    except BaseException as error:
        _fail(call, error)
        raise
    return answer(call) if model.cache is None else _answer_with_cache(call, model.cache, answer)


def _answer_with_cache(call: Call[T], cache: Cache, answer: Callable[[Call[T]], Any]) -> Steps[Any]:
    """Answer a call whose response the cache may have."""
    try:
        yield from _look_up(call, cache)
        if call.found is None:
            _enter(call)
    except BaseException as error:
        _fail(call, error)
        raise
    return (yield from finish(answer(call)))


def _look_up(call: Call[Any], cache: Cache) -> Steps[None]:
    """Take the response of a request from the cache, before it has a slot, if it is there. A long request is decoded for that.

    As many as may run and wait may be looked up at the same time.
    """
    limiter, clock = call.model.limiter, call.engine.clock
    if not cache.enter(limiter.max_concurrency + limiter.max_queue):
        raise _make_busy_error(call.model)
    try:
        if not call.is_decoded:
            yield Run(call.decode, "conversion", deadline=call.deadline, for_client=True)
        since, loaded = clock(), call.handler.uses
        found = cache.look_up(call.decoded.request, loaded, clock, call.deadline, may_wait=not find_callers())
        call.found, call.flight = yield from found
        call.timings.lookup, call.timings.is_hit = clock() - since, call.found is not None
    except FAILURES as failure:
        raise as_error(call, failure) from failure.__cause__
    finally:
        cache.leave()


def _enter(call: Call[Any]) -> None:
    """Take a slot for a call, or a place in the queue for one."""
    engine, model = call.engine, call.model
    within = find_callers() if current_calls() else ()
    if engine.stopping and not within:
        raise _make_stopping_error(model)
    may_wait = model not in within
    may_run = model.batching is None or not model.batching.delay or not may_wait
    slot = model.limiter.enter(call.handler.uses, may_run=may_run, may_wait=may_wait)
    if slot is None:
        raise _make_busy_error(model)
    call.slot = slot
    if within and slot.is_waiting and would_deadlock(slot):
        raise _make_circle_error(model, within)
    call.timings.entered = engine.clock()
    for observer in model.statistics.observers:
        observer.changed()


def answer_once(call: Call[T]) -> T | Steps[T]:
    """The only answer of a request that has been let in: at once if nothing must be waited for, else the steps that wait."""
    is_inline = call.handler.kind == "inline" and call.model.batching is None
    if not is_inline or call.found is not None or not call.is_decoded or call.slot.turn is not None:
        return _answer_later(call)
    call.timings.started = call.timings.entered
    try:
        response: InferenceResponse = call.engine.call_here(call.run if call.span is None else call.run_in_span)
        if is_short(call, response):
            return _end(call, call.encode(response))
    except FAILURES as failure:
        raise _fail(call, as_error(call, failure), failure.__cause__) from failure.__cause__
    except BaseException as error:
        _fail(call, error)
        raise
    return _answer_later(call, response)


def _answer_later(call: Call[T], response: InferenceResponse | None = None) -> Steps[T]:
    """`answer_once`, for a call that waits: for its turn, for another thread, or for a coroutine. It may have its response already."""
    slot, kind = call.slot, call.handler.kind
    try:
        if response is not None:
            answer = yield from _encode_elsewhere(call, response)
        elif call.found is not None:
            answer = yield from _encode_found(call, call.found)
        elif call.model.batching is not None:
            answer = yield from answer_in_batch(call, call.model.batching)
        elif kind == "thread":
            answer = yield from _answer_in_one_trip(call, slot)
        else:
            if slot.turn is not None or not call.is_decoded:
                yield from _wait_for_turn(call, slot)
            if slot.is_left:
                raise Stopped
            if not call.timings.started:
                call.timings.started = call.timings.entered if slot.turn is None else call.engine.clock()
            if kind == "async":
                run_async = call.run_async if call.span is None else call.run_async_in_span
                response = yield Await(run_async, call.deadline, for_client=True)
            else:
                response = call.engine.call_here(call.run if call.span is None else call.run_in_span)
            answer = call.encode(response) if is_short(call, response) else (yield from _encode_elsewhere(call, response))
    except FAILURES as failure:
        raise _fail(call, as_error(call, failure), failure.__cause__) from failure.__cause__
    except BaseException as error:
        _fail(call, error)
        raise
    return _end(call, answer)


def _end(call: Call[T], answer: T) -> T:
    """End a call that was answered."""
    call.leave()
    record_end(call.model, call.timings, call.span, call.timings.answered)
    return answer


def _fail(call: Call[Any], error: E, cause: BaseException | None = None) -> E:
    """End a call with an error, and return the error."""
    call.leave()
    return call.note(error, cause)


FAILURES: Final = (DeadlinePassed, Stopped, ModelRaised, QuitWithin, CancelledWithin)
"""What a call ends with that is no error for the client yet."""


def as_error(call: Call[Any], failure: Exception) -> InferenceError:
    """The error for the client that one of `FAILURES` is. What user code raised is logged."""
    if type(failure) is DeadlinePassed:
        return _make_late_error(call, failure.__cause__)
    if type(failure) is Stopped:
        is_unloaded = call.slot is not None and call.slot.is_unloaded
        return _make_unloaded_error(call.model) if is_unloaded else _make_stopping_error(call.model)
    return _make_model_error(call, failure.__cause__ or failure, is_logged=isinstance(failure, ModelRaised) and failure.is_logged)


def _admit(engine: Engine, model: Model) -> Steps[None]:
    """Let a request in before its body is read, as soon as the model is loaded."""
    if engine.stopping and not find_callers():  # calls that run may call others to their end
        raise _make_stopping_error(model)
    yield from model.lifecycle.wait_until_loaded()
    if not model.lifecycle.is_serving:
        raise model.lifecycle.make_refusal()
    if model.limiter.is_full() and model.cache is None:  # the cache may have its response
        raise _make_busy_error(model)


def _answer_in_one_trip(call: Call[T], slot: Slot) -> Steps[T]:
    """A blocking model: everything in one trip to a worker thread."""
    while True:
        deadline = call.deadline
        late = None if deadline == math.inf else call.log_late
        answer: T | None = yield Run(call.answer_in_thread, "model", slot.turn, deadline=deadline, for_client=True, late=late)
        if answer is not None:
            return answer
        # the decoded request asks for a shorter timeout than the trip had


def _wait_for_turn(call: Call[Any], slot: Slot) -> Steps[None]:
    """Wait for the turn of a call on the event loop, and have a long request decoded in a worker thread."""
    if not call.is_decoded:
        yield Run(call.decode_in_thread, "conversion", slot.turn, deadline=call.deadline, for_client=True)
    elif slot.turn is not None:
        yield Wait(slot.turn, call.deadline, for_client=True)


def _encode_elsewhere(call: Call[T], response: InferenceResponse) -> Steps[T]:
    """Encode a large response of a call on the event loop in a worker thread."""
    copy_small(response.outputs)
    encoded: T = yield Run(partial(call.encode_in_thread, response), "conversion", deadline=call.deadline, for_client=True)
    return encoded


def _encode_found(call: Call[T], response: InferenceResponse) -> Steps[T]:
    """Encode a response from the cache. It needs no slot."""
    if is_short(call, response):
        return call.encode(response)
    encoded: T = yield Run(partial(call.encode, response), "conversion", deadline=call.deadline, for_client=True)
    return encoded


def _make_late_error(call: Call[Any], raised: BaseException | None) -> TimedOut:
    fields, request_id = call.log_fields(), show(call.timings.id)
    _logger.warning("%s took more than %g seconds for the request with id %s", call.model, call.seconds, request_id, extra=fields)
    if raised is not None:
        call.log_late(raised)
    return TimedOut(f"{call.model} did not answer within {call.seconds:g} seconds, the shorter of its own timeout and the request's")


def _make_model_error(call: Call[Any], error: BaseException, *, is_logged: bool) -> InferenceError:
    model = call.model
    told = convert_host_error(error)
    if told is not None:  # as if it were raised as an InferenceError
        return told
    missing = find_missing_column(error, model, _list_columns(call.decoded))
    if missing is not None:
        _logger.warning("the request with id %s: %s", show(call.timings.id), missing, extra=call.log_fields())
        return missing
    if not is_logged:
        fields, hint = call.log_fields(), find_hint(error, model)
        log_raised(logging.ERROR, error, "%s failed on the request with id %s%s", model, show(call.timings.id), hint, extra=fields)
    overriding = _find_overriding(call)
    if overriding is not None and isinstance(error, _OF_ANOTHER_TYPE):
        return InvalidRequest(f"{model} failed with the content_type {show(overriding)}, which is not what it declares: leave it out")
    return ModelFailed(f"{model} failed: {error_text(error, repr)}" if call.engine.debug else f"{model} failed: see the server's log")


def _list_columns(decoded: Decoded) -> list[str] | None:
    """The inputs that became columns of one data frame; None if none did, or they are declared."""
    binding = decoded.binding
    if binding.request_reader is None or any(spec.name not in binding.named for spec in binding.inputs):
        return None
    return [name for name in decoded.tensors if name not in binding.named]


def _find_overriding(call: Call[Any]) -> str | None:
    """The request's content type that made of the inputs of a declared model what is not declared, or None."""
    decoded, declared = call.decoded, call.handler.binding
    if decoded.binding is declared:
        return declared.find_override(decoded.tensors, decoded.content_type)
    return str(decoded.request.parameters["content_type"]) if declared.inputs or call.handler.outputs else None


def _make_busy_error(model: Model) -> InferenceError:
    limiter, within = model.limiter, find_callers()
    if within.count(model) >= limiter.max_concurrency:
        return ModelFailed(
            f"{_list_calls(model, within)}: the last call would wait for itself, as calls that it is made within hold all "
            f"{limiter.max_concurrency} slots of {model}: give it a larger max_concurrency, or do not call it from within"
        )
    if model in within:
        return Busy(f"{model} is busy: {limiter.max_concurrency} calls run, and a call within one of its own does not wait", headers=_RETRY)
    return Busy(f"{model} is busy: {limiter.max_concurrency} calls run and {limiter.max_queue} wait, which is all it takes", headers=_RETRY)


def _make_circle_error(model: Model, within: Sequence[Model]) -> ModelFailed:
    return ModelFailed(
        f"{_list_calls(model, within)}: the last call would wait for ever, as the calls that hold all slots of {model} wait for those that "
        "it is made within: give one of these models a larger max_concurrency, or do not let them call each other"
    )


def _list_calls(model: Model, within: Sequence[Model]) -> str:
    return " calls ".join(repr(holder.name) for holder in [*within, model])


def _make_unloaded_error(model: Model) -> NotReady:
    return NotReady(f"{model} is not ready: it was unloaded")


def _make_stopping_error(model: Model) -> NotReady:
    return NotReady(f"{model} is not ready: the server is stopping", headers=_RETRY)
