"""A refused JSON body -> one whose texts have the shape of what is there, for models that were written for another server.

MLServer compares no `shape` with `data`, and its documentation sends a text with its length as the shape, or without a list around it.
"""

from __future__ import annotations

from math import prod
from typing import Final

import msgspec

from .._json.text import ERRORS
from .._protocol.datatypes import Buffer

_MAX_BYTES: Final = 2**20
"""A longer body is not read again. For this one it takes 20 milliseconds at most."""

_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_inputs: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_decode_shape: Final = msgspec.json.Decoder(list[int]).decode
_decode_texts: Final = msgspec.json.Decoder(str | list[str]).decode
_encode: Final = msgspec.json.Encoder().encode


def fit_texts(body: Buffer) -> bytes | None:
    """Write BYTES whose shape does not fit as flat data with the shape `[N]`. None if the body has something else that is wrong."""
    if len(body) > _MAX_BYTES:
        return None
    try:
        document = _decode_members(body)
        inputs = _decode_inputs(document["inputs"])
        for each in inputs:
            if bytes(each["datatype"]) == b'"BYTES"':
                found = _decode_texts(each["data"])
                texts = [found] if isinstance(found, str) else found
                each["data"] = msgspec.Raw(_encode(texts))
                if prod(_decode_shape(each["shape"])) != len(texts):
                    each["shape"] = msgspec.Raw(b"[%d]" % len(texts))
    except (KeyError, *ERRORS):
        return None
    return _encode({**document, "inputs": inputs})
