"""System shared memory: segments, the regions of them that clients have registered, and tensors with data in
them. Knows no transport.

A segment is a file in one folder, as POSIX's `shm_open` makes it on Linux. It is read and written by system
calls, not mapped: a client may change or shorten it at any moment. A system call reports that, but an access
to mapped memory would end the process with SIGBUS. Nothing is read or written outside a region, and clients
can register only segments that the server's own code allows.

Specification: Triton's System Shared Memory Extension; CUDA Shared Memory Extension, of which only
unregistering is answered.
"""

from __future__ import annotations

import inspect
import os
import re
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, final

import msgspec

from .._io import IO
from .._protocol.datatypes import Buffer
from .._protocol.errors import Forbidden, InferenceError, InvalidRequest, NotFound, TooLarge, log_raised, show
from .._protocol.schemas import Parameters, RequestOutput
from .._protocol.tensor_bytes import view_bytes
from .._protocol.tensors import CLASSIFICATION, SHARED_MEMORY, InferenceResponse, ReadRegion, check_supported
from .common import ApplyOptions, GrpcMethod, GrpcMethods, Question, RestRoute, decode_question

_FOLDER: Final = Path("/dev/shm")
"""Where Linux has the segments, whatever the C library."""

_MOST_REGIONS: Final = 256
"""How many regions may be registered at once. Each keeps a file open."""

_MAX_NAME: Final = 255
"""The most bytes of a region's name, and of a key: a file's name may have so many."""

_KEY: Final = re.compile("[^/\0\ud800-\udfff]+")
_REGION, _SIZE, _OFFSET = SHARED_MEMORY


@final
class SharedMemory:
    """Lets clients on the same machine put tensors into system shared memory, for
    `InferenceServer(shared_memory=...)`.

    Every client that reaches the server can then read and overwrite all allowed segments, through any model.
    So allow only segments that your clients make, with names that nothing else on the machine uses. Regions
    belong to one process: with several workers, each has its own.

    Args:
        allow: Which segments clients may register: their keys, or a function that takes a key and returns
            True for those. A key has no slash at its beginning here.

    Raises:
        TypeError: `allow` is neither.

    Example:
        >>> server = InferenceServer(shared_memory=SharedMemory(allow=["images"]))

    Specification: Triton's System Shared Memory Extension.
    """

    def __init__(self, allow: Callable[[str], bool] | Collection[str]) -> None:
        are_keys = (
            isinstance(allow, Collection)
            and not isinstance(allow, str)
            and all(isinstance(key, str) for key in allow)
        )
        if not are_keys and (not callable(allow) or inspect.iscoroutinefunction(allow)):
            raise TypeError(
                f"allow={allow!r} must be a function of a key, or a list of keys, such as "
                'allow=["my_input", "my_output"]'
            )
        self._allow = allow

    def allows(self, key: str) -> bool:
        """Whether clients may use the segment with this key."""
        if not callable(self._allow):
            return key in {allowed.removeprefix("/") for allowed in self._allow}
        try:
            return self._allow(key) is True
        except Exception as error:
            log_raised(error, "allow= of SharedMemory raised, so the shared memory %s is refused", show(key))
            return False


class Segment:
    """The open segment of a key that is checked and allowed. It is closed when nothing refers to it any
    more."""

    def __init__(self, key: str) -> None:
        if sys.platform != "linux":
            raise InferenceError("system shared memory is supported on Linux only", status=501)
        self.key = key
        try:
            # links are not followed, and nothing waits for the other end of a pipe
            self._descriptor = os.open(
                _FOLDER / key, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            )
        except FileNotFoundError:
            raise InvalidRequest(f"there is no shared memory {show(key)}: create it first") from None
        except OSError as error:
            raise Forbidden(
                f"the shared memory {show(key)} cannot be opened for reading and writing: {error.strerror}"
            ) from None
        weakref.finalize(self, os.close, self._descriptor)
        about = os.fstat(self._descriptor)
        # a second name in the same folder would be a way around `allow`
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            raise Forbidden(f"{show(key)} is no shared memory of one name")

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int, where: str) -> Buffer:
        """A copy of so many bytes. `where` names the tensor in errors."""
        memory = memoryview(bytearray(size))
        done = 0
        while done < size:
            read = self._call(os.preadv, [memory[done:]], offset + done)
            if not read:
                raise _make_short_error(where)
            done += read
        return memory

    def write(self, offset: int, data: Buffer, where: str) -> None:
        rest = memoryview(data)
        if offset + len(rest) > self.size():  # writing would make it longer again
            raise _make_short_error(where)
        while rest:
            written = self._call(os.pwrite, rest, offset)
            rest, offset = rest[written:], offset + written

    def _call(self, call: Callable[[int, Any, int], int], data: Any, offset: int) -> int:
        try:
            return call(self._descriptor, data, offset)
        except OSError as error:  # such as no memory left for pages that nobody has written to yet
            raise InferenceError(f"the shared memory cannot be used: {error.strerror}", status=507) from None


def _make_short_error(where: str) -> InvalidRequest:
    return InvalidRequest(f"{where}, whose shared memory has become shorter since it was registered")


class RegisterRegion(msgspec.Struct):
    key: str
    byte_size: Annotated[int, msgspec.Meta(ge=0)]
    offset: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Region(msgspec.Struct, frozen=True):
    """A registered region: its name, its segment's key as the client sent it, and its place in the
    segment."""

    name: str
    key: str
    offset: int
    byte_size: int


class MemoryRange(NamedTuple):
    """Memory that one tensor may read or write: `size` bytes of a segment. `where` names the tensor in
    errors."""

    segment: Segment
    offset: int
    size: int
    where: str


class Regions:
    """The regions of one server, by name. May be called from any thread."""

    def __init__(self, segments: SharedMemory | None, max_body_bytes: int | None) -> None:
        self._segments = segments  # None if clients may not register regions
        self._max_body_bytes = max_body_bytes
        self._lock = threading.Lock()
        self._regions: dict[str, tuple[Region, Segment]] = {}
        self.is_on = segments is not None
        self.parameters = SHARED_MEMORY if self.is_on else ()
        """The parameters of tensors that this server supports."""

    def check_may_register(self) -> SharedMemory:
        """Return what allows segments. Raises Forbidden if clients may not register regions."""
        if self._segments is None:
            raise Forbidden(
                "this server does not use shared memory: "
                "InferenceServer(shared_memory=SharedMemory(allow=...)) does"
            )
        return self._segments

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register a region. It opens a file, so it may block."""
        segments = self.check_may_register()
        if not 0 < len(name.encode(errors="replace")) <= _MAX_NAME:
            raise InvalidRequest(f"the region's name is {show(name)}: expected 1 to {_MAX_NAME} bytes")
        plain = key.removeprefix("/")
        # a file in one folder
        if not _KEY.fullmatch(plain) or len(plain.encode()) > _MAX_NAME or plain in (".", ".."):
            raise InvalidRequest(
                f"the key is {show(key)}: expected the name of a shared memory, such as '/input', with no "
                "other slash"
            )
        if byte_size < 1:
            raise InvalidRequest(f"byte_size is {byte_size}: expected 1 or more")
        if not segments.allows(plain):
            raise Forbidden(
                f"this server does not let clients use the shared memory {show(key)}: the allow= of its "
                "SharedMemory decides"
            )
        segment = Segment(plain)
        size = segment.size()
        if offset + byte_size > size:
            raise InvalidRequest(
                f"offset {offset} and byte_size {byte_size} are beyond the {size} bytes of the shared "
                f"memory {show(key)}"
            )
        with self._lock:
            if name in self._regions:
                raise InvalidRequest(f"region {show(name)} is registered already: unregister it first")
            if len(self._regions) >= _MOST_REGIONS:
                raise InferenceError(
                    f"{_MOST_REGIONS} regions are registered, and no more are allowed: unregister one first",
                    status=429,
                )
            # requests read it meanwhile
            self._regions = {**self._regions, name: (Region(name, key, offset, byte_size), segment)}

    def unregister(self, name: str | None) -> None:
        """Forget a region, or all of them. Running requests keep theirs. An unknown region is no error."""
        with self._lock:
            self._regions = (
                {}
                if name is None
                else {kept: region for kept, region in self._regions.items() if kept != name}
            )

    def list_regions(self, name: str | None) -> list[Region]:
        regions = self._regions
        if name is not None and name not in regions:
            raise NotFound(f"unknown region {show(name)}: register it first")
        return [region for region, _ in regions.values() if name in (None, region.name)]

    # Tensors of requests

    def make_region_reader(self) -> ReadRegion:
        """Make the function that reads the inputs of one request from shared memory. Together they may be as
        long as a body."""
        read = 0

        def read_region(parameters: Parameters) -> Buffer:
            nonlocal read
            check_supported(parameters, "it", SHARED_MEMORY)
            location = _read_location(parameters, "it")
            assert location is not None  # the caller has found the parameter
            memory = self._locate(*location, "it")
            read += memory.size
            most = self._max_body_bytes
            if most is not None and read > most:
                raise TooLarge(
                    f"the inputs in shared memory have more than {most} bytes, the most that this server "
                    "takes (max_body_bytes)"
                )
            return memory.segment.read(memory.offset, memory.size, memory.where)

        return read_region

    def prepare_outputs(self, outputs: Iterable[RequestOutput], *, streams: bool) -> ApplyOptions | None:
        """Make what writes the outputs that a request wants in shared memory. None if there are none. The
        response stays as it is."""
        ranges: dict[str, MemoryRange] = {}
        for output in outputs:
            parameters, where = output.parameters or {}, f"requested output {show(output.name)}"
            location = _read_location(parameters, where)
            if location is None:
                continue
            for name, other in ((CLASSIFICATION, CLASSIFICATION), ("binary_data", "binary_data: true")):
                if parameters.get(name):
                    raise InvalidRequest(
                        f"{where} goes to shared memory and has the parameter {other}: expected one of them"
                    )
            if streams:
                raise InvalidRequest(
                    f"{where} goes to shared memory, but the model answers with a stream: leave the "
                    "parameter out"
                )
            ranges[output.name] = self._locate(*location, f"output {show(output.name)}")
        in_order = sorted(
            [memory for memory in ranges.values() if memory.size],
            key=lambda memory: (memory.segment.key, memory.offset),
        )
        for first, second in pairwise(in_order):
            if first.segment.key == second.segment.key and second.offset < first.offset + first.size:
                raise InvalidRequest(
                    f"{first.where}, and overlaps {second.where}: expected other offsets, or smaller sizes"
                )

        def apply_options(response: InferenceResponse) -> InferenceResponse:
            for tensor in response.outputs:
                if tensor.name in ranges:
                    memory, data = ranges[tensor.name], view_bytes(tensor.array)
                    if len(data) > memory.size:
                        raise InvalidRequest(
                            f"{memory.where}: {len(data)} bytes do not fit into its {_SIZE} of {memory.size}"
                        )
                    memory.segment.write(memory.offset, data, memory.where)
            return response

        return apply_options if ranges else None

    def _locate(self, name: str, offset: int, size: int, where: str) -> MemoryRange:
        """Find the memory range of a tensor. It stays valid if the region is unregistered meanwhile."""
        region_and_segment = self._regions.get(name)
        if region_and_segment is None:
            raise InvalidRequest(f"{where} is in the region {show(name)}, which is not registered")
        region, segment = region_and_segment
        if offset + size > region.byte_size:
            beyond = f"which is beyond the {region.byte_size} bytes of the region {show(name)}"
            raise InvalidRequest(f"{where} has {_OFFSET} {offset} and {_SIZE} {size}, {beyond}")
        return MemoryRange(segment, region.offset + offset, size, f"{where} is in the region {show(name)}")


def refuse_region_beside_data(parameters: Mapping[str, object], where: str) -> None:
    """Refuse a tensor that has data, and a parameter that says they are in shared memory."""
    if _read_location(parameters, where) is not None:
        raise InvalidRequest(f"{where} has data of its own and the parameter {_REGION}: expected one of them")


def _read_location(parameters: Mapping[str, object], where: str) -> tuple[str, int, int] | None:
    """Read the region, offset and size from a tensor's parameters. None if they name no region."""
    if _REGION not in parameters:
        for name in (_SIZE, _OFFSET):
            if name in parameters:
                raise InvalidRequest(f"{where} has the parameter {name}, but no {_REGION}")
        return None
    region = parameters[_REGION]
    if not isinstance(region, str) or not region:
        raise InvalidRequest(
            f"{where} has the parameter {_REGION} = {show(region)}: expected the name of a region"
        )
    if _SIZE not in parameters:
        raise InvalidRequest(f"{where} has the parameter {_REGION}, but no {_SIZE}")
    return (
        region,
        _check_count(parameters.get(_OFFSET, 0), _OFFSET, where),
        _check_count(parameters[_SIZE], _SIZE, where),
    )


def _check_count(value: object, name: str, where: str) -> int:
    if type(value) is not int or value < 0:
        raise InvalidRequest(
            f"{where} has the parameter {name} = {show(value)}: expected an integer, 0 or more"
        )
    return value


# Routes and methods


async def _rest_register(engine: Any, question: Question) -> None:
    engine.regions.check_may_register()
    request = await question.read(lambda body: decode_question(body, RegisterRegion))
    await question.io.run(
        lambda: engine.regions.register(question.region, request.key, request.offset or 0, request.byte_size),
        "hook",
    )


async def _grpc_register(engine: Any, request: Any, io: IO) -> None:
    await io.run(
        lambda: engine.regions.register(request.name, request.key, request.offset, request.byte_size), "hook"
    )


def _list_regions(engine: Any, question: Question) -> Any:
    return engine.regions.list_regions(question.region)


def _unregister(engine: Any, question: Question) -> None:
    engine.regions.unregister(question.region)


def _unregister_cuda(*_: Any) -> None:
    """Answer that it is done: clients of system shared memory ask for this too when they start."""


REST: Final = (
    RestRoute("GET", "/systemsharedmemory/status", _list_regions, "shared_memory"),
    RestRoute("GET", "/systemsharedmemory/region/{region}/status", _list_regions, "shared_memory"),
    RestRoute("POST", "/systemsharedmemory/region/{region}/register", _rest_register, "shared_memory"),
    RestRoute("POST", "/systemsharedmemory/unregister", _unregister, "shared_memory"),
    RestRoute("POST", "/systemsharedmemory/region/{region}/unregister", _unregister, "shared_memory"),
    RestRoute("POST", "/cudasharedmemory/unregister", _unregister_cuda, "shared_memory"),
    RestRoute("POST", "/cudasharedmemory/region/{region}/unregister", _unregister_cuda, "shared_memory"),
)
GRPC: Final[GrpcMethods] = {
    "SystemSharedMemoryStatus": GrpcMethod(
        lambda engine, request: {
            "regions": {region.name: region for region in engine.regions.list_regions(request.name or None)}
        },
        "shared_memory",
    ),
    "SystemSharedMemoryRegister": GrpcMethod(_grpc_register, "shared_memory"),
    "SystemSharedMemoryUnregister": GrpcMethod(
        lambda engine, request: engine.regions.unregister(request.name or None), "shared_memory"
    ),
    "CudaSharedMemoryUnregister": GrpcMethod(_unregister_cuda, "shared_memory"),
}
