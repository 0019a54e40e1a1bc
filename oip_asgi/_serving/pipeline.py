"""The life of one inference request, whatever its transport: admit, read, decode, check, wait for a slot, run, encode.

Knows no HTTP, no gRPC and no JSON: a `WireFormat` decodes the request and encodes the response.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from .._extensions.cache import Cache
from .._models.model import Model
from .._models.statistics import Timings
from .._protocol.datatypes import Buffer
from .._protocol.effects import Await, Read, Run, Steps, Stopped, Wait, finish
from .._protocol.errors import InvalidRequest, NotFound
from .._protocol.loop_limits import LOOP_BYTES
from .._protocol.tensors import REGION, InferenceResponse, are_short
from .batch import answer_in_batch, wait_within_calls
from .call import Call
from .call_stack import current_calls, find_callers, find_latest_turn
from .engine import Engine
from .failures import FAILURES, as_error, make_busy_error, make_stopping_error
from .held_loop import HELD_SECONDS, note_long
from .record import Span, record_failure
from .wire_format import WireFormat

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=BaseException)

_GONE: Final = ("unregistering", "unregistered")

_REGION: Final = re.compile(rb"\\u|" + REGION.encode())
"""A short body that has this, or may have it escaped, may have large inputs, in shared memory: a worker thread reads them."""


def infer(
    engine: Engine,
    model: Model,
    wire: WireFormat[T],
    answer: Callable[[Call[T]], R],
    *,
    span: Span | None = None,
    body: Buffer | None = None,
) -> R | Steps[Any]:
    """Answer a request: return its answer, or the steps that are left if something must be waited for.

    `answer` is called when the request has a slot, a place in the queue, or its response from the cache. With `answer_once`, models that
    only stream are refused. The steps call this function again as soon as the body is there: then its span and its body are given.
    """
    limiter = model.limiter
    if body is None:
        span = None if engine.tracer is None else engine.tracer.begin(model)
        body = wire.body
        if body is None or model.lifecycle.state != "ready" or engine.stopping or limiter.running >= limiter.max_concurrency:
            return _infer_later(engine, model, wire, answer, span)
    since, seconds = engine.clock(), model.timeout
    if wire.timeout < seconds:
        seconds = wire.timeout
    call = Call(engine, model, wire, span, seconds, since + seconds, Timings(since), body)
    try:
        if model.cache is None:
            _enter(call)
        else:
            with limiter.lock:
                call.handler, call.slot = model.lifecycle.acquire()
        handler = call.handler
        if handler.streams and answer is answer_once:
            if handler.once is None:
                raise InvalidRequest(
                    f"{model} answers with a stream: use infer_stream, generate_stream or generate over HTTP, ModelStreamInfer over gRPC"
                )
            call.handler = handler.once
        if (len(body) if wire.size is None else wire.size) <= LOOP_BYTES and not (engine.regions.is_on and _REGION.search(body)):
            call.decode()
        if model.cache is None:
            call.timings.entered = engine.clock()
    except BaseException as error:
        _fail(call, error)
        raise
    if model.cache is not None:
        return _answer_with_cache(call, model.cache, answer)
    return answer(call) if call.latest_turn == math.inf else _answer_within(call, answer)


def _infer_later(engine: Engine, model: Model, wire: WireFormat[T], answer: Callable[[Call[T]], R], span: Span | None) -> Steps[Any]:
    """`infer`, for a request that waits: for the model to be loaded, or for its body."""
    try:
        while (found := (yield from _admit(engine, model))) is not model:
            model = found
        wanted = wire.read()
        body: Buffer = (yield wanted) if type(wanted) is Read else wanted
        if model.lifecycle.state in _GONE:
            while (found := (yield from _admit(engine, model))) is not model:
                model = found
    except BaseException as error:
        record_failure(model, None, span, engine.clock(), error)
        raise
    return (yield from finish(infer(engine, model, wire, answer, span=span, body=body)))


def _answer_with_cache(call: Call[T], cache: Cache, answer: Callable[[Call[T]], Any]) -> Steps[Any]:
    """Answer a call whose response the cache may have."""
    try:
        yield from _look_up(call, cache)
        if call.found is None:
            _enter(call)
            call.timings.entered = call.engine.clock()
    except BaseException as error:
        _fail(call, error)
        raise
    return (yield from _answer_within(call, answer))


def _answer_within(call: Call[T], answer: Callable[[Call[T]], Any]) -> Steps[Any]:
    """Answer a call that may be made within others: it waits for its slot first."""
    if call.slot.turn is not None and not call.model.has_batches:
        try:
            yield from wait_within_calls(call, call.slot.turn)
        except FAILURES as failure:
            raise _fail(call, as_error(call, failure), failure.__cause__) from failure.__cause__
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
        raise make_busy_error(call.model)
    try:
        if call.body is not None:
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
        raise make_stopping_error(model)
    may_wait = model not in within
    may_run = not model.options.max_batch_delay or not may_wait
    with model.limiter.lock:
        if model.cache is None:  # else it has been acquired before
            call.handler, call.slot = model.lifecycle.acquire()
        has_entered = model.limiter.enter(call.slot, may_run=may_run, may_wait=may_wait)
    if not has_entered:
        raise make_busy_error(model)
    if within and call.slot.is_waiting:
        call.latest_turn = find_latest_turn(engine.clock())


def answer_once(call: Call[T]) -> T | Steps[T]:
    """The only answer of a request that has been let in: at once if nothing must be waited for, else the steps that wait."""
    is_inline = call.handler.kind == "inline" and not call.model.has_batches
    if not is_inline or call.found is not None or call.body is not None or call.slot.turn is not None:
        return _answer_later(call)
    call.timings.started = call.timings.entered
    try:
        response: InferenceResponse = call.engine.call_here(call.run if call.span is None else call.run_in_span)
        if are_short(response.outputs):
            answer = call.encode(response)
            end_call(call)
            return answer
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
        elif call.found is not None and are_short(call.found.outputs):
            answer = call.encode(call.found)
        elif call.found is not None:  # it has not entered
            answer = yield Run(partial(call.encode, call.found), "conversion", deadline=call.deadline, for_client=True)
        elif call.model.has_batches:
            answer = yield from answer_in_batch(call)
        elif kind == "thread":  # everything in one trip to a worker thread
            made: T | None = None
            while made is None:  # again if the request, which is decoded there, asks for a shorter timeout than the trip had
                late = None if call.deadline == math.inf else call.log_late
                made = yield Run(call.answer_in_thread, "model", slot.turn, deadline=call.deadline, for_client=True, late=late)
            answer = made
        else:
            if call.body is not None:
                yield Run(call.decode_in_thread, "conversion", slot.turn, deadline=call.deadline, for_client=True)
            elif slot.turn is not None:
                yield Wait(slot.turn, call.deadline, for_client=True)
            if slot.is_over:
                raise Stopped
            if not call.timings.started:
                call.timings.started = call.timings.entered if slot.turn is None else call.engine.clock()
            if kind == "async":
                run_async = call.run_async if call.span is None else call.run_async_in_span
                response = yield Await(run_async, call.deadline, for_client=True)
            else:
                response = call.engine.call_here(call.run if call.span is None else call.run_in_span)
            answer = call.encode(response) if are_short(response.outputs) else (yield from _encode_elsewhere(call, response))
    except FAILURES as failure:
        raise _fail(call, as_error(call, failure), failure.__cause__) from failure.__cause__
    except BaseException as error:
        _fail(call, error)
        raise
    end_call(call)
    return answer


def end_call(call: Call[Any]) -> None:
    """End a call that was answered."""
    timings = call.timings
    if timings.returned - timings.called > HELD_SECONDS:
        note_long(call.model, call.handler, timings.returned - timings.called, is_on_loop=call.engine.is_on_loop)
    if not call.slot.is_over:
        call.slot.give_up()
    call.model.statistics.record("ok", timings, timings.answered)
    if call.span is not None:
        call.span.end("ok", timings, None)


def _fail(call: Call[Any], error: E, cause: BaseException | None = None) -> E:
    """End a call with an error, and return the error."""
    if call.slot is not None and not call.slot.is_over:
        call.slot.give_up()
    return call.note(error, cause)


def _admit(engine: Engine, model: Model) -> Steps[Model]:
    """Let a request in before its body is read, as soon as the model is loaded, and return the model. Or return what has replaced it."""
    if engine.stopping and not find_callers():  # a call that runs may still call other models
        raise make_stopping_error(model)
    yield from model.lifecycle.wait_until_loaded()
    if model.lifecycle.state in _GONE:
        with suppress(NotFound):
            found = engine.models.find(model.name, model.version)
            if found is not model:
                return found
    if not model.lifecycle.is_serving:
        raise model.lifecycle.make_refusal()
    if model.limiter.is_full() and model.cache is None:  # the cache may have its response
        raise make_busy_error(model)
    return model


def _encode_elsewhere(call: Call[T], response: InferenceResponse) -> Steps[T]:
    """Encode a large response in a worker thread, so that the event loop is free meanwhile."""
    encoded: T = yield Run(partial(call.encode_in_thread, response), "conversion", deadline=call.deadline, for_client=True)
    return encoded
