"""What it costs to decode a REST body and to encode a response, as `limits.ON_LOOP` counts it. Knows no URLs, statuses or models."""

from __future__ import annotations

from typing import Final

import msgspec

from .. import schemas
from ..datatypes import Buffer
from ..errors import InvalidRequest
from ..json import documents
from ..limits import ON_LOOP
from ..tensors import ELEMENT, InferenceRequest, InferenceResponse, bytes_effort
from .body import binary_size

JSON_BYTE: Final = 4
"""How much a byte of JSON costs at most, of what `limits.ON_LOOP` counts, which is 75 nanoseconds. The dearest known are small inputs with
mistakes or literals, and integers written as 1e18, with 100 to 200 nanoseconds; nearly all take 2 to 20."""

_RAW_BYTES: Final = 2
"""How many bytes of BYTES in binary data cost one of it: the shortest elements have four, and take 135 nanoseconds."""

_COPIED: Final = 2**8
"""How many bytes are copied for one of it."""


def decoding_cost(body: Buffer, header_length: int | None) -> int:
    """What `decode_request` costs at most, as `limits.ON_LOOP` counts it.

    Args:
        body: The whole body.
        header_length: How many of its bytes are JSON; None where all of them are, and 0 for a raw binary request.

    Returns:
        What its JSON costs whatever it says, and what its binary data costs: that of numbers nothing. How much of it is BYTES is said by
        its JSON, which is decoded for that where it matters.
    """
    if header_length is None:
        return len(body) * JSON_BYTE
    if header_length == 0:
        return len(body) // _COPIED
    text, behind = header_length * JSON_BYTE, max(len(body) - header_length, 0) // _RAW_BYTES
    if text > ON_LOOP or text + behind <= ON_LOOP:
        return text + behind
    try:
        document = documents.plain_request(memoryview(body)[:header_length])
        sizes = [_bytes_size(item) for item in document.inputs]
    except (InvalidRequest, documents.NotPlain, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text + behind
    return text + min(sum(sizes) // _RAW_BYTES, behind)


def _bytes_size(item: schemas.RequestInput) -> int:
    parameters = item.parameters or {}
    return binary_size(parameters) if item.datatype == "BYTES" and "binary_data_size" in parameters else 0


def encoding_cost(request: InferenceRequest, response: InferenceResponse) -> int:
    """How many bytes of a response `encode_response` goes through one by one, where it is not asked for all of them as binary."""
    is_binary = request.parameters.get("binary_data_output", False)
    effort = 0
    for tensor in response.outputs:
        array = tensor.array
        if array.dtype.hasobject:
            effort += bytes_effort(array)
        elif not is_binary:
            effort += array.size * ELEMENT
    return effort
