"""The life of one inference request, whatever its transport: admit, read, take a slot or a place in the
queue, decode, wait, run, encode.

Before that, `exchange` of `_http` or `_grpc` has asked whether the client is allowed to send it.

Knows no HTTP, no gRPC and no JSON: a `WireFormat` decodes the request and encodes the response.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar

from .._codecs.rows_as_json import OBJECTS
from .._extensions.cache import Cache
from .._io import IO, Stopped
from .._models.model import Model
from .._models.statistics import Timings
from .._protocol.errors import IS_A_STREAM, InvalidRequest, NotFound
from .._protocol.tensors import REGION
from .batch import answer_in_batch, wait_within_calls
from .call import Call, may_decode_long, may_encode_here
from .decoding import WireFormat
from .engine import Engine
from .failures import FAILURES, as_error, make_busy_error, make_stopping_error
from .observing import end_request, hear_refusal
from .user_code import HELD_SECONDS, current_calls, find_callers, note_long

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

Takes: TypeAlias = Literal["response", "item", "items"]
"""What a request takes of a model: its only response, for which models that only stream are refused; the only
item of a stream too; or all items. For the first two, a model that has both a function and a stream answers
with its function."""

_STREAMING: Final = "infer_stream, generate_stream or generate over HTTP, ModelStreamInfer over gRPC"

_REGION: Final = re.compile(rb"\\u|" + REGION.encode())
"""A body with this text, which may also be escaped, may name large inputs in shared memory: a worker thread
reads those."""

_GONE: Final = ("unregistering", "unregistered")


async def infer(engine: Engine, model: Model, wire: WireFormat[T], io: IO, call: Call[T] | None = None) -> T:
    """Answer a request with its only response. What is short or quick is decoded before the request waits for
    its slot, the rest after that, in a worker thread.

    Models that only stream are refused. If `stream` finds that its model is a plain one, it gives its `call`,
    which has been let in.
    """
    if call is None:
        call = await let_in(engine, model, wire, io)
    turn = call.slot.turn
    try:
        if turn is not None and current_calls() and not call.model.has_batches:
            await wait_within_calls(call, turn, io)
        if call.cached is not None:  # it has not entered
            encode = partial(call.encode, call.cached)
            encoded = (
                encode()
                if may_encode_here(call, call.cached)
                else await io.run(encode, "conversion", deadline=call.deadline)
            )
        elif call.model.has_batches:
            encoded = await answer_in_batch(call, io)
        elif call.handler.kind == "thread":
            encoded = await _answer_in_thread(call, io)
        else:
            if call.body is None and turn is None:
                call.timings.started = call.timings.entered
            else:
                await wait_for_turn(call, io)
            if call.handler.kind == "async":
                response = await io.call(call.run_async, call.deadline)
            else:
                response = engine.call_here(call.run)
            answer = call.encode_here(response)
            if answer is None:
                encode = partial(call.encode_in_thread, response)
                answer = await io.run(encode, "conversion", deadline=call.deadline)
            encoded = answer
    except FAILURES as failure:
        raise fail_call(call, as_error(call, failure)) from failure.__cause__
    except BaseException as error:
        fail_call(call, error)
        raise
    end_call(call)
    return encoded


async def _answer_in_thread(call: Call[T], io: IO) -> T:
    """Make everything in one trip to a worker thread; in two, if the request that is decoded there asks for a
    shorter timeout than the first trip had."""
    answer: T | None = None
    while answer is None:
        late = None if call.deadline == math.inf else call.log_late
        answer = await io.run(call.answer_in_thread, "model", call.slot.turn, call.deadline, late)
    return answer


async def wait_for_turn(call: Call[Any], io: IO) -> None:
    """Wait for the turn of what runs on the event loop. A worker thread decodes what is long."""
    slot, timings = call.slot, call.timings
    if call.body is not None:
        await io.run(call.decode_in_thread, "conversion", slot.turn, call.deadline)
    elif slot.turn is not None:
        await io.wait(slot.turn, call.deadline)
    if slot.state != "running":
        raise Stopped
    timings.started = timings.started or call.engine.clock()


async def let_in(
    engine: Engine, model: Model, wire: WireFormat[T], io: IO, takes: Takes = "response"
) -> Call[T]:
    """Let a request in: its call has a slot then, or a place in the queue. Nearly all requests wait for
    nothing before that."""
    span = None if engine.tracer is None else engine.tracer.begin(model.name, model.version)
    body, call, timings = wire.body, None, None
    try:
        while True:
            if body is None or model.lifecycle.state != "ready" or model.cache is not None:
                serving = await _admit_request(engine, model, io)
                if serving is not model:
                    model = serving
                    continue
                if body is None:
                    body = await wire.read(io)
                    continue  # the model may be another one by now
            since, seconds, limiter = engine.clock(), model.timeout, model.limiter
            if wire.timeout < seconds:
                seconds = wire.timeout
            with limiter.lock:
                handler = model.lifecycle.handler
                if handler is None:
                    if model.lifecycle.is_idle:
                        continue  # it has just been unloaded: it is loaded again
                    raise model.lifecycle.make_refusal()
                timings = Timings(since)
                handler.uses.count += 1
                slot = limiter.slot_type(limiter, handler.uses)
                call = Call(engine, model, wire, span, seconds, since + seconds, timings, body, handler, slot)
                if model.cache is None:
                    _enter_slot(call)
            break
        if handler.streams and takes != "items":
            if handler.once is None and takes == "response":
                raise InvalidRequest(f"{model} {IS_A_STREAM} {_STREAMING}")
            call.handler = handler.once or handler
        size = wire.size  # from Python, this looks at all inputs
        is_short = (len(body) if size is None else size) <= handler.binding.most_on_loop
        if (is_short or may_decode_long(call, body)) and not (engine.regions.is_on and _REGION.search(body)):
            call.decode()
        if model.cache is not None:
            await _look_up_response(call, model.cache, io)
            if call.cached is not None:  # it needs no slot
                return call
            with limiter.lock:
                _enter_slot(call)
        timings.entered = engine.clock()
        return call
    except BaseException as error:
        if call is None:
            ended = engine.clock()
            end_request(model, wire, timings or Timings(ended), span, hear_refusal(model), ended, error)
        else:
            fail_call(call, error)
        raise


async def _look_up_response(call: Call[Any], cache: Cache, io: IO) -> None:
    """Take the response of a request from the cache, before it has a slot, if it is there. A long request is
    decoded for that.

    As many as may run and wait may be looked up at the same time.
    """
    limiter, clock = call.model.limiter, call.engine.clock
    if not cache.enter(limiter.max_concurrency + limiter.max_queue):
        raise make_busy_error(call.model)
    try:
        if call.body is not None:
            await io.run(call.decode, "conversion", deadline=call.deadline)
        decoded = call.expand()
        if decoded.columns is None:
            return
        since = clock()
        # columns that came are not those of rows that a class has made
        loaded = call.handler.uses, OBJECTS in decoded.tensors
        look_up = cache.look_up(
            io, decoded.columns, loaded, clock, call.deadline, may_wait=not find_callers()
        )
        call.cached, call.flight = await look_up
        call.timings.lookup, call.timings.is_hit = clock() - since, call.cached is not None
    except FAILURES as failure:
        raise as_error(call, failure) from failure.__cause__
    finally:
        cache.leave()


def _enter_slot(call: Call[Any]) -> None:
    """Let the slot of a call run, or wait in the queue. The caller holds the lock."""
    engine, model = call.engine, call.model
    within = find_callers() if current_calls() else ()
    if engine.stopping and not within:
        raise make_stopping_error(model)
    may_wait = model not in within
    may_run = not model.options.max_batch_delay or not may_wait
    if not model.limiter.enter(call.slot, may_run, may_wait):
        raise make_busy_error(model)


def end_call(call: Call[Any]) -> None:
    """End a call that was answered."""
    timings = call.timings
    if timings.returned - timings.called > HELD_SECONDS:
        note_long(
            call.model, call.handler, timings.returned - timings.called, is_on_loop=call.engine.is_on_loop
        )
    if call.slot.state != "over":
        call.slot.give_up()
    end_request(call.model, call.wire, timings, call.span, call.heard, timings.answered, None)


def fail_call(call: Call[Any], error: E) -> E:
    """End a call that failed, or whose stream broke off, and return the error."""
    if call.slot.state != "over":
        call.slot.give_up()
    if call.flight is not None:
        call.flight.end(error)
    heard = call.heard if call.body is None else hear_refusal(call.model)
    end_request(call.model, call.wire, call.timings, call.span, heard, call.engine.clock(), error)
    return error


async def _admit_request(engine: Engine, model: Model, io: IO) -> Model:
    """Let a request in before its body is read, as soon as the model is loaded, and return the model. Or
    return what has replaced it."""
    if engine.stopping and not find_callers():  # a call that runs may still call other models
        raise make_stopping_error(model)
    if model.lifecycle.obstacle:
        model.lifecycle.begin_to_load(io)
    await model.lifecycle.wait_until_loaded(io, wakes=True)
    if model.lifecycle.state in _GONE:
        with suppress(NotFound):
            successor = engine.models.find(model.name, model.version)
            if successor is not model:
                return successor
    if not model.lifecycle.is_ready:
        raise model.lifecycle.make_refusal()
    if model.limiter.is_full() and model.cache is None:  # the cache may have its response
        raise make_busy_error(model)
    return model
