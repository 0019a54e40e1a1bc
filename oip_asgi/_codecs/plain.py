"""The content types `np`, `str` and `base64`. Arrays are written as `[N, 1]`, lists of `str` or `bytes` as `[N]`.

Specification: Content Types, NumPy Array, UTF-8 String, Base64.
"""

from __future__ import annotations

import binascii
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from .._protocol.datatypes import Array
from .._protocol.tensors import Tensor, make_tensor, object_array
from .base import InputCodec, SingleTensorCodec, are_all, decode_elements, encode_elements


class NumpyCodec(InputCodec[Array]):
    """numpy arrays. An array of shape `[N]` is written as `[N, 1]`, as the specification asks; other shapes do not change. BYTES are
    object arrays of `bytes`."""

    content_type = "np"
    type_hint = np.ndarray

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, np.ndarray)

    @classmethod
    def encode_input(cls, name: str, payload: Array, use_bytes: bool = True) -> Tensor:
        tensor = Tensor(name, payload, {"content_type": cls.content_type})
        if tensor.array.ndim == 1:
            tensor.array = tensor.array.reshape(-1, 1)
        return tensor

    @classmethod
    def decode_input(cls, request_input: Tensor) -> Array:
        return request_input.array


class NumpyRequestCodec(SingleTensorCodec[Array]):
    """One numpy array as a whole request or response, under MLServer's names `input-1` and `output-1`."""

    content_type = "np"
    type_hint = np.ndarray
    input_codec = NumpyCodec


class StringCodec(InputCodec[list[str]]):
    """Lists of strings, in UTF-8. Writes `[N]`, reads `[N]` and `[N, 1]`."""

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
                return make_tensor(name, object_array(elements, (len(elements),)), {"content_type": cls.content_type})
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


class Base64Codec(InputCodec[list[bytes]]):
    """Lists of `bytes`, as text, so that any bytes can be JSON. Writes `[N]`, reads `[N]` and `[N, 1]`, and refuses text that is not
    base64."""

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
