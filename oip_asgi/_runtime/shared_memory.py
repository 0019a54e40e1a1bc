"""System shared memory, as POSIX's `shm_open` makes it on Linux: files in one folder. Decides nothing about the protocol.

Segments are read and written by system calls, not mapped. A client may shorten a segment at any moment: then a call tells so, where a
touch of mapped memory would end the process with SIGBUS.
"""

from __future__ import annotations

import inspect
import os
import stat
import sys
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, final

from .._protocol.body import allocate_aligned
from .._protocol.datatypes import Buffer
from .._protocol.errors import Forbidden, InferenceError, InvalidRequest, show

_FOLDER: Final = Path("/dev/shm")
"""Where Linux has the segments, whatever the C library."""


@final
class SharedMemory:
    """Lets clients on the same machine put tensors into system shared memory, for `InferenceServer(shared_memory=...)`.

    Every client that reaches the server can then read and overwrite all allowed segments, through any model. So allow only segments that
    your clients make, with names that nothing else on the machine uses. Regions belong to one process: with several workers, each has its
    own.

    Args:
        allow: Which segments clients may register: their keys, or a function that takes a key and returns True for those. A key has no
            slash at its beginning here.

    Raises:
        TypeError: `allow` is neither.

    Specification: Triton's System Shared Memory Extension.
    """

    def __init__(self, allow: Callable[[str], bool] | Collection[str]) -> None:
        are_keys = isinstance(allow, Collection) and not isinstance(allow, str) and all(isinstance(key, str) for key in allow)
        if not are_keys and (not callable(allow) or inspect.iscoroutinefunction(allow)):
            raise TypeError(f'allow={allow!r} must be a function of a key, or a list of keys, such as allow=["my_input", "my_output"]')
        self._allow = allow

    def allows(self, key: str) -> bool:
        """Whether clients may use the segment with this key."""
        if callable(self._allow):
            return self._allow(key) is True
        return key in {allowed.removeprefix("/") for allowed in self._allow}

    def open(self, key: str) -> Segment:
        """Open a segment.

        Args:
            key: The name of its file, which the caller has checked.

        Raises:
            InferenceError: There is none, it may not be opened, it is no segment, or this system has no such files.
        """
        if sys.platform != "linux":
            raise InferenceError("system shared memory is supported on Linux only", status=501)
        try:
            # links are not followed, and nothing waits for the other end of a pipe
            descriptor = os.open(_FOLDER / key, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise InvalidRequest(f"there is no shared memory {show(key)}: create it first") from None
        except OSError as error:
            raise Forbidden(f"the shared memory {show(key)} cannot be opened for reading and writing: {error.strerror}") from None
        segment = Segment(descriptor)
        about = os.fstat(descriptor)
        # a second name in the same folder would be a way around `allow`
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            raise Forbidden(f"{show(key)} is no shared memory of one name")
        return segment


@final
class Segment:
    """An open segment. It is closed when nobody refers to it any more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    def size(self) -> int:
        """How many bytes it has now."""
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> Buffer:
        """A copy of so many bytes, in aligned memory; fewer where the segment ends before."""
        memory = allocate_aligned(size, 0)
        done = 0
        while done < size:
            read = self._called(os.preadv, [memory[done:]], offset + done)
            if not read:
                return memory[:done]
            done += read
        return memory

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes into it."""
        rest = memoryview(data)
        while rest:
            written = self._called(os.pwrite, rest, offset)
            rest, offset = rest[written:], offset + written

    def _called(self, call: Callable[[int, Any, int], int], data: Any, offset: int) -> int:
        try:
            return call(self._descriptor, data, offset)
        except OSError as error:  # such as no memory left for pages that nobody has written to yet
            raise InferenceError(f"the shared memory cannot be used: {error.strerror}", status=507) from None
