"""The content type `str`: BYTES tensors as lists of `str`, in UTF-8.

Specification: Content Types, UTF-8 String.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .._protocol.tensors import Tensor, known_tensor, object_array
from .base import InputCodec, SingleTensorCodec, are_all, decode_elements, encode_elements


class StringCodec(InputCodec[list[str]]):
    """Lists of strings. Writes `[N]`, reads `[N]` and `[N, 1]`."""

    content_type = "str"
    type_hint = list[str]
    datatype = "BYTES"

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return are_all(payload, str)

    @classmethod
    def encode_input(cls, name: str, payload: list[str], use_bytes: bool = True) -> Tensor:
        if type(payload) is list:
            with suppress(TypeError, ValueError):  # of an element, which is looked for below
                elements = list(map(str.encode, payload))  # no Python code runs for each
                return known_tensor(name, object_array(elements, (len(elements),)), {"content_type": cls.content_type})
        return encode_elements(name, payload, _to_utf8, cls.content_type)

    @classmethod
    def decode_input(cls, request_input: Tensor) -> list[str]:
        return decode_elements(request_input, bytes.decode, cls.content_type, "UTF-8")


def _to_utf8(element: str | bytes) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes):
        element.decode()
        return element
    raise TypeError("expected a string")


class StringRequestCodec(SingleTensorCodec[list[str]]):
    """One list of strings as a request or response, under MLServer's names `input-1` and `output-1`."""

    content_type = "str"
    type_hint = list[str]
    input_codec = StringCodec
