"""The content type `np`: tensors as numpy arrays.

Specification: Content Types, NumPy Array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._protocol.datatypes import Array
from .._protocol.tensors import Tensor
from .base import InputCodec, SingleTensorCodec


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
