"""Which results may be sent without a copy. A response leaves after its call's slot has gone to the next call, which may use memory again.

Sent as it is: memory of the request itself, `bytes`, and a new array that nobody else refers to. A model that gives back its input, or
64 MiB that it made, so pays no copy of them.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from ..datatypes import Array
from ..tensors import InferenceRequest

SMALL: Final = 4096
"""Bytes up to which an array is copied: numbers when they are encoded, BYTES before that."""


def is_new(result: Any) -> bool:
    """Whether a call's result is an array that owns its memory, and that only the caller's variable refers to."""
    return type(result) is np.ndarray and result.flags.owndata and sys.getrefcount(result) <= _NEW


def _references_of_new() -> int:
    result = np.empty(0)
    return _references(result)


def _references(result: Any) -> int:
    return sys.getrefcount(result)


_NEW: Final = _references_of_new()


def memory_of(array: Array) -> object:
    """What owns an array's memory: an array, or whatever lent it."""
    part: Any = array
    while isinstance(part, np.ndarray):
        if part.base is None:
            return part
        part = part.base
    return part.obj if isinstance(part, memoryview) else part


def lasting(array: Array, request: InferenceRequest) -> Array:
    """An array whose memory nobody changes any more: itself where that is certain, else a copy.

    Args:
        array: An output that is not new.
        request: The request that it answers.
    """
    if array.nbytes <= SMALL:  # a copy takes less time than to find whose it is among the columns of a frame
        return array.copy()
    memory = memory_of(array)
    if isinstance(memory, bytes):
        return array
    for tensor in request.inputs:
        if memory_of(tensor.array) is memory and not tensor.array.flags.writeable:
            return array
    return array.copy()
