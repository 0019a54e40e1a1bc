"""Arrays as `torch.Tensor`, for models that take and return them. torch is imported only to make a tensor,
never to find out whether something is one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .._protocol.datatypes import Array, dtype_of
from .._protocol.errors import InvalidRequest, show
from .._protocol.tensors import Tensor
from .base import find_class

if TYPE_CHECKING:
    import torch


def read_torch(tensor: Tensor) -> torch.Tensor:
    """A tensor of torch on the CPU, which is the model's own and may be changed."""
    import torch

    array = tensor.array
    if array.dtype.hasobject:
        raise InvalidRequest(
            f"tensor {show(tensor.name)} has datatype BYTES: expected numbers for torch.Tensor"
        )
    own = array if array.flags.writeable else array.copy()  # torch has no tensors that are read-only
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(own)


def is_torch(value: object) -> bool:
    return isinstance(value, find_class("torch", "Tensor"))


def to_array(tensor: torch.Tensor) -> Array:
    """A tensor's values as an array, which shares its memory if that is possible."""
    import torch

    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if plain.is_sparse:
        plain = plain.to_dense()
    if plain.dtype != torch.bfloat16:
        array: Array = plain.numpy()
        return array
    try:
        dtype = dtype_of("BF16")
    except InvalidRequest:
        raise TypeError(
            "a tensor of torch.bfloat16 needs ml_dtypes: pip install ml_dtypes, or use tensor.float()"
        ) from None
    bits: Array = plain.contiguous().view(torch.int16).numpy()
    return bits.view(dtype)


def replace_torch(value: Any) -> Any:
    """Replace torch's tensors in a result by arrays, also in a list or tuple. Other results do not change."""
    if "torch" not in sys.modules:
        return value
    if is_torch(value):
        return to_array(value)
    if isinstance(value, (list, tuple)) and any(map(is_torch, value)):
        return [to_array(each) if is_torch(each) else each for each in value]
    return value
