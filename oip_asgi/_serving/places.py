"""Where the work on one request runs: on the event loop, or in a worker thread. Knows no IO.

The loop does what takes 15 milliseconds at most, whatever was sent: all that is short, and what is long if it is plain numbers, which are
read by one decoder or are bytes already. A worker thread does the rest. A function that runs in one takes its long request there, so that
it is one trip.
"""

from __future__ import annotations

import re
from typing import Any, Final

from .._protocol.datatypes import Buffer
from .._protocol.limits import LOOP_BINARY, LOOP_TEXT
from .._protocol.tensors import REGION, InferenceResponse, are_short
from .call import Call

_REGION: Final = re.compile(rb"\\u|" + REGION.encode())
"""A body with this text, which may also be escaped, may name large inputs in shared memory: a worker thread reads those."""

_FEW: Final = 64
"""Outputs of a long response that the loop encodes: each takes 20 microseconds, however small it is."""

_CLASSIFIED: Final = 2**12
"""Bytes of outputs with output options that the loop encodes: as texts, the largest numbers of FP64 take 20 microseconds each."""


def may_decode_here(call: Call[Any], body: Buffer) -> bool:
    handler, model, has_regions = call.handler, call.model, call.engine.regions.is_on
    is_plain = handler.kind != "thread" and handler.binding.is_plain and not model.has_batches and not has_regions
    return call.wire.is_quick(body, is_plain=is_plain) and not (has_regions and _REGION.search(body))


def may_encode_here(call: Call[Any], response: InferenceResponse) -> bool:
    outputs, decoded = response.outputs, call.decoded
    is_short, size = are_short(outputs), sum(each.array.nbytes for each in outputs)
    if decoded.apply_options is not None:
        return is_short and size <= _CLASSIFIED
    if is_short or len(outputs) > _FEW or any(each.array.dtype.hasobject for each in outputs):
        return is_short
    return size <= (LOOP_BINARY if call.wire.sends_bytes(decoded.request) else LOOP_TEXT)
