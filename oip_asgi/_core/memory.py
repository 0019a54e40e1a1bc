"""Memory for long bodies: blocks that malloc keeps, and pages of the system for more.

A body of 602 KB costs no page faults with it, where it had 150 (counted with `perf stat`), or none where a model happened to have used
as large a block before.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from functools import cache
from typing import Final

import numpy as np

AT_HAND: Final = 2**22
"""Bytes up to which a body lies in what malloc has at hand. What malloc gives to a thread stays with it, so more is taken from the system
itself, at the price of a fault for each page."""

_ALIGNMENT: Final = 16


@cache  # once a process
def keep_at_hand() -> None:
    """Have malloc keep large blocks that are freed.

    glibc gives them back to the system, and each of their pages costs a page fault when it is needed again. Once a block of this size has
    been freed, it keeps them. Loading a model mostly has that effect already.
    """
    np.empty(AT_HAND, np.uint8)


def aligned(size: int, head: int) -> memoryview:
    """So many bytes of memory, of which those behind the head are aligned."""
    if size > AT_HAND:
        return _pages(size + _ALIGNMENT)[-head % _ALIGNMENT :][:size]
    keep_at_hand()
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    address: int = memory.__array_interface__["data"][0]
    start = -(address + head) % _ALIGNMENT
    return memory.data[start : start + size]


def _pages(size: int) -> memoryview:
    if sys.platform == "win32":
        return memoryview(mmap.mmap(-1, size))
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    if sys.platform == "linux":
        with suppress(OSError):  # where the kernel has none
            pages.madvise(mmap.MADV_HUGEPAGE)  # a page fault for each 2 MiB, not for each 4 KiB
    return memoryview(pages)
