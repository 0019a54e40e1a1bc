"""What is done with a request of a model with a cache, before it has a slot. Knows no transport."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Any

from .._models.cache import Cache, Found, Key, renewed
from .._protocol.effects import Run, Steps, Wait
from .._protocol.limits import LOOP_BYTES
from .._protocol.tensor_bytes import view_raw
from .._protocol.tensors import size_of
from .call import Call
from .nesting import holders
from .reserved import OF_TREATMENT


def look_up(call: Call[Any], cache: Cache) -> Steps[None]:
    """Decode a request, however long it is, and take its response from the cache, if it is there."""
    if not call.is_decoded:
        yield Run(call.decode, "conversion", deadline=call.deadline, for_client=True)
    key: Key
    if size_of(call.request.inputs) <= LOOP_BYTES:  # hashing takes about as long
        key = _key(call)
    else:
        key = yield Run(partial(_key, call), "conversion", deadline=call.deadline, for_client=True)
    since = call.engine.clock()
    found = yield from _found(call, cache, key)
    call.lookup = call.engine.clock() - since
    call.flight = found.flight
    if found.response is not None:
        call.found = renewed(found.response, call.request.id, call.model.name, call.model.version)


def _found(call: Call[Any], cache: Cache, key: Key) -> Steps[Found]:
    """The response; or the flight that the call leads; or neither, where it runs beside an equal one."""
    clock = call.engine.clock
    while True:
        found = cache.look(key, clock())
        flight = found.flight
        if flight is None or found.leads:
            return found
        if holders():  # an equal request may wait for the call that this one is made within
            return Found(None, None, leads=False)
        yield Wait(flight.ended, call.deadline, for_client=True)
        if flight.response is not None or flight.has_failed:  # after a failure each runs by itself, not one behind the other
            return Found(flight.response, None, leads=False)


def _key(call: Call[Any]) -> Key:
    """The key of a request: two that differ in anything that could change the response have different ones."""
    request = call.request
    inputs = [(tensor.name, tensor.datatype, tensor.shape, sorted(tensor.parameters.items())) for tensor in request.inputs]
    parameters = sorted((name, value) for name, value in request.parameters.items() if name not in OF_TREATMENT)
    outputs = [(output.name, (output.parameters or {}).get("content_type")) for output in request.outputs]
    # the text says how long what follows is, so no two requests have the same bytes
    digest = sha256(repr((inputs, parameters, outputs)).encode())
    for tensor in request.inputs:
        digest.update(view_raw(tensor.array))
    return call.handler.uses, digest.digest()
