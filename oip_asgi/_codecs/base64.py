"""The content type `base64`: bytes as the text of BYTES tensors, so that any bytes can be JSON.

Specification: Content Types, Base64.
"""

from __future__ import annotations

import binascii
from functools import partial
from typing import Any

from .._protocol.tensors import Tensor
from .base import InputCodec, are_all, decode_elements, encode_elements


class Base64Codec(InputCodec[list[bytes]]):
    """Lists of `bytes`. Writes `[N]`, reads `[N]` and `[N, 1]`, and refuses text that is not base64."""

    content_type = "base64"
    type_hint = list[bytes]
    datatype = "BYTES"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return are_all(payload, bytes)

    @classmethod
    def encode_input(cls, name: str, payload: list[bytes] | bytes, use_bytes: bool = True) -> Tensor:
        single = [payload] if isinstance(payload, bytes) else payload
        return encode_elements(name, single, partial(binascii.b2a_base64, newline=False), cls.content_type)

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[bytes]:
        return decode_elements(request_input, partial(binascii.a2b_base64, strict_mode=True), cls.content_type, "base64")
