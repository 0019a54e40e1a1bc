"""Memory for long bodies, so that the tensors in them need no copy. Knows no bodies and no tensors."""

from __future__ import annotations

from typing import Final

import numpy as np

_ALIGNMENT: Final = 16


def aligned(size: int, head: int) -> memoryview:
    """So many bytes of memory, of which those after the head are aligned."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    address: int = memory.__array_interface__["data"][0]
    start = -(address + head) % _ALIGNMENT
    return memory.data[start : start + size]
