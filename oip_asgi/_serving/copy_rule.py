"""Which outputs are sent without a copy: large ones whose memory nobody can change any more. Knows no transport and no model.

A response is still being encoded or sent after its slot went to the next call, which may write into the same memory again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._protocol.datatypes import Array
from .._protocol.tensor_bytes import SMALL
from .._protocol.tensors import InferenceRequest, Tensor


def copy_outputs(outputs: Iterable[Tensor], request: InferenceRequest) -> None:
    """Copy outputs, except large read-only ones whose memory is `bytes` or belongs to a read-only input of the request."""
    inputs: set[int] | None = None
    for tensor in outputs:
        array = tensor.array
        if array.nbytes > SMALL and not array.flags.writeable:
            if inputs is None:
                inputs = {id(_find_memory(each.array)) for each in request.inputs if not each.array.flags.writeable}
            memory = _find_memory(array)
            if isinstance(memory, bytes) or id(memory) in inputs:
                continue
        tensor.array = array.copy()


def _find_memory(array: Array) -> object:
    """Find the owner of an array's memory: an array, or the object behind a buffer."""
    part: Any = array
    while isinstance(part, np.ndarray):
        if part.base is None:
            return part
        part = part.base
    return part.obj if isinstance(part, memoryview) else part
